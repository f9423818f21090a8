"""One replica of a partition on this broker: its role, its leader epoch, ISR and high watermark.

Sans-IO: time comes in as `now_ms`; an ISR change goes out as an `IsrProposal` that the replica manager
writes to the registry and brings back. The log is the storage room's.

The rules (spec C1 to C5):

* Leader's HW = min LEO over replicas in the *maximal* ISR (committed united with proposed, KIP-497) or
  caught up within `replica.lag.time.max.ms`. The caught-up ones count although they are outside, so
  that a follower that nearly is back is not outrun for ever by an ISR of one.
* The HW never goes back while a replica leads; a new leader starts from its follower's HW, which may
  be behind what the old leader served. `latest_offset` refuses until HW reaches the epoch's start.
* A follower's HW = min(own LEO, leader's HW), taken after its append. So a record needs two rounds:

      round 1: follower fetches at 0 -> leader: remote LEO 0, HW 0; follower appends, LEO 1, HW min(1, 0) = 0
      round 2: follower fetches at 1 -> leader: remote LEO 1, HW 1; follower LEO 1, HW min(1, 1) = 1

* Every new leader epoch resets what the leader knew of its followers, although it led before.
* One ISR write is under way at a time. Until it is known to be accepted or void, the HW waits for
  both ISRs; an unknown outcome therefore holds the HW back, never lets it run ahead.
* `generation` counts the times that this replica began to lead after something else: an append waits
  for its followers only within the generation in which it was made, for in between its log may have
  been truncated. Leader epochs that follow each other in one generation do not truncate.

Offsets here carry no segment: the storage room finds the position by offset, so there is no HW metadata
to update when only the segment changed.

Source: Kafka's `Partition` and `UnifiedLog` (HW part); KIP-207, KIP-320, KIP-497, KIP-903.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
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
from .remote_replica import NEVER_MS, RemoteReplica

if TYPE_CHECKING:
    from ..host.seam import Buffer
    from ..storage.log import Log
    from ..storage.results import AppendInfo, Origin
    from ..wire.topic_ids import UUID


_NONE = ErrorCode.none  # a look-up in an enum class is not free on the fetch path


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionState:
    """A partition as the controller decided it; `version` is that of its state in the registry."""

    leader: NodeId
    leader_epoch: LeaderEpoch
    isr: tuple[NodeId, ...]
    version: int
    replicas: tuple[NodeId, ...]
    controller_epoch: ControllerEpoch


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class IsrProposal:
    """An ISR change on its way to the registry; compared by identity."""

    isr: tuple[NodeId, ...]
    leader_epoch: LeaderEpoch
    controller_epoch: ControllerEpoch
    expected_version: int
    cause: str


class Partition:
    """State of this broker's replica of one partition. Neither leader nor follower until told."""

    def __init__(
        self,
        topic_partition: TopicPartition,
        log: Log,
        *,
        node_id: NodeId,
        topic_id: UUID,
        lag_time_max_ms: int,
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
        self.generation = 0
        self.version = -1
        self.controller_epoch = ControllerEpoch(0)
        self.isr: tuple[NodeId, ...] = ()
        self.replicas: tuple[NodeId, ...] = ()
        self.is_leader = False
        self.leader_changed = True
        """For a follower: its leader is another broker than under the epoch before, or it has just started."""
        self.proposal: IsrProposal | None = None
        # C3: what was checkpointed, but never beyond the log
        low, high = log.log_start_offset, log.log_end_offset
        self.high_watermark = Offset(max(low, min(high_watermark, high)))
        self._remotes: dict[NodeId, RemoteReplica] = {}
        self._maximal: frozenset[NodeId] = frozenset()
        self._lag_time_max_ms = lag_time_max_ms
        self._alive = alive
        self._failed = False
        log.high_watermark = lambda: self.high_watermark

    def __repr__(self) -> str:
        role = "leader" if self.is_leader else f"follower of {self.leader}"
        return f"<{self.topic_partition} {role} epoch {self.leader_epoch} isr {self.isr}>"

    @property
    def log_end_offset(self) -> Offset:
        """Offset of the next record."""
        return self.log.log_end_offset

    @property
    def low_watermark(self) -> Offset:
        """Smallest log start offset of the live replicas, for a leader: what is below is gone everywhere (B7)."""
        starts = [r.log_start_offset for node, r in self._remotes.items() if self._alive(node)]
        return min([self.log.log_start_offset, *starts])

    @property
    def failed(self) -> bool:
        """True once the disk refused something of this log (B11)."""
        return self._failed or self.log.failed is not None

    @property
    def followers(self) -> Iterable[NodeId]:
        """Who may fetch this partition as a replica from here; for a leader."""
        return self._remotes.keys()

    def remote_ends(self) -> dict[NodeId, Offset]:
        """Log ends of the followers as their leader knows them; -1 where it does not yet. For metrics."""
        return {node: remote.log_end_offset for node, remote in self._remotes.items()}

    @property
    def min_isr(self) -> int:
        """`min.insync.replicas` of the topic, but never more than it has replicas (Kafka's `effectiveMinIsr`)."""
        return min(self.log.config.number("min.insync.replicas"), len(self.replicas))

    @property
    def below_min_isr(self) -> bool:
        """True when the ISR is too small for acks=all; a whole one never is."""
        size = len(self.isr)
        return size < len(self.replicas) and size < self.min_isr

    # ------------------------------------------------------------------ roles

    def become_leader(self, state: PartitionState, now_ms: int) -> bool:
        """Lead under `state`'s epoch; True when this replica did not lead before (a new generation).

        The same epoch again changes nothing but a newer committed ISR. KafkaError for an older one.
        """
        if not self._newer(state):
            return False
        began = not self.is_leader
        self._take(state)
        self.is_leader = True
        if began:
            self.generation += 1
        self.epoch_start = self.log.log_end_offset
        self.log.epochs.assign(self.leader_epoch, self.epoch_start)
        known, self._remotes = self._remotes, {}
        for node in state.replicas:
            if node != self.node_id:
                remote = self._remotes[node] = known.get(node) or RemoteReplica(node)
                remote.reset(now_ms if node in self.isr else NEVER_MS)
        self.advance_high_watermark(now_ms)
        return began

    def become_follower(self, state: PartitionState) -> bool:
        """Follow `state.leader` (-1: nobody yet); True when the epoch is new, so the fetcher must begin anew."""
        if not self._newer(state):
            return False
        self.leader_changed = state.leader != self.leader
        self._take(state)
        self.is_leader = False
        self.epoch_start = NO_OFFSET
        return True

    def stop(self) -> None:
        """Neither lead nor follow any more: StopReplica, deletion. Operations waiting here fail."""
        self.is_leader = False
        self.leader = NO_NODE
        self.epoch_start = NO_OFFSET
        self.generation += 1
        self._settle(self.isr)

    def fail(self) -> None:
        """Serve nothing any more: the log failed."""
        self._failed = True

    def _newer(self, state: PartitionState) -> bool:
        if state.leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.stale_controller_epoch, f"{self}: state is {state}")
        if state.leader_epoch > self.leader_epoch:
            return True
        self.controller_epoch = max(self.controller_epoch, state.controller_epoch)
        if state.version > self.version:
            # What the controller read is newer than what we had, so a write of ours with the older version
            # has come through as this state, or never will.
            self.version = state.version
            self._settle(state.isr)
        return False

    def _take(self, state: PartitionState) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.version = state.version
        self.replicas = state.replicas
        self.controller_epoch = state.controller_epoch
        self._settle(state.isr)

    # ----------------------------------------------------------------- epochs

    def check_epoch(self, epoch: int) -> ErrorCode:
        """Fence a client's or a follower's idea of the leader epoch (KIP-320); -1 is no idea."""
        if epoch < 0 or epoch == self.leader_epoch:
            return _NONE
        if epoch < self.leader_epoch:
            return ErrorCode.fenced_leader_epoch
        return ErrorCode.unknown_leader_epoch

    def check_leader(self, epoch: int = -1) -> ErrorCode:
        """`none` when this replica leads, its log is sound, and `epoch` is its leader epoch."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        if self.is_leader and (epoch < 0 or epoch == self.leader_epoch):
            return _NONE  # nearly always
        error = self.check_epoch(epoch)
        return ErrorCode.not_leader_or_follower if error is _NONE else error

    def check_replica(self, epoch: int = -1) -> ErrorCode:
        """`none` when this replica leads or follows, its log is sound, and `epoch` is its leader epoch (KIP-392)."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        error = self.check_epoch(epoch)
        if error is _NONE and not self.is_leader and self.leader < 0:
            return ErrorCode.not_leader_or_follower
        return error

    def diverging(self, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
        """Where a follower's log parts from this one: (epoch, end offset); None: it does not (KIP-595).

        KafkaError(offset_out_of_range) when the epoch or the offset lies below what this log knows.
        """
        epoch, end = self.log.epochs.end_offset_for(
            LeaderEpoch(last_fetched_epoch), self.log.log_end_offset
        )
        if epoch < 0 or end < 0 or fetch_offset < self.log.log_start_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
        return None

    # ---------------------------------------------------------------- leader

    def append_as_leader(self, records: Buffer, *, acks: int, origin: Origin) -> AppendInfo:
        """Append for a producer; the caller then calls `advance_high_watermark`.

        KafkaError: not_leader_or_follower; not_enough_replicas with acks=all and too small an ISR;
        whatever the log refuses. StorageError when the log failed.
        """
        error = self.check_leader()
        if error is not ErrorCode.none:
            raise KafkaError(error)
        if acks == -1 and self.below_min_isr:
            raise KafkaError(
                ErrorCode.not_enough_replicas,
                f"{self.topic_partition}: ISR {list(self.isr)} is below "
                f"min.insync.replicas={self.min_isr}",
            )
        return self.log.append_as_leader(records, self.leader_epoch, origin=origin)

    def append_outcome(self, required_offset: int, generation: int) -> ErrorCode | None:
        """What became of an append that ends below `required_offset`; None: its followers lag still."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        if not self.is_leader or generation != self.generation:
            return ErrorCode.not_leader_or_follower
        if self.high_watermark < required_offset:
            return None
        if self.below_min_isr:
            return ErrorCode.not_enough_replicas_after_append
        return ErrorCode.none

    def settle_outcome(self, required_offset: int, generation: int) -> ErrorCode | None:
        """What became of an append that its producer wants from the leader alone; None: its fsync is due (B11)."""
        if self.failed:
            return ErrorCode.kafka_storage_error
        if not self.is_leader or generation != self.generation:
            return ErrorCode.not_leader_or_follower
        return ErrorCode.none if self.log.acknowledgeable_end >= required_offset else None

    def follower_fetched(
        self,
        node: NodeId,
        offset: Offset,
        log_start: Offset,
        now_ms: int,
        broker_epoch: BrokerEpoch,
    ) -> bool:
        """Take in a follower's fetch whose epoch was checked; True when the HW moved.

        KafkaError(not_leader_or_follower) for a broker that holds no replica, or did so in an earlier life.
        """
        remote = self._remotes.get(node)
        if remote is None:
            raise KafkaError(ErrorCode.not_leader_or_follower, f"{self}: no replica on {node}")
        before = remote.log_end_offset
        if not remote.fetched(offset, log_start, self.log.log_end_offset, now_ms, broker_epoch):
            raise KafkaError(ErrorCode.stale_broker_epoch, f"{self}: earlier life of {node}")
        return offset != before and self.advance_high_watermark(now_ms)

    def advance_high_watermark(self, now_ms: int) -> bool:
        """Try C1's rule; True when the HW moved. Only a leader's HW moves here."""
        if not self.is_leader:
            return False
        end = self.log.log_end_offset
        high = (
            self.log.acknowledgeable_end
        )  # its own share: what flush.messages asks to be fsynced first is not there yet
        for node, remote in self._remotes.items():
            if remote.log_end_offset < high and (
                node in self._maximal
                or (remote.caught_up(end, now_ms, self._lag_time_max_ms) and self._alive(node))
            ):
                high = remote.log_end_offset
        if high <= self.high_watermark:
            return False
        self.high_watermark = high
        return True

    @property
    def last_stable_offset(self) -> Offset:
        """Where readers of committed records stop: at an open transaction, or at the HW (F5)."""
        return self.log.last_stable_offset(self.high_watermark)

    def check_latest(self) -> None:
        """KafkaError(offset_not_available) until the HW has reached the epoch's start (KIP-207)."""
        if self.high_watermark < self.epoch_start:
            raise KafkaError(ErrorCode.offset_not_available)

    # ------------------------------------------------------------------- ISR

    def propose_expansion(self, node: NodeId) -> IsrProposal | None:
        """Let `node` in, if it reached HW and the epoch's start and is alive; None: not now."""
        remote = self._remotes.get(node)
        if self.proposal is not None or not self.is_leader or remote is None or node in self.isr:
            return None
        end = remote.log_end_offset
        if end < self.high_watermark or end < self.epoch_start or not self._alive(node):
            return None
        return self._propose((*self.isr, node), "expand")

    def propose_shrink(self, now_ms: int) -> IsrProposal | None:
        """Put out who has not been caught up for the lag time; None: nobody, or not now."""
        if self.proposal is not None or not self.is_leader:
            return None
        end, lag = self.log.log_end_offset, self._lag_time_max_ms
        kept = tuple(
            node
            for node in self.isr
            if (remote := self._remotes.get(node)) is None or remote.caught_up(end, now_ms, lag)
        )
        return None if kept == self.isr else self._propose(kept, "shrink")

    def isr_accepted(self, proposal: IsrProposal, version: int, now_ms: int) -> bool:
        """The registry took `proposal`; False when it is void, for a newer state came meanwhile."""
        if proposal is not self.proposal:
            return False
        self.version = version
        self._settle(proposal.isr)
        self.advance_high_watermark(now_ms)
        return True

    def isr_void(self, proposal: IsrProposal) -> None:
        """`proposal` certainly was not and will not be taken; others may follow."""
        if proposal is self.proposal:
            self._settle(self.isr)

    def _propose(self, isr: tuple[NodeId, ...], cause: str) -> IsrProposal:
        self.proposal = IsrProposal(
            isr=isr,
            leader_epoch=self.leader_epoch,
            controller_epoch=self.controller_epoch,
            expected_version=self.version,
            cause=cause,
        )
        self._maximal = frozenset((*self.isr, *isr))
        return self.proposal

    def _settle(self, isr: Sequence[NodeId]) -> None:
        self.isr = tuple(isr)
        self.proposal = None
        self._maximal = frozenset(self.isr)

    # -------------------------------------------------------------- follower

    def append_as_follower(
        self, records: Buffer | None, leader_high_watermark: int, leader_log_start: int
    ) -> AppendInfo | None:
        """Append what the leader sent from this log's end, then take its HW (C2) and log start."""
        assert not self.is_leader, f"{self}: a leader takes no records from others"
        info = self.log.append_as_follower(records) if records else None
        high = min(self.log.log_end_offset, leader_high_watermark)
        if high > self.high_watermark:
            self.high_watermark = Offset(high)
        if leader_log_start > self.log.log_start_offset:
            self._raise_log_start(leader_log_start)
        return info

    def _raise_log_start(self, offset: int) -> None:
        if offset > self.log.log_end_offset:
            return
        self.log.increment_log_start_offset(Offset(offset))
        self.high_watermark = max(self.high_watermark, self.log.log_start_offset)

    def truncate_to(self, offset: int) -> bool:
        """Cut a follower's log; True when records went. The HW never lies beyond the log."""
        assert not self.is_leader, f"{self}: a leader never truncates"
        before = self.log.log_end_offset
        self.log.truncate_to(Offset(offset))
        self.high_watermark = min(self.high_watermark, self.log.log_end_offset)
        return self.log.log_end_offset < before

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
            "log_start": self.log.log_start_offset,
        }
