"""The hand-written Produce codec equals kio's, byte for byte, in every version (A4)."""

from __future__ import annotations

import contextlib
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.wire import messages, produce
from harrow.cluster.wire.topic_ids import UUID
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_entities import entities, kio_bytes
from long_runs import examples

from .fake_requests import request_of

VERSIONS = range(produce.PRODUCE_VERSION_LOW, produce.PRODUCE_VERSION_HIGH + 1)


def topic_of(row: Any) -> Any:
    return row.name if hasattr(row, "name") else row.topic_id


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_decoding_produce_requests_agrees_with_kio(version: int, data: st.DataObject) -> None:
    entity: Any = data.draw(entities(messages.request_type(0, version)))
    found = produce.decode_produce(request_of(0, version, kio_bytes(entity)))
    assert found.acks == entity.acks
    assert found.timeout_ms == messages.to_milliseconds(entity.timeout)
    assert found.transactional_id == entity.transactional_id
    expected = [
        (topic_of(topic), row.index, row.records) for topic in entity.topic_data for row in topic.partition_data
    ]
    nothing = UUID(int=0)  # which kio reads as None
    read = [(None if topic == nothing else topic, p, r) for topic, p, r in found.entries]
    assert read == expected


@examples(26, 80)
@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_decoding_a_truncated_request_is_a_wire_error(data: st.DataObject, version: int) -> None:
    body = kio_bytes(data.draw(entities(messages.request_type(0, version))))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        produce.decode_produce(request_of(0, version, body[:cut]))


@pytest.mark.parametrize("version", [3, 8, 9, 13])
@pytest.mark.parametrize("inner", [False, True])
def test_a_null_list_is_a_wire_error(version: int, inner: bool) -> None:
    null, single, flexible = (b"\0", b"\2", True) if version >= 9 else (b"\xff" * 4, b"\0\0\0\1", False)
    head = (b"\0" if flexible else b"\xff\xff") + b"\xff\xff" + bytes(4)
    name = bytes(16) if version >= 13 else b"\2a" if flexible else b"\0\1a"
    body = head + (single + name + null if inner else null) + (b"\0\0" if flexible else b"")
    with pytest.raises(WireError, match="must not be null"):
        produce.decode_produce(request_of(0, version, body))


@examples(33, 100)
@given(version=st.sampled_from(VERSIONS), garbage=st.binary(max_size=60))
def test_decoding_garbage_raises_nothing_but_a_wire_error(version: int, garbage: bytes) -> None:
    with contextlib.suppress(WireError):
        produce.decode_produce(request_of(0, version, garbage))


def test_decoding_a_produce_request_does_not_copy_the_records() -> None:
    s = messages.schema(0, 9, "request")
    row = s.PartitionProduceData(index=1, records=b"r" * 100)
    asked = s.ProduceRequest(acks=-1, topic_data=(s.TopicProduceData(name="t", partition_data=(row,)),))
    request = request_of(0, 9, kio_bytes(asked))
    (entry,) = produce.decode_produce(request).entries
    assert isinstance(entry.records, memoryview)
    assert entry.records.obj is request.frame


INT64 = st.integers(-1, 2**63 - 1)
INT32 = st.integers(-1, 2**31 - 1)
TEXT = st.one_of(st.none(), st.text(max_size=200))


@st.composite
def answers(draw: st.DrawFn, version: int) -> list[produce.ProduceAnswer]:
    topics: Any = st.uuids() if version >= 13 else st.text(max_size=20)
    drawn: list[produce.ProduceAnswer] = []
    for topic in draw(st.lists(topics, unique=True, max_size=3)):
        for partition in range(draw(st.integers(1, 3))):
            error = draw(st.sampled_from((0, 3, 6, 87)))
            drawn.append(
                produce.ProduceAnswer(
                    topic,
                    partition,
                    error,
                    draw(INT64),
                    draw(INT64),
                    draw(INT64),
                    draw(st.lists(st.tuples(INT32, TEXT), max_size=2)) if error else (),
                    draw(TEXT) if error else None,
                    *((draw(INT32), draw(INT32)) if error else (-1, -1)),
                )
            )
    return drawn


def kios_response(version: int, rows: list[produce.ProduceAnswer], endpoints: list[produce.NodeEndpoint]) -> bytes:
    s = messages.schema(0, version, "response")
    topics: dict[Any, list[Any]] = {}
    for row in rows:
        topics.setdefault(row.topic, []).append(
            s.PartitionProduceResponse(
                index=row.partition,
                error_code=ErrorCode(row.error),
                base_offset=row.base_offset,
                log_append_time=None,
                log_start_offset=row.log_start_offset,
                record_errors=tuple(
                    s.BatchIndexAndErrorMessage(batch_index=index, batch_index_error_message=text)
                    for index, text in row.record_errors
                )
                if version >= 8
                else (),
                error_message=row.error_message,
                current_leader=s.LeaderIdAndEpoch(leader_id=row.leader_id, leader_epoch=row.leader_epoch),
            )
        )
    return kio_bytes(
        s.ProduceResponse(
            responses=tuple(
                s.TopicProduceResponse(name=topic, topic_id=topic, partition_responses=tuple(of_topic))
                for topic, of_topic in topics.items()
            ),
            throttle_time=messages.milliseconds(5),
            node_endpoints=tuple(s.NodeEndpoint(**row._asdict()) for row in endpoints) if version >= 10 else (),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_encoding_produce_responses_agrees_with_kio(version: int, data: st.DataObject) -> None:
    rows = [row._replace(log_append_time_ms=-1) for row in data.draw(answers(version))]
    endpoints = [produce.NodeEndpoint(1, "h", 9092, rack) for rack in data.draw(st.lists(TEXT, max_size=2))]
    parts = produce.encode_produce_response(version, rows, throttle_ms=5, node_endpoints=endpoints)
    assert b"".join(parts) == kios_response(version, rows, endpoints)


@pytest.mark.parametrize("version", VERSIONS)
def test_encoding_the_append_time_returns_it_when_decoded(version: int) -> None:
    topic: Any = UUID(int=7) if version >= 13 else "t"
    row = produce.ProduceAnswer(topic, 0, 0, 5, 1_700_000_000_000)
    body = b"".join(produce.encode_produce_response(version, [row]))
    (found,) = messages.decode_response(0, version, body).responses[0].partition_responses
    assert found.log_append_time.timestamp() == 1_700_000_000
