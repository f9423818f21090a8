"""The local backend: a `Cluster` of processes on this machine, as faults see it.

Owns what faults may not know: pids and process states (`/proc`), signals, control sockets. Actions send a signal
or fork and return; the kernel's process table shows later what became of them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Collection, Mapping
from dataclasses import asdict
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster.broker_folder import data_folders
from harrow.cluster.errors import ClusterError
from harrow.cluster.host.knobs.disk_faults import DiskFaults
from harrow.cluster.host.real.disk import RealDisk
from harrow.faults.controls import (
    DEAD,
    RUNNING,
    DiskChange,
    DiskPowerLoss,
    EmptyFolders,
    FileDamage,
    PartialPowerLoss,
    PeerKind,
    ProcessStatus,
    has_part,
)
from harrow.faults.rule_kinds import (
    ConnectionRule,
    DescriptorRule,
    LateDiskRule,
    MemoryRule,
    SlowDiskRule,
    StartFailpointRule,
)
from harrow.faults.system import TRANSACTIONAL_IDS, Broker, HasTraffic, System

from ..requests.operator import Operator
from .counted_frames import CountedFrames
from .credentials import access_arms, credentials_of
from .disk_changes import DiskChanges, Make
from .disk_damage import damaged
from .fault_clients import fault_clients
from .knobs import HostLinks, HostRule, HostShares, RuleGroup, RuleTable, failpoint_handle, host_arms
from .local_traffic import watch
from .process_limits import DescriptorLimit, MemoryLimit
from .strangers import StrangerConnections

if TYPE_CHECKING:
    from harrow.cluster import Cluster
    from harrow.cluster.view import ClusterView

    from ..histories.live_taps import CommitRows, GroupRows, TransactionalIds
    from ..security.owner import SecurityOwner

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
        self.before_start: Callable[[], object] = lambda: None
        """What is due before the process is started."""

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
        """Fork it, after what is due before."""
        self.before_start()
        self._process.begin()


class LocalBroker(Broker):
    """One broker: its process, its control socket, its files."""

    def __init__(self, cluster: Cluster, node: int) -> None:
        super().__init__(node)
        self._cluster = cluster
        self._managed = cluster.brokers[node]
        self.process = process = LocalProcess(self._managed)
        self.disk = disk = DiskChanges(process, self._disk_makers())
        process.before_start = disk.make
        self.links = HostLinks(self._control, frozenset(PeerKind))
        self.shares = HostShares(self._control)
        self.rules = RuleTable(
            {
                **host_arms(self._control),
                **access_arms(self._control, cluster.config),
                StartFailpointRule: self._start_armed,
                SlowDiskRule: self._slow_disk,
                DescriptorRule: self._limit_descriptors,
                ConnectionRule: lambda rule: StrangerConnections(self._managed.own_address, rule.most),
                MemoryRule: lambda rule: MemoryLimit(self._limited_pid("memory"), rule.spare_bytes),
            }
        )

    def _control(self, op: str, **fields: object) -> dict[str, Any]:
        state = self._managed.state
        if state != RUNNING:  # its socket would not respond before the timeout
            raise ClusterError(f"broker {self.node} is {state} and cannot serve {op!r}")
        return self._cluster.control(self.node, op, **fields)

    # ------------------------------------------------------------------------------------ disk

    def _disk_makers(self) -> dict[type[DiskChange], Make]:
        makers: dict[type[DiskChange], Make] = {EmptyFolders: self._empty_folders, FileDamage: self._damage_files}
        if self._cluster.config.flag("harrow.power.loss"):
            makers |= {DiskPowerLoss: self._roll_back, PartialPowerLoss: self._roll_back}
        return makers

    def _roll_back(self, change: DiskPowerLoss) -> Mapping[str, Any]:
        keep = change.kept_fraction if isinstance(change, PartialPowerLoss) else None
        return self._managed.roll_back(seed=change.seed, keep=keep)

    def _empty_folders(self, _: EmptyFolders) -> Mapping[str, Any]:
        return {"removed_files": self._managed.wipe(self._cluster.log_dirs()[self.node])}

    def _damage_files(self, change: FileDamage) -> Mapping[str, Any]:
        folders = data_folders(self._managed.folder, self._cluster.log_dirs()[self.node])
        return damaged(RealDisk(DiskFaults()), list(map(str, folders)), change)

    # ----------------------------------------------------------------------------------- rules

    def _start_armed(self, rule: StartFailpointRule) -> HostRule:
        """Fork it with a failpoint in the options of its process."""
        options = self._managed.options
        options["failpoints"] = [asdict(rule)]
        try:
            self.process.start()
        finally:
            del options["failpoints"]
        return failpoint_handle(self._control, rule.name)

    def _slow_disk(self, rule: SlowDiskRule) -> RuleGroup:
        """Delay every write and fsync."""
        rules = [
            LateDiskRule(operation=operation, error="", delay_ms=rule.delay_ms) for operation in SLOW_DISK_OPERATIONS
        ]
        return RuleGroup([self.rules.arm(late) for late in rules])

    def _limit_descriptors(self, _: DescriptorRule) -> DescriptorLimit:
        """Lower the limit of the process, and take what is free below it."""
        pid = self._limited_pid("open files")
        return DescriptorLimit(pid, lambda: StrangerConnections(self._managed.own_address, DESCRIPTORS_MOST))

    def _limited_pid(self, what: str) -> int:
        pid = self._managed.pid
        if self._managed.state == DEAD or pid is None:
            raise ClusterError(f"broker {self.node} is dead and has no limit of {what}")
        return pid


class LocalRegistry(LocalProcess):
    """The registry's process, and its control socket."""

    def __init__(self, cluster: Cluster) -> None:
        super().__init__(cluster.registry)
        self._cluster = cluster

    def expire_session(self, node: int) -> int:
        """Over the registry's control socket."""
        return len(self._cluster.registry_control("session.expire", name=f"broker {node}")["sessions"])

    def depose_controller(self) -> None:
        """Over the registry's control socket."""
        self._cluster.registry_control("controller.depose")


class LocalSystem(System):
    """A `Cluster` as the fault layer's `System`; a registry is there where Harrow started it."""

    backend = "local"

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.session_timeout_ms = cluster.config.number("zookeeper.session.timeout.ms")
        self.offsets_partitions = cluster.config.number("offsets.topic.num.partitions")
        self._brokers = {node: LocalBroker(cluster, node) for node in cluster.brokers}
        if not cluster.config.text("zookeeper.connect"):
            self.registry = LocalRegistry(cluster)
        self.operator = Operator(lambda: cluster.own_servers)
        self.clients = fault_clients(lambda: cluster.own_servers)
        self.membership = self
        if cluster.config.flag("harrow.tap"):
            self.client_frames = CountedFrames(cluster.folder)
        self.owned_by(None)
        self.programs = {}
        self.dependencies = {}

    @property
    def nodes(self) -> tuple[int, ...]:
        """Every broker's node id."""
        return tuple(sorted(self._brokers))

    def broker(self, node: int) -> LocalBroker:
        """Return one broker."""
        return self._brokers[node]

    def owned_by(self, owner: SecurityOwner | None) -> None:
        """Let faults change what `owner` made; None: the users in the settings of the cluster."""
        credentials = credentials_of(self._cluster, owner)
        if credentials is not None:
            self.credentials = credentials

    def add_broker(self) -> int:
        """Fork one more broker."""
        node = self._cluster.add_broker()
        self._brokers = {**self._brokers, node: LocalBroker(self._cluster, node)}
        return node

    def remove_added_broker(self, node: int) -> None:
        """Forget it; the files stay in its folder."""
        self._brokers = {own: broker for own, broker in self._brokers.items() if own != node}
        self._cluster.forget_broker(node)

    def describe(self) -> ClusterView:
        """Read the registry; ClusterError at once when it does not run."""
        if has_part(self, System.registry) and (state := self._cluster.registry.state) != RUNNING:
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
