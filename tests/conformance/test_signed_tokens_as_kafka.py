"""Brokers accept and refuse signed tokens of OAUTHBEARER as Apache Kafka 4.4 does, and ask for an audience (A5).

The nodes that other tests share have no SASL, so this module starts one. Issuer: `harness/security/token_issuer.py`.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from free_ports import first_free
from harrow.cluster import Cluster
from harrow.cluster.config.sasl_table import JWKS_VALIDATOR
from harrow.cluster.errors import ClusterError
from harrow.harness.security.token_issuer import TokenIssuer
from kafka_reference import TOOL
from raw_kafka import RawKafka
from sasl_conversations import Talk, handshake
from waiting import until

OF_CLIENTS = "listener.name.clients."
MODULE = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule required;"
PROTOCOLS = "BROKERS:PLAINTEXT,PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,CLIENTS:SASL_PLAINTEXT"
NO_REASON = "the node did not start, and has no log"
ALLOWED = "-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls"
Settings = Mapping[str, object]


def settings_of(issuer: TokenIssuer, **more: object) -> dict[str, object]:
    """A listener that checks the tokens of the issuer; `more` are settings of tokens, with _ in place of dots."""
    found = {"jwks.endpoint.url": issuer.keys_url, **{name.replace("_", "."): value for name, value in more.items()}}
    return {
        f"{OF_CLIENTS}sasl.enabled.mechanisms": "OAUTHBEARER",
        f"{OF_CLIENTS}oauthbearer.sasl.jaas.config": MODULE,
        f"{OF_CLIENTS}oauthbearer.sasl.server.callback.handler.class": JWKS_VALIDATOR,
        **{f"{OF_CLIENTS}oauthbearer.sasl.oauthbearer.{name}": value for name, value in found.items()},
    }


@contextmanager
def harrow(settings: Settings) -> Generator[int]:
    """The port of a broker of Harrow's; ValueError where it does not start with these settings."""
    try:
        protocols = {"listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT"}
        with Cluster(brokers=1, config={**settings, **protocols}) as cluster:
            yield cluster.brokers[1].port
    except ClusterError as error:
        raise ValueError(str(error)) from error


@contextmanager
def apache(folder: Path, settings: Settings, url: str) -> Generator[int]:
    """The same of Apache Kafka, which reads keys from `url`."""
    port = first_free(range(31_490, 32_700, 20), (1, 11, -9_999))
    listeners = f"CLIENTS://127.0.0.1:{port + 1},PLAINTEXT://127.0.0.1:{port + 11}"
    rows: dict[str, object] = {
        **settings,
        "listeners": f"{listeners},CONTROLLER://127.0.0.1:{port - 9_999}",
        "advertised.listeners": listeners,
        "listener.security.protocol.map": PROTOCOLS,
        "inter.broker.listener.name": "PLAINTEXT",
    }
    environment = os.environ | {"KAFKA_PORT": str(port), "KAFKA_HEAP": "256m", "JDK_JAVA_OPTIONS": f"{ALLOWED}={url}"}
    environment["KAFKA_SET"] = "\n".join(f"{name}={value}" for name, value in rows.items())
    done = subprocess.run([TOOL, "up", str(folder), "1"], env=environment, check=False, capture_output=True)
    try:
        if done.returncode:
            raise ValueError(f"{NO_REASON}: {done.stderr.decode()}")
        yield port + 1
    finally:
        subprocess.run([TOOL, "down", str(folder)], check=False, capture_output=True)


def accepts(port: int, token: str) -> bool:
    """Whether a client logs in by this token."""
    with RawKafka(port, client_id="app") as raw:
        talk = Talk(raw)
        assert handshake("OAUTHBEARER")(talk) == ("none", ("OAUTHBEARER",))
        code, *_ = talk.token(f"n,,\x01auth=Bearer {token}\x01\x01".encode())
        return code == "none" and not talk.last


TOKENS: Mapping[str, tuple[bool, Mapping[str, Any]]] = {
    "of the audience": (True, {}),
    "of two audiences": (True, {"aud": ["other", "kafka"]}),
    "of another audience": (False, {"aud": "other"}),
    "of words": (False, {"aud": "other kafka"}),
    "without audience": (False, {"aud": None}),
    "of another issuer": (False, {"iss": "https://other.test"}),
    "without issuer": (False, {"iss": None}),
    "of no time": (False, {"iat": None}),
    "expired": (False, {"exp": 1}),
    "without end": (False, {"exp": None}),
    "not yet": (False, {"nbf": 2**33}),
    "without user": (False, {"sub": None}),
    "with scopes": (True, {"scope": ["a", "b"]}),
    "with a scope": (True, {"scope": "a a"}),
    "with a scope twice": (False, {"scope": ["a", "a "]}),
    "with an empty scope": (False, {"scope": ""}),
    "with a number as scope": (True, {"scope": 7}),
}


@contextmanager
def node(system: str, folder: Path, issuer: TokenIssuer, **more: object) -> Generator[int]:
    settings = settings_of(issuer, **more)
    with harrow(settings) if system == "harrow" else apache(folder, settings, issuer.keys_url) as port:
        yield port


SYSTEMS = ["harrow", pytest.param("apache", marks=pytest.mark.skipif(bool(MISSING), reason=MISSING or "-"))]


@pytest.mark.parametrize("system", SYSTEMS)
def test_a_token_names_the_audience_and_the_issuer_of_the_brokers(system: str, tmp_path: Path) -> None:
    with TokenIssuer() as issuer:
        named = {"expected_audience": "one,kafka", "expected_issuer": issuer.name}
        with node(system, tmp_path / "kafka", issuer, **named) as port:
            until(lambda: accepts(port, issuer.token("alice")), "the broker has the keys")
            found = {name: accepts(port, issuer.token("alice", **claims)) for name, (_, claims) in TOKENS.items()}
    assert found == {name: wanted for name, (wanted, _) in TOKENS.items()}


@pytest.mark.parametrize("system", SYSTEMS)
def test_brokers_without_an_audience_start_only_where_any_is_allowed(system: str, tmp_path: Path) -> None:
    with TokenIssuer() as issuer:
        with (
            pytest.raises(ValueError, match=rf"oauthbearer\.expected\.audience|{NO_REASON}"),
            node(system, tmp_path / "none", issuer),
        ):
            pass
        with (
            pytest.raises(ValueError, match=rf"oauthbearer\.expected\.issuer|{NO_REASON}"),
            node(system, tmp_path / "no-issuer", issuer, expected_audience="kafka"),
        ):
            pass
        anyone = {"allow_unverified_audience": "true", "allow_unverified_issuer": "true"}
        with node(system, tmp_path / "any", issuer, **anyone) as port:
            until(lambda: accepts(port, issuer.token("alice", aud="other", iss=None)), "the broker has the keys")
            assert not accepts(port, issuer.token("alice", iat=None))
