"""The simulated backend: a `SimulatedCluster` on a virtual clock, as faults see it.

A simulated process has no pid: its incarnation is the number of its machine's boots. Link rules and a slow disk end
with the incarnation in which they were set, as they do in a real process.
"""

from __future__ import annotations

import contextlib
import random
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from harrow.cluster.broker_folder import DATA
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ClusterError, WireError
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.view import ClusterView, parse
from harrow.faults.controls import (
    DEAD,
    RUNNING,
    DiskChange,
    DiskPowerLoss,
    EmptyFolders,
    FileDamage,
    PeerKind,
    ProcessStatus,
)
from harrow.faults.rule_kinds import LateDiskRule, RuleStatus, SlowDiskRule, StartFailpointRule
from harrow.faults.system import CAPABILITIES as ALL_CAPABILITIES
from harrow.faults.system import Broker, HasTraffic, System

from ...requests.operator import PREFERRED, TIMEOUT_MS, UNCLEAN, Moves, election, is_final, reassignment
from ..disk_changes import DiskChanges, Make
from ..disk_damage import damaged
from ..knobs import HostLinks, HostRule, HostShares, RuleTable, failpoint_handle, host_arms

if TYPE_CHECKING:
    from harrow.cluster.host.simulated import Machine
    from harrow.cluster.host.simulated.fabric import LinkDirection
    from harrow.cluster.simulation import SimulatedCluster, SimulatedProcess
    from harrow.cluster.wire.client_requests import ClientRequest
    from harrow.faults.nemesis import Nemesis

    from .wire import WireClient

NOT_SIMULATED = frozenset(
    {
        "acls",
        "certificates",
        "client-requests",
        "connections",
        "descriptors",
        "disk-delays",
        "logins",
        "memory",
        "more-brokers",
        "passwords",
        "power-loss-kept-fraction",
        "tokens",
    }
)
"""What no simulated cluster has."""
CAPABILITIES = frozenset(ALL_CAPABILITIES) - NOT_SIMULATED
"""What `harrow backends` says without a cluster."""
CLIENT = "client"
OPERATOR = "operator-of-faults"
SLOW_DISK_SPREAD = (0.5, 1.5)
"""A call of a slow disk takes between these parts of its delay."""


class SimulatedControl:
    """One simulated process; `ProcessControl` of the fault layer."""

    def __init__(self, process: SimulatedProcess, begin: Callable[[], object] | None = None) -> None:
        self._process = process
        self._begin = begin or process.begin

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
        self._begin()


class SlowDiskOfMachine:
    """A slow disk of one machine, until the rule is disarmed or its incarnation ends."""

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


class SimulatedDisk(DiskChanges):
    """The disk of one machine: a power loss is no kill, because it decides which writes the disk keeps."""

    def __init__(self, process: SimulatedProcess, control: SimulatedControl) -> None:
        makers: dict[type[DiskChange], Make] = {
            DiskPowerLoss: lambda _: {},  # nothing is counted here
            EmptyFolders: lambda _: {"removed_files": process.wipe()},
            FileDamage: lambda change: damaged(process.machine.disk, [f"/{process.machine.name}/{DATA}"], change),
        }
        super().__init__(control, makers)
        self._machine = process.machine

    def end(self, change: DiskChange, *, clean: bool) -> None:
        """Let the machine lose its power, or end the process."""
        if isinstance(change, DiskPowerLoss):
            self._machine.lose_power(random.Random(change.seed))  # noqa: S311 - repeatable, not secret
        else:
            super().end(change, clean=clean)


class SimulatedBroker(Broker):
    """One broker's machine, and its host's control operations."""

    def __init__(self, node: int, process: SimulatedProcess) -> None:
        super().__init__(node)
        self._simulated = process
        self.process = control = SimulatedControl(process, self._begin)
        self._disk = SimulatedDisk(process, control)
        self.disk = self._disk
        self.links = HostLinks(self._operation, frozenset(PeerKind))
        self.shares = HostShares(self._operation)
        arms = host_arms(self._operation)
        del arms[LateDiskRule]  # a simulated call takes no time; a slow disk is a matter of the machine
        self.rules = RuleTable(
            {
                **arms,
                StartFailpointRule: self._start_armed,
                SlowDiskRule: lambda rule: SlowDiskOfMachine(process.machine, rule.delay_ms),
            }
        )

    def _operation(self, op: str, **fields: object) -> dict[str, Any]:
        return self._simulated.control(op, **fields)

    def _start_armed(self, rule: StartFailpointRule) -> HostRule:
        """Boot it with an armed failpoint."""
        self._begin(asdict(rule))
        return failpoint_handle(self._operation, rule.name)

    def _begin(self, *failpoints: Mapping[str, object]) -> None:
        """Boot it, with nothing of what was set in an earlier incarnation."""
        if self._simulated.state == DEAD:
            self._simulated.forget_link_rules()
            self._disk.make()
            self._simulated.begin(failpoints)


class SimulatedRegistry(SimulatedControl):
    """The registry's machine, and its control operations."""

    def call(self, op: str, **fields: object) -> dict[str, Any]:
        """Return the response; ClusterError while it does not run, as a real registry does not respond then."""
        host = self._process.machine.host
        if self._process.state != RUNNING or host is None:
            raise ClusterError(f"the registry is {self._process.state} and does not respond")
        return host.control.call(op, **fields)

    def expire_session(self, node: int) -> int:
        """By a control operation of the registry."""
        return len(self.call("session.expire", name=f"broker {node}")["sessions"])

    def depose_controller(self) -> None:
        """By a control operation of the registry."""
        self.call("controller.depose")


class SimulatedOperator:
    """`OperatorControl`: a machine of the operator's, which is there only where a schedule needs it."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._client: WireClient | None = None

    def reassign(self, moves: Moves) -> None:
        """Begin to reassign partitions."""
        self._send(reassignment(moves))

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Begin a preferred election, or an unclean one."""
        self._send(election(UNCLEAN if unclean else PREFERRED, {topic: [partition]}))

    def _send(self, request: ClientRequest) -> None:
        """Send it to the brokers in turn, until the controller responds."""
        from .wire import WireClient

        if self._client is None:  # not before: its machine draws random numbers
            host = self._cluster.client(OPERATOR)
            self._client = WireClient(host, OPERATOR, self._cluster.bootstrap)
        client = self._client

        async def send() -> None:
            for address in client.bootstrap:
                with contextlib.suppress(OSError, WireError):
                    if is_final(await client.ask(address, request, TIMEOUT_MS)):
                        return

        client.host.tasks.spawn(send(), name="operator-of-faults")


class SimulatedSystem(System):
    """A `SimulatedCluster` as the fault layer's `System`."""

    backend = "simulated"

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        config = BrokerConfig.parse(cluster.config)
        self.session_timeout_ms = config.number("zookeeper.session.timeout.ms")
        self.offsets_partitions = config.number("offsets.topic.num.partitions")
        self._brokers = {node: SimulatedBroker(node, own) for node, own in cluster.brokers.items()}
        self._registry = SimulatedRegistry(cluster.registry)
        self.registry = self._registry
        self.operator = SimulatedOperator(cluster)
        self._frames = 0

    def count_frames(self, each: Callable[[], object]) -> None:
        """Count the frames between clients and brokers, and call `each` with each of them."""
        self.client_frames = lambda: self._frames

        def on_frame(direction: LinkDirection) -> None:
            if CLIENT in (direction.source.network_node.identity.kind, direction.target.network_node.identity.kind):
                self._frames += 1
                each()

        self._cluster.world.fabric.on_frame = on_frame

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> SimulatedBroker:
        """Return one broker."""
        return self._brokers[node]

    def describe(self) -> ClusterView:
        """Read the registry's tree; ClusterError while it does not run."""
        return parse(self._registry.call("tree")["tree"])

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
