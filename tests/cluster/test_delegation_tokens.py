"""Delegation tokens on several brokers: made by one, used at another, removed when they expire (A5, KIP-48)."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest
from harrow.cluster import Cluster
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from sasl_conversations import SETTINGS, Step, Talk, Tokens, by_token, logged_in, logs_in
from waiting import until

RENEW, EXPIRE = ApiKey.RENEW_DELEGATION_TOKEN, ApiKey.EXPIRE_DELEGATION_TOKEN


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    protocols = {"listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT"}
    settings: dict[str, object] = {
        "delegation.token.expiry.check.interval.ms": 200,
        "delegation.token.expiry.time.ms": 60_000,
        "listener.name.clients.plain.connections.max.reauth.ms": 0,
    }
    with Cluster(brokers=3, config=SETTINGS | protocols | settings) as found:
        yield found


def ports(cluster: Cluster) -> list[int]:
    return [broker.port for broker in cluster.brokers.values()]


def has_ended(talk: Talk) -> bool:
    try:
        talk.raw.metadata("absent")
    except ConnectionError:
        return True
    return False


def is_refused(port: int, login: tuple[Step, ...]) -> bool:
    return not logs_in(port, login)


def test_a_token_is_good_at_every_broker_and_after_a_restart(cluster: Cluster) -> None:
    first, second, third = ports(cluster)
    with logged_in(first) as talk:
        tokens = Tokens(talk)
        tokens.create()
        login = by_token(tokens.made[0])
        for port in (second, third):
            until(partial(logs_in, port, login), f"a login at {port}")
        with logged_in(third) as other:
            assert Tokens(other, tokens.made).change(RENEW, 40_000)[0] == "none"
        cluster.brokers[2].kill()
        cluster.brokers[2].start()
        until(lambda: logs_in(second, login), "the broker has read the tokens")
        with logged_in(second) as other:
            assert Tokens(other, tokens.made).change(EXPIRE, -1)[0] == "none"
        for port in (first, third):
            until(partial(is_refused, port, login), f"no login at {port}")


def test_a_token_that_expires_is_removed_and_ends_its_sessions(cluster: Cluster) -> None:
    first, second, _ = ports(cluster)
    with logged_in(first) as talk:
        tokens = Tokens(talk)
        tokens.create(lifetime_ms=3_000)
        assert cast("Any", tokens.create(lifetime_ms=300))[0] == "none"
        until(lambda: logs_in(second, by_token(tokens.made[0])), "the token is known")
        with RawKafka(second, client_id="talk") as raw:
            session = Talk(raw)
            for step in by_token(tokens.made[0]):
                step(session)
            until(partial(has_ended, session), "the session ends with its token")
        until(lambda: cast("Any", tokens.describe(everyone=True))[1] == [], "both are removed")
        until(lambda: not logs_in(second, by_token(tokens.made[0])), "no login")
