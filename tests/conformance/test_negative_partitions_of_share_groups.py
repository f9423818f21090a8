"""A partition below 0 makes Apache Kafka 4.4 refuse a whole request about offsets of a share group, and Harrow too."""

from __future__ import annotations

from typing import Any
from uuid import uuid4

from group_scripts import create_topic
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.topic_ids import text_of
from raw_groups import RawGroup
from waiting import until

REFUSED = ErrorCode.unknown_server_error


def test_a_negative_partition_refuses_the_group_and_changes_nothing(kafka: Any) -> None:
    topic = create_topic(kafka, "negative", 2)
    group = RawGroup(kafka.raw, f"share-{uuid4().hex[:8]}", min(kafka.ports))
    group.await_loaded()
    topic_id = text_of(kafka.raw(min(kafka.ports)).metadata(topic, version=12).topics[0].topic_id)

    def alter(*numbers: int, name: str = topic, offset: int = 5) -> Any:
        rows = tuple({"partition_index": number, "start_offset": offset} for number in numbers)
        topics = ({"topic_name": name, "partitions": rows},)
        answer = group.ask(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=group.name, topics=topics)
        codes = [[row.error_code for row in found.partitions] for found in answer.responses]
        return answer.error_code, answer.error_message, codes

    def describe(*numbers: int, name: str = topic) -> Any:
        asked = ({"group_id": group.name, "topics": ({"topic_name": name, "partitions": numbers},)},)
        (answer,) = group.ask(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, 1, groups=asked).groups
        rows = [[(row.start_offset, row.error_code) for row in found.partitions] for found in answer.topics]
        return answer.error_code, answer.error_message, rows

    text = f"Initialize share group parameters has invalid partitionId - {group.name} {topic_id} -1"
    assert alter(0, -1) == (REFUSED, text, [])
    none, unknown = ErrorCode.none, ErrorCode.unknown_topic_or_partition
    assert alter(-1, name="absent") == (none, None, [[unknown]])
    assert alter(0, 1, 9) == (none, None, [[none, none, unknown]])
    until(lambda: describe(0, 1) == (none, None, [[(5, none)] * 2]), "the offsets are there")
    assert alter(0, -1, offset=7) == (REFUSED, text, [])
    text = "The server experienced an unexpected error when processing the request."
    assert describe(0, -1) == (REFUSED, text, [])
    assert describe(-1, name="absent") == (none, None, [[(-1, none)]])
    assert describe(0) == (none, None, [[(5, none)]])
