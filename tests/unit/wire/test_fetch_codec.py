"""The hand-written Fetch codec equals kio's, byte for byte, in every version, for requests and responses (A4)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.wire import fetch, fetch_response, messages
from harrow.cluster.wire.primitives import NodeEndpoint
from hypothesis import given, settings
from hypothesis import strategies as st
from kio_entities import kio_bytes
from long_runs import examples

from .fake_requests import joined_bytes, request_of

VERSIONS = range(fetch.FETCH_VERSION_LOW, fetch.FETCH_VERSION_HIGH + 1)
INT32 = st.integers(-1, 2**31 - 1)
INT64 = st.integers(-1, 2**63 - 1)
TEXT = st.text(max_size=12)


def topics(version: int) -> st.SearchStrategy[list[Any]]:
    names: Any = st.uuids().filter(lambda drawn: drawn.int > 0) if version >= 13 else TEXT
    return st.lists(names, unique=True, max_size=3)


@st.composite
def fetches(draw: st.DrawFn, version: int) -> fetch.FetchRequest:
    """Requests that carry nothing which the version has no word for."""
    rows = [
        fetch.FetchPartition(
            topic,
            partition,
            draw(INT32) if version >= 9 else -1,
            draw(INT64),
            draw(INT32) if version >= 12 else -1,
            draw(INT64) if version >= 5 else -1,
            draw(INT32),
        )
        for topic in draw(topics(version))
        for partition in range(draw(st.integers(1, 3)))
    ]
    sessions = version >= 7
    return fetch.FetchRequest(
        replica_id=draw(INT32),
        replica_epoch=draw(INT64) if version >= 15 else -1,
        max_wait_ms=draw(INT32),
        min_bytes=draw(INT32),
        max_bytes=draw(INT32),
        isolation_level=draw(st.sampled_from((0, 1))),
        session_id=draw(INT32) if sessions else 0,
        session_epoch=draw(INT32) if sessions else -1,
        partitions=rows,
        forgotten=[(t, p) for t in draw(topics(version)) for p in range(2)] if sessions else [],
        rack_id=draw(TEXT) if version >= 11 else "",
        cluster_id=draw(st.one_of(st.none(), TEXT)) if version >= 12 else None,
    )


def kios_request(version: int, row: fetch.FetchRequest, **more: int) -> bytes:
    s = messages.schema(1, version, "request")
    wanted: dict[Any, list[Any]] = {}
    for p in row.partitions:
        values = p._asdict() | {"partition_max_bytes": p.max_bytes} | more
        wanted.setdefault(p.topic, []).append(s.FetchPartition(**values))
    lost: dict[Any, list[int]] = {}
    for topic, partition in row.forgotten:
        lost.setdefault(topic, []).append(partition)
    return kio_bytes(
        s.FetchRequest(
            **{name: value for name, value in row._asdict().items() if name != "partitions"},
            max_wait=messages.milliseconds(row.max_wait_ms),
            replica_state=s.ReplicaState(replica_id=row.replica_id, replica_epoch=row.replica_epoch),
            topics=tuple(
                s.FetchTopic(topic=topic, topic_id=topic, partitions=tuple(rows)) for topic, rows in wanted.items()
            ),
            forgotten_topics_data=tuple(
                s.ForgottenTopic(topic=topic, topic_id=topic, partitions=tuple(partitions))
                for topic, partitions in lost.items()
            )
            if version >= 7
            else (),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_encoding_and_decoding_fetch_requests_agree_with_kio(version: int, data: st.DataObject) -> None:
    row = data.draw(fetches(version))
    body = kios_request(version, row)
    assert fetch.encode_fetch_request(version, row) == body
    assert fetch.decode_fetch(request_of(1, version, body)) == row


@given(data=st.data(), high_watermark=st.integers(-1, 2**62))
def test_the_high_watermark_that_a_replica_of_version_18_sends_is_skipped(
    data: st.DataObject, high_watermark: int
) -> None:
    row = data.draw(fetches(18))
    body = kios_request(18, row, high_watermark=high_watermark)
    assert fetch.decode_fetch(request_of(1, 18, body)) == row


@examples(20, 60)
@given(data=st.data(), version=st.sampled_from(VERSIONS))
def test_decoding_a_truncated_request_is_a_wire_error(data: st.DataObject, version: int) -> None:
    body = fetch.encode_fetch_request(version, data.draw(fetches(version)))
    cut = data.draw(st.integers(0, len(body) - 1))
    with pytest.raises(WireError):
        fetch.decode_fetch(request_of(1, version, body[:cut]))


@examples(33, 100)
@given(version=st.sampled_from(VERSIONS), garbage=st.binary(max_size=80))
def test_decoding_garbage_raises_nothing_but_a_wire_error(version: int, garbage: bytes) -> None:
    with contextlib.suppress(WireError):
        fetch.decode_fetch(request_of(1, version, garbage))
    with contextlib.suppress(WireError):
        fetch_response.decode_fetch_response(version, garbage)


@st.composite
def answers(draw: st.DrawFn, version: int) -> list[fetch_response.FetchAnswer]:
    flexible = version >= 12
    rows: list[fetch_response.FetchAnswer] = []
    for topic in draw(topics(version)):
        for partition in range(draw(st.integers(1, 3))):
            leader = (draw(INT32), draw(INT32)) if flexible and draw(st.booleans()) else (-1, -1)
            rows.append(
                fetch_response.FetchAnswer(
                    topic,
                    partition,
                    draw(st.sampled_from((0, 1, 6))),
                    draw(INT64),
                    draw(INT64),
                    draw(INT64) if version >= 5 else -1,
                    draw(st.one_of(st.none(), st.lists(st.binary(max_size=150), max_size=3))),
                    draw(st.one_of(st.none(), st.lists(st.tuples(INT64, INT64), max_size=2))),
                    draw(INT32) if version >= 11 else -1,
                    draw(st.one_of(st.none(), st.tuples(st.integers(0, 9), INT64))) if flexible else None,
                    *leader,
                )
            )
    return rows


def kios_response(version: int, rows: list[fetch_response.FetchAnswer], endpoints: list[NodeEndpoint]) -> bytes:
    s = messages.schema(1, version, "response")
    by_topic: dict[Any, list[Any]] = {}
    for row in rows:
        diverging = {}
        if row.diverging is not None:
            epoch, end = row.diverging
            diverging = {"diverging_epoch": s.EpochEndOffset(epoch=epoch, end_offset=end)}
        by_topic.setdefault(row.topic, []).append(
            s.PartitionData(
                partition_index=row.partition,
                error_code=ErrorCode(row.error),
                high_watermark=row.high_watermark,
                last_stable_offset=row.last_stable_offset,
                log_start_offset=row.log_start_offset,
                aborted_transactions=None
                if row.aborted is None
                else tuple(
                    s.AbortedTransaction(producer_id=producer, first_offset=first) for producer, first in row.aborted
                ),
                preferred_read_replica=row.preferred_read_replica,
                records=None if row.records is None else joined_bytes(row.records),
                current_leader=s.LeaderIdAndEpoch(leader_id=row.leader_id, leader_epoch=row.leader_epoch),
                **diverging,
            )
        )
    return kio_bytes(
        s.FetchResponse(
            throttle_time=messages.milliseconds(3),
            error_code=ErrorCode.none,
            session_id=0,
            responses=tuple(
                s.FetchableTopicResponse(topic=topic, topic_id=topic, partitions=tuple(of_topic))
                for topic, of_topic in by_topic.items()
            ),
            node_endpoints=tuple(s.NodeEndpoint(**row._asdict()) for row in endpoints) if version >= 16 else (),
        )
    )


@pytest.mark.parametrize("version", VERSIONS)
@settings(max_examples=25)
@given(data=st.data())
def test_encoding_fetch_responses_agrees_with_kio_and_decoding_returns_them(version: int, data: st.DataObject) -> None:
    rows = data.draw(answers(version))
    endpoints = [NodeEndpoint(1, "h", 9092)] if data.draw(st.booleans()) else []
    parts = fetch_response.encode_fetch_response(version, rows, throttle_ms=3, node_endpoints=endpoints)
    body = joined_bytes(parts)
    assert body == kios_response(version, rows, endpoints)
    read = fetch_response.decode_fetch_response(version, b"head" + body, 4)
    assert (read.throttle_ms, read.error, read.session_id) == (3, 0, 0)
    assert [_plain(row) for row in read.partitions] == [_plain(row) for row in rows]


def _plain(row: fetch_response.FetchAnswer | fetch_response.FetchedPartition) -> dict[str, Any]:
    """The fields of the response, the record data in one piece."""
    joined = row.records if isinstance(row.records, memoryview) else joined_bytes(row.records or ())
    fields = {name: value for name, value in row._asdict().items() if name != "read_epoch"}
    return {**fields, "records": bytes(joined)}


def test_encoding_and_decoding_a_fetch_response_do_not_copy_records() -> None:
    records = memoryview(b"r" * 1000)
    parts = fetch_response.encode_fetch_response(12, [fetch_response.FetchAnswer("t", 0, 0, records=[records])])
    assert any(part is records for part in parts)
    frame = joined_bytes(parts)
    (row,) = fetch_response.decode_fetch_response(12, frame).partitions
    assert row.records.obj is frame
    assert row.records == records


TOPIC = UUID(int=7)
ONE_ROW = fetch.FetchRequest(
    2, 5, 500, 1, 10_485_760, 0, 77, 12, [fetch.FetchPartition(TOPIC, 3, 4, 1000, 4, 10, 1_048_576)], [], ""
)
"""What a follower asks nearly always."""


def mutants(body: bytes) -> Iterator[bytes]:
    """`body` and everything that differs from it in one byte, of the values that lengths and counts have."""
    yield body
    for at in range(len(body)):
        for byte in (0, 1, 2, 3, 12, 13, 14, 127, 128, 255):
            yield body[:at] + bytes((byte,)) + body[at + 1 :]


@pytest.mark.parametrize("version", [15, 16, 17])
def test_decoding_a_one_partition_request_in_one_step_equals_decoding_by_field(version: int) -> None:
    body = fetch.encode_fetch_request(version, ONE_ROW)
    assert len(body) == 91
    assert fetch.decode_fetch(request_of(1, version, body)) == ONE_ROW
    compared = 0
    for mutant in mutants(body):
        try:
            read = fetch.decode_fetch(request_of(1, version, mutant))
        except WireError:
            continue
        compared += 1
        # With another byte at the end the body has another length than the shape that is decoded in one step.
        assert read == fetch.decode_fetch(request_of(1, version, mutant + b"\0")), mutant
    assert compared > len(body)


@pytest.mark.parametrize("version", [13, 16, 17])
@pytest.mark.parametrize("records", [(), (b"records" * 3,)])
def test_decoding_a_one_partition_response_in_one_step_equals_decoding_by_field(
    version: int, records: tuple[bytes, ...]
) -> None:
    answer = fetch_response.FetchAnswer(TOPIC, 3, 0, 999, 999, 10, records)
    parts = fetch_response.encode_fetch_response(version, [answer], session_id=77)
    body = joined_bytes(parts)
    compared = 0
    for mutant in mutants(body):
        try:
            read = fetch_response.decode_fetch_response(version, mutant)
        except WireError:
            continue
        compared += 1
        assert read == fetch_response.decode_fetch_response(version, mutant + b"\0"), mutant
    assert compared > len(body)


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13, 18])
@pytest.mark.parametrize("place", ["topics", "partitions", "forgotten"])
def test_a_null_list_is_a_wire_error(version: int, place: str) -> None:
    flexible = version >= 12
    null, none, single = (b"\0", b"\1", b"\2") if flexible else (b"\xff" * 4, bytes(4), b"\0\0\0\1")
    head = (b"\xff" * 4 if version < 15 else b"") + bytes(13) + (bytes(8) if version >= 7 else b"")
    name = bytes(16) if version >= 13 else b"\2a" if flexible else b"\0\1a"
    lists = {"topics": null, "partitions": single + name + null, "forgotten": none + null}
    if place == "forgotten" and version < 7:
        lists["forgotten"] = null  # no such field: the topics
    with pytest.raises(WireError, match="must not be null"):
        fetch.decode_fetch(request_of(1, version, head + lists[place] + bytes(4)))
