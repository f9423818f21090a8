"""Bytes that are not UTF-8 are substituted as in Apache Kafka, in every text of a request and in its header (A6)."""

from __future__ import annotations

import pytest
from harrow.cluster.groups.records import RecordReader
from harrow.cluster.wire import headers, messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.fetch import decode_fetch
from harrow.cluster.wire.produce import decode_produce
from harrow.cluster.wire.tapped_requests import subject_of
from harrow.cluster.wire.texts import text_of_bytes
from raw_kafka import fetch_request, produce_request

from .fake_requests import request_of

SUBSTITUTED = "\N{REPLACEMENT CHARACTER}"
NAME = "orders-π"
BAD = b"orders-\xff\xfe"
"""As long as the bytes of `NAME`."""
READ = "orders-" + 2 * SUBSTITUTED


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"", ""),
        (b"orders", "orders"),
        ("π \U0001f600".encode(), "π \U0001f600"),
        (b"\xff\xfe\xc3\x28", 3 * SUBSTITUTED + "("),
        (b"a\xe2\x82", "a" + SUBSTITUTED),
        (b"a\xf0\x9f\x98b", "a" + SUBSTITUTED + "b"),
        (b"\xc0\x80\xe0\x80", 4 * SUBSTITUTED),
        (b"\xf4\x90\x80\x80", 4 * SUBSTITUTED),
        (b"\xed\xa0\x80\xed\xb0\x80", 2 * SUBSTITUTED),
        (b"\xed\xa0A", SUBSTITUTED + "A"),
    ],
)
def test_malformed_sequences_become_the_characters_that_java_makes(raw: bytes, text: str) -> None:
    assert text_of_bytes(raw) == text


def replaced(body: bytes) -> bytes:
    assert NAME.encode() in body, "the request has no such text"
    return body.replace(NAME.encode(), BAD)


@pytest.mark.parametrize("version", [3, 7, 9, 12])
def test_a_produce_with_a_malformed_topic_is_decoded(version: int) -> None:
    entity = produce_request(NAME, 0, ["a"], -1, 1_000, version)
    body = replaced(messages.encode_request(ApiKey.PRODUCE, version, entity))
    request = decode_produce(request_of(ApiKey.PRODUCE, version, body))
    assert [entry.topic for entry in request.entries] == [READ]


@pytest.mark.parametrize("version", [4, 7, 11, 12])
def test_a_fetch_with_a_malformed_topic_is_decoded(version: int) -> None:
    entity = fetch_request(NAME, 0, 0, version)
    body = replaced(messages.encode_request(ApiKey.FETCH, version, entity))
    request = decode_fetch(request_of(ApiKey.FETCH, version, body))
    assert [row.topic for row in request.partitions] == [READ]


@pytest.mark.parametrize("version", [5, 8, 12])
def test_texts_of_other_requests_are_decoded(version: int) -> None:
    body = replaced(client_request(ApiKey.METADATA, version, topics=[{"name": NAME}]).body())
    decoded, end = messages.request_reader(ApiKey.METADATA, version)(body, 0)
    assert (decoded.topics[0].name, end) == (READ, len(body))


def test_a_malformed_group_is_named_to_the_tap() -> None:
    body = replaced(client_request(ApiKey.HEARTBEAT, 4, group_id=NAME, member_id="m", generation_id=1).body())
    assert subject_of(ApiKey.HEARTBEAT, request_of(ApiKey.HEARTBEAT, 4, body)) == READ


@pytest.mark.parametrize("version", [5, 12])
def test_a_malformed_client_id_is_decoded(version: int) -> None:
    frame = replaced(headers.encode_request_header(ApiKey.METADATA, version, 7, NAME))
    header = headers.parse_request_header(frame)
    assert (header.client_id, header.body_at) == (READ, len(frame))


def test_a_malformed_topic_of_a_subscription_is_decoded() -> None:
    assert RecordReader(len(BAD).to_bytes(2) + BAD).string() == READ
