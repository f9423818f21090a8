"""Partitions for table tests: the log is a list, and two replicas exchange data by plain calls."""

from __future__ import annotations

from typing import Any, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.simulated.disk import SimDisk
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, Offset, TopicPartition
from harrow.cluster.replication import LeaderAndIsr, Partition
from harrow.cluster.replication.truncation_strategies import STRATEGIES, TruncationStrategy, latest_epoch
from harrow.cluster.storage import AppendInfo, LeaderEpochs, Origin
from harrow.cluster.wire.topic_ids import UUID

TP = TopicPartition("orders", 0)
LAG_MS = 100


class ListLog:
    """The part of a log that a partition uses; a record is (epoch, value), a batch is one record."""

    def __init__(self, config: dict[str, object] | None = None) -> None:
        self.records: list[tuple[int, str]] = []
        self.log_start_offset = Offset(0)
        disk = SimDisk(lambda: 0)
        disk.make_folder("/log")
        self.epochs = LeaderEpochs(cast("Any", disk), "/log")
        self.config = BrokerConfig.parse(config or {}).topic()
        self.failed: Exception | None = None

    @property
    def log_end_offset(self) -> Offset:
        return Offset(len(self.records))

    acknowledgeable_end = log_end_offset  # no append waits for an fsync

    def put(self, epoch: int, value: str) -> None:
        if epoch > self.epochs.latest():
            self.epochs.assign(LeaderEpoch(epoch), self.log_end_offset)
        self.records.append((epoch, value))

    def append_as_leader(self, records: Any, epoch: int, *, origin: Origin) -> AppendInfo:
        del origin
        first = self.log_end_offset
        self.put(epoch, bytes(records).decode())
        return AppendInfo(first, first, -1, self.log_start_offset, False, 1, len(records))

    def append_as_follower(self, records: Any, leader_epoch: int) -> None:
        for epoch, value in records:
            self.put(epoch, value)

    def truncate_to(self, offset: int) -> None:
        del self.records[offset:]
        self.epochs.truncate_from_end(self.log_end_offset)


class Replica:
    """A partition over a `ListLog`, which does what a fetcher and a fetch handler do."""

    def __init__(
        self, node: int, rule: str = "kip-320", config: dict[str, object] | None = None, silence_ms: int = 0
    ) -> None:
        self.node = node
        self.silence_ms = silence_ms
        self.log = ListLog(config)
        self.rule: TruncationStrategy = STRATEGIES[rule]
        self.partition = self._open(0)

    def _open(self, checkpoint: int) -> Partition:
        return Partition(
            TP,
            cast("Any", self.log),
            node_id=NodeId(self.node),
            topic_id=UUID(int=1),
            lag_time_max_ms=LAG_MS,
            silence_max_ms=self.silence_ms,
            high_watermark=checkpoint,
        )

    @property
    def leo(self) -> int:
        return self.partition.log_end_offset

    @property
    def hw(self) -> int:
        return self.partition.high_watermark

    def restart(self) -> None:
        """Restart after kill -9: the log stays, and the HW is the checkpointed HW (written at every change here)."""
        self.partition = self._open(self.hw)

    def produce(self, value: str, *, acks: int = 1, now: int = 0) -> None:
        self.partition.append_as_leader(value.encode(), acks=acks, origin=Origin.CLIENT)
        self.partition.advance_high_watermark(now)

    def lead(self, epoch: int, isr: tuple[int, ...], *, version: int = 0, now: int = 0) -> bool:
        return self.partition.become_leader(state(self.node, epoch, isr, version=version), now)

    def follow(self, leader: Replica, epoch: int, isr: tuple[int, ...]) -> None:
        """Become follower and truncate by the rule, with as many requests to `leader` as the rule needs."""
        self.partition.become_follower(state(leader.node, epoch, isr))
        epoch_in_question = latest_epoch(self.partition)
        point = self.rule.start(self.partition)
        self.partition.truncate_to(point.offset)
        while not point.done and self.rule.asks:
            end = leader.log.epochs.end_offset_for(LeaderEpoch(epoch_in_question), leader.log.log_end_offset)
            point = self.rule.answered(self.partition, *end)
            self.partition.truncate_to(point.offset)
            epoch_in_question = latest_epoch(self.partition)

    def fetch(self, leader: Replica, *, now: int = 0) -> None:
        """Run one fetch round: the request, the leader's follower state, the response, the append."""
        offset = self.partition.log_end_offset
        if offset > leader.leo and not self.rule.on_fetch:
            self.partition.truncate_to(leader.leo)  # OFFSET_OUT_OF_RANGE
            return
        if self.rule.on_fetch and (last := latest_epoch(self.partition)) >= 0:
            diverging = leader.partition.diverging(offset, last)
            if diverging is not None:
                self.partition.truncate_to(self.rule.answered(self.partition, *diverging).offset)
                return
        leader.partition.follower_fetched(NodeId(self.node), offset, Offset(0), now, BrokerEpoch(1))
        records = leader.log.records[offset:]
        self.partition.append_as_follower(cast("Any", records), leader.hw, 0)


def state(
    leader: int, epoch: int, isr: tuple[int, ...], *, version: int = 0, replicas: tuple[int, ...] = ()
) -> LeaderAndIsr:
    return LeaderAndIsr(
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(map(NodeId, isr)),
        version=version,
        replicas=tuple(map(NodeId, replicas or (1, 2, 3))),
        controller_epoch=ControllerEpoch(1),
    )
