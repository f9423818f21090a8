"""Requests with texts that are not UTF-8 are served as by Apache Kafka 4.2: malformed bytes are substituted (A6)."""

from __future__ import annotations

import struct
from typing import Any
from uuid import uuid4

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_groups import RawGroup
from raw_kafka import RawKafka, produce_request

PLAIN = "wxyz"
BAD = b"\xff\xed\xa0\x80"
"""As long as `PLAIN`: a byte that no text has, and a surrogate in three bytes."""
READ = 2 * "\N{REPLACEMENT CHARACTER}"


def ask(raw: RawKafka, key: ApiKey, version: int, entity: Any) -> Any:
    """The response to a request with `BAD` for each `PLAIN`."""
    body = messages.encode_request(key, version, entity)
    assert PLAIN.encode() in body, "the request has no such text"
    raw.send_body(key, version, body.replace(PLAIN.encode(), BAD))
    return raw.take()[1]


def commit_of(topic: str, metadata: str, group_id: str) -> Any:
    s = messages.schema(ApiKey.OFFSET_COMMIT, 8, "request")
    row = s.OffsetCommitRequestPartition(partition_index=0, committed_offset=5, committed_metadata=metadata)
    topics = (s.OffsetCommitRequestTopic(name=topic, partitions=(row,)),)
    return s.OffsetCommitRequest(group_id=group_id, generation_id_or_member_epoch=-1, member_id=PLAIN, topics=topics)


def test_malformed_metadata_and_group_ids_are_substituted(kafka: Any) -> None:
    topic, name = kafka.topic("texts", 1), f"{uuid4().hex[:6]}-"
    for suffix in ("plain", READ):
        group = RawGroup(kafka.raw, name + suffix, min(kafka.ports))
        group.await_loaded()
        sent = name + ("plain" if suffix == "plain" else PLAIN)
        entity = commit_of(topic, f"<{PLAIN}>", sent)
        answer = ask(group.home, ApiKey.OFFSET_COMMIT, 8, entity)
        assert [row.partitions[0].error_code for row in answer.topics] == [ErrorCode.none]
        s = messages.schema(ApiKey.OFFSET_FETCH, 8, "request")
        asked = s.OffsetFetchRequestGroup(group_id=name + suffix, topics=None)
        entity = s.OffsetFetchRequest(groups=(asked,), require_stable=False)
        (found,) = group.home.ask(ApiKey.OFFSET_FETCH, 8, entity).groups
        assert found.topics[0].partitions[0].metadata == f"<{READ}>"


def test_malformed_topics_are_unknown_or_invalid_and_the_connection_stays(kafka: Any) -> None:
    raw, name = kafka.raw(), f"orders-{PLAIN}"
    s = messages.schema(ApiKey.METADATA, 12, "request")
    entity = s.MetadataRequest(topics=(s.MetadataRequestTopic(name=name, topic_id=None),))
    (row,) = ask(raw, ApiKey.METADATA, 12, entity).topics
    assert (row.name, row.error_code) == (f"orders-{READ}", ErrorCode.invalid_topic_exception)
    for version in (7, 9):
        request = produce_request(name, 0, ["a"], -1, 1_000, version)
        (topic,) = ask(raw, ApiKey.PRODUCE, version, request).responses
        assert topic.name == f"orders-{READ}"
        assert topic.partition_responses[0].error_code is ErrorCode.unknown_topic_or_partition
    assert raw.metadata().brokers


def test_a_malformed_client_id_is_served(kafka: Any) -> None:
    topic = kafka.topic("client", 1)
    s = messages.schema(ApiKey.METADATA, 5, "request")
    entity = s.MetadataRequest(topics=(s.MetadataRequestTopic(name=topic),), allow_auto_topic_creation=False)
    header = struct.pack(">hhih", ApiKey.METADATA, 5, 1, len(BAD)) + BAD
    raw = kafka.raw()
    raw.send_frame(header + messages.encode_request(ApiKey.METADATA, 5, entity), ApiKey.METADATA, 5)
    assert raw.take()[1].topics[0].name == topic
