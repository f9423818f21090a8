"""Invariants between the replicas of one partition: what is committed stays, wherever it must be.

Owns: `CommittedPrefixes`: for each partition how far any leader's high watermark has come, and by which leader epochs.

Two logs agree up to an offset when they assign the same leader epoch to every offset below it: a leader appends each
offset of its epoch once, and followers append what their leader sends (Log Matching). So epochs are compared, not
records, as lists of (epoch, start offset), cut to the range that both logs hold:

    leader     (1, 0) (3, 10) (7, 25)            log start 0, high watermark 30
    follower   (1, 4) (3, 10) (7, 25)            log start 4
    compared   [4, 30): (1, 4) (3, 10) (7, 25)   in both

Within one leadership nothing is compared: the leader's epochs do not change, and only the end of the prefix moves.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from ..ids import NodeId, TopicPartition
from ..storage.leader_epochs import EpochEntry
from ..wire.topic_ids import UUID
from .replica_invariants import ObservedReplica
from .violation import InvariantViolation

Replicas = Mapping[NodeId, ObservedReplica]


@dataclass(slots=True)
class CommittedPrefix:
    """All offsets in [start, end); `epochs` are those of the leader with `leader_epoch`, the newest seen."""

    topic_id: UUID
    start: int
    """The largest log start offset of a leader: what lay below was deleted."""
    end: int
    leader_epoch: int
    epochs: Sequence[EpochEntry]


class CommittedPrefixes:
    """What was committed, by partition."""

    def __init__(self) -> None:
        self._prefixes: dict[TopicPartition, CommittedPrefix] = {}
        self._first_epoch: dict[TopicPartition, int] = {}
        self._not_durable: set[tuple[TopicPartition, UUID]] = set()
        self._compacted: set[tuple[TopicPartition, UUID]] = set()
        """Partitions whose replicas were compacted at some time: what a cleaner removed stays removed."""
        self._leaders: dict[tuple[TopicPartition, UUID, int], str] = {}

    def unclean_election(self, tp: TopicPartition, leader_epoch: int) -> None:
        """What epochs before `leader_epoch` committed may be lost from now on."""
        self._first_epoch[tp] = leader_epoch
        self._prefixes.pop(tp, None)

    def power_lost(self, replica: ObservedReplica) -> None:
        """A replica's unsynced records are gone; with `flush.messages=1` none of them was acknowledged."""
        partition = replica.partition
        if partition.log.config.number("flush.messages") != 1:
            self._not_durable.add((partition.topic_partition, partition.topic_id))

    def observed(self, replica: ObservedReplica) -> None:
        """A replica was looked at: note whether its cleaner may remove records."""
        partition = replica.partition
        if "compact" in partition.log.config.text("cleanup.policy"):
            self._compacted.add((partition.topic_partition, partition.topic_id))

    def _exempt(self, replica: ObservedReplica) -> bool:
        partition = replica.partition
        tp = partition.topic_partition
        return (
            not replica.sound
            or partition.leader_epoch < self._first_epoch.get(tp, -1)
            or (tp, partition.topic_id) in self._not_durable
        )

    # ----------------------------------------------------------------- leaders

    def check_leader(self, replica: ObservedReplica) -> None:
        """`one-leader-per-epoch` and `leader-completeness`, for a replica that leads and has changed."""
        partition = replica.partition
        tp = partition.topic_partition
        key = (tp, partition.topic_id, partition.leader_epoch)
        first = self._leaders.setdefault(key, replica.owner)
        if first != replica.owner:
            raise InvariantViolation(
                "one-leader-per-epoch",
                f"{tp}: {first} and {replica.owner} lead in epoch {partition.leader_epoch}",
                {"replica": replica.describe()},
            )
        if self._exempt(replica):
            return
        prefix = self._prefixes.get(tp)
        if prefix is None or prefix.topic_id != partition.topic_id:
            if prefix is not None:  # another topic of that name: epochs begin again
                self._first_epoch.pop(tp, None)
            self._prefixes[tp] = CommittedPrefix(
                topic_id=partition.topic_id,
                start=partition.log.log_start_offset,
                end=partition.high_watermark,
                leader_epoch=partition.leader_epoch,
                epochs=partition.log.epochs.entries(),
            )
            return
        self._advance(replica, prefix)

    def _advance(self, replica: ObservedReplica, prefix: CommittedPrefix) -> None:
        partition = replica.partition
        is_new = not replica.is_leader or replica.leader_epoch != partition.leader_epoch
        if is_new or partition.leader_epoch != prefix.leader_epoch:
            self._compare(replica, prefix)
        if partition.leader_epoch > prefix.leader_epoch:
            prefix.leader_epoch = partition.leader_epoch
            prefix.epochs = partition.log.epochs.entries()
        prefix.start = max(prefix.start, partition.log.log_start_offset)
        prefix.end = max(prefix.end, partition.high_watermark)

    def _compare(self, replica: ObservedReplica, prefix: CommittedPrefix) -> None:
        partition = replica.partition
        log, tp = partition.log, partition.topic_partition
        if partition.leader_epoch >= prefix.leader_epoch:
            if log.log_end_offset < prefix.end:
                raise InvariantViolation(
                    "leader-completeness",
                    f"{tp}: offsets below {prefix.end} were committed, and the log of the leader "
                    f"{replica.owner} ends at {log.log_end_offset}",
                    {"leader": replica.describe(), "committed by epochs": prefix.epochs},
                )
            end = prefix.end
        else:  # replaced already, without knowing it: its high watermark still is a promise
            end = min(prefix.end, partition.high_watermark)
        start = max(prefix.start, log.log_start_offset)
        self._check_epochs("leader-completeness", replica, prefix.epochs, start, end)

    def _check_epochs(
        self, name: str, replica: ObservedReplica, epochs: Sequence[EpochEntry], low: int, end: int
    ) -> None:
        partition, log = replica.partition, replica.partition.log
        if (partition.topic_partition, partition.topic_id) in self._compacted:
            return
        if epochs and epochs[0].start_offset > low:
            low = epochs[0].start_offset  # the other log began to forget before
        expected, found = within(epochs, low, end), within(log.epochs.entries(), low, end)
        if expected != found:
            raise InvariantViolation(
                name,
                f"{partition.topic_partition} on {replica.owner}: the leader epochs of "
                f"offsets {low} to {end} are {found}, committed as {expected}",
                {"replica": replica.describe()},
            )

    # ---------------------------------------------------------------- followers

    def check_in_sync(self, replicas: Replicas, *, epochs: bool) -> None:
        """`in-sync-prefix`, and `epoch-agreement` if `epochs`, of one partition's live replicas."""
        leading = [replica for replica in replicas.values() if replica.partition.is_leader]
        if not leading:
            return
        leader = max(leading, key=lambda state: state.partition.leader_epoch)
        if self._exempt(leader):
            return
        committed = self._committed_end(leader)
        for node in leader.partition.isr:
            follower = replicas.get(node)
            if follower is None or follower is leader or not self._follows(follower, leader):
                continue
            end = follower.partition.log.log_end_offset
            if end < committed:
                raise InvariantViolation(
                    "in-sync-prefix",
                    f"{leader.partition.topic_partition}: {follower.owner} is in the ISR of {leader.owner}, its "
                    f"log ends at {end}, and offsets below {committed} were committed",
                    {"leader": leader.describe(), "follower": follower.describe()},
                )
            if epochs:
                self._check_epochs(
                    "epoch-agreement",
                    follower,
                    leader.partition.log.epochs.entries(),
                    max(follower.partition.log.log_start_offset, self._deleted_below(leader)),
                    leader.partition.high_watermark,
                )

    def _deleted_below(self, leader: ObservedReplica) -> int:
        prefix = self._prefixes.get(leader.partition.topic_partition)
        return 0 if prefix is None or prefix.topic_id != leader.partition.topic_id else prefix.start

    def _committed_end(self, leader: ObservedReplica) -> int:
        """What the members of this leader's ISR must have; the leader itself may have to find out still."""
        partition = leader.partition
        prefix = self._prefixes.get(partition.topic_partition)
        if prefix is None or prefix.topic_id != partition.topic_id or prefix.leader_epoch > partition.leader_epoch:
            return partition.high_watermark
        return max(prefix.end, partition.high_watermark)

    @staticmethod
    def _follows(follower: ObservedReplica, leader: ObservedReplica) -> bool:
        here, there = follower.partition, leader.partition
        return (
            follower.sound
            and here.topic_id == there.topic_id
            and here.leader_epoch == there.leader_epoch
            and here.leader == there.node_id
        )


def within(epochs: Sequence[EpochEntry], low: int, end: int) -> list[tuple[int, int]]:
    """The (epoch, start offset) of all offsets in [low, end); the first one begins at `low`."""
    found: list[tuple[int, int]] = []
    for epoch, start in epochs:
        if start >= end:
            break
        if start <= low:
            found = [(epoch, low)] if low < end else []
        else:
            found.append((epoch, start))
    return found
