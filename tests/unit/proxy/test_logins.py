"""Who has logged in on a connection that passes the proxy, and logins that a fault refuses there (A5)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.host.seam import NoTap, Peer
from harrow.cluster.listeners import Address
from harrow.cluster.proxy.connection import ConnectionServices, ProxiedConnection
from harrow.cluster.proxy.logins import FAILURE_DELAY_MS, TOKEN_BYTES_MOST, named_user
from harrow.cluster.proxy.tap import ProxyTap
from harrow.cluster.proxy.tap_transactions import TransactionViews
from harrow.cluster.proxy.topic_names import TopicNames
from harrow.cluster.security.sasl.exchange import Login, SaslClient, SaslError, SaslServer
from harrow.cluster.security.sasl.jwt import Claims, TokenError, unsecured_token
from harrow.cluster.security.sasl.oauthbearer import OAuthBearerClient, OAuthBearerServer
from harrow.cluster.security.sasl.plain import PlainClient, PlainServer
from harrow.cluster.security.sasl.scram import MECHANISMS, FoundCredential, ScramClient, ScramServer
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.headers import encode_request_header, encode_response_header, parse_response_header
from manual_host import ManualHost

HANDSHAKE, AUTHENTICATE, METADATA = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.METADATA
SCRAM, BEARER = "SCRAM-SHA-256", "OAUTHBEARER"
DENIED = int(ErrorCode.sasl_authentication_failed)


class FakeLink:
    """One side of the connection: what was sent to it, and whether it was closed."""

    wire_error_level = "warning"
    unsent_bytes = 0

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.sent: list[bytes] = []
        self.closed = False

    def send(self, parts: tuple[bytes, ...]) -> None:
        assert not self.closed
        self.sent.append(b"".join(parts))

    def close(self, *, reset: bool = False) -> None:
        del reset
        self.closed = True

    def pause(self) -> None:
        """Nothing is read here."""

    def resume(self) -> None:
        """Nothing is read here."""

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:
        raise AssertionError((limit, call))


class Passing:
    """A client and a broker with the proxy between them; the broker knows alice, whose password is `secret`."""

    def __init__(self) -> None:
        host: Any = ManualHost()
        self.host = host
        self.client = FakeLink(Peer("unknown", "here"))
        self.broker = FakeLink(Peer("upstream", "1"))

        async def connect(*_: object, **__: object) -> FakeLink:
            return self.broker

        network: Any = host.network
        network.connect = connect
        services = ConnectionServices(
            host=host,
            upstream=lambda: Address("127.0.0.1", 9092),
            upstream_peer=self.broker.peer,
            address_of=lambda _node, _address: None,
            tap=ProxyTap(NoTap(), TopicNames(), TransactionViews()),
            on_closed=lambda _: None,
        )
        self.connection = ProxiedConnection(services, self.client)  # type: ignore[arg-type]  # pyright: ignore[reportArgumentType]
        self.host.run_due()
        self._correlation = 0
        self._server: SaslServer | None = None

    def forward(self, api: ApiKey, version: int, body: bytes) -> bytes:
        """A request of the client; returns what the broker got."""
        self._correlation += 1
        self.connection.frame_received(encode_request_header(api, version, self._correlation, "app") + body)
        return self.broker.sent[-1]

    def answer(self, api: ApiKey, version: int, body: bytes) -> None:
        """A response of the broker to the last request."""
        self.connection.response_received(encode_response_header(api, version, self._correlation) + body)

    def ask(self, api: ApiKey, version: int, request: dict[str, Any], response: dict[str, Any]) -> Any:
        """A request and its response as the client gets it; None where it gets none."""
        before = len(self.client.sent)
        entity = messages.schema(api, version, "request").root(**request)
        self.forward(api, version, messages.encode_request(api, version, entity))
        entity = messages.schema(api, version, "response").root(**response)
        self.answer(api, version, messages.encode(messages.response_writer(api, version), entity))
        return self.received(api, version) if len(self.client.sent) > before else None

    def received(self, api: ApiKey, version: int) -> Any:
        """The last response that the client got."""
        frame = self.client.sent[-1]
        correlation, at = parse_response_header(api, version, frame)
        assert correlation == self._correlation
        return messages.decode_response(api, version, frame, at)

    def handshake(self, mechanism: str) -> None:
        listed = {"error_code": ErrorCode.none, "mechanisms": (mechanism,)}
        assert self.ask(HANDSHAKE, 1, {"mechanism": mechanism}, listed) is not None
        users = {"alice": "secret"}
        servers: dict[str, Callable[[], SaslServer]] = {
            "PLAIN": lambda: PlainServer(users),
            SCRAM: lambda: ScramServer(MECHANISMS[SCRAM], found, "server"),
            BEARER: lambda: OAuthBearerServer(login_by_token),
        }
        self._server = servers[mechanism]()

    def authenticate(self, token: bytes, version: int = 2) -> Any:
        assert self._server is not None
        answer: dict[str, Any] = {"error_code": ErrorCode.none, "error_message": "", "auth_bytes": b""}
        try:
            answer["auth_bytes"] = self._server.evaluate(token)
        except SaslError:
            answer["error_code"] = ErrorCode.sasl_authentication_failed
        return self.ask(AUTHENTICATE, version, {"auth_bytes": token}, answer)

    def log_in(self, mechanism: str, client: SaslClient, version: int = 2) -> Any:
        """A whole login; the last response."""
        self.handshake(mechanism)
        response = self.authenticate(client.evaluate(b""), version)
        while response is not None and not response.error_code and response.auth_bytes and not client.complete:
            token = b"\x01" if mechanism == BEARER else client.evaluate(response.auth_bytes)
            if not token:
                break
            response = self.authenticate(token, version)
        return response

    def count(self, **fields: Any) -> Callable[[], tuple[int, int]]:
        """Arm a rule of logins of alice; returns what reads what it has seen, and how often it fired."""
        access = self.host.network.access
        number = access.add({"event": "login", "user": "alice", **fields})

        def read() -> tuple[int, int]:
            row = access.report()[number - 1]
            return row["seen"], row["fired"]

        return read


def found(name: str, by_token: bool) -> FoundCredential | None:
    if by_token or name != "alice":
        return None
    return FoundCredential(MECHANISMS[SCRAM].credential_of("secret", b"salt", 4096), Login(user=name))


def login_by_token(token: str) -> Login:
    claims = Claims.parse(token)
    if claims.text("secret") != "secret" or claims.text("sub") != "alice":
        raise TokenError("not alice")
    return Login(user="alice")


def client_of(mechanism: str, password: str, user: str = "alice") -> SaslClient:
    if mechanism == BEARER:
        return OAuthBearerClient(unsecured_token({"sub": user, "secret": password}))
    if mechanism == "PLAIN":
        return PlainClient(user, password)
    return ScramClient(MECHANISMS[SCRAM], user, password, "client")


@pytest.mark.parametrize(
    ("mechanism", "token", "user"),
    [
        ("PLAIN", b"\0alice\0secret", "alice"),
        ("PLAIN", b"alice\0alice\0secret", "alice"),
        ("PLAIN", b"\0\xff\xfealice\0secret", "\ufffd\ufffdalice"),
        ("PLAIN", b"\0alice", ""),
        ("PLAIN", b"", ""),
        (SCRAM, b"n,,n=alice,r=abc", "alice"),
        (SCRAM, b"n,,n=a=2Cb=3Dc,r=abc", "a,b=c"),
        (SCRAM, b"n,a=alice,n=alice,r=abc,x=y", "alice"),
        (SCRAM, b"n,,n=token-7,r=abc,tokenauth=true", ""),
        (SCRAM, b"n,,n=\xff,r=abc", ""),
        (SCRAM, b"c=biws,r=abc,p=AAAA", ""),
        (BEARER, OAuthBearerClient(unsecured_token({"sub": "alice"})).evaluate(b""), "alice"),
        (BEARER, OAuthBearerClient(unsecured_token({"sub": 7})).evaluate(b""), ""),
        (BEARER, b"n,,\x01auth=Bearer a.b.c\x01\x01", ""),
        (BEARER, b"\x01", ""),
    ],
)
def test_the_first_token_names_the_user(mechanism: str, token: bytes, user: str) -> None:
    assert named_user(mechanism, token) == user


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM, BEARER])
def test_logins_are_counted_when_they_end(mechanism: str, version: int) -> None:
    passing = Passing()
    seen = passing.count()
    assert passing.log_in(mechanism, client_of(mechanism, "secret"), version).error_code == ErrorCode.none
    assert (passing.connection.user, seen()) == ("alice", (1, 0))
    assert passing.log_in(mechanism, client_of(mechanism, "secret"), version).error_code == ErrorCode.none
    assert seen() == (2, 0), "a re-authentication"
    other = Passing()
    seen = other.count()
    assert other.log_in(mechanism, client_of(mechanism, "wrong"), version).error_code == DENIED
    assert (other.connection.user, seen()) == ("", (1, 1))
    assert not other.client.closed, "the broker closes it"
    unknown = Passing()
    seen = unknown.count()
    assert unknown.log_in(mechanism, client_of(mechanism, "secret", "bob"), version).error_code == DENIED
    assert seen() == (0, 0)


@pytest.mark.parametrize("mechanism", ["PLAIN", SCRAM, BEARER])
def test_a_rule_refuses_re_authentications_with_the_error_of_a_wrong_password(mechanism: str) -> None:
    passing = Passing()
    seen = passing.count(refuse="again")
    assert passing.log_in(mechanism, client_of(mechanism, "secret")).error_code == ErrorCode.none
    assert passing.log_in(mechanism, client_of(mechanism, "secret")) is None, "Kafka answers after a while"
    assert seen() == (2, 1)
    sent = len(passing.broker.sent)
    passing.connection.frame_received(encode_request_header(METADATA, 1, 99, "app") + b"\0\0\0\0")
    assert len(passing.broker.sent) == sent, "nothing more is forwarded"
    passing.host.advance(FAILURE_DELAY_MS)
    refused = passing.received(AUTHENTICATE, 2)
    assert refused.error_code == DENIED
    assert refused.error_message == (
        f"Authentication failed during re-authentication due to invalid credentials with SASL mechanism {mechanism}"
    )
    assert passing.client.closed
    assert passing.broker.closed


def test_a_token_that_a_rule_lets_be_expired_is_refused_after_the_broker_took_it() -> None:
    passing = Passing()
    assert passing.log_in(BEARER, client_of(BEARER, "secret")).error_code == ErrorCode.none
    counted, expired = passing.count(), passing.count(refuse="token")
    assert passing.log_in(BEARER, client_of(BEARER, "wrong")).error_code == DENIED
    assert (counted(), expired()) == ((1, 1), (0, 0)), "the broker itself refused it"
    assert passing.log_in(BEARER, client_of(BEARER, "secret")) is None
    assert (counted(), expired()) == ((2, 2), (1, 1))
    passing.host.advance(FAILURE_DELAY_MS)
    assert passing.received(AUTHENTICATE, 2).error_code == DENIED


def test_a_rule_refuses_first_logins_and_a_client_that_has_gone_gets_no_response() -> None:
    passing = Passing()
    seen = passing.count(refuse="all")
    assert passing.log_in(SCRAM, client_of(SCRAM, "secret")) is None
    assert (passing.connection.user, seen()) == ("", (1, 1))
    before = len(passing.client.sent)
    passing.connection.link_closed("the client has gone")
    passing.host.advance(FAILURE_DELAY_MS)
    assert len(passing.client.sent) == before
    failing = Passing()
    seen = failing.count(refuse="all")
    assert failing.log_in("PLAIN", client_of("PLAIN", "wrong")).error_code == DENIED
    assert seen() == (1, 1), "the broker has refused it"


@pytest.mark.parametrize(
    "body",
    [b"", b"\xff\xff\xff", b"\x7f\xff\xff\xff" + b"x" * 10, b"\0" * 3],
    ids=["empty", "truncated", "length", "short"],
)
def test_a_token_that_does_not_decode_passes_and_names_no_user(body: bytes) -> None:
    passing = Passing()
    seen = passing.count(refuse="all")
    passing.handshake("PLAIN")
    assert passing.forward(AUTHENTICATE, 1, body).endswith(body)
    entity = messages.schema(AUTHENTICATE, 1, "response").root(
        error_code=ErrorCode.illegal_sasl_state, error_message="", auth_bytes=b""
    )
    passing.answer(AUTHENTICATE, 1, messages.encode(messages.response_writer(AUTHENTICATE, 1), entity))
    assert (passing.connection.user, seen()) == ("", (0, 0))


def test_a_broker_that_takes_no_token_has_refused_no_login() -> None:
    passing = Passing()
    seen = passing.count()
    assert passing.log_in("PLAIN", client_of("PLAIN", "secret")).error_code == ErrorCode.none
    passing.handshake("PLAIN")  # too early: Kafka lets a client log in again after a second
    refused = {"error_code": ErrorCode.illegal_sasl_state, "error_message": "", "auth_bytes": b""}
    asked = passing.ask(AUTHENTICATE, 2, {"auth_bytes": b"\0alice\0secret"}, refused)
    assert asked.error_code == ErrorCode.illegal_sasl_state
    assert (passing.connection.user, seen()) == ("alice", (1, 0))


def test_a_large_token_passes_unread() -> None:
    passing = Passing()
    seen = passing.count()
    passing.handshake("PLAIN")
    token = b"\0alice\0" + b"x" * (1 << 20)
    assert passing.authenticate(token).error_code == DENIED
    assert token in passing.broker.sent[-1]
    assert (passing.connection.user, seen()) == ("", (0, 0))
    passing.handshake("PLAIN")
    passing.authenticate(b"\0alice\0" + b"x" * (TOKEN_BYTES_MOST - 100))
    assert seen() == (1, 1)


def test_tokens_out_of_turn_and_of_unknown_mechanisms_are_not_counted() -> None:
    passing = Passing()
    seen = passing.count()
    done = {"error_code": ErrorCode.none, "error_message": "", "auth_bytes": b""}
    token = {"auth_bytes": b"\0alice\0secret"}
    passing.ask(AUTHENTICATE, 1, token, done)  # no handshake
    passing.handshake("PLAIN")
    passing.ask(HANDSHAKE, 1, {"mechanism": "GSSAPI"}, {"error_code": ErrorCode.none, "mechanisms": ()})
    passing.ask(AUTHENTICATE, 1, token, done)
    passing.ask(HANDSHAKE, 1, {"mechanism": "x" * TOKEN_BYTES_MOST}, {"error_code": ErrorCode.none, "mechanisms": ()})
    passing.ask(AUTHENTICATE, 1, token, done)
    assert (passing.connection.user, seen()) == ("", (0, 0))
    passing.handshake("PLAIN")
    passing.ask(AUTHENTICATE, 1, token, done)
    passing.ask(AUTHENTICATE, 1, {"auth_bytes": b"\0bob\0secret"}, done)  # one token is a whole login
    assert (passing.connection.user, seen()) == ("alice", (1, 0))


def test_a_response_without_an_error_code_ends_the_connection() -> None:
    passing = Passing()
    passing.handshake("PLAIN")
    entity = messages.schema(AUTHENTICATE, 1, "request").root(auth_bytes=b"\0alice\0secret")
    passing.forward(AUTHENTICATE, 1, messages.encode_request(AUTHENTICATE, 1, entity))
    with pytest.raises(WireError, match="a SaslAuthenticate response of 5 bytes"):
        passing.answer(AUTHENTICATE, 1, b"\0")


def test_no_token_is_kept_while_the_broker_is_asked() -> None:
    passing = Passing()
    passing.handshake("PLAIN")
    secret = "not-to-be-kept-" + "7" * 10
    entity = messages.schema(AUTHENTICATE, 1, "request").root(auth_bytes=f"\0alice\0{secret}".encode())
    passing.forward(AUTHENTICATE, 1, messages.encode_request(AUTHENTICATE, 1, entity))
    [waiting] = passing.connection._pending  # pyright: ignore[reportPrivateUsage]
    assert secret.encode() in passing.broker.sent[-1]
    for kept in (waiting.frame, waiting.whole().frame, waiting.watched().frame):
        assert secret.encode() not in kept
    assert messages.request_reader(AUTHENTICATE, 1)(waiting.whole().frame, waiting.body_at)[0].auth_bytes == b""
