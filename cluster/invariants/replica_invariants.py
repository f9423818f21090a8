"""Invariants of one replica, by itself and beside what the registry holds of its partition.

Owns: `ObservedReplica`, what was seen of a replica after the last event that changed it, and the rules that compare
it with the replica as it is now.
"""

from __future__ import annotations

from typing import Any

from ..broker import Broker
from ..ids import NodeId
from ..replication.partition import Partition
from .registry_invariants import RegistryInvariants
from .violation import InvariantViolation


class ObservedReplica:
    """A replica of a live process, and the values it had when it was checked last."""

    __slots__ = (
        "broker",
        "generation",
        "high_watermark",
        "is_leader",
        "isr",
        "leader_epoch",
        "log_end",
        "log_start",
        "owner",
        "partition",
        "proposal",
        "version",
    )

    def __init__(self, partition: Partition, broker: Broker, owner: str) -> None:
        self.partition = partition
        self.broker = broker
        self.owner = owner
        """The process, its incarnation included: a restarted broker is another owner."""
        self.leader_epoch = -1
        self.version = -1
        self.generation = -1
        self.is_leader = False
        self.high_watermark = -1
        self.log_start = -1
        self.log_end = -1
        self.isr: tuple[NodeId, ...] = ()
        self.proposal: object = None

    @property
    def unchanged(self) -> bool:
        """True when nothing that an invariant is about has changed since `note`."""
        partition = self.partition
        log = partition.log
        return (
            self.log_end == log.log_end_offset
            and self.high_watermark == partition.high_watermark
            and self.log_start == log.log_start_offset
            and self.leader_epoch == partition.leader_epoch
            and self.version == partition.version
            and self.is_leader is partition.is_leader
            and self.proposal is partition.isr_state.proposal
            and self.isr is partition.isr_state.committed
        )

    @property
    def sound(self) -> bool:
        """False once the disk has refused something: a failed log promises nothing."""
        return not self.partition.failed

    def note(self) -> None:
        """Remember the values as they are now."""
        partition = self.partition
        log = partition.log
        self.leader_epoch = partition.leader_epoch
        self.version = partition.version
        self.generation = partition.leadership_generation
        self.is_leader = partition.is_leader
        self.high_watermark = partition.high_watermark
        self.log_start = log.log_start_offset
        self.log_end = log.log_end_offset
        self.isr = partition.isr
        self.proposal = partition.proposal

    def describe(self) -> dict[str, Any]:
        """The replica for the text of a violation."""
        log = self.partition.log
        return {
            **self.partition.state(),
            "version": self.partition.version,
            "recovery_point": log.recovery_point,
            "epochs": [tuple(entry) for entry in log.epochs.entries()],
        }


def check_replica(replica: ObservedReplica, registry: RegistryInvariants) -> None:
    """All rules of one replica; `replica` still holds the values seen last."""
    if replica.sound:
        check_log_bounds(replica)
        _check_high_watermark(replica)
    _check_order(replica)
    _check_proposal(replica)
    _check_committed_isr(replica, registry)


def _violated(name: str, problem: str, replica: ObservedReplica) -> InvariantViolation:
    tp = replica.partition.topic_partition
    return InvariantViolation(name, f"{tp} on {replica.owner}: {problem}", {"replica": replica.describe()})


def check_log_bounds(replica: ObservedReplica) -> None:
    """`log-bounds`."""
    log, high = replica.partition.log, replica.partition.high_watermark
    start, end, point = log.log_start_offset, log.log_end_offset, log.recovery_point
    if not 0 <= start <= high <= end:
        raise _violated("log-bounds", f"log start {start}, high watermark {high}, log end {end}", replica)
    if point > end:
        raise _violated("log-bounds", f"recovery point {point} above the log end {end}", replica)
    if log.acknowledgeable_end > end:
        raise _violated("log-bounds", f"acknowledgeable end {log.acknowledgeable_end} above the log end {end}", replica)


def _check_high_watermark(replica: ObservedReplica) -> None:
    now = replica.partition
    same_leadership = replica.is_leader and now.is_leader and replica.generation == now.leadership_generation
    if same_leadership and now.high_watermark < replica.high_watermark:
        raise _violated(
            "high-watermark-order",
            f"goes back from {replica.high_watermark} to {now.high_watermark} under one leader",
            replica,
        )


def _check_order(replica: ObservedReplica) -> None:
    now = replica.partition
    if now.leader_epoch < replica.leader_epoch:
        raise _violated(
            "replica-order", f"leader epoch goes back from {replica.leader_epoch} to {now.leader_epoch}", replica
        )
    if now.leader_epoch == replica.leader_epoch and now.version < replica.version:
        raise _violated(
            "replica-order", f"partition version goes back from {replica.version} to {now.version}", replica
        )


def _check_proposal(replica: ObservedReplica) -> None:
    now, proposal = replica.partition, replica.partition.proposal
    if proposal is None:
        return
    problem = ""
    if not now.is_leader:
        problem = "this replica does not lead"
    elif proposal.leader_epoch != now.leader_epoch:
        problem = f"proposed under leader epoch {proposal.leader_epoch}"
    elif proposal.expected_version != now.version:
        problem = f"expects version {proposal.expected_version}"
    elif now.node_id not in proposal.isr:
        problem = "without the leader"
    elif not set(proposal.isr) <= set(now.replicas):
        problem = f"names brokers beside the replicas {list(now.replicas)}"
    if problem:
        raise _violated("proposal-by-leader", f"ISR {list(proposal.isr)}: {problem}", replica)
    if proposal is not replica.proposal:
        _check_admission(replica)


def _check_admission(replica: ObservedReplica) -> None:
    now, proposal = replica.partition, replica.partition.proposal
    assert proposal is not None, "called for a proposal"
    ends = now.remote_ends()
    for node in proposal.isr:
        if node in now.isr:
            continue
        if not replica.broker.cache.is_alive(node):
            problem = "is not live in the leader's metadata"
        elif ends.get(node, -1) < max(now.high_watermark, now.epoch_start):
            problem = f"has fetched to {ends.get(node, -1)} only"
        else:
            continue
        raise _violated("isr-admission", f"broker {node} {problem}", replica)


def _check_committed_isr(replica: ObservedReplica, registry: RegistryInvariants) -> None:
    now = replica.partition
    tp = now.topic_partition
    if now.version < 0 or registry.topic_id(tp.topic) != now.topic_id:
        return  # no state yet, or a replica of a topic that the registry no longer has
    committed = registry.state_at(tp, now.version)
    if committed is None:
        raise _violated("committed-isr", f"the registry never had version {now.version}", replica)
    if (committed.leader_epoch, committed.isr) != (now.leader_epoch, now.isr):
        raise _violated("committed-isr", f"version {now.version} is {committed}", replica)
