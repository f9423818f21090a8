"""The server side of a connection whose client logs in first, by SASL.

Owns: `SaslConnection`, a `Connection` with an exchange before its first request; `ListenerSasl`, what the connections
of a listener share; `sasl_rows`, the rows of both requests for a client that has logged in, or need not.

    VERSIONS   ApiVersions or SaslHandshake
    HANDSHAKE  SaslHandshake
    TOKENS     SaslAuthenticate (after SaslHandshake v1)
    RAW        tokens without headers (after SaslHandshake v0)
    OTHER      SaslAuthenticate after a handshake with another mechanism than before, which fails
    OPEN       every request; SaslHandshake begins again where the session has an end (KIP-368)
    FAILED     nothing

Invariants:

* Before OPEN no handler of a room runs, and a frame has at most `sasl.server.max.receive.size` bytes. A client that is
  not done in time is closed. Its end costs no line in the log for each (`Logins`).
* The row of a request is looked up when its turn is there, so what a client sends at once is served in order.
* A failed exchange is responded to, and closed, after `connection.failed.authentication.delay.ms`.
* A client that logs in again keeps its principal. After the end of its session any other request closes the connection.
* The client id names the peer for the rules of faults, as on PLAINTEXT. A client that names itself a broker, and may
  not act as one, loses that name with its first request.

May fail: as `Connection`. Source: Kafka's SaslServerAuthenticator, KafkaChannel, Selector.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Iterator
from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum, auto
from typing import Any

from ..authorizer import USER_TYPE, Principal
from ..errors import ErrorCode, WireError
from ..host.seam import Host, Link, Peer, Timer
from ..security.sasl.exchange import Login, SaslError, SaslRefusedError, SaslServer
from ..security.sasl.mechanisms import OAUTHBEARER, ListenerMechanisms
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow, names_its_software
from ..wire.request import Handler, Request, RequestContext
from .connection import Connection, ListenerServices

__all__ = ["ListenerSasl", "Logins", "SaslConnection", "sasl_rows"]

HANDSHAKE_HIGH, AUTHENTICATE_HIGH = 1, 2
LOGIN_MS_MOST = 30_000
"""How long a client may take to log in; Kafka has `connections.max.idle.ms` alone."""
AGAIN_MS_LEAST = 1_000
"""A client may log in again once in this time, as in Kafka."""
LOG_INTERVAL_MS = 1_000
NS_PER_MS = 1_000_000
_TOO_LATE = "SaslAuthenticate request received after successful authentication"


class State(Enum):
    """What a connection serves."""

    VERSIONS = auto()
    HANDSHAKE = auto()
    TOKENS = auto()
    RAW = auto()
    OTHER = auto()
    OPEN = auto()
    FAILED = auto()


class Logins:
    """Counts the logins of a listener, and logs those that fail: the first at once, then one line in a second."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._logged_ms = -LOG_INTERVAL_MS
        self._unlogged = 0
        self.succeeded = 0
        """How many clients have logged in; again counts, too."""
        self.failed = 0
        """How many logins have failed."""

    def add_failed(self, peer: Peer, reason: str) -> None:
        """Count one."""
        self.failed += 1
        now_ms = self._host.clock.monotonic_ms()
        if now_ms - self._logged_ms < LOG_INTERVAL_MS:
            self._unlogged += 1
            return
        more = f" ({self._unlogged} others failed before)" if self._unlogged else ""
        self._logged_ms, self._unlogged = now_ms, 0
        self._host.trace.log("info", f"{peer} of {peer.address or 'no address'} has not logged in: {reason}{more}")


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSasl:
    """What the connections of one listener share."""

    mechanisms: ListenerMechanisms
    logins: Logins
    failure_delay_ms: int
    frame_bytes_most: int
    """The largest frame before a client has logged in."""
    ready: Callable[[], Coroutine[Any, Any, None]] | None = None
    """Reads the keys of the issuer of signed tokens, where these are due."""


class SaslConnection(Connection):
    """A FrameHandler that serves the requests of one link after its client has logged in."""

    __slots__ = (
        "_again_ns",
        "_deadline",
        "_expires_ns",
        "_frame_bytes_most",
        "_login",
        "_mechanism",
        "_peer",
        "_sasl",
        "_served",
        "_server",
        "_state",
    )

    def __init__(self, services: ListenerServices, link: Link, sasl: ListenerSasl) -> None:
        super().__init__(services, link)
        self._sasl = sasl
        self._state = State.VERSIONS
        self._served = services.table
        self._table = self  # looks rows up by the state
        self._mechanism = ""
        self._server: SaslServer | None = None
        self._login: Login | None = None
        self._expires_ns: int | None = None  # the end of the session
        self._again_ns: int | None = None  # when the client last began to log in again
        self._peer: Peer | None = None  # the name of the link from the next frame on
        self._frame_bytes_most = link.max_frame_bytes
        link.max_frame_bytes = min(sasl.frame_bytes_most, link.max_frame_bytes)
        link.wire_error_level = "debug"
        self._deadline: Timer | None = self._host.tasks.call_later(LOGIN_MS_MOST, self._late)

    @property
    def is_of_client(self) -> bool:
        """True unless the client has logged in as a broker."""
        return self._context is None or not self._context.from_broker

    def frame_received(self, frame: bytes) -> None:
        """Serve one request or one token."""
        if self._state is State.OPEN:
            if self._peer is not None:
                # before anything else: naming a blocked peer raises from here, and the frame comes again after healing
                self._link.peer = self._peer
                self._peer = None
            super().frame_received(frame)
            return
        if self._state is State.FAILED:
            return
        try:
            if self._state is State.RAW:
                self._raw_token(frame)
            else:
                super().frame_received(frame)
        except WireError as error:
            self._end(str(error))
        if self._busy and self._open and not self._full:
            self._full = True
            self._link.pause()

    def link_closed(self, reason: str) -> None:
        """Forget the exchange."""
        self._stop_deadline()
        super().link_closed(reason)

    def _next(self) -> None:
        """Read on after a handler that waited."""
        super()._next()
        if self._full and not self._busy and self._state is not State.FAILED:
            self.completed()

    # ------------------------------------------------------------------ rows

    def lookup(self, api_key: int, version: int) -> ApiRow:
        """The row of a request in the state of the exchange."""
        state = self._state
        if state is State.OPEN:
            return self._open_row(api_key, version)
        handler: Handler = self._unexpected
        if api_key == ApiKey.API_VERSIONS and state is State.VERSIONS:
            handler = self._api_versions
        elif api_key == ApiKey.SASL_HANDSHAKE and state in (State.VERSIONS, State.HANDSHAKE):
            handler = self._handshake if 0 <= version <= HANDSHAKE_HIGH else handler
        elif api_key == ApiKey.SASL_AUTHENTICATE and state in (State.TOKENS, State.OTHER):
            handler = self._authenticate if 0 <= version <= AUTHENTICATE_HIGH else handler
        return ApiRow(api_key, version, version, handler)

    def _open_row(self, api_key: int, version: int) -> ApiRow:
        assert self._expires_ns is not None, "a session without an end needs no look-up here"
        now_ns = self._host.clock.monotonic_ns()
        again = self._again_ns is None or now_ns - self._again_ns >= AGAIN_MS_LEAST * NS_PER_MS
        if api_key == ApiKey.SASL_HANDSHAKE and again and 0 <= version <= HANDSHAKE_HIGH:
            self._again_ns = now_ns
            return ApiRow(api_key, version, version, self._handshake)
        if now_ns > self._expires_ns:
            return ApiRow(api_key, version, version, self._expired)
        return self._served.lookup(api_key, version)

    # -------------------------------------------------------------- requests

    def _api_versions(self, request: Request) -> Coroutine[Any, Any, None] | None:
        if 0 <= request.version <= self._served.api_versions_high and names_its_software(request):
            self._state = State.HANDSHAKE
        return self._served.lookup(request.api_key, request.version).handler(request)

    def _handshake(self, request: Request) -> Coroutine[Any, Any, None] | None:
        mechanism = request.decode().mechanism
        enabled = self._sasl.mechanisms.enabled()
        if mechanism not in enabled:

            def refuse() -> None:
                _respond_handshake(request, ErrorCode.unsupported_sasl_mechanism, enabled)

            # as in Kafka, a client that logs in again gets no response
            respond = refuse if self._login is None else _no_response
            return self._fail(f"Unsupported SASL mechanism {mechanism}", respond)
        if self._login is not None and mechanism != self._mechanism:
            self._state = State.OTHER
        else:
            self._mechanism = mechanism
            self._server = self._sasl.mechanisms.server(mechanism)
            self._state = State.TOKENS if request.version else State.RAW
        _respond_handshake(request, ErrorCode.none, enabled)
        ready = self._sasl.ready
        return ready() if ready is not None and mechanism == OAUTHBEARER else None

    def _authenticate(self, request: Request) -> Coroutine[Any, Any, None] | None:
        if self._state is State.OTHER:
            return self._fail(f"a client of {self._mechanism} logs in again by another mechanism", _no_response)
        s = messages.response(request)
        try:
            answer, lifetime_ms = self._evaluated(request.decode().auth_bytes)
        except SaslError as error:
            text = str(error) if isinstance(error, SaslRefusedError) else self._invalid()

            def refuse() -> None:
                code = ErrorCode.sasl_authentication_failed
                request.respond(s.SaslAuthenticateResponse(error_code=code, error_message=text, auth_bytes=b""))

            return self._fail(str(error), refuse)
        request.respond(
            s.SaslAuthenticateResponse(
                error_code=ErrorCode.none,
                error_message="",
                auth_bytes=answer,
                session_lifetime=timedelta(milliseconds=lifetime_ms),
            )
        )
        return None

    def _invalid(self) -> str:
        doing = "authentication" if self._login is None else "re-authentication"
        return f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {self._mechanism}"

    def _raw_token(self, token: bytes) -> None:
        try:
            answer, _ = self._evaluated(token)
        except SaslError as error:
            self._busy = True
            self._host.tasks.spawn(self._fail(str(error), _no_response), name="sasl")
            return
        self._link.send((answer,))

    def _evaluated(self, token: bytes) -> tuple[bytes, int]:
        """The server's token, and the lifetime of the session in ms where the exchange is complete; SaslError."""
        server = self._server
        assert server is not None, "tokens follow a handshake"
        access, again = self._host.network.access, self._login is not None
        try:
            answer = server.evaluate(token)
        except SaslError:
            access.login(server.user, again=again, failed=True)
            raise
        login = server.login
        if login is None:
            return answer, 0
        if self._login is not None and login.user != self._login.user:
            raise SaslRefusedError(
                "Cannot change principals during re-authentication from "
                f"{USER_TYPE}.{self._login.user}: {USER_TYPE}.{login.user}"
            )
        if access.login(login.user, again=again, failed=False):
            raise SaslError(f"a fault refuses the login of {login.user}")
        return answer, self._open_session(login)

    def _open_session(self, login: Login) -> int:
        clock = self._host.clock
        bounds_ms = [self._sasl.mechanisms.session_ms(self._mechanism)]
        bounds_ms = [bound for bound in bounds_ms if bound > 0]
        if login.expires_ms is not None:
            bounds_ms.append(login.expires_ms - clock.wall_ms())
        lifetime_ms = max(0, min(bounds_ms, default=0))
        self._expires_ns = clock.monotonic_ns() + lifetime_ms * NS_PER_MS if bounds_ms else None
        self._table = self._served if self._expires_ns is None else self
        self._state = State.OPEN
        self._sasl.logins.succeeded += 1
        self._server = None
        self._stop_deadline()
        self._link.max_frame_bytes = self._frame_bytes_most
        self._link.wire_error_level = "warning"
        if self._login is None:
            self._take_name(login)
        self._login = login
        return lifetime_ms

    def _take_name(self, login: Login) -> None:
        context = self._context
        assert context is not None, "the first request has named the connection"
        context = self._context_of(context.peer, Principal(USER_TYPE, login.user))
        if context.peer.kind == "broker" and not context.from_broker:
            self._peer = Peer("client", f"broker-{context.peer.name}", self.address)
            context = self._context_of(self._peer, context.principal)
        self._context: RequestContext | None = replace(context, by_token=login.by_token)

    # --------------------------------------------------------------- endings

    def _unexpected(self, request: Request) -> Coroutine[Any, Any, None]:
        """A request that the state does not serve: it ends the connection, and has a response among tokens only."""
        reason = f"Unexpected Kafka request of type {_api_name(request.api_key)} during SASL handshake."
        if self._state is not State.TOKENS or not messages.has_schema(request.api_key, request.version):
            return self._fail(reason, _no_response)
        reason = reason.replace("handshake", "authentication")
        return self._fail(reason, lambda: request.fail(ErrorCode.illegal_sasl_state, reason))

    def _expired(self, request: Request) -> None:
        self._end(f"request {request.api_key} after the end of its session")

    async def _fail(self, reason: str, respond: Callable[[], None]) -> None:
        """Respond and close after a while, so that guesses take their time."""
        self._state = State.FAILED
        self._stop_deadline()
        self._sasl.logins.add_failed(self._link.peer, reason)
        await self._host.tasks.sleep(self._sasl.failure_delay_ms)
        if self._open:
            respond()
            self._shut(reset=False)

    def _late(self) -> None:
        self._deadline = None
        self._end(f"not within {LOGIN_MS_MOST} ms")

    def _end(self, reason: str) -> None:
        if self._open:
            self._state = State.FAILED
            self._sasl.logins.add_failed(self._link.peer, reason)
            self._shut(reset=False)

    def _stop_deadline(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def sasl_rows() -> Iterator[ApiRow]:
    """SaslHandshake and SaslAuthenticate of a client that has logged in, or cannot: the response is an error."""
    yield ApiRow(ApiKey.SASL_HANDSHAKE, 0, HANDSHAKE_HIGH, _handshake_out_of_turn)
    yield ApiRow(ApiKey.SASL_AUTHENTICATE, 0, AUTHENTICATE_HIGH, _authenticate_out_of_turn)


def _handshake_out_of_turn(request: Request) -> None:
    request.decode()  # WireError for what cannot be read
    _respond_handshake(request, ErrorCode.illegal_sasl_state, ())


def _authenticate_out_of_turn(request: Request) -> None:
    request.decode()
    s = messages.response(request)
    code = ErrorCode.illegal_sasl_state
    request.respond(s.SaslAuthenticateResponse(error_code=code, error_message=_TOO_LATE, auth_bytes=b""))


def _respond_handshake(request: Request, code: ErrorCode, mechanisms: tuple[str, ...]) -> None:
    s = messages.response(request)
    request.respond(s.SaslHandshakeResponse(error_code=code, mechanisms=mechanisms))


def _no_response() -> None:
    """Nothing precedes the end of the connection."""


def _api_name(api_key: int) -> str:
    try:
        return ApiKey(api_key).name
    except ValueError:
        return str(api_key)
