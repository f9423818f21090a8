"""The local backend: a `Cluster` of processes on this machine, as faults see it.

Owns what faults may not know: pids and process states (`/proc`), signals, control sockets. Actions send a signal
or fork and return; the kernel's process table shows later what became of them.
"""

from __future__ import annotations

import signal
from collections.abc import Collection, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster.broker_folder import data_folders
from harrow.cluster.errors import ClusterError
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.real.disk import RealDisk
from harrow.faults.system import DEAD, RUNNING, TRANSACTIONAL_IDS, HasTraffic, ProcessStatus

from ..requests.operator import OperatorRequests
from .disk_damage import PendingDamage
from .fault_clients import BESIDE_BROKERS, BesideBrokers
from .knobs import HostKnobs, HostRule, RuleGroup
from .local_traffic import watch
from .process_limits import DescriptorLimit, MemoryLimit
from .strangers import StrangerConnections

if TYPE_CHECKING:
    from harrow.cluster import Cluster
    from harrow.cluster.view import ClusterView

    from ..histories.live_taps import CommitRows, GroupRows, TransactionalIds

EVERYWHERE = BESIDE_BROKERS | frozenset(
    {
        "process",
        "pause",
        "links",
        "registry-links",
        "client-links",
        "half-open",
        "responses",
        "failpoints",
        "clocks",
        "disk-errors",
        "disk-delays",
        "wipe",
        "slow-disk",
        "connections",
        "descriptors",
        "memory",
        "disk-damage",
        "reassignments",
        "more-brokers",
    }
)
WITH_SETTINGS = frozenset({"registry", "registry-operations", "power-loss", "power-loss-kept-fraction"})
"""What depends on the settings of the cluster."""
DESCRIPTORS_MOST = 500
"""Connections that take the free descriptors of a broker."""
SLOW_DISK_OPERATIONS = ("write", "sync")


def process_state(pid: int | None) -> str:
    """Return the state letter of /proc/PID/stat; empty when there is no such process."""
    try:
        text = Path(f"/proc/{pid}/stat").read_text(encoding="ascii", errors="replace")
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]


def gone(pid: int | None) -> bool:
    """Whether a process runs no more."""
    return process_state(pid) in ("", "Z", "X", "x")


class SignalledProcess(Protocol):
    """What a fault needs of a process: a `ManagedProcess`, or a container."""

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id; None without a process."""
        ...

    @property
    def incarnations(self) -> int:
        """How often it has been started."""
        ...

    def check_ready(self) -> None:
        """Notice what a starting process said; never waits. ClusterError when it did not start."""
        ...

    def begin(self) -> None:
        """Start it and return before it serves. No-op while it is alive."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; returns before it takes effect. No-op on a dead process."""
        ...


class LocalProcess:
    """One managed process; `ProcessControl` of the fault layer."""

    def __init__(self, process: SignalledProcess) -> None:
        self._process = process
        self._error = ""

    def status(self) -> ProcessStatus:
        """Ask the kernel; a process that said why it did not start is dead."""
        try:
            self._process.check_ready()
        except ClusterError as error:
            self._error = str(error)
        state = self._process.state
        if state == RUNNING:
            self._error = ""
        pid = self._process.pid
        facts: dict[str, Any] = {"pid": pid, "process": process_state(pid) or "gone"}
        if self._error:
            facts["error"] = self._error
        return ProcessStatus(state=state, incarnation=self._process.incarnations, facts=facts)

    def kill(self) -> None:
        """Send SIGKILL."""
        self._process.send_signal(signal.SIGKILL)

    def terminate(self) -> None:
        """Send SIGTERM; SIGCONT before it, for a paused process handles no signal."""
        self._process.send_signal(signal.SIGCONT)
        self._process.send_signal(signal.SIGTERM)

    def pause(self) -> None:
        """Send SIGSTOP."""
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        """Send SIGCONT."""
        self._process.send_signal(signal.SIGCONT)

    def start(self) -> None:
        """Fork it."""
        self._process.begin()


class LocalBroker(LocalProcess, HostKnobs):
    """One broker's process, and its control socket."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        LocalProcess.__init__(self, cluster.brokers[node])
        HostKnobs.__init__(self, self._control)
        self._cluster = cluster
        self._node = node
        self._power: tuple[str, float | None] | None = None
        self._lost: Mapping[str, int] | None = None
        self._wipe_due = False
        self._removed_files: int | None = None
        self._damage = PendingDamage()

    def _control(self, op: str, **fields: object) -> dict[str, Any]:
        state = self._process.state
        if state != RUNNING:  # its socket would not respond before the timeout
            raise ClusterError(f"broker {self._node} is {state} and cannot serve {op!r}")
        return self._cluster.control(self._node, op, **fields)

    def lose_power(self, *, seed: str, kept_fraction: float | None = None) -> None:
        """Send SIGKILL; the files are rolled back when the process is dead, and before it is started again."""
        self._power, self._lost = (seed, kept_fraction), None
        self.kill()

    def power_lost(self) -> Mapping[str, int] | None:
        """Roll the files back if that is due; return the counts of what was removed."""
        if self._power is not None and self._process.state == DEAD:
            (seed, kept_fraction), self._power = self._power, None
            self._lost = self._cluster.brokers[self._node].roll_back(seed=seed, keep=kept_fraction)
        return self._lost

    def wipe(self) -> None:
        """Send SIGKILL; the data folders are emptied when the process is dead, and before it is started again."""
        self._wipe_due, self._removed_files = True, None
        self.kill()

    def wiped(self) -> int | None:
        """Empty the data folders if that is due; return how many files were removed."""
        if self._wipe_due and self._process.state == DEAD:
            self._wipe_due = False
            names = self._cluster.log_dirs()[self._node]
            self._removed_files = self._cluster.brokers[self._node].wipe(names)
        return self._removed_files

    def damage_disk(self, *, damages: Sequence[str], partitions: Sequence[str], seed: str, clean: bool) -> None:
        """Send a signal; the files are damaged when the process is dead, and before it is started again."""
        self._damage.plan(damages, partitions, seed)
        end = self.terminate if clean else self.kill
        end()

    def disk_damaged(self) -> Mapping[str, Any] | None:
        """Damage the files if that is due; return what was damaged."""
        return self._damage.look(self._process.state == DEAD, lambda: RealDisk(DiskFaults()), self._data_folders)

    def _data_folders(self) -> list[str]:
        folder = self._cluster.brokers[self._node].folder
        return [str(path) for path in data_folders(folder, self._cluster.log_dirs()[self._node])]

    def start(self) -> None:
        """Fork it, after what a power loss, a wipe or damage left to do."""
        self.power_lost()
        self.wiped()
        self.disk_damaged()
        LocalProcess.start(self)

    def start_armed(self, *, name: str, action: str, nth: int, delay_ms: int) -> HostRule:
        """Fork it with a failpoint in the options of its process."""
        options = self._cluster.brokers[self._node].options
        armed = {"name": name, "action": action, "nth": nth, "delay_ms": delay_ms}
        options["failpoints"] = [armed]
        try:
            self.start()
        finally:
            del options["failpoints"]
        return self.failpoint_rule(name)

    def limit_descriptors(self) -> DescriptorLimit:
        """Lower the limit of the process, and take what is free below it."""
        pid = self._limited_pid("open files")
        return DescriptorLimit(pid, lambda: self.fill_connections(DESCRIPTORS_MOST))

    def fill_connections(self, most: int) -> StrangerConnections:
        """Connect to it until it serves no further connection."""
        return StrangerConnections(self._cluster.brokers[self._node].address, most)

    def limit_memory(self, spare_bytes: int) -> MemoryLimit:
        """Lower the limit of the process's data."""
        return MemoryLimit(self._limited_pid("memory"), spare_bytes)

    def _limited_pid(self, what: str) -> int:
        pid = self._process.pid
        if self._process.state == DEAD or pid is None:
            raise ClusterError(f"broker {self._node} is dead and has no limit of {what}")
        return pid

    def slow_disk(self, delay_ms: int) -> RuleGroup:
        """Delay every write and fsync."""
        rules: list[HostRule] = [
            self.fail_disk(operation=operation, error="", nth=1, count=0, path="*", delay_ms=delay_ms)
            for operation in SLOW_DISK_OPERATIONS
        ]
        return RuleGroup(rules)


class LocalSystem(OperatorRequests, BesideBrokers):
    """A `Cluster` as the fault layer's `System`."""

    backend = "local"

    def __init__(self, cluster: Cluster) -> None:
        OperatorRequests.__init__(self, lambda: cluster.bootstrap_servers)
        BesideBrokers.__init__(self, lambda: cluster.bootstrap_servers)
        self._cluster = cluster
        self._brokers = {node: LocalBroker(cluster, node) for node in cluster.brokers}
        self._own_registry = not cluster.config.text("zookeeper.connect")
        self._registry: LocalProcess | None = None

    @property
    def capabilities(self) -> frozenset[str]:
        """Everything; power loss where the cluster writes its journal, the registry where Harrow started it."""
        more = {"registry", "registry-operations"} if self._own_registry else set[str]()
        if self._cluster.config.flag("harrow.power.loss"):
            more |= {"power-loss", "power-loss-kept-fraction"}
        return EVERYWHERE | more

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    @property
    def session_timeout_ms(self) -> int:
        """`zookeeper.session.timeout.ms`."""
        return self._cluster.config.number("zookeeper.session.timeout.ms")

    @property
    def offsets_partitions(self) -> int:
        """`offsets.topic.num.partitions`."""
        return self._cluster.config.number("offsets.topic.num.partitions")

    def broker(self, node: int) -> LocalBroker:
        """Return one broker."""
        return self._brokers[node]

    @property
    def registry(self) -> LocalProcess:
        """The registry's process."""
        if self._registry is None:
            self._registry = LocalProcess(self._cluster.registry)
        return self._registry

    def add_broker(self) -> int:
        """Fork one more broker."""
        node = self._cluster.add_broker()
        self._brokers = {**self._brokers, node: LocalBroker(self._cluster, node)}
        return node

    def remove_added_broker(self, node: int) -> None:
        """Forget it; the files stay in its folder."""
        self._brokers = {own: broker for own, broker in self._brokers.items() if own != node}
        self._cluster.forget_broker(node)

    def expire_session(self, node: int) -> int:
        """Over the registry's control socket."""
        return len(self._cluster.registry_control("session.expire", name=f"broker {node}")["sessions"])

    def depose_controller(self) -> None:
        """Over the registry's control socket."""
        self._cluster.registry_control("controller.depose")

    def describe(self) -> ClusterView:
        """Read the registry; ClusterError at once when it does not run."""
        if self._own_registry and (state := self._cluster.registry.state) != RUNNING:
            raise ClusterError(f"the registry is {state} and does not respond")
        return self._cluster.describe()

    def created(self, kind: str) -> Collection[str] | None:
        """By the rows of the taps; None without taps."""
        if not self._cluster.config.flag("harrow.tap"):
            return None
        if kind == TRANSACTIONAL_IDS:
            return self._transactional_ids.names()
        from ..histories.live_taps import known_groups

        return known_groups(self._groups, self._commits)

    @cached_property
    def _groups(self) -> GroupRows:
        from ..histories.live_taps import GroupRows

        return GroupRows(self._cluster.folder)

    @cached_property
    def _commits(self) -> CommitRows:
        from ..histories.live_taps import CommitRows

        return CommitRows(self._cluster.folder)

    @cached_property
    def _transactional_ids(self) -> TransactionalIds:
        from ..histories.live_taps import TransactionalIds

        return TransactionalIds(self._cluster.folder)

    def watch_traffic(self) -> HasTraffic:
        """Return a traffic detector over the taps and the high watermarks."""
        return watch(self._cluster)
