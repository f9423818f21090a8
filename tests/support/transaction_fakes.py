"""A transaction coordinator without a cluster: requests in, decoded responses out; markers that a test acknowledges."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, cast

from coordinator_fakes import FakePartition, FakeReplicas, Sent, send_request
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import NodeId, TopicPartition
from harrow.cluster.internal_topics import TRANSACTIONS
from harrow.cluster.transactions.admin_api import TransactionAdminApi
from harrow.cluster.transactions.marker_sender import Marker, MarkerSender, Results
from harrow.cluster.transactions.producer_api import ProducerApi
from harrow.cluster.transactions.service import TransactionService
from harrow.cluster.wire.api_keys import ApiKey
from manual_host import ManualHost

NAME = "payments"
ORDERS, BILLS = TopicPartition("orders", 0), TopicPartition("bills", 1)


class FakeProducerIds:
    def __init__(self) -> None:
        self.last = 99

    async def new_id(self) -> int:
        self.last += 1
        return self.last


class FakeMetadata:
    """Leaders by partition; a partition without an entry is unknown."""

    def __init__(self) -> None:
        self.node_id = NodeId(1)
        self.on_update: list[Callable[[], None]] = []
        self.leaders: dict[TopicPartition, int] = {ORDERS: 1, BILLS: 2}
        self.dead: set[int] = set()

    def partition_count(self, topic: str) -> int:
        if topic == TRANSACTIONS.name:
            return 1
        return 3 if any(tp.topic == topic for tp in self.leaders) else 0

    def partition(self, tp: TopicPartition) -> object | None:
        return self.leaders.get(tp)

    def leader(self, tp: TopicPartition) -> int:
        return self.leaders.get(tp, -1)

    def is_alive(self, node: int) -> bool:
        return node >= 0 and node not in self.dead

    def change(self, tp: TopicPartition, leader: int) -> None:
        """New metadata: another leader of a partition."""
        self.leaders[tp] = leader
        for call in self.on_update:
            call()


class FakeBrokers:
    """Brokers that get markers: each request waits until the test answers it, or is answered at once."""

    def __init__(self, host: ManualHost) -> None:
        self._host = host
        self.automatic = True
        self.written: list[tuple[int, Marker]] = []
        self.errors: dict[TopicPartition, ErrorCode] = {}
        """The next answer for a partition; then it is written."""
        self.lost: set[int] = set()
        self.waiting: list[tuple[int, Sequence[Marker], Any]] = []

    async def write(self, node: NodeId, markers: Sequence[Marker], /) -> list[Results]:
        if node in self.lost:
            raise ConnectionRefusedError(f"broker {node}")
        if not self.automatic:
            promise = self._host.tasks.promise()
            self.waiting.append((node, markers, promise))
            await promise
        results: list[Results] = []
        for marker in markers:
            found = {tp: self.errors.pop(tp, ErrorCode.none) for tp in marker.partitions}
            results.append(found)
            self.written.append((int(node), marker))
        return results

    def answer(self) -> None:
        """Answer every request that waits."""
        waiting, self.waiting = self.waiting, []
        for _, _, promise in waiting:
            promise.set_result(None)
        self._host.run_due()


class TransactionBed:
    """One partition of `__transaction_state`, which this broker leads."""

    def __init__(self, **settings: object) -> None:
        self.host = ManualHost()
        self.replicas = FakeReplicas(self.host, TRANSACTIONS.name)
        self.metadata = FakeMetadata()
        self.brokers = FakeBrokers(self.host)
        self.deleted: set[TopicPartition] = set()
        config = BrokerConfig.parse({name.replace("_", "."): value for name, value in settings.items()})
        metadata = cast("Any", self.metadata)
        self.markers = MarkerSender(self.host, metadata, self.brokers, self._is_deleted)
        ids = cast("Any", FakeProducerIds())
        replicas = cast("Any", self.replicas)
        self.service = TransactionService(self.host, config, replicas, metadata, ids, self.markers)
        self.replicas.on_leadership.append(self.service.runtime.leadership_changed)
        rows = (*ProducerApi(self.service, ids).handlers(), *TransactionAdminApi(self.service).handlers())
        self._rows = {int(row.api_key): row for row in rows}

    async def _is_deleted(self, tp: TopicPartition) -> bool:
        return tp in self.deleted

    def lead(self) -> FakePartition:
        """Begin to lead the partition, and load what its log has."""
        return self.replicas.lead(0)

    def crash_and_take_over(self) -> None:
        """Another broker leads the partition: this one unloads, and loads it again from the log."""
        self.replicas.waiting.clear()
        self.replicas.resign(0)
        self.lead()

    def send(self, api_key: int, version: int, **fields: Any) -> Sent:
        """Encode, decode and handle a request as a connection would."""
        return send_request(self.host, self._rows[api_key], version, **fields)

    # ---- requests of one producer ------------------------------------------------------------------

    def init(self, *given: int, timeout_ms: int = 60_000, name: str = NAME) -> Sent:
        extra = dict(zip(("producer_id", "producer_epoch"), given, strict=False))
        return self.send(
            ApiKey.INIT_PRODUCER_ID,
            5,
            transactional_id=name,
            transaction_timeout=timeout_ms,
            **extra,
        )

    def add(self, producer_id: int, epoch: int, *partitions: TopicPartition, version: int = 3) -> ErrorCode | None:
        """AddPartitionsToTxn; the error of the first partition, None without a response."""
        topics: dict[str, list[int]] = {}
        for tp in partitions or (ORDERS, BILLS):
            topics.setdefault(tp.topic, []).append(tp.partition)
        sent = self.send(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=NAME,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[{"name": topic, "partitions": numbers} for topic, numbers in topics.items()],
        )
        if not sent.has_response:
            return None
        row = sent.response.results_by_topic_v3_and_below[0].results_by_partition[0]
        return ErrorCode(row.partition_error_code)

    def end(self, producer_id: int, epoch: int, *, commit: bool, version: int = 5) -> Sent:
        return self.send(
            ApiKey.END_TXN,
            version,
            transactional_id=NAME,
            producer_id=producer_id,
            producer_epoch=epoch,
            committed=commit,
        )

    def described(self) -> tuple[str, int, int]:
        """State, producer id and epoch of the transaction."""
        sent = self.send(ApiKey.DESCRIBE_TRANSACTIONS, 0, transactional_ids=(NAME,))
        row = sent.response.transaction_states[0]
        return row.transaction_state, row.producer_id, row.producer_epoch

    @property
    def commits(self) -> list[tuple[int, bool, int, TopicPartition]]:
        """Markers that brokers have: node, commit, epoch, partition."""
        return [
            (node, marker.commit, marker.producer_epoch, tp)
            for node, marker in self.brokers.written
            for tp in marker.partitions
        ]
