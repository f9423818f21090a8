"""Requests to the coordinator of a group or of a transactional id, which a simulated client looks up.

Owns: the address of the coordinator, until a response or an error says that it has moved.
What may fail: `KafkaError` with every error code that is not in `RETRIABLE`; the caller knows what the code means.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

from harrow.cluster.errors import ErrorCode, KafkaError, WireError
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from .wire import METADATA_MS, Address, WireClient, pause_ms

GROUP, TRANSACTION = 0, 1
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


def own_error(response: Any) -> ErrorCode:
    """Return the error code of a response that has one for the whole request."""
    code: ErrorCode = response.error_code
    return code


def first_error(codes: Iterable[ErrorCode]) -> ErrorCode:
    """Return the first error among the codes of a response; NONE where there is none."""
    return next((code for code in codes if code is not ErrorCode.none), ErrorCode.none)


class Coordinator(NamedTuple):
    """The broker that coordinates, as a response of FindCoordinator says."""

    address: Address
    node: int


class CoordinatorClient:
    """Requests to one coordinator."""

    def __init__(self, client: WireClient, kind: int, key: str) -> None:
        self.client = client
        self._kind, self._key = kind, key
        self._found: Coordinator | None = None
        self.answered_by = NO_NODE
        """The node id of the broker that sent the last response."""

    async def ask(
        self,
        api_key: int,
        version: int,
        entity: Any,
        *,
        error_of: Callable[[Any], ErrorCode] = own_error,
        timeout_ms: float = METADATA_MS,
    ) -> Any:
        """Send the request until a response has no retriable error; KafkaError for any other error."""
        while True:
            response = await self._attempt(api_key, version, entity, timeout_ms)
            error = ErrorCode.request_timed_out if response is None else error_of(response)
            if error is ErrorCode.none:
                return response
            if error not in RETRIABLE:
                raise KafkaError(error)
            self._found = None
            await self.client.host.tasks.sleep(pause_ms(self.client.host))

    async def ask_once(self, api_key: int, version: int, entity: Any, *, timeout_ms: float = METADATA_MS) -> Any:
        """Send the request once; return None where no response came."""
        response = await self._attempt(api_key, version, entity, timeout_ms)
        if response is None or response.error_code in RETRIABLE:
            self._found = None
        return response

    async def _attempt(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        try:
            found = await self._find()
            response = await self.client.ask(found.address, api_key, version, entity, timeout_ms)
        except (OSError, TimeoutError, WireError):
            self._found = None
            return None
        self.answered_by = found.node
        return response

    async def _find(self) -> Coordinator:
        schema = messages.schema(ApiKey.FIND_COORDINATOR, 4, "request")
        entity = schema.FindCoordinatorRequest(key_type=self._kind, coordinator_keys=(self._key,))
        while self._found is None:
            response = await self.client.ask_any_broker(ApiKey.FIND_COORDINATOR, 4, entity)
            (row,) = response.coordinators
            if row.error_code is ErrorCode.none:
                self._found = Coordinator((row.host, row.port), row.node_id)
            else:
                await self.client.host.tasks.sleep(pause_ms(self.client.host))
        return self._found
