"""The parts of a broker that a coordinator uses: logs in memory, appends that a test acknowledges, a metadata cache."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import Buffer
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import OFFSETS
from harrow.cluster.listeners import Address
from harrow.cluster.purgatory import Purgatory, PurgatoryTimer
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_table import ApiRow
from harrow.cluster.wire.batches import assign_offset, decode_records, header_at
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.request import Request
from harrow.cluster.wire.topic_ids import UUID
from manual_host import ManualHost
from request_contexts import CLIENT_LISTENER, client_context


@dataclass
class FakeLog:
    batches: list[bytes] = field(default_factory=list[bytes])
    log_start_offset: int = 0
    reads: int = 0

    @property
    def log_end_offset(self) -> int:
        return header_at(self.batches[-1]).last_offset + 1 if self.batches else 0

    def append(self, records: Buffer) -> int:
        batch = bytearray(records)
        base = self.log_end_offset
        assign_offset(batch, base, 0)
        self.batches.append(bytes(batch))
        return base

    def read(self, offset: int, max_bytes: int, upper: int, *, at_least_one: bool) -> Any:
        self.reads += 1
        parts = [batch for batch in self.batches if offset <= header_at(batch).last_offset < upper][:2]
        return FakeFetch(parts)

    def records(self) -> list[tuple[bytes | None, bytes | None]]:
        return [(r.key, r.value) for batch in self.batches for r in decode_records(batch)]


@dataclass
class FakeFetch:
    parts: list[bytes]


class FakePartition:
    """A replica that leads until `FakeReplicas.resign`."""

    def __init__(self, topic: str, number: int, log: FakeLog) -> None:
        self.topic_partition = TopicPartition(topic, number)
        self.log = log
        self.is_leader = True
        self.leadership_generation = 1
        self.leader_epoch = 1
        self.epoch_start = log.log_end_offset
        self.high_watermark = log.log_end_offset


@dataclass
class FakeResult:
    error: ErrorCode
    base_offset: int = -1
    last_offset: int = -1


class FakeTransactionChecks:
    """What the transaction coordinator says about offsets in transactions."""

    def __init__(self) -> None:
        self.error = ErrorCode.none
        self.asked: list[tuple[str, int, int, bool]] = []

    async def check_offsets(
        self, tp: TopicPartition, transactional_id: str, producer_id: int, epoch: int, *, add: bool
    ) -> ErrorCode:
        assert tp.topic == OFFSETS.name
        self.asked.append((transactional_id, producer_id, epoch, add))
        return self.error


class FakeReplicas:
    """The partitions of one internal topic. Appends are answered by `acknowledge`, or at once while `automatic`."""

    def __init__(self, host: ManualHost, topic: str = OFFSETS.name) -> None:
        self.on_leadership: list[Callable[[list[Any], list[Any]], None]] = []
        self.produces = Purgatory("produce", PurgatoryTimer(host))
        self.partitions: dict[int, FakePartition] = {}
        self.logs: dict[int, FakeLog] = {}
        self.automatic = True
        self.next_error = ErrorCode.none
        self.transaction_checks = FakeTransactionChecks()
        self.waiting: list[tuple[FakePartition, int, int, Callable[..., None]]] = []
        self._host = host
        self._topic = topic

    def lead(self, number: int, *, high_watermark: int | None = None) -> FakePartition:
        """Begin to lead a partition, in a new generation; its HW is the log's end unless given."""
        log = self.logs.setdefault(number, FakeLog())
        old = self.partitions.get(number)
        partition = FakePartition(self._topic, number, log)
        if old is not None:
            partition.leadership_generation = old.leadership_generation + 1
            partition.leader_epoch = old.leader_epoch + 1
        if high_watermark is not None:
            partition.high_watermark = high_watermark
        self.partitions[number] = partition
        self.announce([partition], [])
        return partition

    def resign(self, number: int) -> None:
        """Stop leading a partition."""
        partition = self.partitions[number]
        partition.is_leader = False
        self.announce([], [partition])

    def announce(self, leaders: list[Any], followers: list[Any]) -> None:
        """Call the leadership hooks, and let everything run that follows."""
        for hook in self.on_leadership:
            hook(leaders, followers)
        self._host.run_due()

    def advance_high_watermark(self, partition: FakePartition, to: int) -> None:
        """Move the HW of a partition, and wake the operations that wait for it."""
        partition.high_watermark = to
        self.produces.check_and_complete(partition.topic_partition)
        self._host.run_due()

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int,
        timeout_ms: int,
        done: Callable[..., None],
        internal: bool = False,
    ) -> None:
        assert acks == -1
        assert internal
        ((tp, records),) = entries.items()
        partition = self.partitions.get(tp.partition)
        if partition is None or not partition.is_leader:
            done({tp: FakeResult(ErrorCode.not_leader_or_follower)})
            return
        error, self.next_error = self.next_error, ErrorCode.none
        if error is not ErrorCode.none:
            done({tp: FakeResult(error)})
            return
        base = partition.log.append(records)
        self.waiting.append((partition, base, partition.log.log_end_offset, done))
        if self.automatic:
            self.acknowledge()

    def acknowledge(self, error: ErrorCode = ErrorCode.none, count: int | None = None) -> None:
        """Answer the oldest `count` appends that wait, all of them by default."""
        count = len(self.waiting) if count is None else count
        answered, self.waiting = self.waiting[:count], self.waiting[count:]
        for partition, base, end, done in answered:
            if error is ErrorCode.none:
                partition.high_watermark = max(partition.high_watermark, end)
            first = base if error is ErrorCode.none else -1
            done({partition.topic_partition: FakeResult(error, first)})


class FakeCache:
    def __init__(self) -> None:
        self.topics = {OFFSETS.name: 50, "orders": 3}
        self.leaders: dict[TopicPartition, int] = {}
        self.on_update: list[Callable[[], None]] = []
        self.on_deleted: list[Callable[[list[TopicPartition]], None]] = []

    def change(self, **counts: int) -> None:
        """Create, grow or (0) delete topics, and call the hooks of an update."""
        deleted = [
            TopicPartition(name, number)
            for name, count in counts.items()
            if not count
            for number in range(self.topics.get(name, 0))
        ]
        self.topics.update(counts)
        self.topics = {name: count for name, count in self.topics.items() if count}
        for call in self.on_deleted if deleted else ():
            call(deleted)
        for hook in self.on_update:
            hook()

    def topic_names(self) -> Iterable[str]:
        return self.topics

    def topic_id(self, name: str) -> UUID | None:
        return topic_id_of(name) if name in self.topics else None

    def topic_name(self, topic_id: UUID | None) -> str | None:
        return next((name for name in self.topics if topic_id_of(name) == topic_id), None)

    def partition_count(self, topic: str) -> int:
        return self.topics.get(topic, 0)

    def leader(self, tp: TopicPartition) -> int:
        return self.leaders.get(tp, -1)

    def address(self, node_id: int, listener: str) -> Address | None:
        assert listener == CLIENT_LISTENER.name
        return None if node_id < 0 else Address("127.0.0.1", 9000 + node_id)


def topic_id_of(name: str) -> UUID:
    """The id that a `FakeCache` gives to a topic."""
    return UUID(bytes=name.encode().ljust(16, b".")[:16])


class FakeTopicAdmin:
    def __init__(self, cache: FakeCache) -> None:
        self.cache = cache
        self.created: list[tuple[str, int, int, Mapping[str, object]]] = []
        self.refusal: Exception | None = None

    async def ensure_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, object]
    ) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.created.append((name, partitions, replication_factor, config))
        self.cache.topics[name] = partitions


class Sent:
    """A request on its way; `response` is its decoded response, None until there is one."""

    def __init__(self, api_key: int, version: int) -> None:
        self._of = (api_key, version)
        self._response: Any = None

    @property
    def has_response(self) -> bool:
        return self._response is not None

    @property
    def response(self) -> Any:
        return self._response

    def complete(self, parts: Any, on_send: Any) -> None:
        assert self._response is None
        self._response = messages.decode_response(*self._of, b"".join(parts))


def send_request(host: ManualHost, row: ApiRow, version: int, **fields: Any) -> Sent:
    """Encode, decode and handle a request as a connection would."""
    api_key = int(row.api_key)
    assert row.low <= version <= row.high
    body = client_request(api_key, version, **fields).body()
    sent = Sent(api_key, version)
    context = client_context("app")
    request = Request(api_key, version, 1, "app", body, 0, context, 0, sent.complete)
    running = row.handler(request)
    if running is not None:
        host.tasks.spawn(running, name="request")
    host.run_due()
    return sent
