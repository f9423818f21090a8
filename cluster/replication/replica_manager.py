"""Every replica of this broker, and the one door to them (C1 to C8, E3, E4).

Owns: the partitions, the fetchers, the produce and fetch purgatories, the ISR writes, the HW
checkpoint; the rules themselves are in the files beside this one:

    partition.py  HW, ISR, epochs        leader_and_isr.py  the controller's orders
    produce.py    appends, acks=all      fetch.py           reads for consumers and followers
    fetcher.py    following a leader     truncation.py      where a follower cuts
    list_offsets.py                      isr_writes.py     high_watermarks.py

Wake-ups: an append wakes followers, a HW that moved wakes consumers, both when the link has delivered what it read
(else on the next turn of the loop) and once for all that this brought about. Producers are answered when the HW moves.

Source: Kafka's `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..errors import ErrorCode, KafkaError, StorageError
from ..ids import BrokerEpoch, ControllerEpoch, NodeId, Offset, TopicPartition
from ..purgatory import Purgatory, PurgatoryTimer
from ..storage.results import Origin
from ..wire.api import ApiRow
from ..wire.fetch import FETCH_VERSION_HIGH, FETCH_VERSION_LOW
from ..wire.produce import PRODUCE_VERSION_HIGH, PRODUCE_VERSION_LOW
from ..wire.topic_ids import text_of
from .delete_records import VERSION_HIGH as DELETE_VERSION_HIGH
from .delete_records import VERSION_LOW as DELETE_VERSION_LOW
from .delete_records import DeleteRecords
from .fetch import Fetches
from .fetcher import Fetchers
from .high_watermark_checkpoint import HighWatermarkCheckpoint
from .isr_writes import IsrStore, IsrWrites
from .leader_and_isr import Orders
from .list_offsets import Offsets
from .log_dirs import VERSION_HIGH as LOG_DIRS_VERSION_HIGH
from .log_dirs import VERSION_LOW as LOG_DIRS_VERSION_LOW
from .log_dirs import LogDirs
from .offset_trace import OffsetTrace
from .partition import Partition
from .produce import Appends, Done
from .produce_handler import Produces
from .truncation import STRATEGIES

if TYPE_CHECKING:
    from ..config import BrokerConfig
    from ..host.seam import Buffer, Host, Promise
    from ..network.peers import PeerClient
    from ..storage.log import Log
    from ..storage.log_folder import LogFolder
    from ..storage.log_manager import LogManager
    from ..storage.results import FetchData
    from ..wire.request import Request
    from ..wire.topic_ids import UUID

LeadershipHook = Callable[[list[Partition], list[Partition]], None]
TopicConfigSource = Callable[[str], Awaitable[Mapping[str, object]]]


class ReplicaManager:
    """The replicas of one broker. `peers(node)` gives a fresh client of a broker, None if unknown."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        logs: LogManager,
        registry_isr: IsrStore,
        peers: Callable[[NodeId], PeerClient | None],
    ) -> None:
        self.host = host
        self.node_id = node_id
        self.config = config
        self.logs = logs
        self.peers = peers
        self.controller_epoch = ControllerEpoch(0)
        self.alive: Callable[[NodeId], bool] = lambda _node: True
        """True for brokers that metadata says are alive: who may enter the ISR. To be set by the broker."""
        self.in_metadata: Callable[[TopicPartition], bool] = lambda _tp: False
        """True for partitions that metadata knows, here or not. To be set by the broker."""
        self.topic_config: TopicConfigSource | None = None
        """Overrides of a topic, for a new log. To be set by the broker."""
        self.on_leadership: list[LeadershipHook] = []
        """Called with the partitions that began to lead and to follow (or stopped), after the fact."""
        logs.on_folder_failed.append(self._folder_failed)
        self.on_log_failure: list[Callable[[Partition | None, BaseException], None]] = []
        self._broker_epoch = BrokerEpoch(-1)
        self._epoch_waiters: list[Promise[None]] = []
        self._partitions: dict[TopicPartition, Partition] = {}
        self._topic_names: dict[UUID, str] = {}
        self._lag_time_max_ms = config.number("replica.lag.time.max.ms")
        self.timer = PurgatoryTimer(host)
        produce_purge = config.number("producer.purgatory.purge.interval.requests")
        fetch_purge = config.number("fetch.purgatory.purge.interval.requests")
        self.produces = Purgatory("Produce", self.timer, produce_purge)
        self.follower_fetches = Purgatory("Fetch", self.timer, fetch_purge)
        self.consumer_fetches = Purgatory("ConsumerFetch", self.timer, fetch_purge)
        delete_purge = config.number("delete.records.purgatory.purge.interval.requests")
        self.deletions = Purgatory("DeleteRecords", self.timer, delete_purge)
        self.checkpoint = HighWatermarkCheckpoint(
            host,
            logs,
            config.number("replica.high.watermark.checkpoint.interval.ms"),
            self.partitions,
        )
        self.offsets = OffsetTrace(host, config.number("harrow.trace.hw.interval.ms"))
        """Tells of offsets that moved, and why."""
        self.isr_writes = IsrWrites(
            host, registry_isr, node_id, self._lag_time_max_ms, self.partitions, self.isr_changed
        )
        self.fetchers = Fetchers(self, STRATEGIES[config.text("harrow.replica.truncation")])
        self.appends = Appends(self)
        self._orders = Orders(self)
        self._appended: dict[TopicPartition, Partition] = {}
        self._moved: dict[TopicPartition, None] = {}
        self._flush_due = False
        self._failed: set[Partition] = set()
        self.isr_changes = {"shrink": 0, "expand": 0}
        """How often ISRs changed here, by cause: for metrics."""

    # ------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin the periodic checks."""
        self.isr_writes.start()

    async def stop(self) -> None:
        """Follow nobody, answer what waits, write the high watermarks."""
        self.fetchers.close()
        self.isr_writes.stop()
        for partition in list(self._partitions.values()):
            partition.stop()
            self.role_changed(partition)
        self.timer.close()
        await self.host.tasks.run_blocking(self.checkpoint.stop)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Epoch of this broker's registration (D6); -1 before the first."""
        return self._broker_epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: BrokerEpoch) -> None:
        self._broker_epoch = epoch
        waiters, self._epoch_waiters = self._epoch_waiters, []
        for waiter in waiters:
            if not waiter.done():
                waiter.set_result(None)

    async def await_broker_epoch(self, epoch: BrokerEpoch, timeout_ms: int) -> None:
        """Wait until the broker epoch is at least `epoch`, or the time is over."""
        deadline_ms = self.host.clock.monotonic_ms() + timeout_ms
        while self._broker_epoch < epoch:
            left_ms = deadline_ms - self.host.clock.monotonic_ms()
            if left_ms <= 0:
                return
            waiter: Promise[None] = self.host.tasks.promise()
            self._epoch_waiters.append(waiter)
            try:
                await self.host.tasks.wait(waiter, left_ms)
            except TimeoutError:
                return

    def handlers(self) -> Iterable[ApiRow]:
        """What this room serves."""
        offsets = Offsets(self)
        return (
            ApiRow(0, PRODUCE_VERSION_LOW, PRODUCE_VERSION_HIGH, Produces(self).handle),
            ApiRow(1, FETCH_VERSION_LOW, FETCH_VERSION_HIGH, Fetches(self).handle),
            ApiRow(2, 1, 8, offsets.handle_list_offsets),
            ApiRow(4, 7, 7, self.handle_leader_and_isr),
            ApiRow(5, 4, 4, self.handle_stop_replica),
            ApiRow(21, DELETE_VERSION_LOW, DELETE_VERSION_HIGH, DeleteRecords(self).handle),
            ApiRow(23, 2, 4, offsets.handle_offset_for_leader_epoch),
            ApiRow(35, LOG_DIRS_VERSION_LOW, LOG_DIRS_VERSION_HIGH, LogDirs(self).handle),
        )

    async def handle_leader_and_isr(self, request: Request) -> None:
        """LeaderAndIsr (C8)."""
        await self._orders.handle_leader_and_isr(request)

    async def handle_stop_replica(self, request: Request) -> None:
        """StopReplica."""
        await self._orders.handle_stop_replica(request)

    # -------------------------------------------------------------- partitions

    def partition(self, tp: TopicPartition) -> Partition | None:
        """The replica of `tp` here; None where the controller gave none."""
        return self._partitions.get(tp)

    def partitions(self) -> Iterable[Partition]:
        """All replicas here."""
        return tuple(self._partitions.values())

    def topic_name(self, topic_id: UUID) -> str | None:
        """The topic of an id, if a replica of it is here."""
        return self._topic_names.get(topic_id)

    def missing(self, tp: TopicPartition) -> ErrorCode:
        """Why `partition(tp)` is None, as clients are told: Kafka's answer makes them look again."""
        known = tp.topic in self._topic_names.values() or self.in_metadata(tp)
        return ErrorCode.not_leader_or_follower if known else ErrorCode.unknown_topic_or_partition

    def host_partition(
        self,
        tp: TopicPartition,
        topic_id: UUID | None,
        overrides: Mapping[str, object],
        *,
        is_new: bool = True,
    ) -> Partition:
        """The partition of `tp`, made with its log where it is new. KafkaError, StorageError, OSError."""
        if topic_id is None:
            raise KafkaError(ErrorCode.unknown_topic_id, f"{tp}: an order without a topic id")
        found = self._partitions.get(tp)
        if found is not None:
            if found.topic_id == topic_id:
                return found
            self.drop(found)
            self.delete_log(tp)
            # That topic is gone: its id must not lead to the new one of its name.
            self._topic_names.pop(found.topic_id, None)
        text = text_of(topic_id)
        log = self.logs.get(tp)
        if log is not None and log.topic_id and log.topic_id != text:
            self.delete_log(tp)
        log = self.logs.create(tp, text, self.config.topic(overrides), is_new=is_new)
        partition = Partition(
            tp,
            log,
            node_id=self.node_id,
            topic_id=topic_id,
            lag_time_max_ms=self._lag_time_max_ms,
            high_watermark=self.checkpoint.read(tp),
            alive=self._is_alive,
        )
        log.on_fsync_completed = lambda: self._settled(partition)
        self._partitions[tp] = partition
        self._topic_names[topic_id] = tp.topic
        return partition

    def _is_alive(self, node: NodeId) -> bool:
        return self.alive(node)

    def drop(self, partition: Partition) -> None:
        """Host it no more: its fetcher stops, what waits on it fails."""
        tp = partition.topic_partition
        self.fetchers.remove(partition)
        self.checkpoint.remember(tp, partition.high_watermark)
        partition.stop()
        if self._partitions.get(tp) is partition:
            del self._partitions[tp]
        if not any(other.topic == tp.topic for other in self._partitions):
            self._topic_names.pop(partition.topic_id, None)
        self.role_changed(partition)

    def delete_log(self, tp: TopicPartition) -> None:
        """Delete the log of `tp`, if there is one. StorageError, OSError."""
        self.checkpoint.forget(tp)
        if self.logs.get(tp) is not None:
            self.logs.delete(tp)

    # ----------------------------------------------------------- reads, writes

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int,
        timeout_ms: int,
        done: Done,
        internal: bool = False,
    ) -> None:
        """Append to partitions led here; `done(results)` once, maybe before this returns (see produce.py)."""
        self.appends.append(
            entries,
            acks=acks,
            timeout_ms=timeout_ms,
            done=done,
            origin=Origin.COORDINATOR if internal else Origin.CLIENT,
            internal_topics=internal,
        )

    def read_for(self, tp: TopicPartition, offset: Offset, max_bytes: int) -> FetchData:
        """Committed batches from `offset` on, at least one where there is one: for coordinators loading.

        KafkaError: not led here, or `offset` out of range. Empty at the HW.
        """
        partition = self._partitions.get(tp)
        if partition is None:
            raise KafkaError(self.missing(tp))
        error = partition.check_leader()
        if error is not ErrorCode.none:
            raise KafkaError(error)
        log = partition.log
        if not log.log_start_offset <= offset <= log.log_end_offset:
            raise KafkaError(ErrorCode.offset_out_of_range)
        return log.read(offset, max_bytes, partition.high_watermark, at_least_one=True)

    # ---------------------------------------------------------------- wake-ups

    def appended(self, partition: Partition) -> None:
        """A leader's log grew: try its HW, wake its followers when the delivery has ended."""
        self.offsets.log_end(partition, "append")
        if partition.advance_high_watermark(self.host.clock.monotonic_ms()):
            self.high_watermark_moved(partition, "append")
        if self.follower_fetches.delayed:
            self._appended[partition.topic_partition] = partition
            self._flush_soon()

    def _settled(self, partition: Partition) -> None:
        """An fsync that an append waited for has ended."""
        if partition.advance_high_watermark(self.host.clock.monotonic_ms()):
            self.high_watermark_moved(partition, "flush")
        else:
            self.produces.check_and_complete(partition.topic_partition)
        self.fetchers.settled()

    def high_watermark_moved(self, partition: Partition, cause: str) -> None:
        """A leader's HW moved: answer producers now, consumers when the delivery has ended."""
        tp = partition.topic_partition
        self.produces.check_and_complete(tp)
        self.offsets.high_watermark(partition, cause)
        if self.consumer_fetches.waiting(tp):
            self._moved[tp] = None
            self._flush_soon()

    def follower_high_watermark_moved(self, partition: Partition) -> None:
        """A follower's HW moved: consumers may wait for it here too (KIP-392)."""
        self.offsets.high_watermark(partition, "fetch-response")
        if self.consumer_fetches.waiting(partition.topic_partition):
            self._moved[partition.topic_partition] = None
            self._flush_soon()

    def role_changed(self, partition: Partition) -> None:
        """Everything that waits on `partition` looks again."""
        tp = partition.topic_partition
        self.produces.check_and_complete(tp)
        self.deletions.check_and_complete(tp)
        self.follower_fetches.check_all()
        self.consumer_fetches.check_and_complete(tp)

    def announce(self, leaders: Sequence[Partition], followers: Sequence[Partition]) -> None:
        """Tell the coordinators who leads and follows now."""
        for hook in self.on_leadership:
            hook(list(leaders), list(followers))

    def _flush_soon(self) -> None:
        if not self._flush_due:
            self._flush_due = True
            self.host.network.after_delivery(self._flush)

    def _flush(self) -> None:
        self._flush_due = False
        appended, self._appended = self._appended, {}
        moved, self._moved = self._moved, {}
        nodes: set[NodeId] = set()
        for partition in appended.values():
            nodes.update(partition.followers)
        for node in sorted(nodes):
            self.follower_fetches.check_and_complete(node)
        for tp in moved:
            self.consumer_fetches.check_and_complete(tp)

    # ---------------------------------------------------------------- reports

    def isr_changed(self, partition: Partition, cause: str, hw_moved: bool) -> None:
        """The committed ISR of a partition that is led here is another: `expand`, `shrink` or `leader-and-isr`."""
        topic, index = partition.topic_partition
        self.isr_changes[cause] = self.isr_changes.get(cause, 0) + 1
        self.host.trace.emit(
            "partition.isr",
            topic=topic,
            partition=index,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            cause=cause,
        )
        if hw_moved:
            self.high_watermark_moved(partition, "isr")

    def trace_truncated(self, partition: Partition, before: int, cause: str) -> None:
        """A follower's log was cut."""
        topic, index = partition.topic_partition
        self.host.trace.emit(
            "partition.truncated",
            topic=topic,
            partition=index,
            cause=cause,
            **{"from": before, "to": partition.log_end_offset},
        )

    def _folder_failed(
        self, _folder: LogFolder, logs: Sequence[Log], failure: StorageError
    ) -> None:
        """A data folder is offline: so are its replicas, and no others (B13)."""
        for log in logs:
            partition = self._partitions.get(log.topic_partition)
            if partition is not None and partition.log is log:
                self.log_failed(partition, failure)

    def log_failed(self, partition: Partition | None, error: BaseException) -> None:
        """The disk refused: the partition serves nothing any more (B11). Told once, whoever notices first."""
        if partition in self._failed:
            return
        if partition is not None:
            self._failed.add(partition)
            partition.fail()
            topic, index = partition.topic_partition
            self.host.trace.emit("log.failed", topic=topic, partition=index, error=str(error))
            self.fetchers.remove(partition)
            self.role_changed(partition)
            if isinstance(error, OSError):  # not of the log itself, which would have said so
                self.logs.log_failed(partition.log, StorageError(str(error)))
        self.host.trace.log("error", f"log folder failed: {error!r}")
        for hook in self.on_log_failure:
            hook(partition, error)

    def state(self) -> list[dict[str, object]]:
        """Every replica here, JSON-able: for the control op `state`."""
        return [one.state() for _, one in sorted(self._partitions.items())]
