"""DescribeTransactions and ListTransactions: what the coordinator stores of transactional ids (KIP-664).

Owns: the two handlers. A state filter that names no state is returned, not refused. A pattern must match a whole
transactional id (KIP-1152, v2); an empty one is no pattern.

Source: Kafka's TransactionCoordinator.handleDescribeTransactions, TransactionStateManager.listTransactionStates.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..authorizer import Operation, ResourceType
from ..errors import ErrorCode, KafkaError
from ..ids import by_topic
from ..regular_expressions import Pattern, compile_regex
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.request import Request
from .service import TransactionService
from .states import DEAD, TransactionState
from .transaction import Transaction

DESCRIBE_VERSIONS = (0, 0)
LIST_VERSIONS = (0, 2)


class TransactionAdminApi:
    """Handlers of the requests of administrators."""

    def __init__(self, service: TransactionService) -> None:
        self._service = service

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table."""
        return (
            ApiRow(ApiKey.DESCRIBE_TRANSACTIONS, *DESCRIBE_VERSIONS, self.describe),
            ApiRow(ApiKey.LIST_TRANSACTIONS, *LIST_VERSIONS, self.list),
        )

    # ---- DescribeTransactions ----------------------------------------------------------------------

    def describe(self, request: Request) -> None:
        """DescribeTransactions v0."""
        s = messages.response(request)
        rows = tuple(self._described(s, request, name) for name in request.decode().transactional_ids)
        request.respond(s.DescribeTransactionsResponse(transaction_states=rows))

    def _described(self, s: Any, request: Request, transactional_id: str) -> Any:
        try:
            request.require(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, transactional_id)
            transaction = self._existing(transactional_id)
        except KafkaError as error:
            return s.TransactionState(
                error_code=error.code,
                transactional_id=transactional_id,
                transaction_timeout=messages.milliseconds(0),
                transaction_start_time=messages.wall_time(0),
                producer_id=0,
                producer_epoch=0,
                topics=(),
            )
        value = transaction.value
        topics = by_topic(value.partitions)
        denied = request.denied(Operation.DESCRIBE, ResourceType.TOPIC, topics)
        return s.TransactionState(
            error_code=ErrorCode.none,
            transactional_id=transactional_id,
            transaction_state=value.state.title,
            transaction_timeout=messages.milliseconds(value.timeout_ms),
            transaction_start_time=messages.wall_time(value.start_ms),
            producer_id=value.producer_id,
            producer_epoch=value.producer_epoch,
            topics=tuple(
                s.TopicData(topic=topic, partitions=tuple(tp.partition for tp in rows))
                for topic, rows in topics.items()
                if topic not in denied
            ),
        )

    def _existing(self, transactional_id: str) -> Transaction:
        transaction = self._service.shard_of(transactional_id).find(transactional_id)
        if transaction is None or transaction.pending is DEAD:
            raise KafkaError(ErrorCode.transactional_id_not_found)
        return transaction

    # ---- ListTransactions --------------------------------------------------------------------------

    def list(self, request: Request) -> None:
        """ListTransactions v0 to v2."""
        body = request.decode()
        s = messages.response(request)
        if self._service.runtime.any_loading:
            error = ErrorCode.coordinator_load_in_progress
            request.respond(s.ListTransactionsResponse(error_code=error, transaction_states=()))
            return
        try:
            pattern = _pattern(getattr(body, "transactional_id_pattern", None))
        except KafkaError as error:
            request.respond(s.ListTransactionsResponse(error_code=error.code, transaction_states=()))
            return
        titles = {state.title for state in TransactionState}
        now_ms = self._service.host.clock.wall_ms()
        found = [
            transaction
            for shard in self._service.runtime.all_active()
            for transaction in shard
            if _is_wanted(transaction, body, pattern, now_ms)
        ]
        named = (transaction.transactional_id for transaction in found)
        denied = request.denied(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, named)
        rows = tuple(
            s.TransactionState(
                transactional_id=transaction.transactional_id,
                producer_id=transaction.value.producer_id,
                transaction_state=transaction.value.state.title,
            )
            for transaction in found
            if transaction.transactional_id not in denied
        )
        request.respond(
            s.ListTransactionsResponse(
                error_code=ErrorCode.none,
                unknown_state_filters=tuple(name for name in dict.fromkeys(body.state_filters) if name not in titles),
                transaction_states=rows,
            )
        )


def _pattern(text: str | None) -> Pattern | None:
    return compile_regex(text, "TransactionalIdPattern") if text else None


def _is_wanted(transaction: Transaction, body: Any, pattern: Pattern | None, now_ms: int) -> bool:
    value = transaction.value
    duration_ms = getattr(body, "duration_filter", -1)  # from version 1 on
    return (
        transaction.pending is not DEAD
        and (not body.state_filters or value.state.title in body.state_filters)
        and (not body.producer_id_filters or value.producer_id in body.producer_id_filters)
        and (duration_ms < 0 or now_ms - value.start_ms > duration_ms)
        and (pattern is None or pattern.fullmatch(transaction.transactional_id) is not None)
    )
