"""Requests to the coordinator of a group or of a transactional id, over any transport: no input or output here.

This module and `classic_member.py` are coroutines over a `Transport`. There are two: blocking connections
(`blocking.py`), where each wait blocks the thread, and the links of a simulated machine, on its virtual clock.

Owns: the address of the coordinator, until a response or an error says that it has moved. A request is sent again until
a response has no retriable error, for as long as the caller's patience lasts.
What may fail: `KafkaError` with every error code that is not in `RETRIABLE`; ClusterError when the patience is over.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, Protocol

from harrow.cluster.errors import ClusterError, ErrorCode, KafkaError, WireError, error_name
from harrow.cluster.ids import TopicPartition, by_topic
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

GROUP, TRANSACTION = 0, 1
FIND_VERSION, OFFSET_FETCH_VERSION = 4, 8
NO_NODE = -1
RETRIABLE = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.request_timed_out,
        ErrorCode.unstable_offset_commit,
        ErrorCode.unknown_topic_or_partition,
        ErrorCode.not_enough_replicas,
        ErrorCode.kafka_storage_error,
    }
)


class Transport(Protocol):
    """What sends requests and waits."""

    def now_ms(self) -> float:
        """The monotonic clock."""
        ...

    async def ask(self, address: tuple[str, int], request: ClientRequest, timeout_ms: float | None = None, /) -> Any:
        """Return the response of a broker; OSError or WireError without one. No timeout: that of the transport."""
        ...

    async def ask_any_broker(self, request: ClientRequest, /) -> Any:
        """Return the response of a broker of the transport's choice; OSError or WireError when none responds."""
        ...

    async def sleep(self, delay_ms: float, /) -> None:
        """Wait so long."""
        ...

    async def pause(self) -> None:
        """Wait before something is tried again."""
        ...


def own_error(response: Any) -> ErrorCode:
    """Return the error code of a response that has one for the whole request."""
    code: ErrorCode = response.error_code
    return code


def first_error(codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the first error among the codes of a response; NONE where there is none."""
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


class _Found(NamedTuple):
    """The broker that coordinates, as a response of FindCoordinator says."""

    address: tuple[str, int]
    node: int


class Coordinator:
    """The coordinator of `key`; `kind`: GROUP or TRANSACTION."""

    def __init__(self, transport: Transport, kind: int, key: str, *, patience_ms: float = math.inf) -> None:
        self.transport = transport
        self.key = key
        self._kind = kind
        self._patience_ms = patience_ms
        self._found: _Found | None = None
        self._trouble = ""
        self.answered_by = NO_NODE
        """The node id of the broker that sent the last response."""

    async def ask(
        self,
        request: ClientRequest,
        *,
        error_of: Callable[[Any], ErrorCode] = own_error,
        timeout_ms: float | None = None,
        patience_ms: float | None = None,
        repeated: ClientRequest | None = None,
    ) -> Any:
        """Send the request until a response has no retriable error; KafkaError for any other error.

        `repeated`: what is sent instead of the request after an attempt without response, or with a retriable error.
        """
        give_up_ms = self._give_up_ms(patience_ms)
        while True:
            response = await self._attempt(request, timeout_ms, give_up_ms)
            error = ErrorCode.request_timed_out if response is None else error_of(response)
            if error is ErrorCode.none:
                return response
            if error not in RETRIABLE:
                raise self._refused(request, error, response)
            self._found = None
            if response is not None:
                self._trouble = error_name(int(error))
            await self._pause(give_up_ms)
            request = repeated or request

    async def ask_once(self, request: ClientRequest, *, timeout_ms: float | None = None) -> Any:
        """Send the request to the coordinator once; return None where no response came."""
        response = await self._attempt(request, timeout_ms, self._give_up_ms(None))
        if response is None or response.error_code in RETRIABLE:
            self._found = None
        return response

    def _refused(self, request: ClientRequest, error: ErrorCode, response: Any) -> KafkaError:
        detail = getattr(response, "error_message", None)
        text = f"{request.name} of {self.key!r} was refused: {error_name(int(error))}"
        return KafkaError(error, f"{text} ({detail})" if detail else text)

    def _give_up_ms(self, patience_ms: float | None) -> float:
        return self.transport.now_ms() + (self._patience_ms if patience_ms is None else patience_ms)

    async def _pause(self, give_up_ms: float) -> None:
        if self.transport.now_ms() > give_up_ms:
            raise ClusterError(f"the coordinator of {self.key!r} did not serve: {self._trouble}")
        await self.transport.pause()

    async def _attempt(self, request: ClientRequest, timeout_ms: float | None, give_up_ms: float) -> Any:
        try:
            found = await self._find(give_up_ms)
            response = await self.transport.ask(found.address, request, timeout_ms)
        except (OSError, WireError) as error:
            self._found, self._trouble = None, str(error)
            return None
        self.answered_by = found.node
        return response

    async def _find(self, give_up_ms: float) -> _Found:
        request = client_request(
            ApiKey.FIND_COORDINATOR, FIND_VERSION, key_type=self._kind, coordinator_keys=[self.key]
        )
        while self._found is None:
            response = await self.transport.ask_any_broker(request)
            (row,) = response.coordinators
            if row.error_code is ErrorCode.none:
                self._found = _Found((row.host, row.port), row.node_id)
            else:
                self._trouble = error_name(int(row.error_code))
                await self._pause(give_up_ms)
        return self._found


async def committed_offsets(
    coordinator: Coordinator, partitions: Iterable[TopicPartition], *, stable: bool
) -> dict[TopicPartition, int]:
    """Return what OffsetFetch says of the group's offsets, -1 where there is none.

    `stable`: no offset that an open transaction may replace (KIP-447).
    """
    topics = [
        {"name": name, "partition_indexes": [tp.partition for tp in found]}
        for name, found in by_topic(partitions).items()
    ]
    groups = [{"group_id": coordinator.key, "topics": topics}]
    request = client_request(ApiKey.OFFSET_FETCH, OFFSET_FETCH_VERSION, groups=groups, require_stable=stable)
    response = await coordinator.ask(request, error_of=_offset_fetch_error)
    return {
        TopicPartition(str(topic.name), int(row.partition_index)): int(row.committed_offset)
        for topic in response.groups[0].topics
        for row in topic.partitions
    }


def _offset_fetch_error(response: Any) -> ErrorCode:
    (group,) = response.groups
    rows = (row.error_code for topic in group.topics for row in topic.partitions)
    return first_error((group.error_code, *rows))
