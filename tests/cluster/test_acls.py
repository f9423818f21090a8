"""Clients under ACLs: admins change them, brokers follow, running clients gain and lose what they may do (A5)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import aiokafka
import aiokafka.errors
import pytest
from authorized_kafka import AUTHORIZER, Authorized, administered, allow, deny
from confluent_kafka import Consumer, KafkaError, KafkaException, Producer
from confluent_kafka import admin as admin_types
from confluent_kafka.admin import AdminClient
from harrow import Cluster
from harrow.cluster.authorizer import Operation, ResourceType
from harrow.cluster.errors import ErrorCode
from harrow.cluster.security.acls import Acl
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from waiting import until

TOPIC, GROUP, ID = ResourceType.TOPIC, ResourceType.GROUP, ResourceType.TRANSACTIONAL_ID
READ, WRITE = Operation.READ, Operation.WRITE
CREATE = allow(ResourceType.CLUSTER, Operation.CREATE)
WRITES = [allow(TOPIC, WRITE), allow(ID, WRITE), CREATE]
READS = [allow(TOPIC, READ), allow(GROUP, READ)]
ADMIN: Any = admin_types
ANY = (None, None, ADMIN.AclOperation.ANY, ADMIN.AclPermissionType.ANY)
EVERYTHING = ADMIN.AclBindingFilter(ADMIN.ResourceType.ANY, None, ADMIN.ResourcePatternType.ANY, *ANY)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"authorizer.class.name": AUTHORIZER}) as running:
        yield running


@pytest.fixture
def kafka(cluster: Cluster) -> Iterator[Authorized]:
    with ExitStack() as links:
        yield administered(cluster, links)


def give(cluster: Cluster, kafka: Authorized, *acls: Acl) -> None:
    """Makes these the only ACLs; returns when each broker decides by them."""
    kafka.give(*acls)
    for broker in cluster.brokers.values():
        with RawKafka(broker.listeners["BROKERS"].bind.port, client_id="broker-1") as admin, ExitStack() as links:
            other = Authorized(broker.port, admin, links)
            until(lambda: other.acls() == set(acls), "each broker has the ACLs")  # noqa: B023


def created(cluster: Cluster, kafka: Authorized, name: str) -> str:
    """Creates a topic as the administrator; returns when each broker knows it."""
    controller = cluster.brokers[kafka.admin.metadata().controller_id]
    with RawKafka(controller.listeners["BROKERS"].bind.port, client_id="broker-1") as admin:
        assert admin.create_topic(name, replication=3).error_code == 0
    for broker in cluster.brokers.values():
        with RawKafka(broker.listeners["BROKERS"].bind.port, client_id="broker-1") as link:
            until(lambda: link.metadata(name).topics[0].error_code == 0, f"each broker knows {name}")
    return name


def producer(cluster: Cluster, **settings: object) -> Any:
    return Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, **settings})


def produced(client: Any, topic: str, value: bytes = b"x") -> KafkaError | None:
    """Produces a record; returns its error."""
    reports: list[KafkaError | None] = []

    def add_report(error: KafkaError | None, _: object) -> None:
        reports.append(error)

    client.produce(topic, value, on_delivery=add_report)
    client.flush(30)
    (report,) = reports
    return report


# ---------------------------------------------------------------- administration


def test_an_admin_creates_describes_and_deletes_acls_which_survive_a_restart() -> None:
    config = {"authorizer.class.name": AUTHORIZER, "super.users": "User:ANONYMOUS"}
    with Cluster(brokers=3, config=config) as cluster:
        admin: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers})
        kinds, patterns = ADMIN.ResourceType, ADMIN.ResourcePatternType
        allowed = "User:alice", "*", ADMIN.AclOperation.READ, ADMIN.AclPermissionType.ALLOW
        bindings = [
            ADMIN.AclBinding(kinds.TOPIC, "t", patterns.LITERAL, *allowed),
            ADMIN.AclBinding(kinds.TOPIC, "team-", patterns.PREFIXED, *allowed),
            ADMIN.AclBinding(kinds.GROUP, "*", patterns.LITERAL, *allowed),
        ]
        for future in admin.create_acls(bindings).values():
            future.result(20)
        until(lambda: set(admin.describe_acls(EVERYTHING).result(20)) == set(bindings), "the broker has the ACLs")
        for broker in cluster.brokers.values():
            broker.restart()
            of_one: Any = AdminClient({"bootstrap.servers": f"127.0.0.1:{broker.port}"})
            assert set(of_one.describe_acls(EVERYTHING).result(20)) == set(bindings)
        of_topics = ADMIN.AclBindingFilter(kinds.TOPIC, "team-a", patterns.MATCH, *ANY)
        (removed,) = admin.delete_acls([of_topics]).values()
        assert removed.result(20) == bindings[1:2]


# --------------------------------------------------------------- running clients


def test_a_consumer_that_loses_read_has_an_error_and_goes_on_with_it_again(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "read-and-lost")
    give(cluster, kafka, *WRITES, *READS)
    writer = producer(cluster)
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, "log_level": 0}
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    reader.subscribe([topic])

    found: list[Any] = []

    def reads(value: bytes) -> bool:
        """Polls until the last message has this value; errors are kept."""
        message = reader.poll(0.2)
        if message is not None:
            error = message.error()
            found.append(message.value() if error is None else error.code())
        return found[-1:] == [value]

    assert produced(writer, topic, b"first") is None
    until(lambda: reads(b"first"))
    give(cluster, kafka, *WRITES, *READS, deny(TOPIC, READ, topic))
    until(lambda: reads(b"") or KafkaError.TOPIC_AUTHORIZATION_FAILED in found)
    assert produced(writer, topic, b"second") is None
    give(cluster, kafka, *WRITES, *READS)
    until(lambda: reads(b"second"))
    assert found == [b"first", KafkaError.TOPIC_AUTHORIZATION_FAILED, b"second"]
    reader.close()


def test_a_regular_expression_has_no_topics_that_the_consumer_may_not_describe(
    cluster: Cluster, kafka: Authorized
) -> None:
    seen, hidden = (created(cluster, kafka, f"matched-{name}") for name in ("seen", "hidden"))
    give(cluster, kafka, *READS, deny(TOPIC, Operation.DESCRIBE, hidden))
    settings = {"group.id": "by-regex", "group.protocol": "consumer", "log_level": 0}
    reader = Consumer({"bootstrap.servers": cluster.bootstrap_servers, **settings})
    reader.subscribe(["^matched-.*"])

    def assigned() -> set[str]:
        assert reader.poll(0.2) is None
        return {row.topic for row in reader.assignment()}

    assert until(assigned) == {seen}
    reader.close()


def test_a_transactional_producer_that_loses_write_on_a_topic_aborts_and_goes_on(
    cluster: Cluster, kafka: Authorized
) -> None:
    kept, lost = (created(cluster, kafka, name) for name in ("written", "lost"))
    give(cluster, kafka, *WRITES, deny(TOPIC, WRITE, lost))
    writer = producer(cluster, **{"transactional.id": "writer"})
    writer.init_transactions(30)
    writer.begin_transaction()
    assert produced(writer, kept) is None
    writer.produce(lost, b"x")
    with pytest.raises(KafkaException) as refused:
        writer.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert refused.value.args[0].txn_requires_abort()
    writer.abort_transaction(30)
    give(cluster, kafka, *WRITES)
    writer.begin_transaction()
    assert produced(writer, kept) is None
    assert produced(writer, lost) is None
    writer.commit_transaction(30)


def test_a_transactional_producer_that_loses_its_id_ends(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "id-lost")
    give(cluster, kafka, *WRITES)
    writer = producer(cluster, **{"transactional.id": "fatal"})
    writer.init_transactions(30)
    give(cluster, kafka, *WRITES, deny(ID, WRITE, "fatal"))
    writer.begin_transaction()
    writer.produce(topic, b"lost")
    with pytest.raises(KafkaException) as refused:
        writer.commit_transaction(30)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert refused.value.args[0].fatal()


def test_an_idempotent_producer_needs_write_on_any_topic(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "idempotent")
    give(cluster, kafka, allow(TOPIC, WRITE, topic))
    assert produced(producer(cluster, **{"enable.idempotence": True}), topic) is None
    give(cluster, kafka, allow(TOPIC, READ, topic))
    writer = producer(cluster, **{"enable.idempotence": True})
    with pytest.raises(KafkaException) as refused:
        until(lambda: writer.poll(0.1))
    assert refused.value.args[0].code() == KafkaError.CLUSTER_AUTHORIZATION_FAILED


def test_other_clients_are_refused_with_the_errors_of_kafka(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "of-aiokafka")
    give(cluster, kafka, allow(TOPIC, Operation.DESCRIBE))

    async def refused() -> list[type[Exception]]:
        found: list[type[Exception]] = []
        writer: Any = aiokafka.AIOKafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
        reader: Any = aiokafka.AIOKafkaConsumer(topic, bootstrap_servers=cluster.bootstrap_servers, group_id="denied")
        async with writer:
            try:
                await writer.send_and_wait(topic, b"x")
            except aiokafka.errors.KafkaError as error:
                found.append(type(error))
        try:
            await reader.start()
        except aiokafka.errors.KafkaError as error:
            found.append(type(error))
        await reader.stop()
        return found

    assert asyncio.run(refused()) == [
        aiokafka.errors.TopicAuthorizationFailedError,
        aiokafka.errors.GroupAuthorizationFailedError,
    ]


# --------------------------------------------------------------------- requests


def test_a_forwarded_request_is_decided_for_the_client_that_sent_it(cluster: Cluster, kafka: Authorized) -> None:
    """Each broker, the controller among them, decides for the client, its address included."""

    def codes(name: str) -> list[ErrorCode]:
        found: list[ErrorCode] = []
        for number, broker in cluster.brokers.items():
            with RawKafka(broker.port, client_id="forwarded") as link:
                found.append(link.create_topic(f"{name}-{number}").error_code)
        return found

    give(cluster, kafka, allow(TOPIC, Operation.CREATE, "elsewhere", prefixed=True, host="10.0.0.7"))
    assert codes("elsewhere") == [ErrorCode.topic_authorization_failed] * 3
    give(cluster, kafka, allow(TOPIC, Operation.CREATE, "here", prefixed=True, host="127.0.0.1"))
    assert codes("here") == [ErrorCode.none] * 3
    assert codes("there") == [ErrorCode.topic_authorization_failed] * 3


def test_a_topic_is_deleted_with_delete_and_not_named_without_describe(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "deleted")
    topic_id = kafka.admin.metadata(topic, version=12).topics[0].topic_id
    port = cluster.brokers[kafka.admin.metadata().controller_id].port

    def delete(name: str | None, of: Any) -> tuple[ErrorCode, str | None]:
        s = messages.schema(ApiKey.DELETE_TOPICS, 6, "request")
        rows = (s.DeleteTopicState(name=name, topic_id=of),)
        with RawKafka(port) as link:
            answer = link.ask(ApiKey.DELETE_TOPICS, 6, s.root(topics=rows, timeout=messages.milliseconds(20_000)))
        return answer.responses[0].error_code, answer.responses[0].name

    failed = ErrorCode.topic_authorization_failed
    give(cluster, kafka)
    assert delete(topic, None) == (failed, topic)
    assert delete("absent", None) == (failed, "absent")
    assert delete(None, topic_id) == (failed, None)
    give(cluster, kafka, allow(TOPIC, Operation.DESCRIBE))
    assert delete(topic, None) == (failed, topic)
    assert delete("absent", None) == (ErrorCode.unknown_topic_or_partition, "absent")
    assert delete(None, topic_id) == (failed, topic)
    give(cluster, kafka, allow(TOPIC, Operation.DELETE))
    assert delete(None, topic_id) == (ErrorCode.none, topic)


def test_authorized_operations_are_those_that_the_acls_allow(cluster: Cluster, kafka: Authorized) -> None:
    topic = created(cluster, kafka, "described")
    give(cluster, kafka, allow(TOPIC, READ, topic), allow(GROUP, Operation.DESCRIBE))
    s = messages.schema(ApiKey.METADATA, 9, "request")
    entity = s.root(
        topics=None,
        allow_auto_topic_creation=False,
        include_cluster_authorized_operations=True,
        include_topic_authorized_operations=True,
    )
    with RawKafka(cluster.brokers[1].port) as link:
        answer = link.ask(ApiKey.METADATA, 9, entity)
    (row,) = answer.topics  # the others are not described
    assert row.name == topic
    assert row.topic_authorized_operations == 1 << READ | 1 << Operation.DESCRIBE
    assert answer.cluster_authorized_operations == 0
