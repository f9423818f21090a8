"""InitProducerId, AddPartitionsToTxn, AddOffsetsToTxn, EndTxn.

Owns: the translation between the protocol's versions and `TransactionService`. InitProducerId stops at v5, because v6
is for two-phase commits with an external coordinator, which Apache Kafka 4.2 does not serve, either.

Without a transactional id InitProducerId always gives a new id with epoch 0, whatever id and epoch the request names:
the broker has no record of who uses an id, so two producers that name the same id must not both get it.

Old versions have INVALID_PRODUCER_EPOCH where newer ones have PRODUCER_FENCED. AddPartitionsToTxn of a client waits for
the markers of the transaction before; that of a broker does not, because its connection carries other requests too.
May fail: KafkaError, which becomes the response's error; COORDINATOR_NOT_AVAILABLE while the registry cannot
be reached.

Source: Kafka's KafkaApis, TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from functools import partial
from typing import Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..errors import ErrorCode, KafkaError, RegistryError
from ..ids import TopicPartition, by_topic
from ..internal_topics import INTERNAL_TOPICS, OFFSETS, partition_for
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request, denial
from .producer_ids import ProducerIds
from .rules import Producer
from .service import TransactionService
from .transaction import TRANSACTION_VERSION

INIT_VERSIONS = (0, 5)
ADD_PARTITIONS_VERSIONS = (0, 5)
ADD_OFFSETS_VERSIONS = (0, 4)
END_VERSIONS = (0, 5)
MANY_TRANSACTIONS_FROM = 4
"""First version of AddPartitionsToTxn for several transactions, which only brokers and few clients send (KIP-890)."""
UNNAMED = -1
"""The producer id and the epoch of a request that names none."""
EPOCH_BUMP_FROM = 5
"""First version of EndTxn whose clients take the next epoch from the response (KIP-890)."""
FENCED_SINCE = {
    int(ApiKey.INIT_PRODUCER_ID): 4,
    int(ApiKey.ADD_PARTITIONS_TO_TXN): 2,
    int(ApiKey.ADD_OFFSETS_TO_TXN): 2,
    int(ApiKey.END_TXN): 2,
}
"""API -> first version whose clients know PRODUCER_FENCED."""

Errors = Mapping[TopicPartition, ErrorCode]
Outcome = ErrorCode | Errors
"""What AddPartitionsToTxn did for a transaction: one result of all partitions, or one for each."""


class ProducerApi:
    """Handlers of the requests of transactional and idempotent producers."""

    def __init__(self, service: TransactionService, producer_ids: ProducerIds) -> None:
        self._service = service
        self._ids = producer_ids

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table."""
        return (
            ApiRow(ApiKey.INIT_PRODUCER_ID, *INIT_VERSIONS, self.init_producer_id),
            ApiRow(ApiKey.ADD_PARTITIONS_TO_TXN, *ADD_PARTITIONS_VERSIONS, self.add_partitions),
            ApiRow(ApiKey.ADD_OFFSETS_TO_TXN, *ADD_OFFSETS_VERSIONS, self.add_offsets),
            ApiRow(ApiKey.END_TXN, *END_VERSIONS, self.end_txn),
        )

    # ---- InitProducerId ----------------------------------------------------------------------------

    async def init_producer_id(self, request: Request) -> None:
        """InitProducerId v0 to v5."""
        body = request.decode()
        if body.transactional_id is not None:
            _require_transactional_id(request, body.transactional_id)
        elif not request.unrestricted and not _may_produce(request):
            raise denial(ResourceType.CLUSTER)
        code, producer = await self._producer_of(request, self._init(body))
        s = messages.response(request)
        request.respond(
            s.InitProducerIdResponse(error_code=code, producer_id=producer.producer_id, producer_epoch=producer.epoch)
        )

    async def _init(self, body: Any) -> Producer:
        named = Producer(
            producer_id=getattr(body, "producer_id", UNNAMED),  # from version 3 on
            epoch=getattr(body, "producer_epoch", UNNAMED),
        )
        if (named.producer_id == UNNAMED) != (named.epoch == UNNAMED):
            raise KafkaError(ErrorCode.invalid_request, "the producer id and the producer epoch must be given together")
        if body.transactional_id is None:
            return Producer(producer_id=await self._ids.new_id(), epoch=0)
        expected = None if named.epoch == UNNAMED else named
        timeout_ms = messages.to_milliseconds(body.transaction_timeout)
        value = await self._service.initialise(body.transactional_id, timeout_ms, expected)
        return Producer(producer_id=value.producer_id, epoch=value.producer_epoch)

    # ---- AddPartitionsToTxn ------------------------------------------------------------------------

    def add_partitions(self, request: Request) -> None:
        """AddPartitionsToTxn v0 to v5; from v4 on for several transactions, of brokers and of clients."""
        body = request.decode()
        if request.version < MANY_TRANSACTIONS_FROM:
            _require_transactional_id(request, body.v3_and_below_transactional_id)
            producer = Producer(producer_id=body.v3_and_below_producer_id, epoch=body.v3_and_below_producer_epoch)
            partitions = _partitions(body.v3_and_below_topics)
            self._add(
                body.v3_and_below_transactional_id,
                producer,
                partitions,
                0,
                lambda outcome: _respond_to_client(request, body, outcome),
                may_wait=True,
                denied=frozenset(INTERNAL_TOPICS)
                | request.denied(Operation.WRITE, ResourceType.TOPIC, (tp.topic for tp in partitions)),
            )
            return
        request.require(Operation.CLUSTER_ACTION, *CLUSTER)
        results: list[Outcome | None] = [None] * len(body.transactions)

        def record(index: int, outcome: Outcome) -> None:
            results[index] = outcome
            found = [row for row in results if row is not None]
            if len(found) == len(results):
                _respond_for_each(request, body, found)

        if not results:
            _respond_for_each(request, body, [])
        for index, row in enumerate(body.transactions):
            self._add_or_verify(row, partial(record, index), from_broker=request.from_broker)

    def _add_or_verify(self, row: Any, done: Callable[[Outcome], None], *, from_broker: bool) -> None:
        producer = Producer(producer_id=row.producer_id, epoch=row.producer_epoch)
        partitions = _partitions(row.topics)
        if not row.verify_only:
            self._add(row.transactional_id, producer, partitions, TRANSACTION_VERSION, done, may_wait=not from_broker)
            return
        # a broker asks about a partition that it has, which this broker may not know yet
        refused: Errors = {} if from_broker else self._refused(partitions)
        done(refused or self._service.verify(row.transactional_id, producer, partitions))

    def _refused(self, partitions: Collection[TopicPartition], denied: Collection[str] = ()) -> Errors:
        """An error of each partition where one of them is refused; else empty. `denied`: topics without permission."""
        cache = self._service.cache
        refused: dict[TopicPartition, ErrorCode] = {}
        for tp in partitions:
            if tp.topic in denied:
                refused[tp] = ErrorCode.topic_authorization_failed
            elif cache.partition(tp) is None:
                refused[tp] = ErrorCode.unknown_topic_or_partition
        if not refused:
            return {}
        return {**dict.fromkeys(partitions, ErrorCode.operation_not_attempted), **refused}

    def _add(
        self,
        transactional_id: str,
        producer: Producer,
        partitions: Collection[TopicPartition],
        client_version: int,
        done: Callable[[Outcome], None],
        *,
        may_wait: bool = False,
        denied: Collection[str] = (),
    ) -> None:
        refused = self._refused(partitions, denied)
        if refused:
            done(refused)
            return
        self._service.add_partitions(transactional_id, producer, partitions, client_version, done, may_wait=may_wait)

    # ---- AddOffsetsToTxn ---------------------------------------------------------------------------

    def add_offsets(self, request: Request) -> None:
        """AddOffsetsToTxn v0 to v4: the partition of `__consumer_offsets` that the group's offsets lie in."""
        body = request.decode()
        _require_transactional_id(request, body.transactional_id)
        request.require(Operation.READ, ResourceType.GROUP, body.group_id)
        s = messages.response(request)

        def done(error: ErrorCode) -> None:
            request.respond(s.AddOffsetsToTxnResponse(error_code=_known(request, error)))

        count = self._service.partition_count(OFFSETS)
        home = TopicPartition(OFFSETS.name, partition_for(body.group_id, count))
        producer = Producer(producer_id=body.producer_id, epoch=body.producer_epoch)
        self._service.add_partitions(body.transactional_id, producer, (home,), 0, done, may_wait=True)

    # ---- EndTxn ------------------------------------------------------------------------------------

    async def end_txn(self, request: Request) -> None:
        """EndTxn v0 to v5; from v5 on each end raises the epoch."""
        body = request.decode()
        _require_transactional_id(request, body.transactional_id)
        client_version = TRANSACTION_VERSION if request.version >= EPOCH_BUMP_FROM else 0
        ended = self._service.end(
            body.transactional_id,
            Producer(producer_id=body.producer_id, epoch=body.producer_epoch),
            client_version,
            commit=body.committed,
        )
        code, following = await self._producer_of(request, ended)
        s = messages.response(request)
        request.respond(
            s.EndTxnResponse(error_code=code, producer_id=following.producer_id, producer_epoch=following.epoch)
        )

    async def _producer_of(self, request: Request, work: Coroutine[Any, Any, Producer]) -> tuple[ErrorCode, Producer]:
        """The producer that `work` returns, or the error for the client and no producer."""
        try:
            return ErrorCode.none, await work
        except KafkaError as error:
            code = _known(request, error.code)
        except RegistryError as error:
            self._service.host.trace.log("warning", f"no producer id: {error}")
            code = ErrorCode.coordinator_not_available
        return code, Producer(producer_id=-1, epoch=-1)


def _require_transactional_id(request: Request, transactional_id: str) -> None:
    """KafkaError(transactional_id_authorization_failed) unless the client may use the transactional id."""
    request.require(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id)


def _may_produce(request: Request) -> bool:
    """True for a client that may have a producer id: it may write to some topic (KIP-679), or as older clients."""
    by_cluster = request.allows(Operation.IDEMPOTENT_WRITE, *CLUSTER)
    return by_cluster or request.allows_any(Operation.WRITE, ResourceType.TOPIC)


def _known(request: Request, error: ErrorCode) -> ErrorCode:
    """`error`, or the older code that a client of this version knows."""
    if error is ErrorCode.producer_fenced and request.version < FENCED_SINCE[request.api_key]:
        return ErrorCode.invalid_producer_epoch
    return error


def _partitions(topics: Iterable[Any]) -> tuple[TopicPartition, ...]:
    return tuple(dict.fromkeys(TopicPartition(row.name, number) for row in topics for number in row.partitions))


def _topic_results(s: Any, asked: Iterable[Any], outcome: Outcome) -> tuple[Any, ...]:
    """As in Kafka: the rows of the request for one result of all partitions; else one row for each partition."""
    numbers: Iterable[tuple[str, Iterable[int]]] = [(row.name, row.partitions) for row in asked]
    if not isinstance(outcome, ErrorCode):
        found = by_topic(outcome)
        numbers = [(name, [tp.partition for tp in rows]) for name, rows in found.items()]

    def error_of(name: str, number: int) -> ErrorCode:
        return outcome if isinstance(outcome, ErrorCode) else outcome[TopicPartition(name, number)]

    return tuple(
        s.AddPartitionsToTxnTopicResult(
            name=name,
            results_by_partition=tuple(
                s.AddPartitionsToTxnPartitionResult(partition_index=number, partition_error_code=error_of(name, number))
                for number in rows
            ),
        )
        for name, rows in numbers
    )


def _respond_to_client(request: Request, body: Any, outcome: Outcome) -> None:
    s = messages.response(request)
    known = _known(request, outcome) if isinstance(outcome, ErrorCode) else outcome
    topics = _topic_results(s, body.v3_and_below_topics, known)
    request.respond(s.AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics))


def _respond_for_each(request: Request, body: Any, results: Iterable[Outcome]) -> None:
    s = messages.response(request)
    rows = tuple(
        s.AddPartitionsToTxnResult(
            transactional_id=row.transactional_id, topic_results=_topic_results(s, row.topics, outcome)
        )
        for row, outcome in zip(body.transactions, results, strict=True)
    )
    request.respond(s.AddPartitionsToTxnResponse(error_code=ErrorCode.none, results_by_transaction=rows))
