"""`security=` on the backend `apache`: Kafka itself decides who logs in and who may do what (A5, J2)."""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from confluent_kafka import Consumer, KafkaError, Message, Producer
from faults_under_traffic import lines
from harrow import (
    Harrow,
    Security,
    expire_certificate,
    expire_token,
    kill,
    refuse_reauthentication,
    revoke_acl,
    rotate_certificate,
    rotate_credentials,
)
from harrow.faults import Fault, Schedule, ScheduledFault, healed, took_effect
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_reference import JARS
from persistent_app import App, run, running
from waiting import until

CERTIFICATE = ("ssl.certificate.location", "ssl.key.location")
pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


@contextmanager
def kafka_of(folder: Path, security: Security | str, *, brokers: int, **config: object) -> Generator[Harrow]:
    """A new Apache Kafka with this security."""
    clusters = KafkaClusters(find_kafka(str(JARS)))
    settings = {name.replace("_", "."): value for name, value in config.items()}
    with Harrow(
        folder / "run", seed=5, brokers=brokers, clusters=clusters, security=security, config=settings
    ) as kafka:
        yield kafka


def outcomes(servers: dict[str, Any], topic: str, count: int = 10) -> set[str]:
    """The results of records that a client sends: `ok`, or names of errors of the records or of the whole client."""
    found = set[str]()

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            found.add("authentication")

    def delivered(error: KafkaError | None, _: Message) -> None:
        found.add("ok" if error is None else error.name())

    producer = Producer({"message.timeout.ms": 30_000, **servers, "error_cb": failed, "log_level": 0})
    for number in range(count):
        producer.produce(topic, f"{number}".encode(), on_delivery=delivered)
    until(lambda: producer.poll(0.1) >= 0 and found)
    if "authentication" not in found:
        producer.flush(30)
    producer.purge()
    producer.flush(10)
    return found - {"_PURGE_QUEUE", "_PURGE_INFLIGHT"}


def files_with(folder: Path, secret: str) -> set[str]:
    """The names of the files in which a secret is."""
    files = [path for path in folder.rglob("*") if path.is_file()]
    assert len(files) > 10, "the taps are among them"
    return {path.name for path in files if secret.encode() in path.read_bytes()}


@pytest.mark.parametrize("protocol", ["ssl", "mtls", "sasl_plaintext:PLAIN", "sasl_ssl", "sasl_ssl:OAUTHBEARER"])
def test_clients_reach_kafka_with_their_credentials_and_not_without(tmp_path: Path, protocol: str) -> None:
    clusters = KafkaClusters(find_kafka(str(JARS)))
    security = Security(protocol, users=() if protocol == "ssl" else ("alice",))
    with Harrow(tmp_path / "run", seed=5, brokers=1, clusters=clusters, security=security) as kafka:
        orders = kafka.topic("orders", partitions=1)
        alice = kafka.client_config("alice")
        assert outcomes(alice, "orders") == {"ok"}
        if protocol.endswith("PLAIN"):
            with pytest.raises(CapabilityError, match="takes new users of PLAIN when a listener starts"):
                kafka.client_config("bob")
        if protocol == "mtls":
            bare = {name: value for name, value in alice.items() if name not in CERTIFICATE}
            assert outcomes({**bare, "message.timeout.ms": 3_000}, "orders", 1) == {"_MSG_TIMED_OUT"}
        if protocol == "sasl_ssl" or protocol.endswith("PLAIN"):
            assert outcomes({**alice, "sasl.password": "wrong"}, "orders") == {"authentication"}
        assert kafka.verify(orders, guarantee="no-loss").valid
    if "sasl.password" in alice:
        assert not files_with(tmp_path / "run", alice["sasl.password"]) - {"server.properties", "credentials.json"}


@pytest.mark.parametrize("protocol", ["sasl_ssl", "mtls", "sasl_plaintext:OAUTHBEARER"])
def test_kafka_decides_by_the_acls_of_the_test(tmp_path: Path, protocol: str) -> None:
    with kafka_of(tmp_path, Security(protocol, acls=True), brokers=1) as kafka:
        orders = kafka.topic("orders", partitions=1)
        kafka.allow("alice", "WRITE", topic=orders)
        alice, bob = kafka.client_config("alice"), kafka.client_config("bob")
        assert outcomes(alice, "orders") == {"ok"}
        assert outcomes(bob, "orders") == {"TOPIC_AUTHORIZATION_FAILED"}
        assert kafka.verify(orders, guarantee="no-loss").valid


@pytest.mark.parametrize(
    ("fault", "security", "error"),
    [
        (rotate_credentials("shop", seconds=3), "sasl_ssl", "_AUTHENTICATION"),
        (
            refuse_reauthentication("shop", seconds=3),
            Security("sasl_plaintext", reauthenticate_after=1.5),
            "_AUTHENTICATION",
        ),
        (
            refuse_reauthentication("shop", first_logins=False, seconds=4),
            Security("sasl_ssl:PLAIN", users=("shop",), reauthenticate_after=1.5),
            "_AUTHENTICATION",
        ),
        (expire_certificate(seconds=3), "sasl_ssl", "_SSL"),
        (rotate_certificate(ca="new", seconds=3), "ssl", "_SSL"),
        (rotate_certificate(seconds=3), "sasl_ssl", ""),
        (rotate_certificate(seconds=3), "mtls", ""),
        (expire_token("shop", seconds=3), "sasl_ssl:OAUTHBEARER", "_AUTHENTICATION"),
        (
            refuse_reauthentication("shop", first_logins=False, seconds=4),
            Security("sasl_plaintext:OAUTHBEARER", reauthenticate_after=1.5),
            "_AUTHENTICATION",
        ),
    ],
    ids=[
        "password",
        "session",
        "every login of PLAIN",
        "expired certificate",
        "another authority",
        "another certificate",
        "another certificate beside those of clients",
        "expired token",
        "every login of OAUTHBEARER",
    ],
)
def test_a_service_meets_the_fault_and_loses_nothing(
    tmp_path: Path, fault: Fault, security: Security | str, error: str
) -> None:
    with kafka_of(tmp_path, security, brokers=2) as kafka:
        topic = kafka.topic("orders", partitions=2)
        app = App(kafka, topic, kafka.client_config("shop"))
        rows = run(kafka, app, fault)
        assert rows["effect"]["evidence"]["made"]
        assert rows["healed"]["evidence"]["as_before"]
        assert rows["healed"]["evidence"]["armed"] == []
        assert (error in app.errors) == bool(error), app.errors
        assert outcomes(kafka.client_config("shop"), kafka.topic("later").name) == {"ok"}
        assert kafka.verify(topic, record_id="id", expected=app.sent).valid


@pytest.mark.parametrize("protocol", ["sasl_ssl", "mtls", "sasl_ssl:OAUTHBEARER"])
def test_a_service_that_loses_a_right_waits_until_it_is_back(tmp_path: Path, protocol: str) -> None:
    security = Security(protocol, users=("shop",), acls=True)
    with kafka_of(tmp_path, security, brokers=2) as kafka:
        topic = kafka.topic("orders", partitions=2)
        kafka.allow("shop", "WRITE", topic)
        kafka.allow("shop", "IDEMPOTENT_WRITE")
        app = App(kafka, topic, kafka.client_config("shop"))
        rows = run(kafka, app, revoke_acl("shop", "WRITE", topic, seconds=3))
        assert rows["effect"]["evidence"]["denied_operations"] > 0
        assert "TOPIC_AUTHORIZATION_FAILED" in app.errors
        assert kafka.verify(topic, record_id="id", expected=app.sent, guarantee="no-loss").valid


def test_a_node_that_starts_again_refuses_no_login(tmp_path: Path) -> None:
    security = Security("sasl_plaintext", users=("shop",), reauthenticate_after=1.5)
    with kafka_of(tmp_path, security, brokers=3) as kafka:
        topic = kafka.topic("orders", partitions=3)
        app = App(kafka, topic, kafka.client_config("shop"))
        steps = (
            ScheduledFault(
                id="1",
                fault=refuse_reauthentication("shop", first_logins=False, seconds=60),
                trigger="traffic",
                until=(healed("2"),),
            ),
            ScheduledFault(id="2", fault=kill(1, seconds=1), after=(took_effect("1"),), overlaps=True),
        )
        with running(app), kafka.chaos(schedule=Schedule(steps=steps, cap=2)) as chaos:
            until(lambda: not chaos.running, "the end of the schedule", timeout_s=120)
        assert outcomes(kafka.client_config("shop"), kafka.topic("later").name) == {"ok"}
        assert kafka.verify(topic, record_id="id", expected=app.sent).valid
        for node in kafka.cluster.brokers:
            rows = kafka.cluster.control(node, "rules.list", kind="access")["rules"]
            assert [row["armed"] for row in rows] == [False]


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_consumer_that_loses_the_right_to_its_group_reads_on_when_it_is_back(tmp_path: Path, protocol: str) -> None:
    short = {"group_consumer_session_timeout_ms": 6000, "group_consumer_min_session_timeout_ms": 5000}
    security = Security("sasl_plaintext", users=("shop",), acls=True)
    with kafka_of(tmp_path, security, brokers=1, **short) as kafka:
        topic = kafka.topic("orders", partitions=1)
        kafka.allow("shop", "READ", topic)
        kafka.allow("shop", "WRITE", topic)
        kafka.allow("shop", "READ", group="billing")
        servers = kafka.client_config("shop")
        settings = {**servers, "group.id": "billing", "auto.offset.reset": "earliest", "group.protocol": protocol}
        if protocol == "classic":
            settings["session.timeout.ms"] = 6000
        producer, consumer = Producer(servers), Consumer(settings)
        consumer.subscribe([topic.name])
        seen, errors = list[bytes](), set[str]()

        def poll() -> bool:
            message = consumer.poll(0.1)
            if message is None:
                return False
            failure = message.error()
            if failure is None:
                seen.append(message.value() or b"")
            else:
                errors.add(failure.name())
            return True

        producer.produce(topic.name, b"first")
        until(lambda: poll() and b"first" in seen, timeout_s=60)
        fault = revoke_acl("shop", "READ", group="billing", seconds=2)

        def ended() -> bool:
            producer.produce(topic.name, b"more")  # the fault waits for traffic
            producer.poll(0)
            poll()
            return not chaos.running

        with kafka.chaos(fault) as chaos:
            until(ended, timeout_s=120)
        rows = {line["event"]: line for line in lines(kafka)}
        assert rows["effect"]["evidence"]["denied_operations"] > 0
        assert rows["healed"]["evidence"]["as_before"]
        assert ("_FATAL" in errors) == (protocol == "consumer"), errors
        if "_FATAL" in errors:  # librdkafka ends a member of the new protocol for good
            consumer.close()
            consumer = Consumer(settings)
            consumer.subscribe([topic.name])
        producer.produce(topic.name, b"last")
        until(lambda: poll() and b"last" in seen, timeout_s=60)
        consumer.close()
        assert producer.flush(30) == 0
        assert kafka.verify(topic, guarantee="no-loss").valid


@pytest.mark.parametrize(
    ("fault", "reason"),
    [
        (rotate_credentials("shop"), "Apache Kafka reads the passwords of PLAIN when a listener starts"),
        (expire_token("shop"), "with the mechanism OAUTHBEARER"),
        (revoke_acl("shop", "WRITE", "orders"), "'acls'.*'apache'.*acls=True"),
        (rotate_certificate(), "'certificates'.*'apache'"),
    ],
)
def test_what_this_cluster_cannot_do_is_refused_with_the_reason(plain_kafka: Harrow, fault: Fault, reason: str) -> None:
    with pytest.raises(CapabilityError, match=reason), plain_kafka.chaos(fault):
        pass


@pytest.fixture(scope="module")
def plain_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Harrow]:
    security = Security("sasl_plaintext:PLAIN", users=("shop",))
    with kafka_of(tmp_path_factory.mktemp("plain"), security, brokers=1) as kafka:
        kafka.topic("orders")
        yield kafka
