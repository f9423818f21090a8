"""What the brokers store of clients' batches, and what they refuse, is that of Apache Kafka 4.2 (A4, F1)."""

from __future__ import annotations

import time
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import Codec, headers
from harrow.cluster.wire.compression import compress
from malformed_batches import GOOD, MALFORMED, WRONG_OFFSETS, batch_of, record
from raw_kafka import batch
from waiting import until

Code = ErrorCode
RECORDS = b"".join(GOOD)
UNKNOWN = {"length of more than 32 bits"}
"""Apache Kafka answers UNKNOWN_SERVER_ERROR, where Harrow answers INVALID_RECORD."""
STORED_COMPRESSED = {
    "length 0",
    "length -1",
    "length beyond the batch",
    "length too short",
    "length of the largest integer",
}
"""Apache Kafka stores these in a compressed batch, and consumers fail at them."""


def refused(kafka: Any, topic: str, data: bytes) -> ErrorCode:
    """The error of the batch, of which nothing is stored."""
    raw = kafka.raw(1)
    end = raw.list_offset(topic, 0, -1).offset
    code = ErrorCode(raw.produce(topic, 0, data).error_code)
    assert raw.list_offset(topic, 0, -1).offset == end, "nothing is stored"
    return code


@pytest.mark.parametrize("version", [3, 5])
def test_two_producers_that_name_the_same_id_get_two_ids_and_store_two_records(kafka: Any, version: int) -> None:
    topic, raw = kafka.topic("two-producers", 1), kafka.raw(1)

    def initialised() -> Any:
        row = raw.ask(
            ApiKey.INIT_PRODUCER_ID,
            version,
            transactional_id=None,
            transaction_timeout=60_000,
            producer_id=0,
            producer_epoch=0,
        )
        return None if row.error_code is Code.coordinator_load_in_progress else row

    producers = [until(initialised, "a producer id") for _ in range(2)]
    assert [(row.error_code, row.producer_epoch) for row in producers] == [(Code.none, 0)] * 2
    assert len({row.producer_id for row in producers}) == 2
    for number, row in enumerate(producers):
        data = batch(
            [f"of producer {number}"], producer_id=row.producer_id, producer_epoch=row.producer_epoch, base_sequence=0
        )
        produced = raw.produce(topic, 0, data)
        assert (produced.error_code, produced.base_offset) == (Code.none, number)
    assert raw.list_offset(topic, 0, -1).offset == 2


def test_a_partition_that_does_not_exist_is_named_before_the_lack_of_records(kafka: Any) -> None:
    topic, raw = kafka.topic("no-records", 1), kafka.raw(1)
    # Apache Kafka never responds where the partition exists; Harrow refuses the records.
    assert Code(raw.produce(topic, 9, None).error_code) is Code.unknown_topic_or_partition


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_a_batch_whose_records_do_not_parse_is_refused_and_not_stored(kafka: Any, codec: int) -> None:
    topic = kafka.topic("malformed", 1)
    for kind, (records, count) in MALFORMED.items():
        wanted = {Code.invalid_record}
        if kafka.name == "apache" and codec and kind in STORED_COMPRESSED:
            continue
        if kafka.name == "apache" and kind in UNKNOWN:
            wanted.add(Code.unknown_server_error)
        data = batch_of(records, count, codec=codec)
        assert refused(kafka, topic, data) in wanted, kind
    for kind, (records, count) in WRONG_OFFSETS.items():
        if kafka.name == "apache" and not codec:
            continue  # stored, see docs/compatibility.md
        error = Code.unknown_server_error if kafka.name == "apache" else Code.invalid_record
        assert refused(kafka, topic, batch_of(records, count, codec=codec)) is error, kind
    assert kafka.raw(1).produce(topic, 0, batch_of(RECORDS, 2, codec=codec)).error_code == 0


def test_a_batch_that_is_not_in_its_codec_is_refused_and_not_stored(kafka: Any) -> None:
    topic = kafka.topic("codecs", 1)
    for codec in (Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD):
        whole = compress(codec, b"".join(record(number) for number in range(50)))
        for payload in (RECORDS, whole[:-5]):
            code = refused(kafka, topic, batch_of(b"", 50, codec=codec, payload=payload))
            if kafka.name == "apache":
                assert code in (Code.invalid_record, Code.unknown_server_error), codec
            else:
                assert code is Code.invalid_record, codec


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_the_max_timestamp_of_a_batch_is_that_of_its_records(kafka: Any, codec: int) -> None:
    topic, raw = kafka.topic("max-times", 1), kafka.raw(1)
    now = time.time_ns() // 1_000_000
    records = record(0, time=-50) + record(1, time=-20) + record(2, time=-now - 1)
    for claimed in (-7, -1, now, now * 1000):
        data = batch_of(records, 3, codec=codec, base_ms=now, max_ms=claimed)
        row = raw.produce(topic, 0, data)
        assert row.error_code == 0, claimed
        stored = [each.header for each in headers(raw.fetch(topic, 0, row.base_offset).records)]
        assert stored[-1].max_timestamp == now - 20, claimed
    found = raw.list_offset(topic, 0, -3)
    assert (found.timestamp, found.offset) == (now - 20, 1)
    assert raw.list_offset(topic, 0, now - 19).offset == -1


def test_times_that_no_record_may_have_are_refused(kafka: Any) -> None:
    """A time is 64 bits: a sum that is larger wraps. Times below -1 are stored, as far as the topic allows them."""
    topic, own = (kafka.topic("times", 1), kafka.topic("own", 1, message_timestamp_type="LogAppendTime"))
    now = time.time_ns() // 1_000_000
    far = record(0, time=2**63 - 1) + GOOD[1]
    assert refused(kafka, topic, batch_of(far, 2, base_ms=now)) is Code.invalid_timestamp
    lowest = batch_of(RECORDS, 2, base_ms=-(2**63), max_ms=now)
    assert refused(kafka, topic, lowest) is Code.invalid_timestamp
    claims = batch_of(RECORDS, 2, base_ms=now, max_ms=now + 9, attributes=0x08)
    assert refused(kafka, own, claims) is Code.invalid_timestamp
    without = batch_of(RECORDS, 2, base_ms=now, max_ms=-1, attributes=0x08)
    assert refused(kafka, topic, without) is Code.invalid_timestamp
    raw = kafka.raw(1)
    for data, highest in ((claims, now + 9), (batch_of(RECORDS, 2, base_ms=-2), -1)):
        row = raw.produce(topic, 0, data)
        assert row.error_code == 0
        stored = [each.header for each in headers(raw.fetch(topic, 0, row.base_offset).records)]
        assert (stored[-1].attributes, stored[-1].max_timestamp) == (0, highest)


def test_attributes_without_a_meaning_are_kept_where_the_header_stays(kafka: Any) -> None:
    now, raw = time.time_ns() // 1_000_000, kafka.raw(1)
    plain, own = (kafka.topic("bits", 1), kafka.topic("own-bits", 1, message_timestamp_type="LogAppendTime"))
    for topic, most, kept in ((plain, now, 0x80), (plain, now + 9, 0), (own, now, 0x08)):
        data = batch_of(RECORDS, 2, base_ms=now, max_ms=most, attributes=0x80)
        row = raw.produce(topic, 0, data)
        stored = [each.header for each in headers(raw.fetch(topic, 0, row.base_offset).records)]
        assert stored[-1].attributes == kept, (topic, most)


@pytest.mark.parametrize(("magic", "code"), [(255, Code.corrupt_message), (1, Code.invalid_record)])
def test_bytes_that_are_no_batch_are_refused_before_the_acks_and_the_leader(
    kafka: Any, magic: int, code: ErrorCode
) -> None:
    topic = kafka.topic("no-batch", 1, 2)
    damaged = bytearray(batch(["a"]))
    damaged[16] = magic
    for node, acks in ((1, 99), (2, -1), (3, -1)):
        found = kafka.raw(node).produce(topic, 0, bytes(damaged), acks=acks)
        assert found.error_code is code, (node, acks)


def test_a_producer_without_an_epoch_is_fenced_by_one_with_an_epoch(kafka: Any) -> None:
    topic, raw = kafka.topic("epochless", 1, 2), kafka.raw(1)

    def sent(producer_id: int, epoch: int, sequence: int = 0) -> tuple[Code, int]:
        records = batch(["a"], producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
        found = raw.produce(topic, 0, records)
        return found.error_code, found.base_offset

    assert [sent(7_001, -1), sent(7_001, -1)] == [(Code.none, 0)] * 2, "a repetition"
    assert sent(7_001, 0) == (Code.none, 1)
    assert sent(7_001, -1, 1)[0] is Code.invalid_producer_epoch
    assert sent(7_002, -2)[0] is Code.invalid_producer_epoch
    assert sent(7_002, -1, -1)[0] is Code.invalid_record
