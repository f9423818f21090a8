"""Asyncio programs on simulated machines, without a test of pytest around them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Generator
from contextlib import contextmanager
from typing import Any

from harrow.cluster.host.programs import ProgramLoop
from harrow.cluster.host.programs.process_view import ProcessView
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.simulated import Machine, World
from harrow.cluster.simulation import SimulatedCluster

LIMIT_MS = 7_200_000


class Programs:
    """The programs of one world; each on a machine of its own."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.view = ProcessView(world)
        self.machines: dict[str, Machine] = {}

    def start(self, name: str, main: Callable[[], Coroutine[Any, Any, object]]) -> asyncio.Task[Any]:
        """Start a program, again where it has ended."""
        machine = self.machines.get(name)
        if machine is None:
            machine = self.machines[name] = Machine(self.world, f"client-{name}", Peer("client", name))
        loop = ProgramLoop(machine.boot(), enter=self.view.enter)
        with loop.running():
            return loop.create_task(main(), name=name)

    def kill(self) -> None:
        """Kill every program."""
        for machine in self.machines.values():
            machine.kill()

    def run(self, *mains: Callable[[], Coroutine[Any, Any, object]]) -> list[Any]:
        """Run programs until all of them have ended; return what they returned."""
        tasks = [self.start(f"program-{number}", main) for number, main in enumerate(mains, len(self.machines))]
        assert self.world.loop.run_until(lambda: all(task.done() for task in tasks), LIMIT_MS), tasks
        return [task.result() for task in tasks]


@contextmanager
def programs(seed: int = 1) -> Generator[Programs]:
    """Programs without brokers; clocks and random numbers of this process are the world's in the block."""
    found = Programs(World(seed))
    with found.view.installed():
        yield found
        found.kill()


@contextmanager
def programs_and_brokers(seed: int = 1, *, brokers: int = 3) -> Generator[tuple[Programs, SimulatedCluster]]:
    """Programs beside a cluster that runs."""
    config = {
        "group.initial.rebalance.delay.ms": 0,
        "offsets.topic.num.partitions": 2,
        "log.index.size.max.bytes": 4_096,
        "default.replication.factor": brokers,
        "offsets.topic.replication.factor": brokers,
    }
    with SimulatedCluster(brokers=brokers, seed=seed, config=config) as cluster:
        found = Programs(cluster.world)
        with found.view.installed():
            cluster.start()
            yield found, cluster
            found.kill()
