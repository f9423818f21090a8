"""`security=` on the backend `apache`: Kafka itself decides who logs in and who may do what (A5, J2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from confluent_kafka import KafkaError, Message, Producer
from harrow import Harrow, Security, revoke_acl, rotate_certificate, rotate_credentials
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.apache.installation import find_kafka
from harrow.harness.backends.apache.source import KafkaClusters
from kafka_reference import JARS
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING)


def outcomes(servers: dict[str, Any], topic: str, count: int = 10) -> set[str]:
    """The results of records that a client sends: `ok`, or names of errors of the records or of the whole client."""
    found = set[str]()

    def failed(error: KafkaError) -> None:
        if error.code() == KafkaError._AUTHENTICATION:
            found.add("authentication")

    def delivered(error: KafkaError | None, _: Message) -> None:
        found.add("ok" if error is None else error.name())

    producer = Producer({**servers, "error_cb": failed, "message.timeout.ms": 30_000, "log_level": 0})
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


@pytest.mark.parametrize("protocol", ["ssl", "sasl_plaintext:PLAIN", "sasl_ssl"])
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
        if protocol == "sasl_ssl" or protocol.endswith("PLAIN"):
            assert outcomes({**alice, "sasl.password": "wrong"}, "orders") == {"authentication"}
        assert kafka.verify(orders, guarantee="no-loss").valid
    if protocol != "ssl":
        assert not files_with(tmp_path / "run", alice["sasl.password"]) - {"server.properties", "credentials.json"}


def test_kafka_decides_by_the_acls_of_the_test_and_says_which_faults_it_has_not(tmp_path: Path) -> None:
    clusters = KafkaClusters(find_kafka(str(JARS)))
    security = Security("sasl_ssl", acls=True)
    with Harrow(tmp_path / "run", seed=5, brokers=1, clusters=clusters, security=security) as kafka:
        orders = kafka.topic("orders", partitions=1)
        kafka.allow("alice", "WRITE", topic=orders)
        alice, bob = kafka.client_config("alice"), kafka.client_config("bob")
        assert outcomes(alice, "orders") == {"ok"}
        assert outcomes(bob, "orders") == {"TOPIC_AUTHORIZATION_FAILED"}
        for fault in (revoke_acl("alice", "WRITE", orders), rotate_credentials("alice"), rotate_certificate()):
            with pytest.raises(CapabilityError, match="'apache'"), kafka.chaos(fault):
                pass
        assert kafka.verify(orders, guarantee="no-loss").valid


@pytest.mark.parametrize(
    ("protocol", "reason"),
    [
        ("mtls", "Kafka takes a client's principal from its certificate"),
        ("sasl_ssl:OAUTHBEARER", "does not start Kafka"),
    ],
)
def test_what_kafka_cannot_have_is_refused_with_the_reason(tmp_path: Path, protocol: str, reason: str) -> None:
    clusters = KafkaClusters(find_kafka(str(JARS)))
    with (
        pytest.raises(CapabilityError, match=reason),
        Harrow(tmp_path / "run", seed=5, brokers=1, clusters=clusters, security=protocol) as kafka,
    ):
        kafka.topic("orders")
