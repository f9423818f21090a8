"""Logging in on a connection, driven over real sockets by raw bytes: what Kafka answers, and what ends it (A5, A6)."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.authorizer import Principal
from harrow.cluster.errors import ErrorCode
from harrow.cluster.network import sasl_server
from harrow.cluster.network.sasl_client import LoginError
from harrow.cluster.security.sasl.exchange import Login, SaslClient
from harrow.cluster.security.sasl.mechanisms import NoCredentials, PeerLogin
from harrow.cluster.security.sasl.plain import PlainClient
from harrow.cluster.security.sasl.scram import FoundCredential, ScramClient, ScramMechanism
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.headers import parse_response_header
from harrow.cluster.wire.request import Request
from served_listener import HEARTBEAT, Raw, Serving, answer, frame, framed, heartbeat, log_lines, run, serving

HANDSHAKE, AUTHENTICATE, VERSIONS = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS
JAAS = "org.apache.kafka.common.security."
PLAIN = JAAS + 'plain.PlainLoginModule required user_alice="a" user_bob="b" user_kafka="k";'
SCRAM = JAAS + "scram.ScramLoginModule required;"
SETTINGS: dict[str, object] = {
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
    "listener.name.clients.plain.sasl.jaas.config": PLAIN,
    "listener.name.brokers.plain.sasl.jaas.config": PLAIN,
    "listener.name.clients.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.brokers.scram-sha-256.sasl.jaas.config": SCRAM,
    "connection.failed.authentication.delay.ms": 20,
}
GENERAL = "Authentication failed during authentication due to invalid credentials with SASL mechanism SCRAM-SHA-256"


class Users(NoCredentials):
    """Alice, by SCRAM."""

    def scram(self, mechanism: ScramMechanism, name: str, by_token: bool) -> FoundCredential | None:
        if name != "alice" or by_token:
            return None
        return FoundCredential(mechanism.credential_of("a", b"salt", 4096), Login(user=name))


@asynccontextmanager
async def sasl(tmp_path: Path, **settings: object) -> AsyncGenerator[Serving]:
    options: dict[str, Any] = {**SETTINGS, **{name.replace("_", "."): value for name, value in settings.items()}}
    listener = options.pop("listener", "CLIENTS")
    async with serving(tmp_path, listener=listener, credentials=Users(), **options) as served:
        served.handler = answer
        yield served


@dataclass
class Client:
    """Requests in turn over one connection."""

    raw: Raw
    client_id: str = "app"

    def send(self, api: int, version: int, entity: Any) -> None:
        body = messages.encode_request(api, version, entity)
        self.raw.writer.write(framed(api, version, 7, self.client_id, body))

    async def take(self, api: int, version: int) -> Any:
        got = await self.raw.frame()
        _, at = parse_response_header(api, version, got)
        return messages.decode_response(api, version, got, at)

    async def ask(self, api: int, version: int, entity: Any) -> Any:
        self.send(api, version, entity)
        return await self.take(api, version)

    async def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> Any:
        s = messages.schema(HANDSHAKE, version, "request")
        return await self.ask(HANDSHAKE, version, s.SaslHandshakeRequest(mechanism=mechanism))

    async def token(self, token: bytes, version: int = 2) -> Any:
        s = messages.schema(AUTHENTICATE, version, "request")
        return await self.ask(AUTHENTICATE, version, s.SaslAuthenticateRequest(auth_bytes=token))

    async def log_in(self, user: str = "alice", password: str = "a") -> Any:
        assert (await self.handshake()).error_code is ErrorCode.none
        return await self.token(f"\0{user}\0{password}".encode())

    async def beat(self) -> None:
        """Send heartbeats until the connection ends."""
        while True:
            await self.heartbeat()

    async def heartbeat(self) -> Any:
        return await self.ask(HEARTBEAT, 0, heartbeat(0, "x"))

    async def closed(self) -> bool:
        """True when the broker ends the connection without another byte."""
        return await asyncio.wait_for(self.raw.reader.read(1), 5) == b""


def api_versions(version: int = 3, name: str = "app") -> Any:
    s = messages.schema(VERSIONS, version, "request")
    return s.ApiVersionsRequest(client_software_name=name, client_software_version="1")


# ---------------------------------------------------------------- logging in


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_password_opens_the_connection_for_its_user(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            found: list[Request] = []

            def handle(request: Request) -> None:
                found.append(request)
                answer(request)

            s.handler = handle
            assert (await client.ask(VERSIONS, 3, api_versions())).error_code is ErrorCode.none
            shaken = await client.handshake()
            assert shaken.mechanisms == ("PLAIN", "SCRAM-SHA-256")
            done = await client.token(b"\0alice\0a", version)
            assert (done.error_code, done.error_message, done.auth_bytes) == (ErrorCode.none, "", b"")
            assert (await client.heartbeat()).error_code is ErrorCode.none
            assert found[0].principal == Principal("User", "alice")
            assert (found[0].peer.kind, found[0].peer.name, found[0].from_broker) == ("client", "app", False)

    run(main())


def test_scram_takes_two_tokens(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client, scram = Client(raw), ScramClient(ScramMechanism.SHA_256, "alice", "a", "nonce")
            await client.handshake("SCRAM-SHA-256")
            first = await client.token(scram.evaluate(b""))
            final = await client.token(scram.evaluate(first.auth_bytes))
            scram.evaluate(final.auth_bytes)
            assert scram.complete
            await client.heartbeat()

    run(main())


def test_tokens_follow_the_oldest_handshake_without_headers(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client, scram = Client(raw), ScramClient(ScramMechanism.SHA_256, "alice", "a", "nonce")
            await client.handshake("SCRAM-SHA-256", version=0)
            token = scram.evaluate(b"")
            while not scram.complete:
                raw.writer.write(struct.pack(">i", len(token)) + token)
                token = scram.evaluate(await raw.frame())
            await client.heartbeat()
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            await client.handshake(version=0)
            raw.writer.write(struct.pack(">i", 7) + b"\0alice\0")
            assert await client.closed()

    run(main())


def test_what_a_client_sends_at_once_is_served_in_order(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            shake = messages.schema(HANDSHAKE, 1, "request").SaslHandshakeRequest(mechanism="PLAIN")
            login = messages.schema(AUTHENTICATE, 2, "request").SaslAuthenticateRequest(auth_bytes=b"\0alice\0a")
            for api, version, entity in (
                (VERSIONS, 3, api_versions()),
                (HANDSHAKE, 1, shake),
                (AUTHENTICATE, 2, login),
                (HEARTBEAT, 0, heartbeat(0, "x")),
            ):
                client.send(api, version, entity)
            for api, version in ((VERSIONS, 3), (HANDSHAKE, 1), (AUTHENTICATE, 2), (HEARTBEAT, 0)):
                assert (await client.take(api, version)).error_code is ErrorCode.none

    run(main())


# --------------------------------------------------------------- what fails


@pytest.mark.parametrize(
    ("mechanism", "token", "text"),
    [
        ("PLAIN", b"\0alice\0b", "Authentication failed: Invalid username or password"),
        ("SCRAM-SHA-256", b"n,,n=carol,r=x", GENERAL),
        ("SCRAM-SHA-256", b"garbage", GENERAL),
    ],
)
def test_a_failed_login_gets_the_error_of_kafka_after_a_while_and_is_closed(
    tmp_path: Path, mechanism: str, token: bytes, text: str
) -> None:
    async def main() -> None:
        async with sasl(tmp_path, connection_failed_authentication_delay_ms=300) as s, Raw(s.port) as raw:
            client = Client(raw)
            await client.handshake(mechanism)
            begun = asyncio.get_running_loop().time()
            failed = await client.token(token)
            assert asyncio.get_running_loop().time() - begun > 0.29
            assert (failed.error_code, failed.error_message) == (ErrorCode.sasl_authentication_failed, text)
            assert await client.closed()

    run(main())


def test_a_mechanism_that_is_not_enabled_is_refused_with_those_that_are(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            refused = await client.handshake("GSSAPI")
            assert refused.error_code is ErrorCode.unsupported_sasl_mechanism
            assert refused.mechanisms == ("PLAIN", "SCRAM-SHA-256")
            assert await client.closed()

    run(main())


def test_a_request_before_the_login_closes_the_connection(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s:
            async with Raw(s.port) as raw:
                raw.writer.write(frame(0, 1, "x"))
                assert await Client(raw).closed()
            async with Raw(s.port) as raw:  # a second ApiVersions, too
                client = Client(raw)
                await client.ask(VERSIONS, 3, api_versions())
                client.send(VERSIONS, 3, api_versions())
                assert await client.closed()
            async with Raw(s.port) as raw:  # among tokens it has a response
                client = Client(raw)
                await client.handshake()
                assert (await client.heartbeat()).error_code is ErrorCode.illegal_sasl_state
                assert await client.closed()
            async with Raw(s.port) as raw:  # a token before the handshake
                client = Client(raw)
                s2 = messages.schema(AUTHENTICATE, 2, "request")
                client.send(AUTHENTICATE, 2, s2.SaslAuthenticateRequest(auth_bytes=b"\0alice\0a"))
                assert await client.closed()
            assert s.requests.empty()

    run(main())


def test_a_refused_api_versions_may_be_sent_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            assert (await client.ask(VERSIONS, 3, api_versions(name=""))).error_code is ErrorCode.invalid_request
            assert (await client.ask(VERSIONS, 3, api_versions())).error_code is ErrorCode.none
            await client.log_in()

    run(main())


@pytest.mark.parametrize(
    "sent",
    [b"\0\0\0\x09GET / HTT", b"\0\0\0\x64" + b"x" * 100, struct.pack(">i", 600_000), b"\x7f\xff\xff\xff", b"\0\0\0\0"],
)
def test_garbage_before_the_login_closes_the_connection(tmp_path: Path, sent: bytes) -> None:
    async def main() -> None:
        async with sasl(tmp_path, socket_request_max_bytes=1_000_000) as s, Raw(s.port) as raw:
            raw.writer.write(sent)
            assert await Client(raw).closed()
            assert s.connections() == 0
        assert not [line for line in log_lines(tmp_path) if "closing the link" in line]

    run(main())


def test_a_large_request_is_served_after_the_login_and_not_before(tmp_path: Path) -> None:
    async def main() -> None:
        settings = {"sasl_server_max_receive_size": 1000, "socket_request_max_bytes": 100_000}
        async with sasl(tmp_path, **settings) as s, Raw(s.port) as raw:
            client = Client(raw)
            await client.log_in()
            assert (await client.ask(HEARTBEAT, 0, heartbeat(0, "x" * 30_000))).error_code is ErrorCode.none
            async with Raw(s.port) as other:
                other.writer.write(frame(0, 1, "x" * 2_000))
                assert await Client(other).closed()

    run(main())


def test_failed_logins_are_logged_in_few_lines(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path, connection_failed_authentication_delay_ms=0) as s:
            for _ in range(20):
                async with Raw(s.port) as raw:
                    await Client(raw).log_in(password="wrong")
            assert list(s.sockets.logins()) == [("CLIENTS", 0, 20), ("BROKERS", 0, 0)]
        assert sum("has not logged in" in line for line in log_lines(tmp_path)) <= 3

    run(main())


@pytest.mark.parametrize("steps", [0, 1, 2])
def test_a_client_that_does_not_go_on_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, steps: int) -> None:
    monkeypatch.setattr(sasl_server, "LOGIN_MS_MOST", 200)

    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            if steps > 0:
                await client.handshake("SCRAM-SHA-256")
            if steps > 1:
                await client.token(b"n,,n=alice,r=x")
            assert await client.closed()

    run(main())


def test_a_client_that_has_logged_in_is_not_closed_when_the_time_for_the_login_is_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sasl_server, "LOGIN_MS_MOST", 1_500)

    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            begun = asyncio.get_running_loop().time()
            await client.log_in()
            while asyncio.get_running_loop().time() - begun < 1.8:
                await client.heartbeat()

    run(main())


# ------------------------------------------------------------- logging in again


def test_a_session_ends_and_begins_again(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path, connections_max_reauth_ms=1_100) as s, Raw(s.port) as raw:
            client = Client(raw)
            done = await client.log_in()
            assert messages.to_milliseconds(done.session_lifetime) == 1_100
            assert (await client.log_in()).error_code is ErrorCode.none
            # not twice in a second
            assert (await client.handshake()).error_code is ErrorCode.illegal_sasl_state
            await client.heartbeat()
            begun = asyncio.get_running_loop().time()
            with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
                await client.beat()
            assert 0.5 < asyncio.get_running_loop().time() - begun < 5

    run(main())


def test_the_user_cannot_change(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path, connections_max_reauth_ms=60_000) as s:
            async with Raw(s.port) as raw:
                client = Client(raw)
                await client.log_in()
                changed = await client.log_in("bob", "b")
                assert changed.error_code is ErrorCode.sasl_authentication_failed
                assert changed.error_message == (
                    "Cannot change principals during re-authentication from User.alice: User.bob"
                )
                assert await client.closed()
            async with Raw(s.port) as raw:
                client = Client(raw)
                await client.log_in()
                await client.handshake("SCRAM-SHA-256")
                s2 = messages.schema(AUTHENTICATE, 2, "request")
                client.send(AUTHENTICATE, 2, s2.SaslAuthenticateRequest(auth_bytes=b"n,,n=alice,r=x"))
                assert await client.closed()
            async with Raw(s.port) as raw:
                client = Client(raw)
                await client.log_in()
                again = await client.log_in("alice", "wrong")
                assert again.error_message == "Authentication failed: Invalid username or password"

    run(main())


def test_without_an_end_of_the_session_a_second_login_is_out_of_turn(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path) as s, Raw(s.port) as raw:
            client = Client(raw)
            assert messages.to_milliseconds((await client.log_in()).session_lifetime) == 0
            shaken = await client.handshake()
            assert (shaken.error_code, shaken.mechanisms) == (ErrorCode.illegal_sasl_state, ())
            late = await client.token(b"\0alice\0a")
            assert late.error_code is ErrorCode.illegal_sasl_state
            assert late.error_message == "SaslAuthenticate request received after successful authentication"
            await client.heartbeat()

    run(main())


def test_a_plaintext_listener_answers_that_there_is_no_login(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS") as s, Raw(s.port) as raw:
            client = Client(raw)
            assert (await client.handshake()).error_code is ErrorCode.illegal_sasl_state
            assert (await client.token(b"x")).error_code is ErrorCode.illegal_sasl_state

    run(main())


# ------------------------------------------------------------------- brokers


def login(user: str, password: str) -> PeerLogin:
    def client() -> SaslClient:
        return PlainClient(user, password)

    return PeerLogin(mechanism="PLAIN", user=user, client=client)


def test_a_broker_logs_in_before_its_first_request_and_again_before_its_session_ends(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path, listener="BROKERS", connections_max_reauth_ms=1_500) as s:
            found: list[Request] = []

            def handle(request: Request) -> None:
                found.append(request)
                s.host.tasks.call_later(100, answer, request)

            s.handler = handle
            client = s.client(login=login("kafka", "k"))
            for _ in range(25):
                await client.request(HEARTBEAT, 0, heartbeat(0, "x"), 5_000)
            assert s.connections() == 1
            assert {str(row.principal) for row in found} == {"User:kafka"}
            assert {(str(row.peer), row.from_broker) for row in found} == {("broker 2", True)}
            client.close()

    run(main())


def test_without_an_authorizer_every_user_of_the_inter_broker_listener_may_act_as_a_broker(tmp_path: Path) -> None:
    async def main() -> None:
        async with sasl(tmp_path, listener="BROKERS") as s:
            found: list[Request] = []

            def handle(request: Request) -> None:
                found.append(request)
                answer(request)

            s.handler = handle
            client = s.client(login=login("alice", "a"))
            await client.request(HEARTBEAT, 0, heartbeat(0, "x"), 5_000)
            assert (str(found[0].peer), found[0].from_broker) == ("broker 2", True)
            client.close()
            refused = s.client(login=login("kafka", "wrong"))
            with pytest.raises(LoginError, match=r"kafka is refused by PLAIN: .*Invalid username or password"):
                await refused.request(HEARTBEAT, 0, heartbeat(0, "x"), 5_000)

    run(main())
