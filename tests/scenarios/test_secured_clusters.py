"""Clusters whose clients have credentials: each protocol with each library, refusals, ACLs, programs (A5, J1)."""

from __future__ import annotations

import asyncio
import json
import signal
import ssl
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import KafkaError as AiokafkaError
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from harrow import (
    Harrow,
    HarrowError,
    Security,
    Topic,
    VerdictError,
    harrow_fixture,
    kill,
    leader,
    lose_response,
    one,
    pause,
)
from harrow.harness.security.certificates import CertificateAuthority
from kafka import KafkaProducer
from kafka.errors import KafkaError
from long_runs import some
from waiting import until

RECORDS = 100
PROTOCOLS = [
    pytest.param(text, marks=pytest.mark.harrow(security=text))
    for text in (
        "sasl_ssl:SCRAM-SHA-256",
        "ssl",
        "mtls",
        "sasl_plaintext:PLAIN",
        "sasl_ssl",
        "sasl_ssl:OAUTHBEARER",
    )
]
with_acls = harrow_fixture(security=Security("sasl_ssl", acls=True), brokers=1)
certified = harrow_fixture(security=Security("mtls", acls=True), brokers=1)
secured = harrow_fixture(security="sasl_ssl", brokers=1, scope="session")
with_plain = harrow_fixture(security=Security("sasl_ssl:PLAIN", users=("bob",)))


def produce(harrow: Harrow, topic: Topic, **settings: Any) -> None:
    producer = harrow.producer(client_id="app", **settings)
    for number in range(RECORDS):
        producer.produce(topic.name, f"{number}".encode())
        producer.poll(0.01)
    assert producer.flush(30) == 0


def send(harrow: Harrow, topic: Topic) -> None:
    producer = harrow.kafka_python.producer(user="python")
    pending: list[Any] = [producer.send(topic.name, f"{number}".encode()) for number in range(RECORDS)]
    for sent in pending:
        sent.get(30)


async def send_and_receive(harrow: Harrow, topic: Topic) -> None:
    producer = harrow.aiokafka.producer(user="async")
    await producer.start()
    for number in range(RECORDS):
        await producer.send_and_wait(topic.name, f"{number}".encode())
    await producer.stop()
    consumer = harrow.aiokafka.consumer(topic.name, group_id="async", user="async")
    await consumer.start()
    for _ in range(3 * RECORDS):
        await asyncio.wait_for(consumer.getone(), 30)
    await consumer.stop()


def receive(harrow: Harrow, topic: Topic) -> None:
    consumer = harrow.consumer(user="reader")
    consumer.subscribe([topic.name])
    found: list[object] = []

    def all_read() -> bool:
        found.extend(consumer.consume(100, 0.2))
        return len(found) >= 3 * RECORDS

    until(all_read, "every record", timeout_s=30)
    reader = harrow.kafka_python.consumer(topic.name, group_id="python", consumer_timeout_ms=15_000)
    for _, _ in zip(range(3 * RECORDS), reader, strict=False):
        pass


@pytest.mark.parametrize("protocol", some(PROTOCOLS, 1))
def test_each_library_produces_and_consumes_while_a_leader_is_killed(harrow: Harrow, protocol: str) -> None:
    orders = harrow.topic("orders", partitions=2)
    for user in ("python", "async", "reader"):
        harrow.client_config(user)  # one of PLAIN can only be made while every broker runs
    with harrow.chaos(kill(leader(orders))):
        produce(harrow, orders)
        send(harrow, orders)
    asyncio.run(send_and_receive(harrow, orders))
    receive(harrow, orders)
    verdict = harrow.verify(orders)
    assert verdict.operation_counts["acknowledged"] == 3 * RECORDS
    assert verdict.operation_counts["read"] >= 9 * RECORDS
    assert json.loads((harrow.folder / "run.json").read_text())["security"].startswith(protocol)
    assert "listeners" not in harrow.schedule.run["config"]


@pytest.mark.harrow(security="sasl_ssl")
def test_a_duplicate_of_a_resent_batch_is_found_behind_tls(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    with harrow.chaos(lose_response("Produce", client="app")):
        produce(harrow, orders, enable_idempotence=False, request_timeout_ms=1000)
    with pytest.raises(VerdictError, match="duplicate"):
        harrow.verify(orders, guarantee="exactly-once")


# ------------------------------------------------------------------------------ refusals


def refusal(settings: dict[str, Any]) -> str:
    said: list[str] = []

    def note(error: object) -> None:
        said.append(str(error))

    quiet: dict[str, Any] = {"log_level": 0, "error_cb": note}
    admin = AdminClient({**settings, **quiet})
    with pytest.raises(KafkaException):
        admin.list_topics(timeout=2)
    admin.poll(0)
    return "\n".join(said)


def test_a_wrong_password_is_refused_with_the_clients_own_error(secured: Harrow) -> None:
    settings = secured.client_config("alice") | {"sasl.password": "wrong"}
    assert "SASL authentication error" in refusal(settings)
    python = secured.client_config("alice", library="kafka-python")
    python |= {"sasl_plain_password": "wrong", "bootstrap_timeout_ms": 2000}
    with pytest.raises(KafkaError):
        KafkaProducer(**python)


def test_a_user_who_was_never_made_is_refused(secured: Harrow) -> None:
    assert "SASL authentication error" in refusal(secured.client_config("alice") | {"sasl.username": "mallory"})


def test_an_authority_that_clients_do_not_trust_is_refused_by_them(secured: Harrow) -> None:
    settings = secured.client_config("alice")
    other = secured.folder / "other-ca.pem"
    other.write_text(CertificateAuthority().certificate)
    said = refusal(settings | {"ssl.ca.location": str(other)})
    assert "certificate verify failed" in said or "broker certificate could not be verified" in said
    asynchronous = secured.client_config("alice", library="aiokafka")
    asynchronous["ssl_context"] = ssl.create_default_context(cafile=other)

    async def connect() -> None:
        from aiokafka import AIOKafkaProducer

        producer = AIOKafkaProducer(**asynchronous)
        try:
            await producer.start()
        finally:
            await producer.stop()

    with pytest.raises(AiokafkaError):
        asyncio.run(connect())


def test_a_client_without_a_certificate_is_refused_by_mtls(certified: Harrow) -> None:
    settings = certified.client_config("alice")
    del settings["ssl.certificate.location"], settings["ssl.key.location"]
    assert "SSL" in refusal(settings)


# ------------------------------------------------------------------------------ rights


def outcome(harrow: Harrow, topic: Topic, user: str) -> str:
    """The error of one record, or `delivered`."""
    producer = Producer({**harrow.client_config(user), "log_level": 0, "message.timeout.ms": 10_000})
    said: list[str] = []
    producer.produce(topic.name, b"x", on_delivery=lambda error, _: said.append(error.name() if error else "delivered"))
    producer.flush(15)
    return said[0]


@pytest.mark.parametrize("fixture", ["with_acls", "certified"])
def test_a_user_may_do_what_was_allowed_and_nothing_else(request: pytest.FixtureRequest, fixture: str) -> None:
    harrow: Harrow = request.getfixturevalue(fixture)
    orders, bills = harrow.topic("orders"), harrow.topic("bills")
    assert outcome(harrow, orders, "alice") == "TOPIC_AUTHORIZATION_FAILED"
    harrow.allow("alice", "WRITE", orders)
    assert outcome(harrow, orders, "alice") == "delivered"
    assert outcome(harrow, orders, "bob") == "TOPIC_AUTHORIZATION_FAILED"
    assert outcome(harrow, bills, "alice") == "TOPIC_AUTHORIZATION_FAILED"
    harrow.allow("alice", "WRITE", "bil*")
    assert outcome(harrow, bills, "alice") == "delivered"

    harrow.allow("carol", "READ", orders)
    harrow.allow("carol", "READ", group="billing")
    consumer = harrow.consumer(user="carol", group_id="billing")
    consumer.subscribe([orders.name])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"x"
    harrow.verify(orders, guarantee="no-loss")


def test_rights_that_cannot_be_are_refused_with_the_remedy(with_acls: Harrow, secured: Harrow) -> None:
    for call, words in (
        (lambda: with_acls.allow("alice", "WRITE"), "expected an operation of a cluster, one of CREATE"),
        (lambda: with_acls.allow("alice", "write", "orders"), "one of READ, WRITE"),
        (lambda: with_acls.allow("alice", "READ", "orders", group="billing"), "give one of topic, group"),
        (lambda: with_acls.allow("a b", "READ", "orders"), "user 'a b': expected 1 to 64"),
        (lambda: secured.allow("alice", "READ", "orders"), "has no ACLs: .* give it acls=True"),
        (lambda: secured.client_config(library="rust"), "library='rust': expected one of librdkafka, kafka-python"),
    ):
        with pytest.raises(HarrowError, match=words):
            call()


# ------------------------------------------------------------------------------ users and programs


def test_a_user_of_plain_is_made_while_every_broker_runs(with_plain: Harrow) -> None:
    orders = with_plain.topic("orders")
    assert outcome(with_plain, orders, "alice") == "delivered"
    with_plain.cluster.brokers[1].kill()
    with pytest.raises(HarrowError, match="user 'carol' cannot be made while broker 1 is dead: name it in Security"):
        with_plain.client_config("carol")
    assert outcome(with_plain, orders, "bob") == "delivered"
    with_plain.cluster.brokers[1].start()
    assert outcome(with_plain, orders, "alice") == "delivered"


def test_a_program_finds_its_credentials_in_its_environment(secured: Harrow) -> None:
    orders = secured.topic("orders")
    text = """if True:
        import os, sys
        from confluent_kafka import Producer
        at = os.environ
        producer = Producer({"bootstrap.servers": at["KAFKA_BOOTSTRAP_SERVERS"],
            "security.protocol": at["KAFKA_SECURITY_PROTOCOL"], "sasl.mechanism": at["KAFKA_SASL_MECHANISM"],
            "sasl.username": at["KAFKA_SASL_USERNAME"], "sasl.password": at["KAFKA_SASL_PASSWORD"],
            "ssl.ca.location": at["KAFKA_SSL_CAFILE"]})
        producer.produce(sys.argv[1], at["KAFKA_SASL_USERNAME"])
        producer.flush(20)
    """
    secured.program("shop", [sys.executable, "-c", text, orders.name], user="shop")
    secured.await_records(orders, 1)
    consumer = secured.consumer()
    consumer.subscribe([orders.name])
    message = consumer.poll(20)
    assert message is not None
    assert message.value() == b"shop"
    secured.verify(orders, guarantee="no-loss")


def test_harrow_up_prints_the_settings_of_each_user(tmp_path: Path) -> None:
    words = ("up", "--brokers", "1", "--security", "sasl_ssl:PLAIN", "--user", "alice", "--json")
    command = [str(Path(sys.executable).with_name("harrow")), *words]
    with subprocess.Popen(command, cwd=tmp_path, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            users = json.loads(process.stdout.readline())["users"]
            assert sorted(users) == ["alice", "app"]
            admin = AdminClient(users["alice"] | {"log_level": 0})
            assert len(admin.list_topics(timeout=10).brokers) == 1
        finally:
            process.send_signal(signal.SIGINT)
            assert process.wait(30) == 0


@pytest.mark.harrow(security=Security("sasl_ssl", reauthenticate_after=1.0), brokers=1)
def test_a_client_goes_on_when_its_session_has_ended(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    producer = harrow.producer(client_id="app")
    with harrow.chaos(pause(one, seconds=0.5), duration=2.5):
        for number in range(300):
            producer.produce(orders.name, f"{number}".encode())
            producer.poll(0.01)
    assert producer.flush(30) == 0
    harrow.await_request("SaslAuthenticate", client="app", count=4)
    harrow.verify(orders)
