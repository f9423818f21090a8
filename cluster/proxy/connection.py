"""One connection of a client and the connection to the broker that belongs to it.

Owns: both links and the requests between them. Invariants:

* Requests reach the broker in the order in which the client sent them, responses reach the client in the order of the
  requests, both with unchanged correlation ids. Frames pass whole.
* Memory is bounded. The client is not read until the broker is connected, while `UNANSWERED_MOST` of its requests or
  `KEPT_BYTES_MOST` of their bytes wait for a response, and while `UNSENT_MOST` bytes wait for the broker to read them;
  the broker is not read while `UNSENT_MOST` bytes wait for the client. A single larger frame passes.
* The tap has the rows of a response before its bytes leave (`tap.py`).
* Who has logged in is known by the SASL that passes (`logins.py`). A login that a fault refuses is refused after the
  broker accepted it: the client gets the error of a wrong password, and both links end.
* A link that ends ends the other one, after what was queued on it has left. When the broker refuses the connection, the
  client's is reset.

Errors: bytes that are not plain Kafka, and requests that do not pass (`apis.py`), close the connection with one line in
the log. So does a response that does not decode: no address of a foreign broker reaches a client.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from ..errors import ConfigError, ErrorCode
from ..host.seam import HOLD_RESPONSE, LOSE_RESPONSE, Link, Peer, RequestBody, RequestFacts, RequestFault, TlsOptions
from ..listeners import Address
from ..network.tapped_connection import TappedConnection
from ..wire.api_keys import ApiKey
from ..wire.error_versions import code_at
from ..wire.headers import HeaderReader, encode_response_header, parse_response_header
from ..wire.produce import decode_acks
from ..wire.refusals import refusal_bytes
from ..wire.request_facts import request_facts
from ..wire.tapped_requests import subject_of
from .addresses import AddressOf, rewrite
from .apis import check_passes, cut_api_versions, is_unknown_api_versions, unsupported_api_versions
from .client_identities import ClientIdentities
from .denials import Answered, denied_operations
from .failed_responses import failed_response, needs_response
from .logins import FAILURE_DELAY_MS, SASL_APIS, ClientLogin, SaslStep
from .machine import ProxyHost
from .pending import PendingRequest, PendingRequests, WatchedRequest
from .tap import ProxyTap
from .upstream_watch import CONNECT_TIMEOUT_MS

UNANSWERED_MOST = 500
"""Requests of one connection without a response at which its client is not read; it is read again at half."""
KEPT_BYTES_MOST = 32 * 1024 * 1024
"""Bytes of requests that the tap keeps for their responses."""
UNSENT_MOST = 4 * 1024 * 1024
"""Bytes that wait for one side at which the other side is not read; it is read again at a quarter."""
UNNAMED = "unnamed"
"""The name of a client that gives none."""
CONNECTING, FULL, BROKER_IS_SLOW, DELAYED = 1, 2, 4, 8
"""Why the client is not read."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectionServices:
    """What all connections to one broker share."""

    host: ProxyHost
    upstream: Callable[[], Address]
    """Where the foreign broker is reached."""
    upstream_peer: Peer
    address_of: AddressOf
    tap: ProxyTap
    on_closed: Callable[[ProxiedConnection], None]
    identities: ClientIdentities | None = None
    """Where the broker must see the certificates of clients: their keys."""


class ProxiedConnection:
    """A FrameHandler of the client's link; `UpstreamHandler` is that of the broker's."""

    __slots__ = (
        "_client",
        "_client_id",
        "_dropping",
        "_headers",
        "_holds",
        "_login",
        "_named",
        "_open",
        "_pending",
        "_services",
        "_silent",
        "_tapped",
        "_upstream",
        "_upstream_held",
    )

    def __init__(self, services: ConnectionServices, client: Link) -> None:
        self._services = services
        self._client = client
        self._upstream: Link | None = None
        self._headers = HeaderReader()
        self._pending = PendingRequests()
        self._tapped = TappedConnection(services.host) if services.host.tap.enabled else None
        self._named = False
        self._client_id = ""
        self._login: ClientLogin | None = None
        """Where the client logs in: the login."""
        self._dropping = False
        """Whether a fault drops every request from now on."""
        self._silent = False
        """Whether a fault holds every response from now on."""
        self._open = True
        self._upstream_held = False
        self._holds = 0
        if services.identities is None:
            self._begin()
        else:  # the handshake says who the client is
            client.when_established(self._begin)

    def _begin(self) -> None:
        if self._open:
            self._hold(CONNECTING)
            self._services.host.tasks.spawn(self._connect(), name="proxy-connect")

    async def _connect(self) -> None:
        services = self._services
        host, port = services.upstream()
        try:
            upstream = await services.host.network.connect(
                services.upstream_peer,
                host,
                port,
                lambda _link: UpstreamHandler(self),
                timeout_ms=CONNECT_TIMEOUT_MS,
                tls=self._upstream_tls(),
            )
        except ConfigError as error:
            services.host.trace.log("warning", f"closing the link to {self._client.peer}: {error}")
            self._client.close(reset=True)
            return
        except (OSError, TimeoutError):
            self._client.close(reset=True)
            return
        if not self._open:
            upstream.close()
            return
        self._upstream = upstream
        self._release(CONNECTING)

    def _upstream_tls(self) -> TlsOptions | None:
        """TLS with the client's own certificate, where the broker must see it; the client has logged in by it."""
        identities = self._services.identities
        if identities is None:
            return None
        certificate = self._client.certificate
        assert certificate is not None, "the handshake needs one"
        identity = identities.identity_of(certificate)
        self._login = ClientLogin(self._services.host.network.access, identity.user)
        return identity.tls

    @property
    def user(self) -> str:
        """Who has logged in; empty for a client that has not, or need not."""
        return "" if self._login is None else self._login.user

    @property
    def is_open(self) -> bool:
        """Whether it forwards."""
        return self._open

    def oldest_unanswered(self) -> WatchedRequest | None:
        """Return the oldest request that the broker has not answered; None without one, or where a fault drops them."""
        if self._dropping or not self._open:
            return None
        return next((row.watched() for row in self._pending if row.own_response is None), None)

    # -------------------------------------------------------------- requests

    def frame_received(self, frame: bytes) -> None:
        """Forward one request."""
        header = self._headers.read(frame)
        client, services = self._client, self._services
        if not self._named:
            # before anything else: naming a blocked peer raises from here, and the frame comes again after healing
            client.peer = Peer("client", header.client_id or UNNAMED, client.peer.address)
            self._named, self._client_id = True, header.client_id
            if self._tapped is not None:
                self._tapped.opened(header.client_id)
        request = PendingRequest(header, frame, services.host.clock.monotonic_ns())
        if self._tapped is not None:
            request.subject = subject_of(header.api_key, request)
        if self._dropping:
            self._end_unanswered(request, hit=True)
            return
        if is_unknown_api_versions(header):
            head = encode_response_header(header.api_key, 0, header.correlation_id)
            self._respond(request, head + unsupported_api_versions())
            return
        check_passes(header.api_key, header.version)
        fault = services.host.network.request_fault(client.peer, request, self)
        if fault is not None:
            self._inject(fault, request)
        else:
            self._forward(request)

    def _inject(self, fault: RequestFault, request: PendingRequest) -> None:
        request.hit = True
        if fault.action == "lose":
            self._end_unanswered(request)
            self._end()
            self._client.close(reset=True)
        elif fault.action == "drop":
            self._end_unanswered(request)
            self._dropping = True
        elif fault.action == "refuse":
            self._refuse(request, fault.error)
        elif fault.action == "delay":
            self._hold(DELAYED)  # no later request is read before this one was forwarded
            self._services.host.tasks.call_later(fault.delay_ms, self._forward_late, request)
        else:
            copy = request.copy()  # before the bytes are given up
            self._forward(request)
            self._forward(copy)

    def _forward_late(self, request: PendingRequest) -> None:
        if self._dropping:
            self._end_unanswered(request, hit=True)
        elif self._open:
            self._forward(request)
            self._release(DELAYED)

    def _forward(self, request: PendingRequest) -> None:
        upstream = self._upstream
        assert upstream is not None, "the client is not read before the broker is connected"
        frame = request.frame
        if request.api_key in SASL_APIS:
            self._login = self._login or ClientLogin(self._services.host.network.access)
            request.sasl = self._login.forwarded(request)
        if request.api_key != ApiKey.PRODUCE or decode_acks(request) != 0:
            self._services.tap.forwarded(request)
            self._pending.add(request)
            self._update_full()
        upstream.send((frame,))
        if upstream.unsent_bytes > UNSENT_MOST and not self._holds & BROKER_IS_SLOW:
            self._hold(BROKER_IS_SLOW)
            upstream.when_unsent_below(UNSENT_MOST // 4, lambda: self._release(BROKER_IS_SLOW))

    def facts_of(self, request: RequestBody) -> RequestFacts:
        """What a request is about, for a fault that chooses by it."""
        whole = request.whole() if isinstance(request, PendingRequest) else request
        return request_facts(whole, self._services.tap)

    def _refuse(self, request: PendingRequest, error: int) -> None:
        """Answer without forwarding, where the proxy can; a Produce with acks=0 has no response."""
        key, version = request.api_key, request.version
        if key == ApiKey.PRODUCE and decode_acks(request) == 0:
            return
        if needs_response(key, version, error):
            request.error, request.refused = int(code_at(key, version, error)), True
            self._forward(request)
            return
        body = refusal_bytes(key, version, request.frame, request.body_at, error)
        given = code_at(key, version, error)
        self._services.tap.refused(request, given)
        if self._tapped is not None:
            self._tapped.sent(request, (), given, lost=False)
        self._respond(request, encode_response_header(key, version, request.correlation_id) + body)

    def _respond(self, request: PendingRequest, response: bytes) -> None:
        """Send a response of the proxy's own in its turn."""
        request.own_response = response
        request.frame = b""
        self._pending.add(request)
        self._send_own()
        self._update_full()

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """The client's link has ended: end the broker's, after the requests that were read."""
        self._end()
        self._services.on_closed(self)

    # ------------------------------------------------------------- responses

    def response_received(self, frame: bytes) -> None:
        """Forward one response of the broker."""
        if not self._open or self._silent:
            return
        request = self._pending.answered(frame)
        key, version = request.api_key, request.version
        _, body_at = parse_response_header(key, version, frame)
        if self._login is not None and not request.dropped and self._refuses(self._login, request, frame, body_at):
            return
        lost, held = request.dropped, False
        if not lost and not request.refused:
            fault = self._services.host.network.response_fault(self._client.peer, request, self)
            if fault is not None:
                held = fault.action == HOLD_RESPONSE
                lost = held or fault.action == LOSE_RESPONSE
                request.hit = request.hit or not lost
                request.error = 0 if lost else int(code_at(key, version, fault.error))
        error = self._services.tap.answered(request, frame, body_at, lost=lost)
        if self._tapped is not None and not request.dropped:
            body = (memoryview(frame)[body_at:],)
            self._tapped.sent(request, body, request.error or error, lost=lost)
        if request.dropped:
            pass
        elif held:
            self._dropping = self._silent = True
            self._drop_pending(hit=True)
        elif lost:
            self._end()
            self._client.close(reset=True)
            return
        else:
            if request.error:
                session = self._services.tap.asked_partitions(request)
                frame = failed_response(request, frame, body_at, session)
            self._send(self._rewritten(request, frame, body_at))
        self._send_own()
        self._update_full()

    def _refuses(self, login: ClientLogin, request: PendingRequest, frame: bytes, body_at: int) -> bool:
        """Count the login that the response ends, or the operations that it denies; True for a refused login."""
        if request.sasl is not None:
            if login.answered(request.sasl, request.version, frame, body_at):
                self._refuse_login(login, request, request.sasl)
                return True
            return False
        access = self._services.host.network.access
        if login.user and access.awaits_denials(login.user):
            tap = self._services.tap
            facts = partial(self.facts_of, request)
            key, version = request.api_key, request.version
            for denial in denied_operations(Answered(key, version, frame, body_at, facts, tap.topic_name)):
                access.denied(login.user, *denial)
        return False

    def _refuse_login(self, login: ClientLogin, request: PendingRequest, step: SaslStep) -> None:
        """Forward nothing more; respond, and end both links, after the time that Kafka takes for it."""
        key, version = request.api_key, request.version
        body = login.refused_body(step, version)
        if self._tapped is not None:
            self._tapped.sent(request, (body,), int(ErrorCode.sasl_authentication_failed), lost=False)
        self._dropping = self._silent = True
        self._drop_pending()
        response = encode_response_header(key, version, request.correlation_id) + body
        self._services.host.tasks.call_later(FAILURE_DELAY_MS, self._end_refused, response)

    def _end_refused(self, response: bytes) -> None:
        if self._open:
            self._client.send((response,))
            self.close()

    def upstream_closed(self) -> None:
        """The broker's link has ended: end the client's, after the responses that were read."""
        self._end()
        self._client.close()

    def close(self) -> None:
        """End both links."""
        self._end()
        self._client.close()

    def _rewritten(self, request: PendingRequest, frame: bytes, body_at: int) -> bytes:
        if request.api_key == ApiKey.API_VERSIONS:
            return cut_api_versions(request.version, frame, body_at)
        address_of = self._services.address_of
        changed = rewrite(request.api_key, request.version, frame, body_at, address_of)
        return frame if changed is None else changed

    def _send(self, response: bytes) -> None:
        client, upstream = self._client, self._upstream
        client.send((response,))
        if client.unsent_bytes > UNSENT_MOST and upstream is not None and not self._upstream_held:
            self._upstream_held = True
            upstream.pause()
            client.when_unsent_below(UNSENT_MOST // 4, self._client_has_read)

    def _client_has_read(self) -> None:
        self._upstream_held = False
        if self._open and self._upstream is not None:
            self._upstream.resume()

    def _send_own(self) -> None:
        while (request := self._pending.next_own()) is not None:
            assert request.own_response is not None, "next_own"
            self._send(request.own_response)

    # ---------------------------------------------------------------- bounds

    def _update_full(self) -> None:
        waiting, kept = len(self._pending), self._pending.kept_bytes
        if self._holds & FULL:
            if waiting <= UNANSWERED_MOST // 2 and kept <= KEPT_BYTES_MOST // 2:
                self._release(FULL)
        elif waiting >= UNANSWERED_MOST or kept >= KEPT_BYTES_MOST:
            self._hold(FULL)

    def _hold(self, reason: int) -> None:
        if not self._holds:
            self._client.pause()
        self._holds |= reason

    def _release(self, reason: int) -> None:
        assert self._holds & reason, f"the client is not held for the reason {reason}: {self._holds}"
        self._holds &= ~reason
        if not self._holds and self._open:
            self._client.resume()

    def _end_unanswered(self, request: PendingRequest, *, hit: bool = False) -> None:
        """A request ends without a response; the copy of a duplicated one has no row."""
        if self._tapped is not None and not request.dropped:
            request.hit = request.hit or hit
            self._tapped.unanswered(request)

    def _end(self) -> None:
        """Forward nothing more; the broker's link ends after the requests that were forwarded."""
        if self._open:
            self._open = False
            self._drop_pending()
            if self._named:
                self._services.tap.connection_ended(self._client_id)
            if self._tapped is not None:
                self._tapped.closed()
            if self._upstream is not None:
                self._upstream.close()

    def _drop_pending(self, *, hit: bool = False) -> None:
        """Requests that were forwarded get no response; `hit`: because of a fault."""
        for request in self._pending:
            self._services.tap.unanswered(request)
            self._end_unanswered(request, hit=hit)
        self._pending.clear()


class UpstreamHandler:
    """The FrameHandler of the link to the broker."""

    __slots__ = ("_connection",)

    def __init__(self, connection: ProxiedConnection) -> None:
        self._connection = connection

    def frame_received(self, frame: bytes) -> None:
        """One response. WireError where it belongs to no request, or does not decode."""
        self._connection.response_received(frame)

    def link_closed(self, reason: str) -> None:  # noqa: ARG002 - the seam's parameter
        """The broker has closed the connection, or it was lost."""
        self._connection.upstream_closed()
