"""Refused batches get the error, the message and the record errors of Apache Kafka 4.2 (A3, A4, B8, KIP-467)."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.batches import Codec
from harrow.cluster.wire.records import NewRecord, build_batch
from waiting import until

Code = ErrorCode
CODECS = tuple(Codec)


def batch(*keys: str | None, at_ms: Sequence[int] | int | None = None, codec: int = 0) -> bytes:
    """A batch with a record for each key, at these times (default: now)."""
    records: list[NewRecord] = [(None if key is None else key.encode(), b"value", ()) for key in keys]
    now_ms = time.time_ns() // 1_000_000
    if at_ms is None or isinstance(at_ms, int):
        return build_batch(records, timestamp_ms=now_ms if at_ms is None else at_ms, codec=codec)
    return build_batch(records, timestamp_ms=now_ms, timestamps_ms=at_ms, codec=codec)


def produced(kafka: Any, topic: str, data: bytes, version: int = 9) -> tuple[str, Any, Any]:
    """`(error, record errors, message)` of one batch."""
    row = kafka.raw(1).produce(topic, 0, data, version=version)
    errors = getattr(row, "record_errors", None)
    if errors is not None:
        errors = [(each.batch_index, each.batch_index_error_message) for each in errors]
    return row.error_code.name, errors, getattr(row, "error_message", None)


@pytest.mark.parametrize("codec", CODECS)
def test_records_without_a_key_are_named_in_the_refusal_of_their_batch(kafka: Any, codec: int) -> None:
    topic = kafka.topic("keyed", 1, cleanup_policy="compact,delete")
    text = f"Compacted topic cannot accept message without key in topic partition {topic}-0"
    data = batch("a", None, "b", None, None, None, codec=codec)
    code, errors, message = produced(kafka, topic, data)
    assert (code, errors) == ("invalid_record", [(index, text) for index in (1, 3, 4, 5)])
    assert message.startswith("One or more records have been rejected due to 4 record errors in")
    assert message.count("RecordError(") == 3
    assert produced(kafka, topic, batch("a", ""))[0] == "none", "an empty key is a key"


@pytest.mark.parametrize("codec", CODECS)
def test_a_compressed_record_above_the_largest_is_refused_and_not_looked_at(kafka: Any, codec: int) -> None:
    """`max.decompressed.message.bytes`: the length of a record without the field that has the length."""
    now_ms = time.time_ns() // 1_000_000
    small: list[NewRecord] = [(b"k", b"v", ())]

    def large(size: int) -> bytes:
        return build_batch(
            [*small, (b"k", bytes(size), ())], timestamp_ms=now_ms, timestamps_ms=[now_ms, now_ms + 9], codec=codec
        )

    kept = kafka.topic("kept", 1)
    assert produced(kafka, kept, large(992))[0] == "none"
    topic = kafka.topic("large", 1, max_decompressed_message_bytes="1000")
    assert produced(kafka, topic, large(991))[0] == "none", (
        "1,000 bytes: 2 of lengths, 5 of fields, 1 key, 991 value, 1"
    )
    text = "Invalid record size: 1001 exceeds the configured maximum record size of 1000."
    code, errors, message = produced(kafka, topic, large(993))
    assert (code, errors) == ("invalid_record" if codec else "none", [])
    assert message == (text if codec and kafka.name == "harrow" else None), "Kafka has the text in its log only"
    # what is stored, and is too large now
    raw = kafka.raw(1)
    assert raw.change_settings(2, kept, ("max.decompressed.message.bytes", 0, "999")).error_code == 0
    until(lambda: raw.list_offset(kept, 0, now_ms + 1).error_code.name == code, code)
    assert raw.list_offset(kept, 0, now_ms).offset == 0, "the record before it is found"
    assert raw.list_offset(kept, 0, -3).error_code.name == code, "the largest time"


@pytest.mark.parametrize("version", [5, 7, 8, 11])
def test_record_errors_are_sent_from_version_8_on(kafka: Any, version: int) -> None:
    topic = kafka.topic("versions", 1, cleanup_policy="compact")
    code, errors, message = produced(kafka, topic, batch(None), version)
    assert code == "invalid_record"
    assert (errors is None, message is None) == (version < 8, version < 8)
    if version >= 8:
        assert [index for index, _ in errors] == [0]


@pytest.mark.parametrize("codec", CODECS)
def test_records_whose_time_is_out_of_range_are_named_in_the_refusal(kafka: Any, codec: int) -> None:
    settings = {"message_timestamp_before_max_ms": "60000", "message_timestamp_after_max_ms": "600000"}
    topic = kafka.topic("times", 1, **settings)
    now_ms = time.time_ns() // 1_000_000
    times = [now_ms, now_ms - 120_000, now_ms + 1_200_000, -1]
    code, errors, message = produced(kafka, topic, batch("a", "b", "c", "d", at_ms=times, codec=codec))
    assert (code, [index for index, _ in errors]) == ("invalid_timestamp", [1, 2])
    assert message == "One or more records have been rejected due to invalid timestamp"
    for index, text in errors:
        assert text.startswith(f"Timestamp {times[index]} of message with offset {index} is out")
    fine = [now_ms - 30_000, now_ms + 300_000, -1]
    assert produced(kafka, topic, batch("a", "b", "c", at_ms=fine, codec=codec))[0] == "none"


def test_a_time_more_than_an_hour_ahead_is_refused_and_any_past_time_is_accepted(kafka: Any) -> None:
    topic = kafka.topic("default-times", 1)
    now_ms = time.time_ns() // 1_000_000
    for at_ms, code in (
        (now_ms * 1_000, "invalid_timestamp"),  # microseconds by mistake
        (now_ms + 3_700_000, "invalid_timestamp"),
        (now_ms + 3_400_000, "none"),
        (0, "none"),
        (-1, "none"),
    ):
        assert produced(kafka, topic, batch("a", at_ms=at_ms))[0] == code, at_ms


def test_times_of_the_log_are_not_checked(kafka: Any) -> None:
    settings = {"message_timestamp_type": "LogAppendTime", "message_timestamp_before_max_ms": "1000"}
    topic = kafka.topic("own-times", 1, **settings)
    assert produced(kafka, topic, batch("a", at_ms=5))[0] == "none"
    assert produced(kafka, topic, batch("a", at_ms=2**62))[0] == "none"


@pytest.mark.parametrize("version", [5, 6, 7, 9])
def test_zstd_is_refused_before_version_7(kafka: Any, version: int) -> None:
    topic = kafka.topic("zstd", 1)
    raw = kafka.raw(1)
    wanted = Code.unsupported_compression_type if version < 7 else Code.none
    data = batch("a", codec=Codec.ZSTD)
    assert raw.produce(topic, 0, data, version=version).error_code is wanted
    assert raw.produce(topic, 0, batch("a", codec=Codec.LZ4), version=version).error_code == 0
    assert raw.list_offset(topic, 0, -1).offset == (1 if version < 7 else 2)
    for fetch_version in (9, 10):
        assert raw.fetch(topic, 0, 0, version=fetch_version).error_code is Code.none
