"""One request as a handler sees it: its header, its body, who sent it, and its one response.

Owns: `Request`, `RequestContext`, `Handler`. A connection makes a request of each frame, gives it the context that all
requests of the connection share, and learns of the response through `complete`.
Invariants: a request is completed exactly once (a second response is our bug: AssertionError); the bytes of
the frame are never changed.
May fail: `decode` raises `WireError` when the body is not what the version says.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from typing import Any, NamedTuple, Protocol

from ..authorizer import (
    ANONYMOUS,
    SUPPORTED_OPERATIONS,
    Authorizer,
    ListenerAuthorizer,
    Operation,
    Principal,
    Resource,
    ResourceType,
)
from ..errors import ErrorCode, KafkaError
from ..host.seam import Part, Peer
from ..listeners import Listener
from . import messages
from .api_keys import ApiKey
from .refusals import refusal, refusal_bytes

__all__ = [
    "ARRIVES",
    "LOST",
    "Complete",
    "Fate",
    "Handler",
    "OnSend",
    "Request",
    "RequestBytes",
    "RequestContext",
    "denial",
]


class Fate(NamedTuple):
    """What becomes of a response whose bytes are about to leave."""

    lost: bool = False
    """A fault drops it: its connection is reset."""
    error: int = 0
    """The error code that a fault puts into it, although the request took effect; 0 without such a fault."""

    @property
    def arrives(self) -> bool:
        """True where the client gets what the handler responded."""
        return not self.lost and not self.error


ARRIVES, LOST = Fate(), Fate(lost=True)
OnSend = Callable[[Fate], int | None]
"""`on_send(fate)`, just before the bytes leave; returns the first error in the response as its handler made it, None
where it does not say."""
Complete = Callable[[Sequence[Part] | None, OnSend | None], None]
"""`complete(parts of the body, on_send)`; parts None: there is no response (acks=0)."""


_UNRESTRICTED = ListenerAuthorizer()
AUTHORIZATION_ERRORS: Mapping[ResourceType, ErrorCode] = {
    ResourceType.TOPIC: ErrorCode.topic_authorization_failed,
    ResourceType.GROUP: ErrorCode.group_authorization_failed,
    ResourceType.CLUSTER: ErrorCode.cluster_authorization_failed,
    ResourceType.TRANSACTIONAL_ID: ErrorCode.transactional_id_authorization_failed,
    ResourceType.DELEGATION_TOKEN: ErrorCode.delegation_token_authorization_failed,
}
"""The error of a refused operation, by the type of the resource (Kafka's AclEntry.authorizationError)."""
NONE_DENIED: frozenset[str] = frozenset()


def denial(kind: ResourceType) -> KafkaError:
    """The error of a sender that may not do to a resource of this type what it asked for, with Kafka's words."""
    words = kind.name.replace("_", " ").title()
    return KafkaError(AUTHORIZATION_ERRORS[kind], f"{words} authorization failed.")


class RequestBytes(Protocol):
    """A request whose header was read: what the hand-written decoders need."""

    @property
    def version(self) -> int:
        """The version in the header."""
        ...

    @property
    def frame(self) -> bytes:
        """The whole request."""
        ...

    @property
    def body_at(self) -> int:
        """Where its body begins."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class RequestContext:
    """Facts that all requests of one connection share; made once, when the first request names the connection."""

    peer: Peer
    listener: Listener
    principal: Principal = ANONYMOUS
    authorizer: Authorizer = _UNRESTRICTED
    from_broker: bool = False
    """True when the sender may act as a broker: the connection is on the inter-broker listener and the principal may
    do CLUSTER_ACTION. Only then does a Fetch with a replica id count as a follower's."""
    by_token: bool = False
    """True when the sender has logged in by a delegation token."""
    closing: list[Callable[[], None]] = field(default_factory=list[Callable[[], None]], compare=False, repr=False)
    """Called when the connection has ended."""

    def __post_init__(self) -> None:
        assert self.listener.inter_broker or not self.from_broker, f"a broker on {self.listener}"

    def on_close(self, call: Callable[[], None]) -> None:
        """Call once when the connection has ended."""
        self.closing.append(call)


class Request:
    """One decoded header and the bytes behind it; one of the last five methods answers it, once."""

    __slots__ = (
        "_complete",
        "api_key",
        "body_at",
        "client_id",
        "context",
        "correlation_id",
        "frame",
        "received_ns",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str,
        frame: bytes,
        body_at: int,
        context: RequestContext,
        received_ns: int,
        complete: Complete,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body_at = body_at
        self.context = context
        self.received_ns = received_ns
        self._complete: Complete | None = complete

    def copy(self, complete: Complete) -> Request:
        """Return the same request with a response of its own."""
        return Request(
            self.api_key,
            self.version,
            self.correlation_id,
            self.client_id,
            self.frame,
            self.body_at,
            self.context,
            self.received_ns,
            complete,
        )

    def __repr__(self) -> str:
        return (
            f"<Request {self.api_key} v{self.version} #{self.correlation_id} "
            f"of {self.client_id!r} from {self.context.peer}>"
        )

    @property
    def peer(self) -> Peer:
        """Who is at the other end of the connection."""
        return self.context.peer

    @property
    def listener(self) -> Listener:
        """The listener on which the request came in: responses give the addresses of this listener."""
        return self.context.listener

    @property
    def principal(self) -> Principal:
        """Who sent the request, for the authorizer."""
        return self.context.principal

    @property
    def from_broker(self) -> bool:
        """True when the sender may act as a broker of the cluster."""
        return self.context.from_broker

    @property
    def unrestricted(self) -> bool:
        """True when no question of `allows` can be refused: a handler then serves its items without asking."""
        return self.context.authorizer.unrestricted

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        """True when the sender may do `operation` to the resource."""
        context = self.context
        return context.authorizer.authorize(context.principal, context.peer.address, operation, Resource(kind, name))

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """KafkaError with the error of the resource's type, unless the sender may do `operation` to it."""
        if not self.unrestricted and not self.allows(operation, kind, name):
            raise denial(kind)

    def denied(self, operation: Operation, kind: ResourceType, names: Iterable[str]) -> frozenset[str]:
        """The names of resources to which the sender may not do `operation`; without a look at them if none can be."""
        if self.unrestricted:
            return NONE_DENIED
        return frozenset(name for name in set(names) if not self.allows(operation, kind, name))

    def authorized_operations(self, kind: ResourceType, name: str) -> int:
        """Kafka's bit field of the operations that the sender may do to the resource (KIP-430)."""
        supported = SUPPORTED_OPERATIONS[kind]
        if self.unrestricted:
            return _bits(supported)
        return _bits(tuple(operation for operation in supported if self.allows(operation, kind, name)))

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        """True when there is a resource of this type to which the sender may do `operation`."""
        context = self.context
        return context.authorizer.authorize_any(context.principal, context.peer.address, operation, kind)

    @property
    def answered(self) -> bool:
        """True when one of the methods below has answered the request."""
        return self._complete is None

    def is_completed_by(self, complete: Complete) -> bool:
        """True while this is what the response will be given to."""
        return self._complete == complete

    def decode(self) -> Any:
        """The entity of (api_key, version); WireError when malformed."""
        return messages.request_reader(self.api_key, self.version)(self.frame, self.body_at)[0]

    def respond(self, response: Any, *, on_send: OnSend | None = None) -> None:
        """Answer with a response entity of the request's version; `on_send` as in `respond_parts`."""
        write = messages.response_writer(self.api_key, self.version)
        self.respond_parts((messages.encode(write, response),), on_send=on_send)

    def respond_parts(self, parts: Sequence[Part], *, on_send: OnSend | None = None) -> None:
        """Answer with the body's bytes; `on_send(fate)` runs just before they leave."""
        self._finish(parts, on_send)

    def no_response(self) -> None:
        """Finish without a response: a produce with acks=0."""
        self._finish(None, None)

    def fail(self, code: ErrorCode, message: str = "") -> None:
        """Answer with the API's own error response: `code` for every item of the request.

        `message` is included where the API has a field for it. A produce with acks=0 gets no response, because the
        client would take it for the response to its next request.
        """
        entity = self.decode()
        if self.api_key == ApiKey.PRODUCE and entity.acks == 0:
            self.no_response()
            return
        self.respond(refusal(self.api_key, self.version, entity, code, message))

    def refuse(self, code: ErrorCode) -> None:
        """Answer with `code` as Kafka gives it (`api_errors.py`); a produce with acks=0 gets no response."""
        if self.api_key == ApiKey.PRODUCE and self.decode().acks == 0:
            self.no_response()
            return
        body = refusal_bytes(self.api_key, self.version, self.frame, self.body_at, code)
        self.respond_parts((body,))

    def _finish(self, parts: Sequence[Part] | None, on_send: OnSend | None) -> None:
        complete = self._complete
        assert complete is not None, f"{self!r} was answered twice"
        self._complete = None
        complete(parts, on_send)


@cache
def _bits(operations: tuple[Operation, ...]) -> int:
    return sum(1 << operation for operation in operations)


Handler = Callable[[Request], Coroutine[Any, Any, None] | None]
"""Serves a request, at once or as a coroutine. The response may be given after the handler has ended."""
