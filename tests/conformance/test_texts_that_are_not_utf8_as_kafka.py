"""Requests with texts that are not UTF-8 are served as by Apache Kafka 4.2: malformed bytes are substituted (A6)."""

from __future__ import annotations

import struct
from typing import Any
from uuid import uuid4

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from raw_groups import RawGroup, committed_topic
from raw_kafka import RawKafka, produce_request

PLAIN = "wxyz"
BAD = b"\xff\xed\xa0\x80"
"""As long as `PLAIN`: a byte that no text has, and a surrogate in three bytes."""
READ = 2 * "\N{REPLACEMENT CHARACTER}"


def ask(raw: RawKafka, request: ClientRequest) -> Any:
    """The response to a request with `BAD` for each `PLAIN`."""
    body = request.body()
    assert PLAIN.encode() in body, "the request has no such text"
    raw.send_body(request.api_key, request.version, body.replace(PLAIN.encode(), BAD))
    return raw.take()[1]


def commit_of(topic: str, metadata: str, group_id: str) -> ClientRequest:
    topics = [committed_topic(topic, 0, 5, metadata)]
    return client_request(
        ApiKey.OFFSET_COMMIT, 8, group_id=group_id, generation_id_or_member_epoch=-1, member_id=PLAIN, topics=topics
    )


def test_malformed_metadata_and_group_ids_are_substituted(kafka: Any) -> None:
    topic, name = kafka.topic("texts", 1), f"{uuid4().hex[:6]}-"
    for suffix in ("plain", READ):
        group = RawGroup(kafka.raw, name + suffix, min(kafka.ports))
        group.await_loaded()
        sent = name + ("plain" if suffix == "plain" else PLAIN)
        answer = ask(group.home, commit_of(topic, f"<{PLAIN}>", sent))
        assert [row.partitions[0].error_code for row in answer.topics] == [ErrorCode.none]
        asked = {"group_id": name + suffix, "topics": None}
        (found,) = group.home.ask(ApiKey.OFFSET_FETCH, 8, groups=[asked]).groups
        assert found.topics[0].partitions[0].metadata == f"<{READ}>"


def test_malformed_topics_are_unknown_or_invalid_and_the_connection_stays(kafka: Any) -> None:
    raw, name = kafka.raw(), f"orders-{PLAIN}"
    (row,) = ask(raw, client_request(ApiKey.METADATA, 12, topics=[{"name": name}])).topics
    assert (row.name, row.error_code) == (f"orders-{READ}", ErrorCode.invalid_topic_exception)
    for version in (7, 9):
        request = produce_request(name, 0, ["a"], -1, 1_000, version)
        (topic,) = ask(raw, ClientRequest(ApiKey.PRODUCE, version, request)).responses
        assert topic.name == f"orders-{READ}"
        assert topic.partition_responses[0].error_code is ErrorCode.unknown_topic_or_partition
    assert raw.metadata().brokers


def test_a_malformed_client_id_is_served(kafka: Any) -> None:
    topic = kafka.topic("client", 1)
    request = client_request(ApiKey.METADATA, 5, topics=[{"name": topic}], allow_auto_topic_creation=False)
    header = struct.pack(">hhih", ApiKey.METADATA, 5, 1, len(BAD)) + BAD
    raw = kafka.raw()
    raw.send_frame(header + request.body(), ApiKey.METADATA, 5)
    assert raw.take()[1].topics[0].name == topic
