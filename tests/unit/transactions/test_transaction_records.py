"""Records of `__transaction_state` are those of Apache Kafka, byte for byte (F2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.cluster.coordinators import RecordFormatError
from harrow.cluster.dump.messages import transactions_parser
from harrow.cluster.ids import TopicPartition
from harrow.cluster.transactions.records import decode_key, decode_value, encode_key, encode_value
from harrow.cluster.transactions.states import EMPTY, ONGOING, PREPARE_COMMIT, TransactionState
from harrow.cluster.transactions.transaction import TransactionValue
from harrow.cluster.wire.batches import Record, decode_records, headers
from transaction_fakes import TransactionBed

GOLDEN = Path(__file__).parents[2] / "conformance" / "kafka_files" / "__transaction_state-0"
VALUES = [
    TransactionValue(producer_id=7, producer_epoch=0, timeout_ms=60_000, update_ms=12),
    TransactionValue(
        producer_id=2**40,
        producer_epoch=32767,
        previous_producer_id=2**40,
        next_producer_id=5,
        timeout_ms=1,
        state=PREPARE_COMMIT,
        partitions=tuple(TopicPartition(topic, number) for topic in ("a", "b" * 200) for number in range(3)),
        start_ms=1_700_000_000_000,
        update_ms=1_700_000_000_001,
        client_version=2,
    ),
]


def golden_batches() -> list[bytes]:
    (path,) = GOLDEN.glob("*.log")
    data = path.read_bytes()
    return [data[at : at + size] for at, size, _ in headers(data)]


def test_values_of_kafka_are_read_and_written_with_the_same_bytes() -> None:
    seen: set[TransactionState] = set()
    for batch in golden_batches():
        for record in decode_records(batch):
            assert record.key is not None
            assert encode_key(decode_key(record.key)) == bytes(record.key)
            if record.value is not None:
                value = decode_value(record.value)
                seen.add(value.state)
                assert encode_value(value) == bytes(record.value)
    assert {EMPTY, ONGOING, PREPARE_COMMIT} <= seen


@pytest.mark.parametrize("value", VALUES)
def test_a_value_is_read_as_it_was_written(value: TransactionValue) -> None:
    assert decode_value(encode_value(value)) == value


def test_the_coordinator_loads_a_partition_that_kafka_wrote() -> None:
    bed = TransactionBed()
    bed.replicas.lead(0)
    bed.replicas.resign(0)
    bed.replicas.logs[0].batches = golden_batches()
    bed.lead()
    (shard,) = bed.service.runtime.all_active()
    loaded = {transaction.transactional_id: transaction.value.state for transaction in shard}
    assert loaded
    assert not any(state.name.startswith("PREPARE") for state in loaded.values())


def test_version_0_is_read() -> None:
    data = bytes.fromhex(
        "0000000000000000000700030000ea60010000000100017400000002000000000000000400000000000000090000000000000008"
    )
    value = decode_value(data)
    assert (value.producer_id, value.producer_epoch, value.timeout_ms) == (7, 3, 60_000)
    assert value.state is ONGOING
    assert value.partitions == (TopicPartition("t", 0), TopicPartition("t", 4))
    assert (value.update_ms, value.start_ms, value.client_version) == (9, 8, 0)


@pytest.mark.parametrize("data", [b"", b"\0\2" + bytes(40), encode_value(VALUES[1])[:-9], b"\0\1" + b"\xff" * 60])
def test_bytes_that_are_no_value_are_refused(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        decode_value(data)


@pytest.mark.parametrize("data", [b"", b"\0\1\0\0", encode_key("abc")[:-1], b"\0\0\0\1\xff"])
def test_bytes_that_are_no_key_are_refused(data: bytes) -> None:
    with pytest.raises(RecordFormatError):
        decode_key(data)


def test_the_dump_tool_reads_our_values() -> None:
    parser = transactions_parser()
    for value in VALUES:
        record = Record(0, 0, encode_key("payments"), encode_value(value), ())
        key, shown = parser.parse(record)
        assert "payments" in str(key)
        assert str(value.producer_id) in str(shown)
