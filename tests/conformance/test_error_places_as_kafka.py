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
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.refusals import refusal_bytes
from message_samples import errors_in
from raw_kafka import RawKafka, fetch_request
from raw_transactions import coordinator_of

Code = ErrorCode


class Wrong(NamedTuple):
    """A request with an error."""

    request: ClientRequest
    code: ErrorCode


def wrong(api: ApiKey, version: int, code: ErrorCode, **fields: Any) -> Wrong:
    return Wrong(client_request(api, version, **fields), code)


NOWHERE = "no-such-topic"
"""Has no partition 7."""


def of_topics() -> list[Wrong]:
    unknown = Code.unknown_topic_or_partition
    listed = {"name": NOWHERE, "partitions": [{"partition_index": 7, "timestamp": -1}]}
    ended = {"topic": NOWHERE, "partitions": [{"partition": 7, "leader_epoch": 0}]}
    deleted = {"name": NOWHERE, "partitions": [{"partition_index": 7, "offset": 0}]}
    described = {"name": NOWHERE, "partition_indexes": [7]}
    fetches = [(v, unknown, fetch_request(NOWHERE, 7, 0, v)) for v in (4, 6, 7, 11, 12)]
    for v in (7, 12):
        of_session = fetch_request(NOWHERE, 7, 0, v, session_id=123456, session_epoch=3)
        fetches.append((v, Code.fetch_session_id_not_found, of_session))
    return [
        *(wrong(ApiKey.LIST_OFFSETS, v, unknown, replica_id=-1, topics=[listed]) for v in (1, 6, 8)),
        wrong(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, unknown, replica_id=-1, topics=[ended]),
        wrong(ApiKey.DELETE_RECORDS, 2, unknown, timeout=2000, topics=[deleted]),
        wrong(ApiKey.DESCRIBE_PRODUCERS, 0, unknown, topics=[described]),
        *(Wrong(ClientRequest(ApiKey.FETCH, v, entity), code) for v, code, entity in fetches),
        *(wrong(ApiKey.DELETE_TOPICS, v, unknown, topic_names=[NOWHERE], timeout=2000) for v in (1, 5)),
    ]


def of_groups(topic: str) -> list[Wrong]:
    name = "no-such-group"
    absent = {"group_id": name, "member_id": "absent"}
    row = {"partition_index": 0, "committed_offset": 1, "committed_leader_epoch": -1}
    committed: dict[str, Any] = {
        "generation_id_or_member_epoch": 3,
        "topics": [{"name": topic, "partitions": [row]}],
    }
    return [
        wrong(ApiKey.HEARTBEAT, 4, Code.unknown_member_id, **absent, generation_id=3),
        wrong(ApiKey.OFFSET_COMMIT, 8, Code.illegal_generation, **absent, **committed),
        wrong(ApiKey.LEAVE_GROUP, 2, Code.unknown_member_id, **absent),
        wrong(ApiKey.LEAVE_GROUP, 5, Code.unknown_member_id, group_id=name, members=[{"member_id": "absent"}]),
        wrong(ApiKey.DESCRIBE_GROUPS, 6, Code.group_id_not_found, groups=[name]),
        wrong(ApiKey.DELETE_GROUPS, 2, Code.group_id_not_found, groups_names=[name]),
        wrong(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, Code.group_id_not_found, group_ids=[name]),
    ]


def of_transactions(topic: str) -> list[Wrong]:
    pid: dict[str, Any] = {"transactional_id": "no-such-id", "producer_id": 7_000_000, "producer_epoch": 0}
    added = {f"v3_and_below_{name}": value for name, value in pid.items()}
    added["v3_and_below_topics"] = [{"name": topic, "partitions": [0]}]
    return [
        wrong(ApiKey.END_TXN, 3, Code.invalid_producer_id_mapping, **pid, committed=True),
        wrong(ApiKey.ADD_OFFSETS_TO_TXN, 3, Code.invalid_producer_id_mapping, **pid, group_id="g"),
        wrong(ApiKey.ADD_PARTITIONS_TO_TXN, 3, Code.invalid_producer_id_mapping, **added),
        wrong(ApiKey.DESCRIBE_TRANSACTIONS, 0, Code.transactional_id_not_found, transactional_ids=["no-such-id"]),
    ]


def errors(response: Any) -> dict[str, ErrorCode]:
    return {path: code for path, code in errors_in(response).items() if code is not Code.none}


def expected(wrong: Wrong) -> dict[str, ErrorCode]:
    """The errors of the response that a fault makes."""
    request, code = wrong
    body = refusal_bytes(request.api_key, request.version, request.body(), 0, code)
    return errors(messages.decode_response(request.api_key, request.version, body))


def find(kafka: Any, key: str, kind: int) -> int:
    """The coordinator of a group or of a transactional id."""
    return coordinator_of(kafka.raw(), key, kind)


def check(link: RawKafka, *all_wrong: Wrong) -> None:
    for each in all_wrong:
        assert errors(link.ask(*each.request)) == expected(each), each


def test_errors_of_topics_are_at_their_place(kafka: Any) -> None:
    kafka.topic("any", 1)
    controller = kafka.raw().metadata().controller_id
    for each in of_topics():
        check(kafka.raw(controller if each.request.api_key == ApiKey.DELETE_TOPICS else 1), each)


@pytest.mark.parametrize("version", [4, 11, 12])
def test_an_offset_out_of_range_is_in_its_partition_alone(kafka: Any, version: int) -> None:
    topic = kafka.topic("range", 1)
    code = Code.offset_out_of_range
    each = Wrong(ClientRequest(ApiKey.FETCH, version, fetch_request(topic, 0, 999, version)), code)
    assert expected(each) == {"/responses/partitions": code}
    check(kafka.raw(1), each)


def test_errors_of_groups_are_at_their_place(kafka: Any) -> None:
    check(kafka.raw(find(kafka, "no-such-group", 0)), *of_groups(kafka.topic("any", 1)))


@pytest.mark.parametrize("version", [1, 2, 5, 7, 8, 9])
def test_the_error_of_another_coordinators_group_is_at_its_place(kafka: Any, version: int) -> None:
    node = find(kafka, "elsewhere", 0)
    group: dict[str, Any] = {"group_id": "elsewhere", "topics": [{"name": "t", "partition_indexes": [0, 1]}]}
    fields = group if version < 8 else {"groups": [group]}
    link = kafka.raw(next(other for other in kafka.ports if other != node))
    check(link, wrong(ApiKey.OFFSET_FETCH, version, Code.not_coordinator, **fields))


def test_errors_of_transactions_are_at_their_place(kafka: Any) -> None:
    check(kafka.raw(find(kafka, "no-such-id", 1)), *of_transactions(kafka.topic("any", 1)))
