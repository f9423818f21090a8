"""Requests 83 to 87 of brokers, which keep the state of share-partitions (KIP-932): bodies in, responses out.

Owns: the translation between the protocol and `ShareService`. The share-partitions of one request are changed
independently, and each has its own error. As in Kafka, a request without a group, a topic or a partition gets an empty
response. A sender without CLUSTER_ACTION gets CLUSTER_AUTHORIZATION_FAILED for each. May fail: nothing.

Source: Kafka's ShareCoordinatorService, KafkaApis.handleInitializeShareGroupStateRequest and its neighbours.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import TYPE_CHECKING, Any

from ..authorizer import CLUSTER
from ..authorizer import Operation as Action
from ..errors import ErrorCode, KafkaError
from ..ids import LeaderEpoch, Offset
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.topic_ids import UUID
from .service import ShareService
from .values import DeliveryState, SharePartition, ShareState, StateBatch, StateSummary

if TYPE_CHECKING:
    from ..wire.request import Request

NO_TOPIC_ID = UUID(int=0)
Operation = Callable[[SharePartition, Any], Awaitable[Any]]
"""`operation(share-partition, row of the request)`: the promise of its result; KafkaError."""


class ShareStateApi:
    """Handlers of the requests."""

    def __init__(self, service: ShareService) -> None:
        self._service = service

    def handlers(self) -> Iterable[ApiRow]:
        """The rows of the API table."""
        return (
            ApiRow(ApiKey.INITIALIZE_SHARE_GROUP_STATE, 0, 0, self.initialize),
            ApiRow(ApiKey.READ_SHARE_GROUP_STATE, 0, 0, self.read),
            ApiRow(ApiKey.WRITE_SHARE_GROUP_STATE, 0, 1, self.write),
            ApiRow(ApiKey.DELETE_SHARE_GROUP_STATE, 0, 0, self.delete),
            ApiRow(ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, 0, 1, self.summary),
        )

    async def initialize(self, request: Request) -> None:
        """InitializeShareGroupState v0."""

        def begin(share: SharePartition, row: Any) -> Awaitable[None]:
            return self._service.initialize(share, state_epoch=row.state_epoch, start_offset=Offset(row.start_offset))

        await self._respond(
            request, begin, "initialize share group state", "InitializeStateResult", checks_topics=False
        )

    async def read(self, request: Request) -> None:
        """ReadShareGroupState v0."""

        def begin(share: SharePartition, row: Any) -> Awaitable[ShareState]:
            return self._service.read(share, leader_epoch=LeaderEpoch(row.leader_epoch))

        await self._respond(request, begin, "read share group state", "ReadStateResult")

    async def write(self, request: Request) -> None:
        """WriteShareGroupState v0 and v1."""

        def begin(share: SharePartition, row: Any) -> Awaitable[None]:
            return self._service.write(
                share,
                state_epoch=row.state_epoch,
                leader_epoch=LeaderEpoch(row.leader_epoch),
                start_offset=Offset(row.start_offset),
                delivery_complete_count=getattr(row, "delivery_complete_count", -1),
                batches=[_batch(batch) for batch in row.state_batches],
            )

        await self._respond(request, begin, "write share group state", "WriteStateResult")

    async def delete(self, request: Request) -> None:
        """DeleteShareGroupState v0."""

        def begin(share: SharePartition, _row: Any) -> Awaitable[None]:
            return self._service.delete(share)

        await self._respond(request, begin, "delete share group state", "DeleteStateResult")

    async def summary(self, request: Request) -> None:
        """ReadShareGroupStateSummary v0 and v1."""

        def begin(share: SharePartition, _row: Any) -> Awaitable[StateSummary]:
            return self._service.summary(share)

        await self._respond(request, begin, "read share group state summary", "ReadStateSummaryResult")

    async def _respond(
        self, request: Request, begin: Operation, what: str, result: str, *, checks_topics: bool = True
    ) -> None:
        """Begin the operation for each share-partition, and respond when all have ended.

        With `checks_topics`, a topic without partitions leaves the response empty, as in Kafka.
        """
        body = request.decode()
        s = messages.response(request)
        rows = [(topic.topic_id, row) for topic in body.topics for row in topic.partitions]
        empty = any(not topic.partitions for topic in body.topics) and checks_topics
        if not body.group_id or not body.topics or empty:
            request.respond(s.root(results=()))
            return
        begun = [self._begin(request, begin, body.group_id, topic_id, row) for topic_id, row in rows]
        found: dict[Any, dict[int, Any]] = {topic_id: {} for topic_id, _ in rows}
        """Results by partition: of a partition that a request names twice, the last one."""
        for (topic_id, row), operation in zip(rows, begun, strict=True):
            found[topic_id][row.partition] = await self._ended(s, row.partition, operation, what)
        make = getattr(s, result)
        request.respond(
            s.root(results=tuple(make(topic_id=key, partitions=tuple(value.values())) for key, value in found.items()))
        )

    def _begin(
        self, request: Request, begin: Operation, group_id: str, topic_id: Any, row: Any
    ) -> Awaitable[Any] | KafkaError:
        try:
            request.require(Action.CLUSTER_ACTION, *CLUSTER)
            return begin(SharePartition(group_id, topic_id or NO_TOPIC_ID, row.partition), row)
        except KafkaError as error:
            return error

    async def _ended(self, s: Any, partition: int, operation: Awaitable[Any] | KafkaError, what: str) -> Any:
        try:
            if isinstance(operation, KafkaError):
                raise operation
            value = await operation
        except KafkaError as error:
            text = error.message or f"Unable to {what}."
            if error.code is ErrorCode.not_coordinator:
                text = f"Unable to {what}: This is not the correct coordinator."
            return s.PartitionResult(partition=partition, error_code=error.code, error_message=text)
        return s.PartitionResult(partition=partition, error_code=ErrorCode.none, **_fields(s, value))


def _fields(s: Any, value: ShareState | StateSummary | None) -> dict[str, Any]:
    if isinstance(value, ShareState):
        batches = tuple(
            s.StateBatch(
                first_offset=batch.first_offset,
                last_offset=batch.last_offset,
                delivery_state=int(batch.state),
                delivery_count=batch.delivery_count,
            )
            for batch in value.batches
        )
        return {"state_epoch": value.state_epoch, "start_offset": value.start_offset, "state_batches": batches}
    return {} if value is None else value._asdict()


def _batch(row: Any) -> StateBatch:
    """A batch of a request; KafkaError(invalid_request) for a state that is not known, and without an offset."""
    if row.first_offset > row.last_offset:
        raise KafkaError(ErrorCode.invalid_request, f"A batch from {row.first_offset} to {row.last_offset}.")
    try:
        state = DeliveryState(row.delivery_state)
    except ValueError:
        raise KafkaError(ErrorCode.invalid_request, f"Unknown delivery state {row.delivery_state}.") from None
    return StateBatch(Offset(row.first_offset), Offset(row.last_offset), state, row.delivery_count)
