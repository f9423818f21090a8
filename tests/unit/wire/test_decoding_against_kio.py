"""The entity decoder agrees with kio's encoder on every message, and survives any bytes (A4, A6)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.decoding import reader
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_entities import entities, kio_bytes
from long_runs import examples

# The oldest version, the first flexible one and the newest cover every shape that a field can take.
APIS = (0, 1, 2, 3, 8, 9, 10, 11, 12, 13, 14, 15, 16, 18, 19, 20, 22, 23, 32, 33, 37, 42, 44, 60, 68, 69)


def sampled() -> Iterator[tuple[int, int]]:
    for api_key in APIS:
        known = messages.versions_known(api_key)
        flexible = [v for v in known if messages.request_type(api_key, v).__flexible__]
        yield from ((api_key, v) for v in sorted({known[0], *flexible[:1], known[-1]}))


SAMPLED = list(sampled())


@pytest.mark.parametrize(("number", "end"), [(2**63 - 1, "max"), (2**62, "max"), (-(2**63), "min")])
def test_a_time_that_is_too_long_is_the_longest(number: int, end: str) -> None:
    """Apache Kafka takes any retention time of a commit."""
    s = messages.schema(ApiKey.OFFSET_COMMIT, 4, "request")
    fields: dict[str, Any] = {"group_id": "g", "generation_id_or_member_epoch": -1, "member_id": ""}
    entity = s.root(**fields, retention_time=messages.milliseconds(0), topics=())
    encoded = messages.encode_request(ApiKey.OFFSET_COMMIT, 4, entity)
    changed = encoded[:-12] + number.to_bytes(8, "big", signed=True) + encoded[-4:]
    found, _ = reader(messages.request_type(ApiKey.OFFSET_COMMIT, 4))(changed, 0)
    assert found.retention_time == getattr(timedelta, end)


@pytest.mark.parametrize("key", SAMPLED, ids=str)
@settings(max_examples=8)
@given(data=st.data())
def test_decoding_what_kio_wrote_returns_the_message(key: tuple[int, int], data: st.DataObject) -> None:
    for entity_type in (messages.request_type(*key), messages.response_type(*key)):
        entity: Any = data.draw(entities(entity_type))
        written = kio_bytes(entity)
        assert reader(entity_type)(b"head" + written, 4) == (entity, 4 + len(written))


@examples(50, 150)
@given(key=st.sampled_from(SAMPLED), garbage=st.binary(max_size=80))
def test_decoding_garbage_raises_nothing_but_a_wire_error(key: tuple[int, int], garbage: bytes) -> None:
    with contextlib.suppress(WireError):
        messages.request_reader(*key)(garbage, 0)


@examples(20, 60)
@given(data=st.data())
def test_decoding_a_truncated_message_is_a_wire_error(data: st.DataObject) -> None:
    key = data.draw(st.sampled_from(SAMPLED))
    written = kio_bytes(data.draw(entities(messages.response_type(*key))))
    if not written:
        return
    cut = data.draw(st.integers(0, len(written) - 1))
    with pytest.raises(WireError):
        messages.response_reader(*key)(written[:cut], 0)


@pytest.mark.parametrize("version", [3, 9])
def test_decoding_a_message_truncated_inside_a_timestamp_is_a_wire_error(version: int) -> None:
    s = messages.schema(0, version, "response")
    row = s.PartitionProduceResponse(index=0, error_code=ErrorCode.none, base_offset=7, log_append_time=None)
    topic = s.TopicProduceResponse(name="orders", partition_responses=(row,))
    written = kio_bytes(s.ProduceResponse(responses=(topic,), throttle_time=timedelta()))
    read = messages.response_reader(0, version)
    assert read(written, 0)[1] == len(written)
    for cut in range(len(written)):
        with pytest.raises(WireError):
            read(written[:cut], 0)


@pytest.mark.parametrize(
    ("version", "body"),
    [
        (12, b"\xff\xff\xff\xff\x0f\0"),
        (12, b"\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff\xff"),
        (1, b"\x7f\xff\xff\xff\0\1"),
        (1, b"\xff\xff\xff\xfe\0\1"),
        (1, b"\0\0\0\1\xff\xfe"),
        (1, b"\0\0\0\1\0\3\xff\xff"),
        (1, b""),
    ],
)
def test_decoding_absurd_lengths_is_a_wire_error(version: int, body: bytes) -> None:
    """The first of these bodies aborts the process in kio's own reader."""
    with pytest.raises(WireError):
        messages.request_reader(3, version)(body, 0)


def test_decoding_skips_an_unknown_tagged_field() -> None:
    body = b"\0\1\0" + b"\2" + b"\x07\3abc" + b"\x09\0"
    asked, end = messages.request_reader(3, 12)(body, 0)
    assert (asked.topics, asked.allow_auto_topic_creation, end) == (None, True, len(body))


def test_asking_for_the_decoder_of_an_unknown_version_is_a_wire_error() -> None:
    for api_key, version in ((3, 99), (999, 0), (4, 6)):
        with pytest.raises(WireError):
            messages.request_reader(api_key, version)
