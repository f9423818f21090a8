"""Requests with edge values, that name something twice or name nothing, have the responses of Apache Kafka 4.2.

`make differential` found each of these cases.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import uuid4

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import NOW_MS, RawKafka, batch, fetch_request, produce_request
from raw_transactions import RETRIABLE, RawProducer, coordinator_of
from waiting import until

Code = ErrorCode
WAIT_MS = 20_000
LEAST = -(2**31)
Named = Sequence[tuple[str, Sequence[int]]]
Rows = list[tuple[str, list[tuple[int, int]]]]


def rows_of(topics: Iterable[Any], partitions: str, index: str, code: str) -> Rows:
    """Of each topic of a response the partitions with their errors; sorted, because Kafka's order is that of a hash."""
    return sorted(
        (topic.name, [(getattr(row, index), int(getattr(row, code))) for row in getattr(topic, partitions)])
        for topic in topics
    )


def list_offsets(raw: RawKafka, version: int, *topics: tuple[str, Any], replica: int = -1) -> Any:
    """ListOffsets; a topic's rows are (index, timestamp)."""
    rows = [
        {"name": name, "partitions": [{"partition_index": index, "timestamp": timestamp} for index, timestamp in asked]}
        for name, asked in topics
    ]
    return raw.ask(ApiKey.LIST_OFFSETS, version, replica_id=replica, topics=rows, timeout=WAIT_MS).topics


def test_only_minus_one_states_no_leader_epoch_except_in_a_fetch(kafka: Any) -> None:
    topic, raw = kafka.topic("epochs", 1, 2), kafka.raw(1)
    assert raw.produce(topic, 0, ["a"]).error_code is Code.none
    fenced = Code.fenced_leader_epoch
    for epoch, code in ((-1, Code.none), (-2, fenced), (LEAST, fenced)):
        assert raw.list_offset(topic, 0, -1, epoch=epoch).error_code is code, epoch
        assert raw.epoch_end(topic, 0, 0, current=epoch).error_code is code, epoch
        assert raw.fetch(topic, 0, 0, epoch=epoch).error_code is Code.none, epoch
    found = [raw.epoch_end(topic, 0, epoch) for epoch in (-1, -2, LEAST)]
    assert [(row.leader_epoch, row.end_offset) for row in found] == [(-1, -1), (-2, 0), (LEAST, 0)]


def test_list_offsets_refuses_timestamps_first_and_partitions_that_are_named_twice(kafka: Any) -> None:
    topic, raw = kafka.topic("listed", 1, 2), kafka.raw(1)

    def listed(version: int, *topics: tuple[str, Any], replica: int = -1) -> Rows:
        found = list_offsets(raw, version, *topics, replica=replica)
        return rows_of(found, "partitions", "partition_index", "error_code")

    for version, timestamp in ((1, -3), (6, -4), (7, -5), (10, -7)):
        asked = ("no-such-topic", [(0, timestamp)]), (topic, [(7, timestamp)])
        refused = int(Code.unsupported_version)
        expected: Rows = [(topic, [(7, refused)]), ("no-such-topic", [(0, refused)])]
        assert listed(version, *asked) == sorted(expected), version
    for version in (1, 2, 11):
        for twice in ([(topic, [(0, -1), (0, -2)])], [(topic, [(0, -1)]), (topic, [(0, -1)])]):
            assert listed(version, *twice) == [(topic, [(0, Code.invalid_request)])]
    assert listed(5, (topic, [])) == []
    assert listed(5, (topic, []), (topic, [(0, -1)])) == [(topic, [(0, 0)])]
    assert raw.produce(topic, 0, ["a"]).error_code is Code.none
    (found,) = list_offsets(raw, 10, (topic, [(0, -3)]), replica=0)
    assert [(row.error_code, row.offset) for row in found.partitions] == [(Code.none, 0)]


def test_a_fetch_reads_a_partition_once_as_it_is_named_last(kafka: Any) -> None:
    topic, raw = kafka.topic("read", 1, 2), kafka.raw(1)
    for value in ("a", "b"):
        assert raw.produce(topic, 0, [value]).error_code is Code.none
    for session in (-1, 0):
        first, last = (fetch_request(topic, 0, at, 12, session_epoch=session) for at in (9, 1))
        entity = dataclasses.replace(last, topics=(*first.topics, *last.topics))
        (found,) = raw.ask(ApiKey.FETCH, 12, entity).responses
        assert [(row.error_code, bool(row.records)) for row in found.partitions] == [(Code.none, True)]


def add(client: RawProducer, version: int, named: Named, *, verify: bool = False) -> Rows:
    """AddPartitionsToTxn in any version."""
    topics = [{"name": name, "partitions": rows} for name, rows in named]
    if version < 4:
        answer = client.coordinator.ask(
            ApiKey.ADD_PARTITIONS_TO_TXN,
            version,
            v3_and_below_transactional_id=client.name,
            v3_and_below_producer_id=client.producer_id,
            v3_and_below_producer_epoch=client.epoch,
            v3_and_below_topics=topics,
        )
        found = answer.results_by_topic_v3_and_below
    else:
        transaction = {
            "transactional_id": client.name,
            "producer_id": client.producer_id,
            "producer_epoch": client.epoch,
            "verify_only": verify,
            "topics": topics,
        }
        answer = client.coordinator.ask(ApiKey.ADD_PARTITIONS_TO_TXN, version, transactions=[transaction])
        found = answer.results_by_transaction[0].topic_results
    return rows_of(found, "results_by_partition", "partition_index", "partition_error_code")


def test_internal_topics_join_no_transaction_of_a_client_that_names_them(kafka: Any) -> None:
    topic = kafka.topic("beside", 1, 2)
    client = RawProducer(kafka.raw, f"internal-{uuid4().hex[:8]}", 1)
    client.init()
    refused, left = int(Code.topic_authorization_failed), int(Code.operation_not_attempted)
    for version in (0, 3):
        for internal in ("__consumer_offsets", "__transaction_state"):
            for index in (0, 999):
                assert add(client, version, [(internal, [index])]) == [(internal, [(index, refused)])]
        asked = [("__consumer_offsets", [0]), (topic, [0]), ("no-such-topic", [0])]
        assert add(client, version, asked) == sorted(
            [("__consumer_offsets", [(0, refused)]), (topic, [(0, left)]), ("no-such-topic", [(0, 3)])]
        )
    assert client.describe().topics == ()


@pytest.mark.parametrize("version", [3, 5])
def test_added_partitions_have_the_rows_of_the_request_and_refused_ones_a_row_each(kafka: Any, version: int) -> None:
    topic = kafka.topic("twice", 1, 2)
    client = RawProducer(kafka.raw, f"twice-{uuid4().hex[:8]}", 1)
    client.init()
    for epoch, code in ((client.epoch, Code.none), (7, Code.producer_fenced)):
        client.epoch = epoch
        assert add(client, version, [(topic, [0, 0])]) == [(topic, [(0, code), (0, code)])]
        assert add(client, version, [(topic, [0]), (topic, [0])]) == [(topic, [(0, code)])] * 2
        assert add(client, version, [(topic, [0]), ("no-such", [])]) == sorted(
            [(topic, [(0, int(code))]), ("no-such", [])]
        )
    unknown, left = int(Code.unknown_topic_or_partition), int(Code.operation_not_attempted)
    assert add(client, version, [("no-such", [0, 0])]) == [("no-such", [(0, unknown)])]
    assert add(client, version, [("no-such", [0]), (topic, [0, 0])]) == sorted(
        [("no-such", [(0, unknown)]), (topic, [(0, left)])]
    )
    assert add(client, version, [("no-such", [0]), (topic, [])]) == [("no-such", [(0, unknown)])]
    if version > 3:
        assert add(client, version, [(topic, [])], verify=True) == []


def test_markers_have_a_row_for_each_producer_and_partition(kafka: Any) -> None:
    topic, raw = kafka.topic("marked", 1, 2), kafka.raw(1)

    def marked(*markers: tuple[int, Named], epochs: Sequence[int] = (0, 0)) -> list[tuple[int, Rows]]:
        rows = tuple(
            {
                "producer_id": producer_id,
                "producer_epoch": epoch,
                "transaction_result": False,
                "coordinator_epoch": 0,
                "topics": tuple({"name": name, "partition_indexes": tuple(indexes)} for name, indexes in named),
            }
            for (producer_id, named), epoch in zip(markers, epochs, strict=False)
        )
        answer = raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=rows)
        return [
            (row.producer_id, rows_of(row.topics, "partitions", "partition_index", "error_code"))
            for row in answer.markers
        ]

    assert marked((5_000, [])) == []
    assert marked((5_000, [(topic, [])])) == []
    assert marked((5_000, []), (5_001, [(topic, [0])])) == [(5_001, [(topic, [(0, 0)])])]
    assert marked((5_002, [(topic, [0]), ("no-such", [])])) == [(5_002, [(topic, [(0, 0)])])]
    done, unknown = [(topic, [(0, 0)])], int(Code.unknown_topic_or_partition)
    assert marked((5_003, [(topic, [0])]), (5_003, [(topic, [0])])) == [(5_003, done)]
    assert marked((5_004, [(topic, [0])]), (5_004, [("no", [0])])) == [(5_004, [*done, ("no", [(0, unknown)])])]
    assert marked((5_005, [(topic, [9, 9]), (topic, [9])])) == [(5_005, [(topic, [(9, unknown)])])]
    # the second marker is refused at once; the first has its result later where a follower takes it
    single, refused = kafka.topic("marked-alone", 1), int(Code.invalid_producer_epoch)
    for name, code in ((topic, 0), (single, refused)):
        both = [(5_006, [(name, [0])])] * 2
        assert marked(*both, epochs=(1, 0)) == [(5_006, [(name, [(0, code)])])]


def test_names_that_no_topic_can_have_and_filters_that_are_named_twice(kafka: Any) -> None:
    raw = kafka.raw(1)
    names = ("", "a b", "x" * 250, "no-such-topic")
    topics = tuple({"name": name, "partition_indexes": (0,)} for name in names)
    answer = raw.ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=topics)
    found = {topic.name: int(topic.partitions[0].error_code) for topic in answer.topics}
    assert found == {"": 17, "a b": 17, "x" * 250: 17, "no-such-topic": 3}
    answer = raw.ask(ApiKey.LIST_TRANSACTIONS, 0, state_filters=("z", "a", "z"), producer_id_filters=())
    assert sorted(answer.unknown_state_filters) == ["a", "z"]


def test_a_log_dir_is_chosen_once_for_each_partition(kafka: Any) -> None:
    topic, raw = kafka.topic("folders", 1, 2), kafka.raw(1)

    def chosen(*named: tuple[str, Sequence[int]]) -> Rows:
        rows = tuple({"name": name, "partitions": tuple(rows)} for name, rows in named)
        dirs = tuple({"path": path, "topics": rows} for path in ("/not", "/there"))
        found = raw.ask(ApiKey.ALTER_REPLICA_LOG_DIRS, 2, dirs=dirs).results
        return sorted(
            (row.topic_name, [(part.partition_index, int(part.error_code)) for part in row.partitions]) for row in found
        )

    assert chosen((topic, [0, 0])) == [(topic, [(0, Code.log_dir_not_found)])]
    assert chosen((topic, [])) == []
    long, longer = "x" * 213, "x" * 214
    assert chosen((long, [0]), (longer, [0]), ("", [0])) == [
        ("", [(0, Code.log_dir_not_found)]),
        (long, [(0, Code.log_dir_not_found)]),
        (longer, [(0, Code.invalid_topic_exception)]),
    ]


def test_each_reassignment_of_a_partition_that_is_named_twice_has_its_own_result(kafka: Any) -> None:
    topic = kafka.topic("moved", 1, 2)

    def moved(*targets: Sequence[int] | None) -> list[int]:
        topics = [{"name": topic, "partitions": [{"partition_index": 0, "replicas": nodes} for nodes in targets]}]
        answer = kafka.raw(1).ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=topics, timeout=WAIT_MS)
        return [int(row.error_code) for row in answer.responses[0].partitions]

    none, bad = int(Code.no_reassignment_in_progress), int(Code.invalid_replica_assignment)
    assert moved(None, ()) == [none, bad]
    assert moved((), None) == [bad, none]
    assert moved(None, None) == [none, none]


@pytest.mark.parametrize("api", [ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS])
def test_settings_of_an_unknown_topic_are_checked_before_the_topic(kafka: Any, api: ApiKey) -> None:
    incremental = api is ApiKey.INCREMENTAL_ALTER_CONFIGS

    def altered(topic: str, name: str, value: str | None, operation: int = 0) -> int:
        given = {"config_operation": operation} if incremental else {}
        row = {"resource_type": 2, "resource_name": topic, "configs": [{"name": name, "value": value, **given}]}
        return int(kafka.raw(1).ask(api, 1, resources=[row]).responses[0].error_code)

    assert altered("no-such", "retention.ms", "1") == Code.unknown_topic_or_partition
    assert altered("no-such", "", "1") == Code.invalid_config
    assert altered("no-such", "not.a.setting", "1") == Code.invalid_config
    assert altered("no-such", "retention.ms", "x") == Code.invalid_config
    assert altered("no-such", "retention.ms", None) == Code.invalid_request
    assert altered("a b", "not.a.setting", "1") == Code.invalid_topic_exception
    if incremental:
        assert altered("no-such", "not.a.setting", None, 1) == Code.unknown_topic_or_partition
        assert altered("no-such", "retention.ms", "1", 2) == Code.invalid_config
        topic = kafka.topic("policy", 1, 2)
        assert altered(topic, "cleanup.policy", "delete", 3) == Code.none


def test_resources_without_settings_are_described(kafka: Any) -> None:
    def described(kind: int, name: str) -> tuple[int, list[tuple[str, str, int]]]:
        found = kafka.raw(1).settings(kind, name)
        return int(found.error_code), [(c.name, c.value, c.config_type) for c in found.configs]

    defaults = [("interval.ms", "300000", 3), ("match", "", 7), ("metrics", "", 7)]
    code, found = described(16, "any")
    assert (code, sorted(found)) == (0, defaults)
    assert described(16, "") == (42, [])
    assert described(8, "1")[0] == 0
    assert [described(8, name)[0] for name in ("", "2", "x")] == [42, 42, 42]


def test_a_quota_entity_has_the_last_name_of_each_type(kafka: Any) -> None:
    entity = tuple({"entity_type": "user", "entity_name": name} for name in ("a", "b"))
    answer = kafka.raw(1).ask(ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity}], validate_only=True)
    (found,) = answer.entries
    assert [(row.entity_type, row.entity_name) for row in found.entity] == [("user", "b")]


def test_illegal_acks_of_an_unknown_topic_are_unknown(kafka: Any) -> None:
    topic, raw = kafka.topic("acks", 1, 2), kafka.raw(1)
    assert raw.produce(topic, 0, ["a"], acks=99).error_code is Code.invalid_required_acks
    for name, index in (("no-such-topic", 0), ("", 0), (topic, 7)):
        found = raw.produce(name, index, ["a"], acks=99)
        assert found.error_code is Code.unknown_topic_or_partition, (name, index)


def test_a_batch_that_is_sent_again_has_its_own_time(kafka: Any) -> None:
    topic, raw = kafka.topic("again", 1, 2), kafka.raw(1)
    records = batch(["a"], producer_id=77, producer_epoch=0, base_sequence=0)
    found = [raw.produce(topic, 0, records) for _ in range(2)]
    assert [row.base_offset for row in found] == [0, 0]
    assert [row.log_append_time for row in found] == [None, messages.wall_time(NOW_MS)]


def test_a_list_that_may_not_be_null_closes_the_connection(kafka: Any) -> None:
    topic = kafka.topic("null", 1, 2)
    produced = messages.encode_request(ApiKey.PRODUCE, 9, produce_request(topic, 0, ["a"], -1, 1_000, 9))
    fetched = messages.encode_request(ApiKey.FETCH, 12, fetch_request(topic, 0, 0, 12))
    name = topic.encode()
    null_topics = produced[:7] + b"\0\0"  # transactional id, acks, timeout; no topics, no tags
    null_partitions = produced[: produced.index(name) + len(name)] + b"\0\0\0"
    for api, version, body in (
        (ApiKey.PRODUCE, 9, null_topics),
        (ApiKey.PRODUCE, 9, null_partitions),
        (ApiKey.FETCH, 12, fetched[:25] + b"\0\1\1\0"),
        (ApiKey.FETCH, 12, fetched[:25] + b"\1\0\1\0"),
    ):
        raw = kafka.raw(1)
        raw.send_body(api, version, body)
        with pytest.raises(ConnectionError):
            raw.take()


def test_rows_that_are_refused_before_a_read_have_an_empty_list_of_aborted_transactions(kafka: Any) -> None:
    topic = kafka.topic("aborted", 1, 2)

    def aborted(raw: RawKafka, name: str, index: int, *, epoch: int = -1) -> Any:
        entity = fetch_request(name, index, 0, 12, epoch=epoch)
        (found,) = raw.ask(ApiKey.FETCH, 12, entity).responses
        (row,) = found.partitions
        return row.error_code, row.aborted_transactions

    leader, other = kafka.raw(1), kafka.raw(3)
    unknown = Code.unknown_topic_or_partition
    assert aborted(leader, "no-such-topic", 0) == (unknown, ())
    assert aborted(leader, topic, 7) == (unknown, ())
    assert aborted(leader, topic, 0) == (Code.none, None)
    assert aborted(leader, topic, 0, epoch=9) == (Code.unknown_leader_epoch, None)
    assert aborted(other, topic, 0) == (Code.not_leader_or_follower, None)


def test_markers_without_a_producer_are_refused(kafka: Any) -> None:
    """Apache Kafka fails with an exception (-1)."""
    topic, raw = kafka.topic("no-producer", 1, 2), kafka.raw(1)

    def marked(producer_id: int, epoch: int) -> int:
        topics = ({"name": topic, "partition_indexes": (0,)},)
        marker = {
            "producer_id": producer_id,
            "producer_epoch": epoch,
            "transaction_result": False,
            "coordinator_epoch": 0,
            "topics": topics,
        }
        answer = raw.ask(ApiKey.WRITE_TXN_MARKERS, 1, markers=(marker,))
        return int(answer.markers[0].topics[0].partitions[0].error_code)

    is_harrow = kafka.name == "harrow"
    assert marked(-1, 0) == (Code.invalid_producer_id_mapping if is_harrow else -1)
    assert marked(6_000, -1) == (Code.invalid_producer_epoch if is_harrow else -1)
    assert marked(-2, 0) == Code.none


def test_a_member_has_the_group_instance_id_in_its_id_also_an_empty_one(kafka: Any) -> None:
    group = f"instances-{uuid4().hex[:8]}"
    raw = kafka.raw(1)
    protocol = {"name": "range", "metadata": b""}
    coordinator = kafka.raw(coordinator_of(raw, group, kind=0))

    def joined() -> Any:
        answer = coordinator.ask(
            ApiKey.JOIN_GROUP,
            7,
            group_id=group,
            session_timeout=WAIT_MS,
            rebalance_timeout=WAIT_MS,
            member_id="",
            group_instance_id="",
            protocol_type="consumer",
            protocols=(protocol,),
        )
        return None if answer.error_code in RETRIABLE else answer

    assert until(joined, "the coordinator is ready").member_id.startswith("-")


def test_settings_of_a_new_topic_are_returned_as_they_were_given(kafka: Any) -> None:
    given = {"cleanup.policy": "delete, compact", "retention.ms": "+5"}
    configs = tuple({"name": name, "value": text} for name, text in given.items())
    row = {"name": "as-given", "num_partitions": 1, "replication_factor": 1, "assignments": (), "configs": configs}
    (found,) = kafka.raw(1).ask(ApiKey.CREATE_TOPICS, 7, topics=(row,), timeout=WAIT_MS, validate_only=True).topics
    assert {each.name: each.value for each in found.configs if each.name in given} == given


def test_added_partitions_are_counted_before_they_are_placed(kafka: Any) -> None:
    topic = kafka.topic("more", 1, 2)

    def added(count: int, *names: str, wait_ms: int = WAIT_MS) -> list[int]:
        rows = [{"name": name, "count": count, "assignments": [{"broker_ids": (2, 3)}]} for name in names]
        answer = kafka.raw(1).ask(ApiKey.CREATE_PARTITIONS, 3, topics=rows, timeout=wait_ms, validate_only=True)
        return [int(row.error_code) for row in answer.results]

    assert added(2, topic) == [Code.none]
    assert added(2**31 - 1, topic) == [Code.policy_violation]
    assert added(5_000, topic) == [Code.invalid_replica_assignment]
    assert added(2, topic, topic, wait_ms=-1) == [Code.invalid_request]


def test_requests_without_time_are_served_when_they_are_refused_as_they_are(kafka: Any) -> None:
    raw, topic = kafka.raw(1), kafka.topic("timeless", 1, 2)
    row = {"name": "twice", "num_partitions": 1, "replication_factor": 1}
    (found,) = raw.ask(ApiKey.CREATE_TOPICS, 7, topics=[row, row], timeout=-1).topics
    assert found.error_code is Code.invalid_request
    both = {"name": topic, "topic_id": uuid4()}
    rows = (both, both, {"name": None, "topic_id": None})
    answer = raw.ask(ApiKey.DELETE_TOPICS, 6, topics=rows, timeout=-1)
    assert [found.error_code for found in answer.responses] == [Code.invalid_request] * 3
    for wait_ms in (-1, WAIT_MS):
        answer = raw.ask(ApiKey.ELECT_LEADERS, 2, election_type=8, topic_partitions=(), timeout=wait_ms)
        assert answer.error_code is Code.none
    answer = raw.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 1, topics=(), timeout=-1)
    assert answer.error_code is Code.none


@pytest.mark.parametrize("epoch", [1, 2**31 - 2, -7])
def test_a_client_that_names_a_replica_has_no_session_to_continue(kafka: Any, epoch: int) -> None:
    topic = kafka.topic("as-a-replica", 1, 2)
    asked = dataclasses.replace(fetch_request(topic, 0, 0, 7, session_epoch=epoch), replica_id=1)
    with kafka.raw(1) as raw:
        answer = raw.ask(ApiKey.FETCH, 7, asked)
        assert (answer.error_code, answer.responses) == (Code.fetch_session_id_not_found, ())
