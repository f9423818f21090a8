"""The simulated backend: a `SimulatedCluster` on a virtual clock, as faults see it.

A simulated process has no pid: its incarnation is the number of its machine's boots. Link rules and a slow disk end
with the incarnation in which they were set, as they do in a real process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from harrow.cluster.broker_folder import DATA
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ClusterError, WireError
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.view import ClusterView, parse
from harrow.faults.errors import CapabilityError
from harrow.faults.system import DEAD, RUNNING, HasTraffic, ProcessStatus, RuleStatus

from ..backends.disk_damage import PendingDamage
from ..backends.knobs import HostKnobs, HostRule
from ..requests.operator import TIMEOUT_MS, UNCLEAN, Moves, OperatorRequest, election, is_final, reassignment

if TYPE_CHECKING:
    from harrow.cluster.host.simulated import Machine
    from harrow.cluster.simulation import SimulatedCluster, SimulatedProcess
    from harrow.faults.nemesis import Nemesis
    from harrow.faults.system import ArmedRule, LinkControl, ProgramControl

    from .wire import WireClient

CAPABILITIES = frozenset(
    {
        "process",
        "pause",
        "links",
        "registry-links",
        "client-links",
        "half-open",
        "responses",
        "failpoints",
        "disk-errors",
        "clocks",
        "slow-disk",
        "disk-damage",
        "reassignments",
        "registry-operations",
        "power-loss",
        "wipe",
        "registry",
    }
)
OPERATOR = "operator-of-faults"
NO_CLIENTS = "simulated brokers have no real connections; use real processes"
SLOW_DISK_SPREAD = (0.5, 1.5)
"""A call of a slow disk takes between these parts of its delay."""


class SimulatedControl:
    """One simulated process; `ProcessControl` of the fault layer."""

    def __init__(self, process: SimulatedProcess) -> None:
        self._process = process

    def status(self) -> ProcessStatus:
        """Return its state; its incarnation is the machine's number of boots."""
        return ProcessStatus(state=self._process.state, incarnation=self._process.machine.network_node.incarnations)

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()

    def terminate(self) -> None:
        """Begin a controlled shutdown."""
        self._process.terminate()

    def pause(self) -> None:
        """Stop it."""
        self._process.pause()

    def resume(self) -> None:
        """Let it continue."""
        self._process.resume()

    def start(self) -> None:
        """Boot it; nothing happens while it is alive."""
        self._process.begin()


class SlowDiskRule:
    """A slow disk of one machine, until it is disarmed or its incarnation ends."""

    def __init__(self, machine: Machine, delay_ms: int) -> None:
        self._machine = machine
        self._calls = machine.blocking_calls
        low, high = SLOW_DISK_SPREAD
        self._spread = (delay_ms * low, delay_ms * high)
        self._armed = True
        machine.slow_disk(self._spread)
        machine.on_death.append(self.disarm)

    def status(self) -> RuleStatus:
        """Count the calls that began since it was armed."""
        fired = self._machine.blocking_calls - self._calls
        return RuleStatus(armed=self._armed, fired=max(0, fired) if self._armed else 0, facts={"calls": fired})

    def disarm(self) -> None:
        """Make the disk as fast as it is without this rule."""
        if self._armed:
            self._armed = False
            self._machine.end_slow_disk(self._spread)


class SimulatedBroker(SimulatedControl, HostKnobs):
    """One broker's machine, and its host's control operations."""

    def __init__(self, process: SimulatedProcess) -> None:
        SimulatedControl.__init__(self, process)
        HostKnobs.__init__(self, self._operation)
        self._power_lost = False
        self._removed_files: int | None = None
        self._damage = PendingDamage()

    def _operation(self, op: str, **fields: object) -> dict[str, Any]:
        host = self._process.machine.host
        if self._process.state != RUNNING or host is None:
            raise ClusterError(f"{self._process.name} is {self._process.state}: it cannot serve {op!r}")
        return host.control.call(op, **fields)

    def start(self) -> None:
        """Boot it, with nothing of what was set in an earlier incarnation."""
        self._begin()

    def start_armed(self, *, name: str, action: str, nth: int, delay_ms: int) -> HostRule:
        """Boot it with an armed failpoint."""
        self._begin({"name": name, "action": action, "nth": nth, "delay_ms": delay_ms})
        return self.failpoint_rule(name)

    def _begin(self, *failpoints: Mapping[str, object]) -> None:
        if self._process.state == DEAD:
            self._process.forget_link_rules()
            self.disk_damaged()
            self._process.begin(failpoints)

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """Lose the power of the machine; `seed` draws which unsynced writes are lost."""
        assert kept_fraction is None, "the capability power-loss-kept-fraction is not declared"
        self._power_lost = True
        self._process.machine.lose_power(random.Random(seed))  # noqa: S311 - repeatable, not secret

    def power_lost(self) -> Mapping[str, int] | None:
        """Nothing is counted here; None before a power loss."""
        return {} if self._power_lost else None

    def wipe(self) -> None:
        """Kill it, and empty its data folders."""
        self._process.kill()
        self._removed_files = self._process.wipe()

    def wiped(self) -> int | None:
        """How many files the last wipe removed."""
        return self._removed_files

    def damage_disk(self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool) -> None:
        """End it; its disk is damaged when it is dead, and before it boots again."""
        self._damage.plan(damages, partitions, seed)
        end = self.terminate if clean else self.kill
        end()

    def disk_damaged(self) -> Mapping[str, Any] | None:
        """Damage the disk if that is due; return what was damaged."""
        machine = self._process.machine
        return self._damage.look(self._process.state == DEAD, lambda: machine.disk, lambda: [f"/{machine.name}/{DATA}"])

    def limit_descriptors(self) -> SlowDiskRule:
        """Not possible here."""
        raise CapabilityError("the limit of open files of this broker's process is not Harrow's")

    def fill_connections(self, most: int) -> SlowDiskRule:
        """Not possible here."""
        raise CapabilityError(f"no {most} connections: simulated machines have no backlog to fill")

    def limit_memory(self, spare_bytes: int) -> SlowDiskRule:
        """Not possible here."""
        raise CapabilityError(f"no limit of {spare_bytes} bytes: a simulated process has no memory")

    def slow_disk(self, delay_ms: int) -> SlowDiskRule:
        """Make every BLOCKS call of the disk take about `delay_ms`."""
        return SlowDiskRule(self._process.machine, delay_ms)


class SimulatedSystem:
    """A `SimulatedCluster` as the fault layer's `System`."""

    backend = "simulated"
    capabilities = CAPABILITIES

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        config = BrokerConfig.parse(cluster.config)
        self.session_timeout_ms = config.number("zookeeper.session.timeout.ms")
        self.offsets_partitions = config.number("offsets.topic.num.partitions")
        self._brokers = {node: SimulatedBroker(own) for node, own in cluster.brokers.items()}
        self.registry = SimulatedControl(cluster.registry)
        self.programs: Mapping[str, ProgramControl] = {}
        self.dependencies: Mapping[str, LinkControl] = {}
        self._operator: WireClient | None = None

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> SimulatedBroker:
        """Return one broker."""
        return self._brokers[node]

    def describe(self) -> ClusterView:
        """Read the registry's tree; ClusterError while it does not run, as a real registry does not respond then."""
        return parse(self._registry_call("tree")["tree"])

    def _registry_call(self, op: str, **fields: object) -> dict[str, Any]:
        process = self._cluster.registry
        host = process.machine.host
        if process.state != RUNNING or host is None:
            raise ClusterError(f"the registry is {process.state} and does not respond")
        return host.control.call(op, **fields)

    def expire_session(self, node: int) -> int:
        """By a control operation of the registry."""
        return len(self._registry_call("session.expire", name=f"broker {node}")["sessions"])

    def depose_controller(self) -> None:
        """By a control operation of the registry."""
        self._registry_call("controller.depose")

    def reassign(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to reassign a partition."""
        self.reassign_all([(topic, partition, replicas)])

    def reassign_all(self, moves: Moves) -> None:
        """Begin to reassign several partitions."""
        self._operate(reassignment(moves))

    def add_broker(self) -> int:
        """Not possible here."""
        raise CapabilityError("no more brokers: a simulated cluster has the machines of its plan")

    def remove_added_broker(self, node: int) -> None:
        """Nothing was added."""
        raise CapabilityError(f"broker {node} was not added")

    def elect_preferred_leader(self, topic: str, partition: int) -> None:
        """Begin a preferred election."""
        self._operate(election(topic, partition))

    def elect_unclean_leader(self, topic: str, partition: int) -> None:
        """Begin an unclean election."""
        self._operate(election(topic, partition, UNCLEAN))

    def _operate(self, request: OperatorRequest) -> None:
        """Send it to the brokers in turn, from a machine of the operator's, until the controller responds."""
        from .wire import WireClient

        if self._operator is None:  # only where a schedule needs it: its machine draws random numbers
            host = self._cluster.client(OPERATOR)
            self._operator = WireClient(host, OPERATOR, self._cluster.bootstrap)
        client = self._operator

        async def send() -> None:
            for address in client.bootstrap:
                with contextlib.suppress(OSError, TimeoutError, WireError):
                    if is_final(await client.ask(address, *request, timeout_ms=TIMEOUT_MS)):
                        return

        client.host.tasks.spawn(send(), name="operator-of-faults")

    def hijack_transactional_id(self, transactional_id: str) -> ArmedRule:
        """Not possible here: clients of faults use real connections."""
        raise CapabilityError(f"no client of a fault for {transactional_id!r}: {NO_CLIENTS}")

    def rebalance_group(self, group: str, *, every_ms: tuple[int, int], seed: int) -> ArmedRule:
        """Not possible here."""
        raise CapabilityError(f"no member of {group!r} ({every_ms}, {seed}): {NO_CLIENTS}")

    def join_group(self, group: str) -> ArmedRule:
        """Not possible here."""
        raise CapabilityError(f"no member of {group!r}: {NO_CLIENTS}")

    def created(self, kind: str) -> None:
        """Simulated coordinators write no rows: it is not known."""
        del kind

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the high watermarks of topics that are not internal."""
        start = self._high_watermarks()
        return lambda: self._high_watermarks() > start

    def _high_watermarks(self) -> int:
        return sum(
            row["hw"] for rows in self._cluster.states().values() for row in rows if not row["topic"].startswith("__")
        )


def drive(cluster: SimulatedCluster, nemesis: Nemesis) -> None:
    """Let the virtual loop call `nemesis.turn` at the times that it returns."""
    loop = cluster.world.loop

    def turn() -> None:
        next_ms = nemesis.turn(loop.now_ms)
        if next_ms is not None:
            loop.call_after(None, next_ms * NS_PER_MS - loop.now_ns, turn)

    loop.call_after(None, 0, turn)
