"""Transactions on the wire are those of Apache Kafka 4.2: errors, epochs, isolation, descriptions (F2, F4, F5, F6)."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from raw_transactions import RawProducer, coordinator_of
from waiting import until

Code = ErrorCode


def producer(kafka: Any, name: str = "") -> RawProducer:
    return RawProducer(kafka.raw, name or f"conform-{uuid4().hex[:8]}", min(kafka.ports))


def fetch(raw: RawKafka, topic: str, isolation: int) -> Any:
    return raw.fetch(topic, 0, 0, isolation=isolation)


def state_of(row: Any) -> tuple[Any, ...]:
    return row.error_code, row.transaction_state, row.producer_epoch


def test_finalized_features_announce_transaction_version_2(kafka: Any) -> None:
    answer = kafka.raw().ask(ApiKey.API_VERSIONS, 3, client_software_name="raw", client_software_version="1")
    levels = {row.name: (row.min_version_level, row.max_version_level) for row in answer.finalized_features}
    assert levels["transaction.version"] == (2, 2)
    assert answer.finalized_features_epoch >= 0


def test_a_transaction_of_version_1_keeps_its_epoch(kafka: Any) -> None:
    topic = kafka.topic("version-1", 1, 2)
    client, leader = producer(kafka), kafka.raw(1)
    assert state_of(client.describe()) == (Code.transactional_id_not_found, "", 0)
    client.init()
    assert state_of(client.describe()) == (Code.none, "Empty", 0)
    assert client.ask_end(commit=True, version=4).error_code is Code.invalid_txn_state
    assert client.produce(leader, topic, "early").error_code is Code.transaction_abortable
    assert client.add(topic) is Code.none
    assert client.produce(leader, topic, "a").error_code is Code.none
    row = client.describe()
    assert state_of(row) == (Code.none, "Ongoing", 0)
    assert [(found.topic, found.partitions) for found in row.topics] == [(topic, (0,))]
    held = fetch(leader, topic, 1)
    assert (held.last_stable_offset, held.high_watermark, held.records or b"") == (0, 1, b"")
    assert client.end(commit=True, version=4).error_code is Code.none
    assert state_of(client.await_state("CompleteCommit")) == (Code.none, "CompleteCommit", 0)
    until(lambda: fetch(leader, topic, 1).last_stable_offset == 2, "the marker is stable")
    assert client.ask_end(commit=True, version=4).error_code is Code.none
    assert client.ask_end(commit=False, version=4).error_code is Code.invalid_txn_state


@pytest.mark.parametrize("version", [4, 5])
def test_a_client_may_add_partitions_as_brokers_do(kafka: Any, version: int) -> None:
    """@platformatic/kafka takes the highest version that the broker advertises."""
    topic = kafka.topic("added", 1, 2)
    client, leader = producer(kafka), kafka.raw(1)
    client.init()
    missing = {"no-such-topic": [0], topic: [0]}
    assert sorted(client.add_many(version, **missing)) == [
        (topic, [(0, Code.operation_not_attempted)]),
        ("no-such-topic", [(0, Code.unknown_topic_or_partition)]),
    ]
    assert client.add_many(version) == []
    assert client.add_many(version, **{topic: ()}) == [(topic, [])]
    assert client.add_many(version, **{topic: [0]}) == [(topic, [(0, Code.none)])]
    assert [(row.topic, row.partitions) for row in client.describe().topics] == [(topic, (0,))]
    assert client.produce(leader, topic, "a").error_code is Code.none
    zombie = producer(kafka, client.name)
    zombie.producer_id, zombie.epoch = client.producer_id, client.epoch + 7
    assert zombie.add_many(version, **{topic: [0]}) == [(topic, [(0, Code.producer_fenced)])]
    zombie.producer_id += 10_000
    assert zombie.add_many(version, **{topic: [0]}) == [(topic, [(0, Code.invalid_producer_id_mapping)])]
    assert client.end(commit=True).error_code is Code.none
    until(lambda: fetch(leader, topic, 1).last_stable_offset == 2, "the marker is stable")


def test_a_transaction_of_version_2_raises_the_epoch_at_each_end(kafka: Any) -> None:
    topic = kafka.topic("version-2", 1, 2)
    client, leader = producer(kafka), kafka.raw(1)
    client.init()
    for number, commit in enumerate((True, False, True)):
        assert client.produce(leader, topic, str(number), version=12).error_code is Code.none
        before = (client.producer_id, client.epoch)
        assert client.end(commit=commit).error_code is Code.none
        assert (client.producer_id, client.epoch) == (before[0], before[1] + 1)
        client.await_state("CompleteCommit", "CompleteAbort")
    assert client.epoch == 3
    until(lambda: fetch(leader, topic, 1).last_stable_offset == 6, "three records, three markers")
    # the times of these records make each of them a segment, and a read ends with its segment
    aborted = leader.fetch(topic, 0, 2, isolation=1).aborted_transactions
    assert [(row.producer_id, row.first_offset) for row in aborted] == [(client.producer_id, 2)]
    assert not fetch(leader, topic, 0).aborted_transactions


def test_a_batch_that_the_log_refuses_for_its_epoch_has_not_joined_a_transaction(kafka: Any) -> None:
    topic = kafka.topic("old-epoch", 1, 2)
    client, leader = producer(kafka), kafka.raw(1)
    client.init()
    later = client.batch(["later"], producer_epoch=9, is_transactional=False)
    assert leader.produce(topic, 0, later).error_code is Code.none
    for version in (12, 11):
        refused = client.produce(leader, topic, "a", version=version)
        assert refused.error_code is Code.invalid_producer_epoch
        row = client.describe()
        assert (row.transaction_state, tuple(row.topics)) == ("Empty", ())
    assert fetch(leader, topic, 0).high_watermark == 1, "no record and no marker"


def test_ending_a_transaction_again_gives_the_errors_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("ends", 1)
    client, leader = producer(kafka), kafka.raw(1)
    client.init()
    assert client.ask_end(commit=True).error_code is Code.invalid_txn_state, "Empty, commit"
    assert client.end(commit=False).error_code is Code.none, "Empty, abort: the epoch rises"
    assert client.await_state("CompleteAbort").producer_epoch == 1
    assert client.ask_end(commit=True).error_code is Code.invalid_txn_state
    retried = client.ask_end(commit=False, epoch=0)
    assert (retried.error_code, retried.producer_epoch) == (Code.none, 1)
    assert client.ask_end(commit=True, epoch=0).error_code is Code.invalid_txn_state
    assert client.produce(leader, topic, "a", version=12).error_code is Code.none
    assert client.ask_end(commit=True, epoch=0).error_code is Code.producer_fenced
    assert client.ask_end(commit=True, epoch=7).error_code is Code.producer_fenced
    assert client.end(commit=True).error_code is Code.none
    client.await_state("CompleteCommit")
    retried = client.ask_end(commit=True, epoch=1)
    assert (retried.error_code, retried.producer_epoch) == (Code.none, 2)
    assert client.ask_end(commit=False, epoch=1).error_code is Code.invalid_txn_state
    assert client.ask_end(commit=True, epoch=0).error_code is Code.producer_fenced
    client.producer_id += 10_000
    assert client.ask_end(commit=True).error_code is Code.invalid_producer_id_mapping


def test_a_new_producer_fences_an_open_transaction_with_one_epoch_for_its_abort(kafka: Any) -> None:
    topic = kafka.topic("fenced", 1, 2)
    zombie, leader = producer(kafka), kafka.raw(1)
    zombie.init()
    assert zombie.produce(leader, topic, "zombie", version=12).error_code is Code.none
    heir = producer(kafka, zombie.name)
    assert heir.ask_init().error_code is Code.concurrent_transactions
    assert heir.init().error_code is Code.none
    assert (heir.producer_id, heir.epoch) == (zombie.producer_id, 2)
    assert zombie.produce(leader, topic, "late", version=12).error_code is Code.invalid_producer_epoch
    assert zombie.ask_end(commit=True).error_code is Code.producer_fenced
    assert zombie.ask_end(commit=True, version=1).error_code is Code.invalid_producer_epoch
    assert zombie.add(topic) is Code.producer_fenced
    assert zombie.add(topic, version=1) is Code.invalid_producer_epoch
    assert zombie.ask_init(zombie.producer_id, zombie.epoch).error_code is Code.producer_fenced
    assert zombie.add_offsets("a-group") is Code.producer_fenced


def test_a_producer_that_continues_after_an_error_gets_the_next_epoch(kafka: Any) -> None:
    client = producer(kafka)
    client.init()
    first = client.ask_init(client.producer_id, 0)
    assert (first.error_code, first.producer_epoch) == (Code.none, 1)
    again = client.ask_init(client.producer_id, 0)
    assert (again.error_code, again.producer_epoch) == (Code.none, 1), "the response was lost"
    assert client.ask_init(client.producer_id + 9_999, 1).error_code is Code.producer_fenced
    assert client.ask_init(client.producer_id, 30_000).error_code is Code.producer_fenced
    assert client.ask_init(timeout_ms=900_001).error_code is Code.invalid_transaction_timeout
    assert client.ask_init(timeout_ms=0).error_code is Code.invalid_transaction_timeout
    assert client.ask_init(name="").error_code is Code.invalid_request


def test_adding_unknown_partitions_adds_nothing(kafka: Any) -> None:
    client = producer(kafka)
    assert client.add("nowhere") is Code.unknown_topic_or_partition
    topic = kafka.topic("known", 1)
    assert client.add(topic) is Code.invalid_producer_id_mapping
    client.init()
    assert client.add(topic, 0, 5) is Code.operation_not_attempted
    assert client.describe().transaction_state == "Empty"


def test_listing_transactions_filters_as_kafka(kafka: Any) -> None:
    client = producer(kafka)
    client.init()

    def listed(version: int = 2, **filters: Any) -> Any:
        return client.coordinator.ask(ApiKey.LIST_TRANSACTIONS, version, **filters)

    def names(answer: Any) -> set[str]:
        return {row.transactional_id for row in answer.transaction_states}

    mine = {"producer_id_filters": (client.producer_id,)}
    assert names(listed(0, **mine)) == {client.name}
    assert names(listed(0, state_filters=("Empty",), **mine)) == {client.name}
    assert not names(listed(0, state_filters=("Ongoing",), **mine))
    odd = listed(0, state_filters=("Odd", "Empty"), **mine)
    assert (odd.unknown_state_filters, names(odd)) == (("Odd",), {client.name})
    assert names(listed(1, duration_filter=1_000, **mine)) == {client.name}, "no start: very old"
    assert names(listed(2, transactional_id_pattern=f"{client.name[:-2]}.*")) == {client.name}
    assert not names(listed(2, transactional_id_pattern=client.name[:-1], **mine))
    bad = listed(2, transactional_id_pattern="(")
    assert bad.error_code is Code.invalid_regular_expression


def test_offsets_in_a_transaction_are_unstable_until_its_marker(kafka: Any) -> None:
    topic = kafka.topic("positions", 1)
    client, group = producer(kafka), f"group-{uuid4().hex[:8]}"
    client.init()
    home = kafka.raw(coordinator_of(kafka.raw(), group, 0))

    def commit(offset: int, version: int, generation: int = -1) -> ErrorCode:
        row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": ""}
        answer = home.ask(
            ApiKey.TXN_OFFSET_COMMIT,
            version,
            transactional_id=client.name,
            group_id=group,
            producer_id=client.producer_id,
            producer_epoch=client.epoch,
            generation_id=generation,
            topics=({"name": topic, "partitions": (row,)},),
        )
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    def fetched(*, stable: bool) -> tuple[ErrorCode, int]:
        topics = [{"name": topic, "partition_indexes": [0]}]
        answer = home.ask(ApiKey.OFFSET_FETCH, 7, group_id=group, topics=topics, require_stable=stable)
        row = answer.topics[0].partitions[0]
        return row.error_code, row.committed_offset

    until(lambda: commit(5, 4) is Code.transaction_abortable, "the partition was not added")
    assert commit(5, 3) is Code.invalid_txn_state
    assert client.add_offsets(group) is Code.none
    until(lambda: commit(5, 3, generation=3) is Code.illegal_generation, "the group is loaded")
    assert commit(5, 3) is Code.none
    assert fetched(stable=True) == (Code.unstable_offset_commit, -1)
    assert fetched(stable=False) == (Code.none, -1)
    assert client.end(commit=True).error_code is Code.none
    until(lambda: fetched(stable=True) == (Code.none, 5), "the offset is valid")
    client.await_state("CompleteCommit")
    assert commit(9, 5) is Code.none, "from v5 on the group coordinator adds the partition"
    assert fetched(stable=True) == (Code.unstable_offset_commit, -1)
    assert fetched(stable=False) == (Code.none, 5)
    assert client.end(commit=False).error_code is Code.none
    until(lambda: fetched(stable=True) == (Code.none, 5), "the offset of before")


def test_describing_producers_shows_the_open_transaction(kafka: Any) -> None:
    topic = kafka.topic("described", 1, 2)
    client, leader = producer(kafka), kafka.raw(1)
    client.init()
    assert client.produce(leader, topic, "a", "b", version=12).error_code is Code.none

    def described(raw: RawKafka) -> Any:
        answer = raw.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=[{"name": topic, "partition_indexes": [0]}])
        return answer.topics[0].partitions[0]

    (row,) = described(leader).active_producers
    shown = (row.producer_id, row.producer_epoch, row.last_sequence, row.coordinator_epoch)
    assert shown == (client.producer_id, 0, 1, -1)
    assert row.current_txn_start_offset == 0
    assert described(kafka.raw(2)).error_code is Code.none, "a follower describes its own log"
    assert described(kafka.raw(3)).error_code is Code.not_leader_or_follower
    assert client.end(commit=True).error_code is Code.none
    client.await_state("CompleteCommit")
    (row,) = described(leader).active_producers
    assert (row.producer_epoch, row.current_txn_start_offset) == (1, -1)
