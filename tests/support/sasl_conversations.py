"""What a broker answers to clients that log in, rightly and wrongly: one row of outcomes for each conversation.

A conversation is a list of steps on one connection; an outcome is what a client sees: the fields of a response,
`closed`, or `silent`. Tests compare the outcomes of Harrow's brokers with those of Apache Kafka.
"""

from __future__ import annotations

import base64
import json
import struct
import time
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from typing import Any, cast

from harrow.cluster.security.sasl.scram import MECHANISMS, ScramClient
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.decoding import EPOCH
from raw_kafka import RawKafka
from waiting import until

HANDSHAKE, AUTHENTICATE, VERSIONS = ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.API_VERSIONS
MECHANISM_NAMES = ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MODULES = {
    "PLAIN": 'plain.PlainLoginModule required user_alice="a" user_bob="b";',
    "OAUTHBEARER": "oauthbearer.OAuthBearerLoginModule required;",
    "SCRAM-SHA-256": "scram.ScramLoginModule required;",
    "SCRAM-SHA-512": "scram.ScramLoginModule required;",
}
SESSION_MS = 3_000
_JAAS: dict[str, object] = {
    f"listener.name.clients.{name.lower()}.sasl.jaas.config": f"org.apache.kafka.common.security.{module}"
    for name, module in _MODULES.items()
}
SETTINGS: dict[str, object] = {
    "listener.name.clients.sasl.enabled.mechanisms": ",".join(MECHANISM_NAMES),
    "listener.name.clients.plain.connections.max.reauth.ms": SESSION_MS,
    "connection.failed.authentication.delay.ms": 20,
    "delegation.token.secret.key": "key",
    **_JAAS,
}
Step = Callable[["Talk"], object]


class Talk:
    """One connection to a broker."""

    def __init__(self, raw: RawKafka) -> None:
        self.raw = raw
        self.last = b""
        """The token of the last response."""

    def ask(self, api: int, version: int, entity: Any) -> Any:
        return self.raw.ask(api, version, entity)

    def token(self, token: bytes, version: int = 2) -> tuple[object, ...]:
        s = messages.schema(AUTHENTICATE, version, "request")
        found = self.ask(AUTHENTICATE, version, s.SaslAuthenticateRequest(auth_bytes=token))
        self.last = found.auth_bytes
        lifetime = messages.to_milliseconds(found.session_lifetime) if version else 0
        return found.error_code.name, found.error_message, lifetime


def handshake(mechanism: str, version: int = 1) -> Step:
    def step(talk: Talk) -> object:
        s = messages.schema(HANDSHAKE, version, "request")
        found = talk.ask(HANDSHAKE, version, s.SaslHandshakeRequest(mechanism=mechanism))
        return found.error_code.name, found.mechanisms

    return step


def token(data: bytes, version: int = 2) -> Step:
    return lambda talk: talk.token(data, version)


def api_versions(version: int = 3, name: str = "app") -> Step:
    def step(talk: Talk) -> object:
        s = messages.schema(VERSIONS, min(version, 4), "request")
        entity = s.ApiVersionsRequest(client_software_name=name, client_software_version="1")
        body = messages.encode_request(VERSIONS, min(version, 4), entity)
        talk.raw.send_body(VERSIONS, version, body, answered_as=version if version <= 4 else 0)
        found = talk.raw.take()[1]
        return found.error_code.name, bool(found.api_keys)

    return step


def metadata(talk: Talk) -> object:
    return talk.raw.metadata("absent").topics[0].error_code.name


def frame(data: bytes) -> Step:
    """Bytes without a header, and the bytes of the response."""

    def step(talk: Talk) -> object:
        return talk.raw.exchange_bytes(struct.pack(">i", len(data)) + data)

    return step


def scram(mechanism: str, user: str, password: str, *, by_token: bool = False) -> Step:
    def step(talk: Talk) -> object:
        client = ScramClient(MECHANISMS[mechanism], user, password, "nonce", by_token=by_token)
        found = talk.token(client.evaluate(b""))
        if found[0] == "none":
            found = talk.token(client.evaluate(talk.last))
        if found[0] == "none":
            client.evaluate(talk.last)
        return found

    return step


def bearer(asked: str = "", **claims: object) -> Step:
    """A token without a signature, of a client that asks to be a user."""

    def step(talk: Talk) -> object:
        now = time.time()
        parts = ({"alg": "none"}, {"sub": "dave", "iat": now - 1, "exp": now + 100, **claims})
        coded = [base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts]
        found = talk.token(f"n,{asked},\x01auth=Bearer {'.'.join(coded)}.\x01\x01".encode())
        return (*found[:2], round(int(str(found[2])) / 20_000), talk.last)

    return step


PLAIN, RIGHT, WRONG = handshake("PLAIN"), token(b"\0alice\0a"), token(b"\0alice\0b")
CONVERSATIONS: dict[str, tuple[Step, ...]] = {
    "plain": (api_versions(), PLAIN, RIGHT, metadata, PLAIN, RIGHT, metadata),
    "plain v0": (PLAIN, token(b"\0alice\0a", 0), metadata),
    "plain v1": (PLAIN, token(b"\0alice\0a", 1), metadata, api_versions(), api_versions()),
    "wrong password": (api_versions(), PLAIN, WRONG, metadata),
    "unknown user": (PLAIN, token(b"\0carol\0b"), metadata),
    "no tokens": (PLAIN, token(b""), metadata),
    "four tokens": (PLAIN, token(b"\0a\0b\0c"), metadata),
    "no user": (PLAIN, token(b"\0\0b"), metadata),
    "no password": (PLAIN, token(b"\0alice\0"), metadata),
    "another user": (PLAIN, token(b"bob\0alice\0a"), metadata),
    "the same user": (PLAIN, token(b"alice\0alice\0a"), metadata),
    "not utf-8": (PLAIN, token(b"\0\xff\xfe\0a"), metadata),
    "gssapi": (handshake("GSSAPI"), RIGHT),
    "lower case": (handshake("plain"), RIGHT),
    "metadata first": (metadata,),
    "metadata second": (api_versions(), metadata),
    "metadata among tokens": (PLAIN, metadata, RIGHT),
    "token first": (RIGHT,),
    "versions twice": (api_versions(), api_versions()),
    "versions among tokens": (PLAIN, api_versions()),
    "unknown version": (api_versions(99), api_versions(), PLAIN, RIGHT),
    "no software": (api_versions(3, ""), api_versions(), PLAIN, RIGHT),
    "handshake twice": (PLAIN, PLAIN),
    "raw plain": (handshake("PLAIN", 0), frame(b"\0alice\0a"), metadata),
    "raw plain wrong": (handshake("PLAIN", 0), frame(b"\0alice\0b"), metadata),
    "garbage": (frame(b"x" * 40),),
    "garbage among tokens": (PLAIN, frame(b"x" * 40)),
    "scram 256": (handshake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "alice", "right"), metadata, PLAIN, metadata),
    "scram 512": (handshake("SCRAM-SHA-512"), scram("SCRAM-SHA-512", "alice", "other"), metadata),
    "scram wrong": (handshake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "alice", "wrong"), metadata),
    "scram unknown": (handshake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "carol", "wrong"), metadata),
    "scram garbage": (handshake("SCRAM-SHA-256"), token(b"garbage"), metadata),
    "scram another": (handshake("SCRAM-SHA-256"), token(b"n,a=bob,n=alice,r=x"), metadata),
    "scram token": (handshake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "none", "x", by_token=True), metadata),
    "other user again": (PLAIN, RIGHT, PLAIN, token(b"\0bob\0b"), metadata),
    "wrong again": (PLAIN, RIGHT, PLAIN, WRONG, metadata),
    "garbage again": (PLAIN, RIGHT, PLAIN, token(b""), metadata),
    "other mechanism again": (PLAIN, RIGHT, handshake("SCRAM-SHA-256"), token(b"n,,n=alice,r=x"), metadata),
    "gssapi again": (PLAIN, RIGHT, handshake("GSSAPI"), metadata),
    "metadata while again": (PLAIN, RIGHT, PLAIN, metadata, RIGHT),
    "twice again": (PLAIN, RIGHT, PLAIN, RIGHT, PLAIN, metadata),
    "token out of turn": (PLAIN, RIGHT, RIGHT, metadata),
    "oauth": (handshake("OAUTHBEARER"), bearer(), metadata),
    "oauth expired": (handshake("OAUTHBEARER"), bearer(exp=1), token(b"\x01"), metadata),
    "oauth expired, another": (handshake("OAUTHBEARER"), bearer(exp=1), bearer(), metadata),
    "oauth early": (handshake("OAUTHBEARER"), bearer(iat=4_000_000_000), token(b"\x01")),
    "oauth no subject": (handshake("OAUTHBEARER"), bearer(sub=""), token(b"\x01")),
    "oauth number": (handshake("OAUTHBEARER"), bearer(sub=1), token(b"\x01")),
    "oauth garbage": (handshake("OAUTHBEARER"), token(b"garbage"), metadata),
    "oauth bad token": (handshake("OAUTHBEARER"), token(b"n,,\x01auth=Bearer x\x01\x01"), token(b"\x01")),
    "oauth another": (handshake("OAUTHBEARER"), bearer("a=x"), token(b"\x01")),
    "oauth the same": (handshake("OAUTHBEARER"), bearer("a=dave"), metadata),
}


def outcomes(port: int, steps: tuple[Step, ...], *, timeout_s: float = 10.0) -> list[object]:
    """What a client sees of each step, until the connection ends."""
    found: list[object] = []
    with RawKafka(port, client_id="talk", timeout_s=timeout_s) as raw:
        talk = Talk(raw)
        for step in steps:
            try:
                found.append(step(talk))
            except TimeoutError:
                return [*found, "silent"]
            except ConnectionError:
                return [*found, "closed"]
    return found


# ------------------------------------------------------------------ users

Deletion = tuple[str, int]
Upsertion = tuple[str, int, int]
ALTERATIONS: dict[str, tuple[tuple[Deletion, ...], tuple[Upsertion, ...]]] = {
    "add users": ((), (("carol", 1, 4096), ("dave", 2, 16384), ("a b/c%", 1, 8192))),
    "few and many iterations": ((), (("x", 1, 4095), ("y", 2, 16385), ("z", 1, 0))),
    "no name, no mechanism": ((("", 1), ("x", 0)), (("y", 3, 4096), ("", 1, 4096), ("z", -1, 1))),
    "twice": ((("carol", 1), ("dave", 2), ("dave", 2)), (("carol", 1, 5000), ("erin", 1, 4096), ("erin", 2, 4096))),
    "thrice": ((), (("erin", 1, 4096), ("erin", 1, 4096), ("erin", 1, 4096))),
    "not there": ((("carol", 2), ("missing", 1)), (("erin", 2, 4097),)),
    "deleted": ((("dave", 2),), (("carol", 2, 9000),)),
    "nothing": ((), ()),
}


def alter(port: int, deletions: tuple[Deletion, ...], upsertions: tuple[Upsertion, ...]) -> list[object]:
    """The results of one AlterUserScramCredentials of alice."""
    s = messages.schema(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, "request")
    with logged_in(port) as talk:
        found = talk.ask(
            ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
            0,
            s.AlterUserScramCredentialsRequest(
                deletions=tuple(s.ScramCredentialDeletion(name=name, mechanism=kind) for name, kind in deletions),
                upsertions=tuple(
                    s.ScramCredentialUpsertion(
                        name=name, mechanism=kind, iterations=times, salt=b"salt", salted_password=b"x" * 32
                    )
                    for name, kind, times in upsertions
                ),
            ),
        )
    return [(row.user, row.error_code.name, row.error_message) for row in found.results]


def describe(port: int, *names: str) -> list[object]:
    """The results of one DescribeUserScramCredentials of alice; without names of all users."""
    s = messages.schema(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, "request")
    users = tuple(s.UserName(name=name) for name in names)
    with logged_in(port) as talk:
        entity = s.DescribeUserScramCredentialsRequest(users=users or None)
        found = talk.ask(ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS, 0, entity)
    rows = [(row.user, row.error_code.name, row.error_message, infos_of(row)) for row in found.results]
    return [(found.error_code.name, found.error_message), *rows]


def infos_of(row: Any) -> list[tuple[int, int]]:
    return sorted((info.mechanism, info.iterations) for info in row.credential_infos)


@contextmanager
def logged_in(port: int, *steps: Step) -> Generator[Talk]:
    """A connection of alice, whose session is short without other steps."""
    with RawKafka(port, client_id="talk") as raw:
        talk = Talk(raw)
        for step in steps or (PLAIN, RIGHT):
            step(talk)
        yield talk


def make_alice(port: int) -> None:
    """Give alice a password for both mechanisms of SCRAM, and wait until she can log in by them."""
    s = messages.schema(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, "request")
    for mechanism, password in (("SCRAM-SHA-256", "right"), ("SCRAM-SHA-512", "other")):
        kind = MECHANISMS[mechanism]
        row = s.ScramCredentialUpsertion(
            name="alice",
            mechanism=kind.value,
            iterations=4096,
            salt=b"salt",
            salted_password=kind.salted_password(password, b"salt", 4096),
        )
        with logged_in(port) as talk:
            entity = s.AlterUserScramCredentialsRequest(deletions=(), upsertions=(row,))
            talk.ask(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, entity)
        steps = (handshake(mechanism), scram(mechanism, "alice", password), metadata)
        until(partial(logs_in, port, steps), f"alice logs in by {mechanism}")


def logs_in(port: int, steps: tuple[Step, ...]) -> bool:
    """True when the connection is open after the last step."""
    return outcomes(port, steps)[-1] != "closed"


# ------------------------------------------------------- delegation tokens


@dataclass
class Tokens:
    """The tokens of one connection's user; times are compared in whole seconds."""

    talk: Talk
    made: list[tuple[str, bytes]] = field(default_factory=list[tuple[str, bytes]])

    def create(
        self, lifetime_ms: int = -1, owner: str = "", renewers: tuple[str, ...] = (), version: int = 3
    ) -> object:
        s = messages.schema(ApiKey.CREATE_DELEGATION_TOKEN, version, "request")
        rows = tuple(s.CreatableRenewers(principal_type=kind, principal_name=name) for kind, _, name in split(renewers))
        kind, _, name = owner.partition(":")
        entity = s.CreateDelegationTokenRequest(
            owner_principal_type=kind or None,
            owner_principal_name=name or None,
            renewers=rows,
            max_lifetime=timedelta(milliseconds=lifetime_ms),
        )
        found = self.talk.ask(ApiKey.CREATE_DELEGATION_TOKEN, version, entity)
        if found.token_id:
            self.made.append((found.token_id, found.hmac))
        requester = found.token_requester_principal_name if version >= 3 else ""
        times = [found.issue_timestamp, found.expiry_timestamp, found.max_timestamp]
        lasts = [round((time - times[0]).total_seconds()) for time in times[1:]]
        known = found.error_code.name, found.principal_type, found.principal_name, requester
        return *known, lasts, len(found.token_id), len(found.hmac)

    def change(self, api: int, period_ms: int, which: int | bytes = 0) -> tuple[str, int]:
        hmac = which if isinstance(which, bytes) else self.made[which][1]
        s = messages.schema(api, 2, "request")
        name = "renew_period" if api == ApiKey.RENEW_DELEGATION_TOKEN else "expiry_time_period"
        found = self.talk.ask(api, 2, s.root(hmac=hmac, **{name: timedelta(milliseconds=period_ms)}))
        at_ms = (found.expiry_timestamp - EPOCH) // timedelta(milliseconds=1)
        return found.error_code.name, at_ms if at_ms <= 0 else round((at_ms / 1000 - time.time()) / 20)

    def describe(self, *owners: str, everyone: bool = False) -> object:
        s = messages.schema(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, "request")
        rows = tuple(
            s.DescribeDelegationTokenOwner(principal_type=kind, principal_name=name) for kind, _, name in split(owners)
        )
        entity = s.DescribeDelegationTokenRequest(owners=None if everyone else rows)
        found = self.talk.ask(ApiKey.DESCRIBE_DELEGATION_TOKEN, 3, entity)
        ids = [token_id for token_id, _ in self.made]
        tokens = sorted(
            (
                ids.index(row.token_id) if row.token_id in ids else -1,
                f"{row.principal_type}:{row.principal_name}",
                row.token_requester_principal_name,
                row.hmac in {hmac for _, hmac in self.made},
                [renewer.principal_name for renewer in row.renewers],
            )
            for row in found.tokens
        )
        return found.error_code.name, tokens


def split(names: Iterable[str]) -> Iterator[tuple[str, str, str]]:
    return (name.partition(":") for name in names)


def token_outcomes(port: int, plaintext_port: int) -> dict[str, object]:
    """What alice sees who makes, renews, expires and uses delegation tokens."""
    renew, expire = ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN
    found: dict[str, object] = {}
    with logged_in(port, handshake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "alice", "right")) as talk:
        tokens = Tokens(talk)
        found["create"] = tokens.create(renewers=("User:bob",))
        found["create of a short life"] = tokens.create(30_000, version=2)
        found["create for another"] = tokens.create(owner="User:carol")
        found["create for a group"] = tokens.create(owner="Group:carol", version=3)
        found["create with a renewer of another type"] = tokens.create(renewers=("Group:x",))
        until(lambda: len(cast("Any", tokens.describe(everyone=True))[1]) == len(tokens.made), "the broker has all")
        found["describe all"] = tokens.describe(everyone=True)
        found["describe none"] = tokens.describe()
        found["describe bob's"] = tokens.describe("User:bob")
        found["describe carol's and mine"] = tokens.describe("User:carol", "User:alice")
        for period_ms in (-1, 0, 20_000, 10**12):
            found[f"renew for {period_ms}"] = tokens.change(renew, period_ms)
            found[f"renew the short one for {period_ms}"] = tokens.change(renew, period_ms, 1)
        found["renew carol's"] = tokens.change(renew, -1, 2)
        found["renew what is none"] = tokens.change(renew, -1, b"none")
        found["expire carol's"] = tokens.change(expire, -1, 2)
        found["expire what is none"] = tokens.change(expire, -1, b"none")
        found["expire in a minute"] = tokens.change(expire, 60_000)
        login = by_token(tokens.made[0])
        until(lambda: cast("Any", outcomes(port, login))[1][2] == 3, "the broker has the new end")
        found["log in by the token"] = outcomes(port, login)[1:]
        found["log in by the token with a wrong password"] = outcomes(port, by_token((tokens.made[0][0], b"x")))
        found["make a token by a token"] = outcomes(port, (*login[:2], lambda talk: Tokens(talk).create()))[2:]
        found["renew a token by a token"] = outcomes(
            port, (*login[:2], lambda talk: Tokens(talk, tokens.made).change(renew, -1))
        )[2:]
        found["expire now"] = tokens.change(expire, -1)
        until(lambda: len(cast("Any", tokens.describe(everyone=True))[1]) < len(tokens.made), "the broker has seen it")
        found["log in by the expired token"] = outcomes(port, login)
        found["renew the expired token"] = tokens.change(renew, -1)
        for which in range(1, len(tokens.made)):
            tokens.change(expire, -1, which)
    with RawKafka(plaintext_port, client_id="talk") as raw:
        tokens = Tokens(Talk(raw))
        found["create on PLAINTEXT"] = tokens.create()
        found["renew on PLAINTEXT"] = tokens.change(renew, -1, b"x")
        found["expire on PLAINTEXT"] = tokens.change(expire, -1, b"x")
        found["describe on PLAINTEXT"] = tokens.describe(everyone=True)
    return found


def by_token(made: tuple[str, bytes]) -> tuple[Step, ...]:
    password = base64.b64encode(made[1]).decode()
    return handshake("SCRAM-SHA-256"), short_session(made[0], password), metadata


def short_session(token_id: str, password: str) -> Step:
    """A login by a token: its session lasts as long as the token, about a minute."""

    def step(talk: Talk) -> object:
        found = cast("Any", scram("SCRAM-SHA-256", token_id, password, by_token=True)(talk))
        return *found[:2], round(found[2] / 20_000)

    return step
