"""Transactions of confluent-kafka on real brokers: commit, abort, isolation, offsets, fencing (F2 to F6)."""

from __future__ import annotations

from uuid import uuid4

import pytest
from confluent_kafka import KafkaError, KafkaException, TopicPartition
from harrow import Harrow
from transactional_clients import TIMEOUT_S, committed_offset, consumer_of, read_both, send, transactional_producer

pytestmark = pytest.mark.harrow(scope="session")


def unique(name: str) -> str:
    return f"{name}-{uuid4().hex[:6]}"


def test_a_committed_transaction_is_read_whole_and_an_aborted_one_not_at_all(harrow: Harrow) -> None:
    topic = harrow.topic("both", partitions=3).name
    producer = transactional_producer(harrow.bootstrap_servers)
    producer.init_transactions(TIMEOUT_S)
    for number in range(4):
        producer.begin_transaction()
        for partition in range(3):
            send(producer, topic, f"{number}-{partition}", partition=partition)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    committed, everything = read_both(harrow.bootstrap_servers, topic, partitions=3)
    assert sorted(committed) == ["0-0", "0-1", "0-2", "2-0", "2-1", "2-2"]
    assert len(everything) == 12


def test_records_of_an_open_transaction_hold_back_readers_of_committed_data(harrow: Harrow) -> None:
    topic = harrow.topic("open", partitions=1).name
    servers = harrow.bootstrap_servers
    first, second = transactional_producer(servers), transactional_producer(servers)
    for producer in (first, second):
        producer.init_transactions(TIMEOUT_S)
        producer.begin_transaction()
    send(first, topic, "first")
    send(second, topic, "second")
    second.commit_transaction(TIMEOUT_S)
    held_back = read_both(servers, topic, ended=False)
    assert held_back == ([], ["first", "second"]), "the LSO is before `first`"
    first.commit_transaction(TIMEOUT_S)
    assert read_both(servers, topic) == (["first", "second"], ["first", "second"])


def test_a_new_producer_with_the_transactional_id_aborts_and_fences_the_old_one(harrow: Harrow) -> None:
    topic = harrow.topic("zombies", partitions=1).name
    servers, name = harrow.bootstrap_servers, unique("zombie")
    zombie = transactional_producer(servers, name)
    zombie.init_transactions(TIMEOUT_S)
    zombie.begin_transaction()
    send(zombie, topic, "of the zombie")
    heir = transactional_producer(servers, name)
    heir.init_transactions(TIMEOUT_S)
    with pytest.raises(KafkaException) as refusal:
        zombie.commit_transaction(TIMEOUT_S)
    assert refusal.value.args[0].code() == KafkaError._FENCED
    heir.begin_transaction()
    send(heir, topic, "of the heir")
    heir.commit_transaction(TIMEOUT_S)
    assert read_both(servers, topic) == (["of the heir"], ["of the zombie", "of the heir"])


def test_offsets_of_a_transaction_are_valid_with_its_commit_and_only_then(harrow: Harrow) -> None:
    servers, group = harrow.bootstrap_servers, unique("group")
    source, sink = (harrow.topic(name, partitions=1).name for name in ("source", "sink"))
    producer = transactional_producer(servers)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, source, "a", "b", "c")
    producer.commit_transaction(TIMEOUT_S)
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([source])
        taken = consumer.consume(3, TIMEOUT_S)
        assert [message.value() for message in taken] == [b"a", b"b", b"c"]
        for commit, offset in ((False, 2), (True, 3)):
            producer.begin_transaction()
            send(producer, sink, f"up to {offset}")
            positions = [TopicPartition(source, 0, offset)]
            metadata = consumer.consumer_group_metadata()
            producer.send_offsets_to_transaction(positions, metadata, TIMEOUT_S)
            if commit:
                producer.commit_transaction(TIMEOUT_S)
            else:
                producer.abort_transaction(TIMEOUT_S)
                assert committed_offset(servers, group, source) < 0
    assert committed_offset(servers, group, source) == 3
    assert read_both(servers, sink)[0] == ["up to 3"]


def test_a_member_of_an_older_generation_cannot_commit_offsets_in_a_transaction(harrow: Harrow) -> None:
    servers, group = harrow.bootstrap_servers, unique("generations")
    source = harrow.topic("generations", partitions=1).name
    producer = transactional_producer(servers)
    producer.init_transactions(TIMEOUT_S)
    producer.begin_transaction()
    send(producer, source, "a")
    producer.commit_transaction(TIMEOUT_S)
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([source])
        assert consumer.consume(1, TIMEOUT_S)
        stale = consumer.consumer_group_metadata()
    with consumer_of(servers, group) as consumer:
        consumer.subscribe([source])
        assert consumer.consume(1, TIMEOUT_S), "the next member reads the record again"
        producer.begin_transaction()
        with pytest.raises(KafkaException):
            producer.send_offsets_to_transaction([TopicPartition(source, 0, 1)], stale, TIMEOUT_S)
        producer.abort_transaction(TIMEOUT_S)
    assert committed_offset(servers, group, source) < 0


def test_a_transaction_timeout_above_the_brokers_maximum_is_refused(harrow: Harrow) -> None:
    producer = transactional_producer(harrow.bootstrap_servers, transaction_timeout_ms=900_001)
    with pytest.raises(KafkaException) as refusal:
        producer.init_transactions(TIMEOUT_S)
    assert refusal.value.args[0].code() == KafkaError.INVALID_TRANSACTION_TIMEOUT
