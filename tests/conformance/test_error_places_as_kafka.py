"""Errors are at the place of a response where the table of faults has them, on our brokers and on Apache Kafka (K2).

Each request is wrong in one way. The error fields of its response are those of the response that `refuse_request` would
make of the same request with the same error.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.refusals import refusal_bytes
from message_samples import errors_in
from raw_kafka import fetch_request

Code = ErrorCode


class Wrong(NamedTuple):
    """A request with an error."""

    api: ApiKey
    version: int
    code: ErrorCode
    entity: Any


def request(api: ApiKey, version: int) -> Any:
    return messages.schema(api, version, "request")


def of_partition(api: ApiKey, version: int, topic: str, part: str, **fields: Any) -> Any:
    """A request for partition 7 of a topic that does not exist; `part` is the class of the partition, or empty."""
    s = request(api, version)
    lists = {"topics": next(n for n in ("ListOffsetsTopic", "OffsetForLeaderTopic", "DeleteRecordsTopic",
             "TopicRequest", "OffsetDeleteRequestTopic") if getattr(s, n, None) is not None)}  # fmt: skip
    rows = (getattr(s, part)(**fields),) if part else (7,)
    name = {"name": topic, "topic": topic, "partitions": rows, "partition_indexes": rows}
    return (getattr(s, lists["topics"])(**name),)


def of_topics() -> list[Wrong]:
    none = "no-such-topic"
    wrong = [
        Wrong(ApiKey.LIST_OFFSETS, v, Code.unknown_topic_or_partition, request(ApiKey.LIST_OFFSETS, v).root(
            replica_id=-1, topics=of_partition(
                ApiKey.LIST_OFFSETS, v, none, "ListOffsetsPartition", partition_index=7, timestamp=-1)))
        for v in (1, 6, 8)
    ]  # fmt: skip
    wrong += [
        Wrong(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, Code.unknown_topic_or_partition,
              request(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4).root(replica_id=-1, topics=of_partition(
                  ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, none, "OffsetForLeaderPartition", partition=7,
                  current_leader_epoch=-1, leader_epoch=0))),
        Wrong(ApiKey.DELETE_RECORDS, 2, Code.unknown_topic_or_partition, request(ApiKey.DELETE_RECORDS, 2).root(
            timeout=messages.milliseconds(2000), topics=of_partition(
                ApiKey.DELETE_RECORDS, 2, none, "DeleteRecordsPartition", partition_index=7, offset=0))),
        Wrong(ApiKey.DESCRIBE_PRODUCERS, 0, Code.unknown_topic_or_partition,
              request(ApiKey.DESCRIBE_PRODUCERS, 0).root(topics=of_partition(
                  ApiKey.DESCRIBE_PRODUCERS, 0, none, ""))),
        *(
            Wrong(ApiKey.FETCH, v, Code.unknown_topic_or_partition, fetch_request(none, 7, 0, v))
            for v in (4, 6, 7, 11, 12)
        ),
        *(
            Wrong(ApiKey.FETCH, v, Code.fetch_session_id_not_found, fetch_request(
                none, 7, 0, v, session_id=123456, session_epoch=3))
            for v in (7, 12)
        ),
        *(
            Wrong(ApiKey.DELETE_TOPICS, v, Code.unknown_topic_or_partition, request(ApiKey.DELETE_TOPICS, v).root(
                topic_names=(none,), timeout=messages.milliseconds(2000)))
            for v in (1, 5)
        ),
    ]  # fmt: skip
    return wrong


def of_groups(topic: str) -> list[Wrong]:
    group = "no-such-group"
    heartbeat, commit = request(ApiKey.HEARTBEAT, 4), request(ApiKey.OFFSET_COMMIT, 8)
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_leader_epoch=-1)
    member = request(ApiKey.LEAVE_GROUP, 5).MemberIdentity(member_id="absent")
    return [
        Wrong(ApiKey.HEARTBEAT, 4, Code.unknown_member_id, heartbeat.root(
            group_id=group, member_id="absent", generation_id=3)),
        Wrong(ApiKey.OFFSET_COMMIT, 8, Code.illegal_generation, commit.root(
            group_id=group, member_id="absent", generation_id_or_member_epoch=3,
            topics=(commit.OffsetCommitRequestTopic(name=topic, partitions=(row,)),))),
        Wrong(ApiKey.LEAVE_GROUP, 2, Code.unknown_member_id, request(ApiKey.LEAVE_GROUP, 2).root(
            group_id=group, member_id="absent")),
        Wrong(ApiKey.LEAVE_GROUP, 5, Code.unknown_member_id, request(ApiKey.LEAVE_GROUP, 5).root(
            group_id=group, members=(member,))),
        Wrong(ApiKey.DESCRIBE_GROUPS, 6, Code.group_id_not_found, request(ApiKey.DESCRIBE_GROUPS, 6).root(
            groups=(group,))),
        Wrong(ApiKey.DELETE_GROUPS, 2, Code.group_id_not_found, request(ApiKey.DELETE_GROUPS, 2).root(
            groups_names=(group,))),
        Wrong(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, Code.group_id_not_found,
              request(ApiKey.CONSUMER_GROUP_DESCRIBE, 1).root(group_ids=(group,))),
    ]  # fmt: skip


def of_transactions(topic: str) -> list[Wrong]:
    pid: dict[str, Any] = {"transactional_id": "no-such-id", "producer_id": 7_000_000, "producer_epoch": 0}
    added = request(ApiKey.ADD_PARTITIONS_TO_TXN, 3)
    topics = (added.AddPartitionsToTxnTopic(name=topic, partitions=(0,)),)
    return [
        Wrong(ApiKey.END_TXN, 3, Code.invalid_producer_id_mapping, request(ApiKey.END_TXN, 3).root(
            **pid, committed=True)),
        Wrong(ApiKey.ADD_OFFSETS_TO_TXN, 3, Code.invalid_producer_id_mapping,
              request(ApiKey.ADD_OFFSETS_TO_TXN, 3).root(**pid, group_id="g")),
        Wrong(ApiKey.ADD_PARTITIONS_TO_TXN, 3, Code.invalid_producer_id_mapping, added.root(
            **{f"v3_and_below_{name}": value for name, value in pid.items()}, v3_and_below_topics=topics)),
        Wrong(ApiKey.DESCRIBE_TRANSACTIONS, 0, Code.transactional_id_not_found,
              request(ApiKey.DESCRIBE_TRANSACTIONS, 0).root(transactional_ids=("no-such-id",))),
    ]  # fmt: skip


def errors(wrong: Wrong, response: Any) -> dict[str, ErrorCode]:
    return {path: code for path, code in errors_in(response).items() if code is not Code.none}


def expected(wrong: Wrong) -> dict[str, ErrorCode]:
    """The errors of the response that a fault makes."""
    api, version, code, entity = wrong
    frame = messages.encode(messages.request_writer(api, version), entity)
    body = refusal_bytes(api, version, frame, 0, code)
    return errors(wrong, messages.decode_response(api, version, body))


def find(kafka: Any, key: str, kind: int) -> int:
    """The coordinator of a group or of a transactional id."""
    from waiting import until

    link = kafka.raw()
    s = request(ApiKey.FIND_COORDINATOR, 2)
    found: list[int] = []

    def is_there() -> bool:
        answer = link.ask(ApiKey.FIND_COORDINATOR, 2, s.root(key=key, key_type=kind))
        found.append(answer.node_id)
        return not answer.error_code

    until(is_there, f"a coordinator of {key}")
    return found[-1]


def test_errors_of_topics_are_at_their_place(kafka: Any) -> None:
    kafka.topic("any", 1)
    controller = kafka.raw().metadata().controller_id
    for wrong in of_topics():
        link = kafka.raw(controller if wrong.api is ApiKey.DELETE_TOPICS else 1)
        assert errors(wrong, link.ask(*wrong[:2], wrong.entity)) == expected(wrong), wrong


@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_offset_out_of_range_is_in_its_partition_alone(kafka: Any, version: int) -> None:
    topic = kafka.topic("range", 1)
    entity = fetch_request(topic, 0, 999, version)
    wrong = Wrong(ApiKey.FETCH, version, Code.offset_out_of_range, entity)
    answer = kafka.raw(1).ask(ApiKey.FETCH, version, entity)
    assert errors(wrong, answer) == expected(wrong) == {"/responses/partitions": wrong.code}


def test_errors_of_groups_are_at_their_place(kafka: Any) -> None:
    link = kafka.raw(find(kafka, "no-such-group", 0))
    for wrong in of_groups(kafka.topic("any", 1)):
        assert errors(wrong, link.ask(*wrong[:2], wrong.entity)) == expected(wrong), wrong


@pytest.mark.parametrize("version", [1, 2, 5, 7, 8, 9])
def test_the_error_of_another_coordinators_group_is_at_its_place(kafka: Any, version: int) -> None:
    node = find(kafka, "elsewhere", 0)
    s = request(ApiKey.OFFSET_FETCH, version)
    if version < 8:
        topics = (s.OffsetFetchRequestTopic(name="t", partition_indexes=(0, 1)),)
        entity = s.root(group_id="elsewhere", topics=topics)
    else:
        topics = (s.OffsetFetchRequestTopics(name="t", partition_indexes=(0, 1)),)
        entity = s.root(groups=(s.OffsetFetchRequestGroup(group_id="elsewhere", topics=topics),))
    wrong = Wrong(ApiKey.OFFSET_FETCH, version, Code.not_coordinator, entity)
    link = kafka.raw(next(other for other in kafka.ports if other != node))
    assert errors(wrong, link.ask(ApiKey.OFFSET_FETCH, version, entity)) == expected(wrong)


def test_errors_of_transactions_are_at_their_place(kafka: Any) -> None:
    link = kafka.raw(find(kafka, "no-such-id", 1))
    for wrong in of_transactions(kafka.topic("any", 1)):
        assert errors(wrong, link.ask(*wrong[:2], wrong.entity)) == expected(wrong), wrong
