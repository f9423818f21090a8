"""Requests of operators that the active controller alone serves, accepted on every broker (KIP-590).

Owns: `Forwarding`. It puts itself before the handlers of `FORWARDED`: the active controller serves such a request, and
every other broker sends it there in an Envelope with the client's principal, client id and address, and passes the
response on as it is. A broker without a controller, or whose controller does not respond or is no controller any more,
tries again until the time of the request (`timeout_ms`) is over, and then responds with REQUEST_TIMED_OUT. A request
without time (`timeout_ms` of 0 or less) is not begun, as in Kafka, unless its response needs no time
(`needs_no_time`).

Each Envelope has a connection to itself while it waits, because the controller may hold a response until leaders are
known. Idle connections are used again.

As in Kafka, an operation may take effect twice: where a controller ends after it did what it was asked, the next one
gets the same request, and may respond with TOPIC_ALREADY_EXISTS. The faults and the tap of a client's request are those
of the broker that the client asked.

What may fail: `WireError` for a request that does not decode, before anything is sent.
Source: Kafka's ForwardingManager, NodeToControllerChannelManager, EnvelopeUtils.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Coroutine, Iterable, Sequence
from dataclasses import replace
from functools import partial
from ipaddress import ip_address
from typing import Any, Protocol

from ..authorizer import Principal
from ..errors import ErrorCode, KafkaError, WireError
from ..host.seam import Host, Part, Peer, bytes_of
from ..ids import NodeId
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.headers import encode_response_header, parse_request_header, parse_response_header
from ..wire.request import OnSend, Request, RequestContext
from .peers import PeerClient

__all__ = ["FORWARDED", "UNTIMED", "ControllerLookup", "Forwarding"]

FORWARDED = frozenset(
    (
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.ELECT_LEADERS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.DESCRIBE_QUORUM,
        ApiKey.UPDATE_FEATURES,
        ApiKey.UNREGISTER_BROKER,
    )
)
"""What the active controller serves for all brokers. Each has a field `timeout`, except those of `UNTIMED`."""
UNTIMED = frozenset((ApiKey.DESCRIBE_QUORUM, ApiKey.UPDATE_FEATURES, ApiKey.UNREGISTER_BROKER))
"""Kafka's controller responds to these without a deadline of the client's, also where they have a `timeout`."""
_NAMED_ONCE = frozenset((ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS))
"""A topic that such a request names twice is refused."""
UNTIMED_MS = 30_000
"""How long a request may take that needs no time."""
FOREVER_MS = 10**9
"""For the controller, which the other broker's deadline bounds."""
RETRY_MS = 100
GRACE_MS = 500
"""How much longer than the client a broker waits: the controller's own REQUEST_TIMED_OUT names each item."""
IDLE_MOST = 2
"""Idle connections that are kept."""
ENVELOPE_VERSION = 0


class ControllerLookup(Protocol):
    """The metadata cache, as this room needs it."""

    @property
    def node_id(self) -> NodeId:
        """This broker."""
        ...

    @property
    def controller_id(self) -> NodeId:
        """The controller of the last UpdateMetadata; -1 before the first."""
        ...

    def peer_endpoint(self, node_id: NodeId, /) -> tuple[str, int] | None:
        """Address of a live broker's listener for brokers."""
        ...

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        """Wait until `condition` holds, evaluated after each update; False after the timeout."""
        ...


class Forwarding:
    """Brings the requests of `FORWARDED` to the active controller."""

    def __init__(
        self,
        host: Host,
        lookup: ControllerLookup,
        connect: Callable[[NodeId], PeerClient | None],
        is_active: Callable[[], bool],
    ) -> None:
        """`is_active`: whether this broker is the active controller now; metadata may be of the time before."""
        self._host = host
        self._is_active = is_active
        self._lookup = lookup
        self._connect = connect
        self._served: dict[int, ApiRow] = {}
        self._idle: list[PeerClient] = []
        self._closed = False

    def rows(self, rows: Iterable[ApiRow]) -> list[ApiRow]:
        """Return the rows of a broker with this room before those of `FORWARDED`, and a row for Envelope."""
        found: list[ApiRow] = []
        for row in rows:
            if row.api_key in FORWARDED:
                self._served[row.api_key] = row
                found.append(replace(row, handler=partial(self._bring, row)))
            else:
                found.append(row)
        envelope = ApiRow(ApiKey.ENVELOPE, ENVELOPE_VERSION, ENVELOPE_VERSION, self._open_envelope)
        return [*found, envelope]

    def close(self) -> None:
        """Close the idle connections, and keep none from now on."""
        self._closed = True
        idle, self._idle = self._idle, []
        for client in idle:
            client.close()

    # ----------------------------------------------- on the broker of the client

    async def _bring(self, row: ApiRow, request: Request) -> None:
        entity = request.decode()
        timeout_ms = UNTIMED_MS if needs_no_time(row.api_key, entity) else messages.to_milliseconds(entity.timeout)
        if timeout_ms <= 0:
            request.fail(ErrorCode.request_timed_out)
            return
        deadline_ms = self._host.clock.monotonic_ms() + timeout_ms
        while True:
            asked = self._lookup.controller_id
            if await self._attempt(asked, row, request, self._left_ms(deadline_ms) + GRACE_MS):
                return
            left_ms = self._left_ms(deadline_ms)
            if left_ms <= 0:
                request.fail(ErrorCode.request_timed_out)
                return
            await self._await_another(asked, min(RETRY_MS, left_ms))

    def _left_ms(self, deadline_ms: int) -> int:
        return max(0, deadline_ms - self._host.clock.monotonic_ms())

    async def _await_another(self, asked: NodeId, timeout_ms: int) -> None:
        await self._lookup.await_until(lambda: self._lookup.controller_id != asked, timeout_ms)

    async def _attempt(self, controller: NodeId, row: ApiRow, request: Request, timeout_ms: int) -> bool:
        """Whether the request has its response."""
        if controller == self._lookup.node_id:
            return self._is_active() and await self._serve_here(row, request, timeout_ms)
        client = self._client(controller)
        if client is None:
            return False
        try:
            answer = await client.request(ApiKey.ENVELOPE, ENVELOPE_VERSION, _envelope(request), timeout_ms)
        except (OSError, TimeoutError, WireError):
            client.close()
            return False
        self._keep(client)
        if answer.error_code is ErrorCode.not_controller:
            return False
        if answer.error_code is not ErrorCode.none or answer.response_data is None:
            request.fail(ErrorCode.unknown_server_error)
            return True
        _, body_at = parse_response_header(request.api_key, request.version, answer.response_data)
        request.respond_parts((answer.response_data[body_at:],))
        return True

    async def _serve_here(self, row: ApiRow, request: Request, timeout_ms: int) -> bool:
        """Serve it as the controller; False when this broker is not the controller, or not in time."""
        try:
            await self._host.tasks.wait(_served(row, request), timeout_ms)
        except TimeoutError:
            return request.answered
        except KafkaError as error:
            if error.code is not ErrorCode.not_controller:
                raise
            return False
        return True

    # ------------------------------------------------------------- connections

    def _client(self, node_id: NodeId) -> PeerClient | None:
        """An idle connection to a broker, or a new one; None while its address is unknown."""
        endpoint = self._lookup.peer_endpoint(node_id)
        while self._idle:
            client = self._idle.pop()
            if client.node_id == node_id and client.address == endpoint:
                return client
            client.close()
        return None if self._closed else self._connect(node_id)

    def _keep(self, client: PeerClient) -> None:
        if self._closed or len(self._idle) >= IDLE_MOST:
            client.close()
        else:
            self._idle.append(client)

    # --------------------------------------------------------- on the controller

    def _open_envelope(self, envelope: Request) -> Coroutine[Any, Any, None] | None:
        """Serve Envelope: the request in it, for the client that sent it to another broker."""
        entity = envelope.decode()
        frame = bytes(entity.request_data)
        header = parse_request_header(frame)
        row = self._served.get(header.api_key)
        if row is None or not row.low <= header.version <= row.high:
            _respond(envelope, ErrorCode.invalid_request)
            return None
        if not self._is_active():
            _respond(envelope, ErrorCode.not_controller)
            return None

        def complete(parts: Sequence[Part] | None, on_send: OnSend | None) -> None:
            assert parts is not None, "each of these requests has a response"
            head = encode_response_header(header.api_key, header.version, header.correlation_id)
            body = b"".join(bytes(bytes_of(part)) for part in parts)
            _respond(envelope, ErrorCode.none, head + body, on_send)

        peer = Peer("client", header.client_id, _text_of(entity.client_host_address))
        request = Request(
            *header[:4],
            frame,
            header.body_at,
            RequestContext(
                peer=peer,
                listener=envelope.listener,
                principal=_principal(entity.request_principal),
                authorizer=envelope.context.authorizer,
            ),
            envelope.received_ns,
            complete,
        )
        return self._serve_for_another(row, request, envelope)

    async def _serve_for_another(self, row: ApiRow, request: Request, envelope: Request) -> None:
        try:
            if not await self._serve_here(row, request, FOREVER_MS):
                _respond(envelope, ErrorCode.not_controller)
        except KafkaError as error:
            request.fail(error.code, error.message)


async def _served(row: ApiRow, request: Request) -> None:
    running = row.handler(request)
    if running is not None:
        await running


def _envelope(request: Request) -> Any:
    s = messages.schema(ApiKey.ENVELOPE, ENVELOPE_VERSION, "request")
    return s.EnvelopeRequest(
        request_data=request.frame,
        request_principal=str(request.principal).encode(),
        client_host_address=_packed(request.peer.address),
    )


def _respond(envelope: Request, code: ErrorCode, data: bytes | None = None, on_send: OnSend | None = None) -> None:
    s = messages.response(envelope)
    envelope.respond(s.EnvelopeResponse(response_data=data, error_code=code), on_send=on_send)


def _principal(written: bytes | None) -> Principal:
    """The principal that `_envelope` wrote as text, `User:ANONYMOUS`."""
    kind, _, name = (written or b"").decode().partition(":")
    return Principal(kind, name)


def _packed(address: str) -> bytes:
    """The bytes of an IP address; none where a link has no address."""
    try:
        return ip_address(address).packed
    except ValueError:
        return b""


def _text_of(packed: bytes) -> str:
    return str(ip_address(bytes(packed))) if packed else ""


def needs_no_time(api_key: int, entity: Any) -> bool:
    """True when the response to a decoded request does not depend on `timeout_ms`.

    It has no deadline in Kafka either (`UNTIMED`), lists reassignments, names nothing, or each of its topics is refused
    by the request alone: it is named twice, or by name and id, or by neither. Kafka's ControllerApis and
    QuorumController end such requests before they wait.
    """
    if api_key == ApiKey.LIST_PARTITION_REASSIGNMENTS or api_key in UNTIMED:
        return True
    if api_key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
        return not entity.topics
    if api_key == ApiKey.ELECT_LEADERS:
        return entity.topic_partitions is not None and not entity.topic_partitions
    if api_key in _NAMED_ONCE:
        return _all_twice([row.name for row in entity.topics])
    return api_key == ApiKey.DELETE_TOPICS and _no_topic_to_delete(entity)


def _all_twice(names: Sequence[Any]) -> bool:
    return all(count > 1 for count in Counter(names).values())


def _no_topic_to_delete(entity: Any) -> bool:
    if hasattr(entity, "topic_names"):
        return _all_twice(entity.topic_names)
    rows = [(row.name, row.topic_id) for row in entity.topics]
    counts = Counter(rows)
    return all((row[0] is None) == (row[1] is None) or counts[row] > 1 for row in rows)
