"""Clients and brokers over TLS: real clients, mutual TLS, large records, strangers, faults, new certificates (A5)."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harrow import Cluster
from harrow.cluster.errors import ClusterError, ConfigError, ErrorCode
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.security.certificates import CertificateAuthority
from kafka import KafkaConsumer, KafkaProducer
from kafka_python_admin import SOCKETS
from raw_kafka import RawKafka
from tls_stores import PASSWORD, TlsStores
from waiting import until

pytestmark = SOCKETS
LARGE = 10_000_000
STRANGERS = 250
BROKER, SET = 4, 0
"""A type of resources and an operation of IncrementalAlterConfigs."""


@pytest.fixture(scope="module")
def stores(tmp_path_factory: pytest.TempPathFactory) -> TlsStores:
    return TlsStores(tmp_path_factory.mktemp("tls"))


@pytest.fixture(scope="module")
def cluster(stores: TlsStores) -> Iterator[Cluster]:
    """Three brokers that speak only TLS, to each other too, and want a certificate of everyone."""
    bytes_most = {"message.max.bytes": 2 * LARGE, "replica.fetch.max.bytes": LARGE // 2}
    with Cluster(brokers=3, config={**stores.broker(), **bytes_most, "min.insync.replicas": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def admin(cluster: Cluster, stores: TlsStores) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, **stores.confluent("admin")})


def created(admin: Any, name: str, partitions: int = 1) -> str:
    admin.create_topics([NewTopic(name, partitions, 3)])[name].result(30)
    return name


def produced(servers: str, settings: dict[str, Any], topic: str, *values: bytes) -> list[KafkaError | None]:
    """Produce with acks=all; returns the error of each value."""
    found: list[KafkaError | None] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", "message.max.bytes": 2 * LARGE, **settings})
    for value in values:
        producer.produce(topic, value, partition=0, on_delivery=lambda error, _: found.append(error))
    assert producer.flush(60) == 0
    return found


def consumed(servers: str, settings: dict[str, Any], topic: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": servers, "group.id": topic, "auto.offset.reset": "earliest", **settings})
    consumer.subscribe([topic])
    try:
        rows = [until(lambda: consumer.poll(0.5), "a record") for _ in range(count)]
        return [row.value() or b"" for row in rows]
    finally:
        consumer.close()


def versions(raw: RawKafka) -> Any:
    """The response to ApiVersions."""
    return raw.ask(ApiKey.API_VERSIONS, 0, messages.schema(ApiKey.API_VERSIONS, 0, "request").root())


# ------------------------------------------------------------------- clients


def test_confluent_kafka_produces_and_consumes_records_of_every_size(
    cluster: Cluster, stores: TlsStores, admin: AdminClient
) -> None:
    topic = created(admin, "confluent")
    values = [b"small", b"m" * 20_000, b"l" * LARGE, b"last"]
    settings = stores.confluent("alice")
    assert produced(cluster.bootstrap_servers, settings, topic, *values) == [None] * 4
    assert consumed(cluster.bootstrap_servers, settings, topic, 4) == values
    cluster.await_converged()


def test_kafka_python_produces_and_consumes(cluster: Cluster, stores: TlsStores, admin: AdminClient) -> None:
    topic = created(admin, "kafka-python")
    settings: Any = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": stores.context("alice"),
    }
    producer: Any = KafkaProducer(acks="all", **settings)
    for number in range(100):
        producer.send(topic, str(number).encode()).get(timeout=30)
    producer.close()
    consumer: Any = KafkaConsumer(
        topic, group_id="kp", auto_offset_reset="earliest", consumer_timeout_ms=20_000, **settings
    )
    assert [int(row.value) for _, row in zip(range(100), consumer, strict=False)] == list(range(100))
    consumer.close()


def test_aiokafka_produces_and_consumes(cluster: Cluster, stores: TlsStores, admin: AdminClient) -> None:
    topic = created(admin, "aiokafka")
    settings: Any = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SSL",
        "ssl_context": stores.context("alice"),
    }

    async def round_trip() -> list[bytes]:
        producer: Any = AIOKafkaProducer(acks="all", **settings)
        await producer.start()
        await asyncio.gather(*[producer.send_and_wait(topic, b"v") for _ in range(100)])
        await producer.stop()
        consumer: Any = AIOKafkaConsumer(topic, group_id="aio", auto_offset_reset="earliest", **settings)
        await consumer.start()
        got = [(await asyncio.wait_for(consumer.getone(), 30)).value for _ in range(100)]
        await consumer.stop()
        return got

    assert asyncio.run(round_trip()) == [b"v"] * 100


def test_consumer_that_reads_slowly_gets_every_record(cluster: Cluster, stores: TlsStores, admin: AdminClient) -> None:
    topic = created(admin, "slow-reader")
    values = [bytes([number]) * 1_000_000 for number in range(20)]
    assert produced(cluster.bootstrap_servers, stores.confluent("alice"), topic, *values) == [None] * 20
    settings = {**stores.confluent("alice"), "socket.receive.buffer.bytes": 4096}
    assert consumed(cluster.bootstrap_servers, settings, topic, 20) == values


# ----------------------------------------------------------------- strangers


def test_clients_without_a_trusted_certificate_are_refused(cluster: Cluster, stores: TlsStores) -> None:
    host, _, port = cluster.bootstrap_servers.partition(",")[0].rpartition(":")
    other = CertificateAuthority("another authority")
    for context in (stores.context(), stores.context("mallory", other)):
        with RawKafka(int(port), host, tls=context) as raw, pytest.raises((OSError, EOFError)):
            versions(raw)
    client = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    with pytest.raises(KafkaException):
        client.list_topics(timeout=2)


def test_many_strangers_neither_stop_the_clients_nor_fill_the_log(
    cluster: Cluster, stores: TlsStores, admin: AdminClient
) -> None:
    topic = created(admin, "strangers")
    address = cluster.brokers[1].address
    with contextlib.ExitStack() as stack:
        for number in range(2 * STRANGERS):
            stranger = stack.enter_context(socket.create_connection((address.host, address.port), 10))
            if number % 2:
                stranger.sendall(b"\x16\x03\x01\x02\x00 garbage of a stranger" * 20)
        assert produced(cluster.bootstrap_servers, stores.confluent("alice"), topic, b"served") == [None]
    log = (cluster.folder / "broker-1" / "broker.log").read_text()
    assert "handshake" not in log, log[-2000:]


# ---------------------------------------------------------------- principals


def test_name_in_the_certificate_of_a_client_is_what_the_rules_see(tmp_path: Path) -> None:
    stores = TlsStores(tmp_path)
    config = stores.broker(client_auth="requested", protocols="CLIENTS:SSL,BROKERS:PLAINTEXT")
    rules = {"ssl.principal.mapping.rules": "RULE:^CN=bob$/bob/"}
    with Cluster(brokers=1, config={**config, **rules}) as running:
        address = running.brokers[1].address
        for name in ("", "bob", "alice"):
            with RawKafka(address.port, address.host, tls=stores.context(name)) as raw:
                if name == "alice":
                    with pytest.raises((OSError, EOFError)):
                        versions(raw)
                else:
                    assert versions(raw).error_code == ErrorCode.none
        log = (running.folder / "broker-1" / "broker.log").read_text()
    assert log.count("no rule of ssl.principal.mapping.rules") == 1
    assert "applies to CN=alice" in log


# ------------------------------------------------------------------ failures


def test_brokers_elect_replicate_and_fail_over(cluster: Cluster, stores: TlsStores, admin: AdminClient) -> None:
    topic = created(admin, "failover")
    settings = stores.confluent("alice")
    assert produced(cluster.bootstrap_servers, settings, topic, b"before") == [None]
    assert consumed(cluster.bootstrap_servers, settings, topic, 1) == [b"before"]
    placed = cluster.describe().partition(topic, 0)
    assert placed is not None
    leader = cluster.brokers[placed.leader]
    leader.kill()
    try:
        assert produced(cluster.bootstrap_servers, settings, topic, b"after") == [None]
        assert consumed(cluster.bootstrap_servers, settings, topic, 1) == [b"after"]
    finally:
        leader.start()
    cluster.await_converged()


def test_held_slow_and_reset_links_of_a_client_act_as_without_tls(
    cluster: Cluster, stores: TlsStores, admin: AdminClient
) -> None:
    topic = created(admin, "faults")
    found: list[KafkaError | None] = []
    settings = {**stores.confluent("alice"), "client.id": "orders", "acks": "all"}
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, **settings})

    def send() -> None:
        producer.produce(topic, b"v" * 50_000, partition=0, on_delivery=lambda error, _: found.append(error))

    def everywhere(op: str, **fields: object) -> int:
        answers = [cluster.control(node, op, **fields) for node in cluster.brokers]
        return sum(len(row["links"]) if isinstance(row.get("links"), list) else row.get("links", 0) for row in answers)

    send()
    assert producer.flush(30) == 0
    for op, fields in (("links.block", {}), ("links.freeze", {}), ("links.slow", {"delay_ms": 5_000})):
        before = len(found)
        assert everywhere(op, peers=["client orders"], **fields) > 0
        send()
        assert producer.flush(1.0) == 1, f"{op} holds the produce request or its response"
        everywhere("links.heal")
        assert producer.flush(30) == 0, op
        assert found[before:] == [None]
    everywhere("links.throttle", peers=["client orders"], bytes_per_s=1_000_000)
    send()
    assert producer.flush(30) == 0
    everywhere("links.heal")
    assert everywhere("links.reset", peers=["client orders"]) > 0
    send()
    assert producer.flush(30) == 0
    assert not any(found)


# ------------------------------------------------------------ certificates


def served_certificate(cluster: Cluster, stores: TlsStores) -> bytes | None:
    address = cluster.brokers[1].address
    with (
        socket.create_connection((address.host, address.port), 10) as plain,
        stores.context("alice").wrap_socket(plain, server_hostname=address.host) as tls,
    ):
        return tls.getpeercert(binary_form=True)


def altered(cluster: Cluster, stores: TlsStores, **settings: str) -> int:
    """Set dynamic settings of broker 1, those of its listener for clients; returns the error code."""
    schema = messages.schema(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, "request")
    rows = tuple(
        schema.AlterableConfig(name=f"listener.name.clients.ssl.keystore.{name}", config_operation=SET, value=value)
        for name, value in settings.items()
    )
    resource = schema.AlterConfigsResource(resource_type=BROKER, resource_name="1", configs=rows)
    address = cluster.brokers[1].address
    with RawKafka(address.port, address.host, tls=stores.context("admin")) as raw:
        response = raw.ask(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, schema.root(resources=(resource,), validate_only=False))
        return int(response.responses[0].error_code)


def test_certificate_changes_while_the_broker_runs(cluster: Cluster, stores: TlsStores) -> None:
    first = served_certificate(cluster, stores)
    location = {"location": stores.write_keystore("second.p12", stores.authority.issue("broker")), "password": PASSWORD}
    assert altered(cluster, stores, **location) == 0
    second = until(lambda: (now := served_certificate(cluster, stores)) != first and now, "the new certificate")
    stores.write_keystore("second.p12", stores.authority.issue("broker"))  # another file under the same path
    assert altered(cluster, stores, **location) == 0
    third = until(lambda: (now := served_certificate(cluster, stores)) != second and now, "the third certificate")
    other = stores.write_keystore("other.p12", stores.authority.issue("other name"))
    for bad in ({"location": "/absent.p12"}, {"password": "wrong"}, {"location": other}, {"type": "BKS"}):
        assert altered(cluster, stores, **bad) == ErrorCode.invalid_request, bad
    assert served_certificate(cluster, stores) == third
    log = (cluster.folder / "broker-1" / "broker.log").read_text()
    assert PASSWORD not in log, "passwords are not logged"


# ------------------------------------------------------------------- refused


def test_listener_without_a_key_ends_the_broker_with_the_remedy() -> None:
    config = {"listener.security.protocol.map": "CLIENTS:SSL,BROKERS:PLAINTEXT"}
    with pytest.raises(ClusterError, match=r"ssl\.keystore\.location"), Cluster(brokers=1, config=config):
        pass


def test_tls_is_not_simulated() -> None:
    with pytest.raises(ConfigError, match="TLS is not simulated"):
        SimulatedCluster(config={"listener.security.protocol.map": "CLIENTS:SSL,BROKERS:PLAINTEXT"})


def test_one_listener_serves_clients_and_brokers_with_pem_and_tls_1_2(tmp_path: Path) -> None:
    """No certificate is asked for, so no principal says who is a broker; the rest is as with two listeners."""
    stores = TlsStores(tmp_path)
    identity = stores.authority.issue("broker")
    config = {
        "listeners": "SSL://127.0.0.1:0",
        "inter.broker.listener.name": "SSL",
        "ssl.enabled.protocols": "TLSv1.2",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.key": identity.encrypted_key(PASSWORD),
        "ssl.key.password": PASSWORD,
        "ssl.keystore.certificate.chain": identity.chain,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.certificates": stores.authority.certificate,
        "min.insync.replicas": 2,
    }
    with Cluster(brokers=2, config=config) as running:
        settings = stores.confluent()
        admin: Any = AdminClient({"bootstrap.servers": running.bootstrap_servers, **settings})
        admin.create_topics([NewTopic("one", 2, 2)])["one"].result(30)
        assert produced(running.bootstrap_servers, settings, "one", b"first", b"second") == [None, None]
        assert consumed(running.bootstrap_servers, settings, "one", 2) == [b"first", b"second"]
        running.await_converged()
