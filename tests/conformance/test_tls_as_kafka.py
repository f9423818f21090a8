"""TLS as Apache Kafka serves it: new stores at run time, what is refused, how it is described, Java's clients (A5)."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import HEAP, MISSING
from free_ports import first_free
from harrow.cluster import Cluster
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from kafka_reference import TOOL, needs_jar
from kafka_tools import Tools, ToolsJvm
from raw_kafka import RawKafka
from tls_stores import PASSWORD, TlsStores
from waiting import until

BROKER, SET = 4, 0
SSL, QUORUM = 11, -10_000
"""Ports, beside the one of the first node's clients."""
STORE = "listener.name.secure.ssl."


@dataclass(frozen=True)
class Secure:
    """One node with a listener SECURE that wants certificates; ours, or Apache Kafka's."""

    port: int
    stores: TlsStores

    def raw(self, name: str = "admin") -> RawKafka:
        """A connection of the client `name`."""
        return RawKafka(self.port, tls=self.stores.context(name))

    def altered(self, **settings: str) -> int:
        """Set dynamic settings of the node; returns the error code."""
        schema = messages.schema(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request")
        rows = tuple(
            schema.AlterableConfig(name=name, config_operation=SET, value=value) for name, value in settings.items()
        )
        resource = schema.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=rows)
        with self.raw() as raw:
            entity = schema.root(resources=(resource,), validate_only=False)
            return int(raw.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, entity).responses[0].error_code)

    def described(self) -> dict[str, tuple[Any, ...]]:
        """Source, type, read-only and sensitive of each setting of TLS."""
        schema = messages.schema(ApiKey.DESCRIBE_CONFIGS, 4, "request")
        row = schema.DescribeConfigsResource(resource_type=BROKER, resource_name="1", configuration_keys=None)
        entity = schema.root(resources=(row,), include_synonyms=False, include_documentation=False)
        with self.raw() as raw:
            (result,) = raw.ask(ApiKey.DESCRIBE_CONFIGS, 4, entity).results
        return {
            row.name: (row.value, row.config_source, row.config_type, row.read_only, row.is_sensitive)
            for row in result.configs
            if ".ssl." in f".{row.name}" and not row.name.endswith(".location")
        }

    def certificate(self) -> bytes:
        """The certificate that a new connection sees."""
        with self.raw() as raw:
            assert raw.certificate is not None
            return raw.certificate


@contextmanager
def apache(stores: TlsStores, folder: Path) -> Generator[int]:
    """One node of Apache Kafka; yields the port of its listener SECURE."""
    base = first_free(range(29_700, 30_000, 20), (1, 1 + SSL, 1 + QUORUM))
    clients, secure, quorum = (f"127.0.0.1:{base + 1 + offset}" for offset in (0, SSL, QUORUM))
    listeners = f"PLAINTEXT://{clients},SECURE://{secure}"
    settings = {
        **stores.broker(protocols="PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:PLAINTEXT"),
        "listeners": f"{listeners},CONTROLLER://{quorum}",
        "advertised.listeners": listeners,
    }
    lines = "\n".join(f"{name}={value}" for name, value in settings.items())
    environment = {**os.environ, "KAFKA_PORT": str(base), "KAFKA_HEAP": HEAP, "KAFKA_SET": lines}
    try:
        subprocess.run([TOOL, "up", str(folder), "1"], env=environment, check=True, capture_output=True, timeout=120)
        yield base + 1 + SSL
    finally:
        subprocess.run([TOOL, "down", str(folder)], check=False, capture_output=True)


@contextmanager
def harrow(stores: TlsStores) -> Generator[int]:
    """A broker of ours; yields the port of its listener SECURE."""
    config = {
        **stores.broker(protocols="SECURE:SSL,BROKERS:PLAINTEXT"),
        "listeners": "SECURE://127.0.0.1:0,BROKERS://127.0.0.1:0",
    }
    with Cluster(brokers=1, config=config) as cluster:
        yield cluster.brokers[1].port


@pytest.fixture(
    scope="module",
    params=["harrow", pytest.param("apache", marks=pytest.mark.skipif(bool(MISSING), reason=MISSING or "-"))],
)
def secure(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    stores = TlsStores(folder)
    with harrow(stores) if request.param == "harrow" else apache(stores, folder / "kafka") as port:
        node = Secure(port, stores)
        until(node.certificate, "the node serves TLS", amid=(OSError,))
        yield node


def test_stores_of_a_listener_change_at_run_time_under_conditions(secure: Secure) -> None:
    stores, before = secure.stores, secure.certificate()
    second = stores.write_keystore("second.p12", stores.authority.issue("broker"))
    good = {f"{STORE}keystore.location": second, f"{STORE}keystore.password": PASSWORD}
    assert secure.altered(**good) == 0
    until(lambda: secure.certificate() != before, "the new certificate")
    other = stores.write_keystore("other.p12", stores.authority.issue("other"))
    fewer = stores.write_keystore("fewer.p12", stores.authority.issue("broker", hosts=("localhost",)))
    more = stores.write_keystore("more.p12", stores.authority.issue("broker", hosts=("localhost", "127.0.0.1", "x")))
    for name, value, code in (
        ("keystore.location", "/absent.p12", 42),
        ("keystore.password", "wrong", 42),
        ("keystore.location", other, 42),
        ("keystore.location", fewer, 42),
        ("keystore.type", "BKS", 42),
        ("truststore.location", "/absent.p12", 42),
        ("keystore.location", more, 0),
        ("client.auth", "maybe", 42),
        ("client.auth", "none", 0),
        ("cipher.suites", "NONSENSE", 0),
        ("principal.mapping.rules", "DEFAULT", 0),
    ):
        assert secure.altered(**{f"{STORE}{name}": value}) == code, (name, value)
    assert secure.altered(**{"ssl.keystore.location": second}) == 42
    assert secure.altered(**{"ssl.allow.dn.changes": "true"}) == 42
    assert secure.altered(**{"listener.name.absent.ssl.keystore.location": "/absent.p12"}) == 0


def test_client_without_a_certificate_is_refused_also_after_a_change_of_the_rule(secure: Secure) -> None:
    """`ssl.client.auth` of a listener counts from the next start of the broker."""
    assert secure.altered(**{f"{STORE}client.auth": "none"}) == 0
    with secure.raw("") as raw, pytest.raises((OSError, EOFError)):
        raw.ask(ApiKey.API_VERSIONS, 0, messages.schema(ApiKey.API_VERSIONS, 0, "request").root())


def test_settings_of_tls_are_described_alike(secure: Secure) -> None:
    found = secure.described()
    static, default, string, listed, password = 4, 5, 2, 7, 9
    expected = {
        "ssl.allow.dn.changes": ("false", default, 1, True, False),
        "ssl.allow.san.changes": ("false", default, 1, True, False),
        "ssl.cipher.suites": ("", default, listed, False, False),
        "ssl.client.auth": ("required", static, string, False, False),
        "ssl.enabled.protocols": ("TLSv1.2,TLSv1.3", default, listed, False, False),
        "ssl.endpoint.identification.algorithm": ("https", default, string, False, False),
        "ssl.key.password": (None, default, password, False, True),
        "ssl.keystore.certificate.chain": (None, default, password, False, True),
        "ssl.keystore.key": (None, default, password, False, True),
        "ssl.keystore.password": (None, static, password, False, True),
        "ssl.keystore.type": ("PKCS12", static, string, False, False),
        "ssl.principal.mapping.rules": ("DEFAULT", default, string, True, False),
        "ssl.protocol": ("TLSv1.3", default, string, False, False),
        "ssl.truststore.certificates": (None, default, password, False, True),
        "ssl.truststore.password": (None, static, password, False, True),
        "ssl.truststore.type": ("PKCS12", static, string, False, False),
    }
    assert {name: found[name] for name in expected} == expected


@needs_jar
def test_javas_clients_produce_and_consume(secure: Secure, tools_jvm: ToolsJvm) -> None:
    tools = Tools(tools_jvm, {1: secure.port})
    settings = secure.stores.folder / "java.properties"
    settings.write_text("".join(f"{name}={value}\n" for name, value in secure.stores.java("java").items()))
    config = ("--command-config", str(settings))
    tools.run("TopicCommand", "--create", "--topic", "java", "--replication-factor", "1", *config).succeeded()
    values = "".join(f"value-{number}\n" for number in range(200))
    tools.run("ConsoleProducer", "--topic", "java", *config, stdin=values).succeeded()
    read = ("--topic", "java", "--from-beginning", "--max-messages", "200", "--timeout-ms", "60000")
    assert tools.run("ConsoleConsumer", *read, *config).succeeded().out == values
