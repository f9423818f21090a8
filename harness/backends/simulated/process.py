"""The process of a simulated test: one world, and what the code of this process sees of clocks and random numbers.

Owns: `SimulatedProcess`, and the one that is current (`current`). A simulated test has a process of its own, which the
plugin forks for each seed (`harness/plugin/simulation_server.py`): everything in it runs on the virtual time of the
world from the first fixture on, and nothing of it is used again. The test is a program too, on a machine of its own.

What may fail: HarrowError for a test that does not end within `TEST_MS` of virtual time, with where it waits.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
from collections.abc import Coroutine, Generator
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError, HarrowError
from harrow.cluster.host.programs import ProgramLoop
from harrow.cluster.host.programs.fence import FENCE
from harrow.cluster.host.programs.process_view import ProcessView
from harrow.cluster.host.seam import Peer
from harrow.cluster.host.simulated import Machine, World

if TYPE_CHECKING:
    from .cluster import SimulatedRunningCluster

TEST = "test"
TEST_MS = 1_800_000
"""How much virtual time a test may take."""


class SimulatedProcess:
    """What one seed of a simulated test runs on."""

    def __init__(self, seed: int | str) -> None:
        self.world = World(seed)
        self.view = ProcessView(self.world)
        self.cluster: SimulatedRunningCluster | None = None
        self.windows_ms: list[int] = []
        """How long the traffic of each chaos block of this test lasted without faults; empty where it is not known."""
        self.blocks_ms: list[int] = []
        """How long the traffic of each chaos block of this run lasted, so far."""
        self.idle = False
        """Whether the verdict of this run is unknown only because faults met no operation."""

    @contextlib.contextmanager
    def running(self) -> Generator[None]:
        """Show virtual time to the code of this process, and fence the programs, until the end of the block."""
        global _current
        assert _current is None, "a process has one world"
        _current = self
        FENCE.raise_fence()
        try:
            with self.view.installed():
                yield
        finally:
            _current = None

    def run_test(self, coroutine: Coroutine[Any, Any, object]) -> None:
        """Run the coroutine of a test on a machine of its own, to its end; raise what it raises."""
        loop = ProgramLoop(Machine(self.world, f"client-{TEST}", Peer("client", TEST)).boot(), enter=self.view.enter)
        with loop.running():
            task = loop.create_task(coroutine, name=TEST)
        if not self.world.loop.run_until(task.done, TEST_MS):
            raise HarrowError(f"the test did not end within {TEST_MS // 1000} s of virtual time:\n{_stack(task)}")
        task.result()


_current: SimulatedProcess | None = None


def current() -> SimulatedProcess:
    """Return what this process runs on; ConfigError where nothing is simulated."""
    if _current is None:
        raise ConfigError(
            "the backend simulated needs a process of its own for each seed, which pytest's plugin makes: mark the "
            'test with @pytest.mark.harrow(backend="simulated", seeds=100)'
        )
    return _current


def is_simulated() -> bool:
    """Whether the test of this process is simulated."""
    return _current is not None


def _stack(task: asyncio.Task[Any]) -> str:
    text = io.StringIO()
    task.print_stack(file=text)
    return text.getvalue().rstrip()
