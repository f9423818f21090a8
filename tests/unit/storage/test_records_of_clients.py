"""A leader stores no batch of a client whose records do not decode, and stores the times of the records (A4, B8)."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError, RecordsRefusedError
from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, Origin
from harrow.cluster.wire.batches import Codec, headers
from harrow.cluster.wire.compression import compress
from malformed_batches import GOOD, MALFORMED, WRONG_OFFSETS, batch_of, record
from storage_host import StorageHost

EPOCH = LeaderEpoch(3)
RECORDS = b"".join(GOOD)
NOW = 1_700_000_000_000
MINUTE = 60_000
Code = ErrorCode


def read(log: Log) -> bytes:
    return b"".join(map(bytes, log.read(Offset(0), 10**9, Offset(2**40), at_least_one=True).parts))


def refusal(host: StorageHost, folder: str, data: bytes, **topic: object) -> KafkaError:
    """The error of the batch, of which nothing is stored."""
    settings = {name.replace("_", "."): value for name, value in topic.items()}
    log = host.open(folder, settings)
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(data, EPOCH)
    assert (log.log_end_offset, log.size) == (0, 0)
    log.append_as_leader(batch_of(RECORDS, 2, base_ms=NOW), EPOCH)
    assert log.log_end_offset == 2, "the next batch is stored"
    log.abandon()
    return caught.value


@pytest.mark.parametrize("kind", [*MALFORMED, *WRONG_OFFSETS])
def test_a_batch_whose_records_do_not_parse_is_refused_in_every_codec(
    host: StorageHost, folder: str, kind: str
) -> None:
    data, count = (MALFORMED | WRONG_OFFSETS)[kind]
    for codec in Codec:
        error = refusal(host, f"{folder}-{codec}", batch_of(data, count, codec=codec))
        assert error.code is Code.invalid_record, codec


@pytest.mark.parametrize("codec", [codec for codec in Codec if codec])
@pytest.mark.parametrize("topic", [{}, {"cleanup_policy": "compact"}])
def test_a_batch_that_is_not_in_its_codec_is_refused(
    host: StorageHost, folder: str, codec: int, topic: dict[str, object]
) -> None:
    whole = compress(codec, b"".join(record(number) for number in range(50)))
    for number, payload in enumerate((RECORDS, whole[:-5], b"")):
        data = batch_of(b"", 50, codec=codec, payload=payload)
        error = refusal(host, f"{folder}-{number}", data, **topic)
        assert error.code is Code.invalid_record, payload


def test_a_malformed_retry_is_refused_although_its_batch_is_stored(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    producer = (7, 0, 0)
    log.append_as_leader(batch_of(RECORDS, 2, producer=producer), EPOCH)
    with pytest.raises(KafkaError, match="behind the last"):
        log.append_as_leader(batch_of(RECORDS + b"x", 2, producer=producer), EPOCH)
    assert log.append_as_leader(batch_of(RECORDS, 2, producer=producer), EPOCH).duplicate


def test_batches_of_this_brokers_coordinators_are_not_walked(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch_of(b"not walked", 2), EPOCH, origin=Origin.COORDINATOR)
    assert log.log_end_offset == 2


@pytest.mark.parametrize("codec", Codec)
@pytest.mark.parametrize("claimed", [-7, -1, 0, NOW - MINUTE, NOW + MINUTE, NOW * 1000, 2**63 - 1])
def test_the_max_timestamp_is_that_of_the_records(host: StorageHost, folder: str, codec: int, claimed: int) -> None:
    log = host.open(folder)
    records = record(0, time=50) + record(1, time=-100) + record(2, time=-NOW - 1)
    data = batch_of(records, 3, codec=codec, base_ms=NOW, max_ms=claimed)
    info = log.append_as_leader(data, EPOCH)
    (placed,) = headers(read(log))
    assert placed.header.max_timestamp == NOW + 50
    assert bytes(info.stored_header) == read(log)[: len(info.stored_header)] != b""
    assert log.offset_of_max_timestamp() == (NOW + 50, 0, EPOCH)
    assert log.offset_for_timestamp(NOW + 51) is None
    log.abandon()
    assert host.open(folder, clean=False).log_end_offset == 3, "the CRC is valid"


def test_a_right_max_timestamp_leaves_the_batch_as_it_is(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    data = batch_of(record(0) + record(1, time=5), 2, base_ms=NOW, max_ms=NOW + 5)
    assert log.append_as_leader(data, EPOCH).stored_header == b""
    assert read(log)[17:] == data[17:]


def test_a_batch_without_times_has_the_max_timestamp_minus_one(host: StorageHost, folder: str) -> None:
    log = host.open(folder)
    log.append_as_leader(batch_of(RECORDS, 2, base_ms=-2), EPOCH)
    log.append_as_leader(batch_of(RECORDS, 2, base_ms=-1), EPOCH)
    assert [placed.header.max_timestamp for placed in headers(read(log))] == [-1, -1]


def test_a_time_that_is_out_of_range_by_the_records_is_refused(host: StorageHost, folder: str) -> None:
    """The header claims a time within the range; and a sum of more than 64 bits wraps, as in Kafka."""
    for number, (base, time) in enumerate(((-(2**63), 0), (2**62 + 2**61, 2**62), (NOW, 2**63 - 1))):
        records = record(0, time=time) + record(1)
        data = batch_of(records, 2, base_ms=base, max_ms=NOW)
        error = refusal(host, f"{folder}-{number}", data)
        assert isinstance(error, RecordsRefusedError)
        assert error.code is Code.invalid_timestamp
    late = batch_of(record(0) + record(1, time=-2 * MINUTE), 2, base_ms=NOW)
    error = refusal(host, folder, late, message_timestamp_before_max_ms=MINUTE)
    assert isinstance(error, RecordsRefusedError)
    assert [index for index, _ in error.record_errors] == [1]


def test_a_client_that_claims_the_brokers_time_is_refused_where_the_broker_sets_it(
    host: StorageHost, folder: str
) -> None:
    data = batch_of(RECORDS, 2, attributes=0x08, base_ms=NOW, max_ms=NOW + 9)
    error = refusal(host, folder, data, message_timestamp_type="LogAppendTime")
    assert isinstance(error, RecordsRefusedError)
    assert error.code is Code.invalid_timestamp
    assert [index for index, _ in error.record_errors] == [0, 1]
    without = batch_of(RECORDS, 2, attributes=0x08, max_ms=-1)
    assert refusal(host, f"{folder}-1", without).code is Code.invalid_timestamp
    log = host.open(f"{folder}-2")
    log.append_as_leader(data, EPOCH)
    (placed,) = headers(read(log))
    assert (placed.header.attributes, placed.header.max_timestamp) == (0, NOW + 9)


def test_a_record_without_a_key_and_one_out_of_time_are_both_named(host: StorageHost, folder: str) -> None:
    records = record(0) + record(1, key=None, time=-2 * MINUTE) + record(2, time=-2 * MINUTE)
    settings = {"cleanup_policy": "compact", "message_timestamp_before_max_ms": MINUTE}
    error = refusal(host, folder, batch_of(records, 3, base_ms=NOW), **settings)
    assert isinstance(error, RecordsRefusedError)
    assert error.code is Code.invalid_timestamp
    (first, second) = error.record_errors
    assert (first[0], second[0]) == (1, 2)
    assert "without key" in first[1]
    assert "out of range" in second[1]
