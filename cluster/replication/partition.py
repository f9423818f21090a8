"""One replica of a partition on this broker: its role, its leader epoch, its ISR and its high watermark (HW).

Sans-IO: time comes in as `now_ms`; an ISR change goes out as an `IsrProposal`, which `isr_writes.py` writes to the
registry and brings back. The log belongs to the storage room.

Rules (spec C1 to C5):

* The leader's HW is the smallest log end offset (LEO) of the replicas that are in the *maximal* ISR (KIP-497,
  `isr_state.py`) or were caught up within `silence_max_ms`. Caught-up replicas outside the ISR count too. Otherwise a
  leader alone in its ISR would raise the HW with each append, and a follower that has nearly caught up would never
  reach the HW, so it would never join.
* The ISR grows by `may_join_isr` and `is_isr_eligible`; it shrinks by `RemoteReplica.in_sync` (`remote_replica.py`),
  which `isr_writes.py` asks periodically.
* The HW never goes back while a replica leads. A new leader starts from the HW that it had as a follower, which may be
  behind what the old leader served; `check_latest` refuses until the HW reaches the start of the epoch.
* A follower's HW is min(own LEO, leader's HW), taken after its append. So a record needs two rounds:

      round 1: follower fetches at 0 -> leader: remote LEO 0, HW 0; follower appends, LEO 1, HW min(1, 0) = 0
      round 2: follower fetches at 1 -> leader: remote LEO 1, HW 1; follower LEO 1, HW min(1, 1) = 1

* A new leader epoch resets the remote LEOs, also when the same replica led before.
* `leadership_generation` counts how often this replica began to lead after it did not lead. An append waits for
  followers only within the generation in which it was made, because the log may have been truncated between two
  generations. Leader epochs that follow each other within one generation do not truncate.

Invariants: log start <= HW <= LEO; a proposed ISR implies leadership and contains the leader.

Offsets here carry no segment position: the storage room finds the position by offset, so the HW needs no update
when only the segment changed.

Source: Kafka's `Partition` and the HW part of `UnifiedLog`; KIP-207, KIP-320, KIP-497, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError
from ..ids import (
    NO_EPOCH,
    NO_NODE,
    NO_OFFSET,
    BrokerEpoch,
    ControllerEpoch,
    LeaderEpoch,
    NodeId,
    Offset,
    TopicPartition,
)
from .isr_state import IsrProposal, IsrState, LeaderAndIsr
from .remote_replica import NEVER_MS, RemoteReplica, RemoteReplicas

if TYPE_CHECKING:
    from ..host.seam import Buffer
    from ..storage.log import Log
    from ..storage.results import AppendInfo, Origin
    from ..wire.topic_ids import UUID


_NONE = ErrorCode.none  # a look-up in an enum class is not free on the fetch path


class Partition:
    """This broker's replica of one partition. Neither leader nor follower until the controller decides."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        *,
        node_id: NodeId,
        topic_id: UUID,
        lag_time_max_ms: int,
        silence_max_ms: int = 0,
        high_watermark: int = 0,
        alive: Callable[[NodeId], bool] = lambda _node: True,
    ) -> None:
        self.topic_partition = topic_partition
        self.log = log
        self.topic_id = topic_id
        self.node_id = node_id
        self.leader = NO_NODE
        self.leader_epoch = NO_EPOCH
        self.epoch_start = NO_OFFSET
        """Log end at which this replica began to lead under its epoch; -1 for a follower."""
        self.leadership_generation = 0
        self.version = -1
        self.controller_epoch = ControllerEpoch(0)
        self.replicas: tuple[NodeId, ...] = ()
        self.is_leader = False
        self.leader_changed = True
        """For a follower: its leader is another broker than under the epoch before, or it has just started."""
        self.on_follower_log_start: Callable[[], None] | None = None
        """For a follower: its fetcher's callback for a log start that moved."""
        self.isr_state = IsrState()
        # The checkpointed HW (C3), but never beyond the log.
        low, high = log.log_start_offset, log.log_end_offset
        self.high_watermark = Offset(max(low, min(high_watermark, high)))
        self._remotes = RemoteReplicas()
        self.lag_time_max_ms = lag_time_max_ms
        self.silence_max_ms = min(silence_max_ms or lag_time_max_ms, lag_time_max_ms)
        self._alive = alive
        self._failed = False
        log.high_watermark = lambda: self.high_watermark
        log.on_start_moved = self._log_start_moved

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"<{self.topic_partition} {role} epoch {self.leader_epoch} isr {self.isr}>"

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record."""
        return self.log.log_end_offset

    @property
    def last_stable_offset(self) -> Offset:
        """Limit for readers of committed records (F5): the first open transaction, or the HW (rule of KAFKA-9807)."""
        return self.log.last_stable_offset(self.high_watermark)

    @property
    def low_watermark(self) -> Offset:
        """For a leader: smallest log start of the live replicas. Records below it are gone everywhere (B7)."""
        return self._remotes.low_watermark(self.log.log_start_offset, self._alive)

    @property
    def isr(self) -> tuple[NodeId, ...]:
        """The committed ISR."""
        return self.isr_state.committed

    @property
    def proposal(self) -> IsrProposal | None:
        """The ISR change that is on its way to the registry."""
        return self.isr_state.proposal

    @property
    def failed(self) -> bool:
        """True once an I/O error has taken this log out of service (B11)."""
        return self._failed or self.log.failed is not None

    @property
    def followers(self) -> Iterable[NodeId]:
        """For a leader: the brokers that may fetch this partition as replicas."""
        return self._remotes.keys()

    def remote(self, node: NodeId) -> RemoteReplica | None:
        """For a leader: its view of the follower on `node`."""
        return self._remotes.get(node)

    def remote_ends(self) -> dict[NodeId, Offset]:
        """For metrics: log ends of the followers as the leader knows them, -1 where it does not know yet."""
        return {node: remote.log_end_offset for node, remote in self._remotes.items()}

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas` of the topic, at most the number of replicas (Kafka's `effectiveMinIsr`)."""
        return min(self.log.config.number("min.insync.replicas"), len(self.replicas))

    @property
    def below_min_isr(self) -> bool:
        """True when the ISR is too small for acks=all; an ISR of all replicas never is."""
        size = len(self.isr)
        return size < len(self.replicas) and size < self.min_isr

    # ------------------------------------------------------------------ roles

    def become_leader(self, state: LeaderAndIsr, now_ms: int) -> bool:
        """Lead under `state`'s epoch; True when this replica did not lead before (a new generation).

        The epoch that this replica already has changes nothing but the ISR, if `state` is newer. KafkaError for an
        older epoch.
        """
        if not self._is_newer(state):
            return False
        assert state.leader == self.node_id, f"{self}: leads under a state of leader {state.leader}"
        began = not self.is_leader
        high_before = self.high_watermark
        self._take(state)
        self.is_leader = True
        if began:
            self.leadership_generation += 1
        self.epoch_start = self.log.log_end_offset
        self.store_epoch_start()
        followers = (node for node in self.replicas if node != self.node_id)
        self._remotes.reset(followers, self.isr, now_ms)
        self.advance_high_watermark(now_ms)
        assert self.high_watermark >= high_before, f"{self}: HW went back from {high_before}"
        return began

    def store_epoch_start(self) -> None:
        """Rule of KAFKA-7415: a leader stores where its epoch starts at once, not with its first append.

        Else it cannot say where the last epoch of a follower ends which led in between.
        """
        self.log.epochs.assign(self.leader_epoch, self.epoch_start)

    def become_follower(self, state: LeaderAndIsr) -> bool:
        """Follow `state.leader` (-1: no leader yet); True when the epoch is new, so that the fetcher starts over."""
        if not self._is_newer(state):
            return False
        self.leader_changed = state.leader != self.leader
        self._take(state)
        self.is_leader = False
        self.epoch_start = NO_OFFSET
        return True

    def stop(self) -> None:
        """Neither lead nor follow from now on (StopReplica, deletion). Operations that wait here fail."""
        self.is_leader = False
        self.leader = NO_NODE
        self.epoch_start = NO_OFFSET
        self.leadership_generation += 1
        self._remotes.end_sessions()
        self._set_committed_isr(self.isr)

    def fail(self) -> None:
        """Serve nothing from now on: the log failed."""
        self._failed = True
        self._remotes.end_sessions()

    def _is_newer(self, state: LeaderAndIsr) -> bool:
        if state.leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.stale_controller_epoch, f"{self}: state is {state}")
        if state.leader_epoch > self.leader_epoch:
            return True
        self.controller_epoch = max(self.controller_epoch, state.controller_epoch)
        if state.version > self.version:
            # The controller read a newer state than this replica had. So a write of ours that expected the older
            # version has either become this state or can never succeed.
            self.version = state.version
            self._set_committed_isr(state.isr)
        return False

    def _take(self, state: LeaderAndIsr) -> None:
        self._remotes.end_sessions()
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.version = state.version
        self.replicas = state.replicas
        self.controller_epoch = state.controller_epoch
        self._set_committed_isr(state.isr)

    # ----------------------------------------------------------------- epochs

    def fence_epoch(self, epoch: int) -> ErrorCode:
        """Compare a client's or a follower's leader epoch with ours (rule of KIP-320); -1 states none."""
        if epoch < 0 or epoch == self.leader_epoch:
            return _NONE
        if epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def check_leader(self, epoch: int = -1) -> ErrorCode:
        """`none` when this replica leads, its log works, and `epoch` is its leader epoch."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        error = _NONE if epoch < 0 else self.fence_epoch(epoch)
        return error if self.is_leader or error is not _NONE else ErrorCode.not_leader_or_follower

    def check_replica(self, epoch: int = -1) -> ErrorCode:
        """`none` when this replica leads or follows, its log works, and `epoch` is its leader epoch (KIP-392)."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        error = _NONE if epoch < 0 else self.fence_epoch(epoch)
        serves = self.is_leader or self.leader >= 0
        return error if serves or error is not _NONE else ErrorCode.not_leader_or_follower

    def diverging(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where a follower's log diverges from this one: (epoch, end offset); None: nowhere (KIP-595).

        KafkaError(offset_out_of_range) when the epoch or the offset lies below what this log has.
        """
        epoch, end = self.log.epochs.end_offset_for(LeaderEpoch(last_fetched_epoch), self.log.log_end_offset)
        if epoch < 0 or end < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    # ---------------------------------------------------------------- leader

    def append_as_leader(self, records: Buffer, *, acks: int, origin: Origin) -> AppendInfo:
        """Append for a producer; the caller then calls `advance_high_watermark`.

        KafkaError: not_leader_or_follower; not_enough_replicas with acks=all and too small an ISR;
        every refusal of the log. StorageError when the log failed.
        """
        error = self.check_leader()
        if error is not _NONE:
            raise KafkaError(error)
        if acks == -1 and self.below_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition}: ISR {list(self.isr)} is below min.insync.replicas={self.min_isr}",
            )
        log = self.log
        end = log.log_end_offset
        info = log.append_as_leader(records, self.leader_epoch, origin=origin)
        for remote in self._remotes.values():
            remote.leader_log_grows(end)
        return info

    def follower_fetched(
        self, node: NodeId, offset: Offset, log_start: Offset, now_ms: int, broker_epoch: BrokerEpoch
    ) -> bool:
        """Take in a follower's fetch whose epoch was checked; True when the HW moved.

        KafkaError: not_leader_or_follower for a broker that has no replica, stale_broker_epoch for an earlier
        registration of it.
        """
        remote = self._remotes.get(node)
        if remote is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self}: no replica on {node}")
        before = remote.log_end_offset
        if not remote.fetched(offset, log_start, self.log.log_end_offset, now_ms, broker_epoch):
            raise KafkaError(
                ErrorCode.stale_broker_epoch,
                f"{self}: broker {node} fetched with epoch {broker_epoch}, it is registered with {remote.broker_epoch}",
            )
        return offset != before and self.advance_high_watermark(now_ms)

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Move a leader's HW by the rule of C1 (see the head); True when it moved."""
        if not self.is_leader:
            return False
        log = self.log
        end, maximal = log.log_end_offset, self.isr_state.maximal
        # The leader's own part ends where `flush.messages` still waits for an fsync.
        high = log.acknowledgeable_end
        assert high <= end, f"{self}: {high} may be acknowledged, the log ends at {end}"
        for node, remote in self._remotes.items():
            if remote.log_end_offset < high and (
                node in maximal or (remote.caught_up(end, now_ms, self.silence_max_ms) and self._alive(node))
            ):
                high = remote.log_end_offset
        if high <= self.high_watermark:
            return False
        self.high_watermark = high
        assert self.log.log_start_offset <= high, f"{self}: HW {high} below log start {log.log_start_offset}"
        self._remotes.changed()
        return True

    def check_latest(self) -> None:
        """KafkaError(offset_not_available) until the HW has reached the epoch's start (KIP-207)."""
        if self.high_watermark < self.epoch_start:
            raise KafkaError(ErrorCode.offset_not_available)

    def _log_start_moved(self) -> None:
        """DeleteRecords, retention or a follower's leader raised the log start."""
        assert self.log.log_start_offset <= self.log.log_end_offset, f"{self}: start beyond end"
        self._remotes.changed()
        if self.on_follower_log_start is not None:
            self.on_follower_log_start()

    # ------------------------------------------------------------------- ISR

    def may_join_isr(self, remote: RemoteReplica) -> bool:
        """Rule of KAFKA-7128: a follower joins at the HW and at the start of the leader's epoch, not before.

        The HW alone is not enough: a new leader's HW may be behind records that the old leader acknowledged.
        """
        return remote.log_end_offset >= self.high_watermark and remote.log_end_offset >= self.epoch_start

    def is_isr_eligible(self, node: NodeId) -> bool:
        """Rule of KIP-841: only a broker that is registered joins, by what this broker's metadata says."""
        return self._alive(node)

    def propose_expansion(self, node: NodeId) -> IsrProposal | None:
        """Propose an ISR with `node`, if it has caught up and is eligible; None: not now."""
        remote = self._remotes.get(node)
        if self.proposal is not None or not self.is_leader or remote is None or node in self.isr:
            return None
        if not self.may_join_isr(remote) or not self.is_isr_eligible(node):
            return None
        return self._propose((*self.isr, node), "expand")

    def propose_shrink(self, now_ms: int, listening_ms: int = NEVER_MS) -> IsrProposal | None:
        """Propose an ISR without the members that are not `RemoteReplica.in_sync`; None: not now."""
        if self.proposal is not None or not self.is_leader:
            return None
        end, limits = self.log.log_end_offset, (self.lag_time_max_ms, self.silence_max_ms)
        kept = tuple(
            node
            for node in self.isr
            if (remote := self._remotes.get(node)) is None or remote.in_sync(end, now_ms, *limits, listening_ms)
        )
        return None if kept == self.isr else self._propose(kept, "shrink")

    def isr_accepted(self, proposal: IsrProposal, version: int, now_ms: int) -> bool:
        """The registry took `proposal`; False when a newer state has voided it meanwhile."""
        if proposal is not self.proposal:
            return False
        assert self.is_leader, f"{self}: a proposal outlived the leadership"
        assert version > self.version, f"{self}: version {version} after {self.version}"
        self.version = version
        self._set_committed_isr(proposal.isr)
        self.isr_state.since_ms = now_ms
        self.advance_after_isr(now_ms)
        return True

    def advance_after_isr(self, now_ms: int) -> bool:
        """Move the HW that only a former member of the ISR held back; True when it moved."""
        return self.advance_high_watermark(now_ms)

    def isr_withdrawn(self, proposal: IsrProposal, now_ms: int) -> bool:
        """The registry did not take `proposal`, and never will; True when the HW moved."""
        if proposal is not self.proposal:
            return False
        self._set_committed_isr(self.isr)
        return self.advance_high_watermark(now_ms)

    def _propose(self, isr: tuple[NodeId, ...], cause: str) -> IsrProposal:
        assert self.is_leader, f"{self}: only a leader proposes an ISR"
        assert self.node_id in isr, f"{self}: ISR {isr} would lack its leader"
        assert set(isr) <= {*self.replicas, *self.isr}, f"{self}: {isr} has others than its replicas {self.replicas}"
        proposal = IsrProposal(
            isr=isr,
            leader_epoch=self.leader_epoch,
            controller_epoch=self.controller_epoch,
            expected_version=self.version,
            cause=cause,
            registrations=self._remotes.registrations(isr),
        )
        self.isr_state.propose(proposal)
        return proposal

    def _set_committed_isr(self, isr: Sequence[NodeId]) -> None:
        self.isr_state.commit(isr)
        self._remotes.isr_changed()

    # -------------------------------------------------------------- follower

    def append_as_follower(
        self, records: Buffer | None, leader_high_watermark: int, leader_log_start: int
    ) -> AppendInfo | None:
        """Append what the leader sent from this log's end, then take its HW (C2) and its log start."""
        assert not self.is_leader, f"{self}: a leader takes no records from others"
        log = self.log
        info = log.append_as_follower(records, self.epoch_to_append) if records else None
        high = min(log.log_end_offset, leader_high_watermark)
        if high > self.high_watermark:
            self.high_watermark = Offset(high)
        assert self.high_watermark <= log.log_end_offset, f"{self}: HW {self.high_watermark}, end {log.log_end_offset}"
        if leader_log_start > log.log_start_offset:
            self._raise_log_start(leader_log_start)
        return info

    @property
    def epoch_to_append(self) -> int:
        """For a follower: it appends no batch of a later leader epoch, which its leader did not have (KAFKA-18723)."""
        return self.leader_epoch

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log.log_end_offset:
            return
        self.log.increment_log_start_offset(Offset(offset))
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)

    def truncate_to(self, offset: int) -> bool:
        """Truncate a follower's log; True when records went. The HW never lies beyond the log."""
        assert not self.is_leader, f"{self}: a leader never truncates"
        before = self.log.log_end_offset
        self.log.truncate_to(Offset(offset))
        end = self.log.log_end_offset
        assert end <= before, f"{self}: truncation from {before} gave {end}"
        self.high_watermark = min(self.high_watermark, end)
        return end < before

    def truncate_fully_and_start_at(self, offset: int) -> None:
        """Drop everything: the leader's log begins after the end of this one."""
        assert not self.is_leader, f"{self}: a leader never truncates"
        self.log.truncate_fully_and_start_at(Offset(offset))
        self.high_watermark = Offset(offset)

    def state(self) -> dict[str, object]:
        """JSON-able, for the control op `state`."""
        topic, partition = self.topic_partition
        return {
            "topic": topic,
            "partition": partition,
            "leader": self.leader,
            "leader_epoch": self.leader_epoch,
            "isr": list(self.isr),
            "replicas": list(self.replicas),
            "is_leader": self.is_leader,
            "failed": self.failed,
            "leo": self.log.log_end_offset,
            "hw": self.high_watermark,
            "lso": self.last_stable_offset,
            "log_start": self.log.log_start_offset,
        }
