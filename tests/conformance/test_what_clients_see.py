"""Responses and errors of our brokers are the same as those of Apache Kafka 4.2 (A2, A3, C5, C6, E3, E4)."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from crc32c import crc32c
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import headers
from harrow.cluster.wire.client_requests import client_request
from raw_kafka import NOW_MS, RawKafka, batch, fetch_request, produce_request
from waiting import until

Code = ErrorCode

ASK: dict[str, Callable[[RawKafka, str, int], Any]] = {
    "produce": lambda raw, topic, _epoch: raw.produce(topic, 0, ["x"]),
    "fetch": lambda raw, topic, epoch: raw.fetch(topic, 0, 0, version=10, epoch=epoch),
    "list-offsets": lambda raw, topic, epoch: raw.list_offset(topic, 0, -1, epoch=epoch),
    "epoch-end": lambda raw, topic, epoch: raw.epoch_end(topic, 0, 0, current=epoch),
}
WITH_EPOCH = ("fetch", "list-offsets", "epoch-end")


@pytest.mark.parametrize("api", ASK)
def test_a_request_for_an_unknown_topic_returns_the_error_of_kafka(kafka: Any, api: str) -> None:
    assert ASK[api](kafka.raw(), "nowhere", -1).error_code is Code.unknown_topic_or_partition


def test_metadata_of_an_unknown_topic_returns_the_error_of_kafka(kafka: Any) -> None:
    (row,) = kafka.raw().metadata("nowhere").topics
    assert (row.error_code, row.partitions) == (Code.unknown_topic_or_partition, ())


@pytest.mark.parametrize("api", ASK)
def test_a_request_to_a_follower_returns_not_leader(kafka: Any, api: str) -> None:
    topic = kafka.topic("followed", 1, 2)
    assert ASK[api](kafka.raw(2), topic, -1).error_code is Code.not_leader_or_follower


@pytest.mark.parametrize("api", ASK)
def test_a_request_to_a_broker_without_a_replica_returns_not_leader(kafka: Any, api: str) -> None:
    topic = kafka.topic("elsewhere", 1, 2)
    assert ASK[api](kafka.raw(3), topic, -1).error_code is Code.not_leader_or_follower


@pytest.mark.parametrize("api", WITH_EPOCH)
def test_a_request_with_a_newer_leader_epoch_is_refused(kafka: Any, api: str) -> None:
    topic = kafka.topic("epochs", 1)
    epoch = kafka.partition(topic, 1).leader_epoch
    assert ASK[api](kafka.raw(1), topic, epoch).error_code is Code.none
    assert ASK[api](kafka.raw(1), topic, epoch + 1).error_code is Code.unknown_leader_epoch


def test_producing_with_each_acks_value_returns_the_result_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("acks", 1, 2)
    raw = kafka.raw(1)
    for acks in (1, -1):
        answer = raw.produce(topic, 0, ["x"], acks=acks)
        assert (answer.error_code, answer.log_append_time, answer.log_start_offset) == (0, None, 0)
    assert raw.produce(topic, 0, ["x"], acks=2).error_code is Code.invalid_required_acks


def test_producing_with_acks_0_gets_no_response(kafka: Any) -> None:
    topic = kafka.topic("silent", 1)
    raw = kafka.raw(1)
    raw.send(ApiKey.PRODUCE, 9, produce_request(topic, 0, ["x"], 0, 1_000, 9))
    answer = raw.list_offset(topic, 0, -1)  # asserts that this is the next response
    assert answer.offset == 1


def test_producing_with_acks_all_times_out_while_a_follower_is_paused(kafka: Any) -> None:
    topic = kafka.topic("late", 1, 2)
    raw = kafka.raw(1)
    kafka.pause(2)
    try:
        answer = raw.produce(topic, 0, ["x"], timeout_ms=50)
    finally:
        kafka.resume(2)
    assert answer.error_code is Code.request_timed_out
    assert raw.produce(topic, 0, ["y"]).base_offset == 1, "the record that timed out was appended"


def test_producing_with_min_insync_replicas_above_the_replica_count_is_accepted(kafka: Any) -> None:
    """Kafka never requires more in-sync replicas than the partition has replicas (`effectiveMinIsr`)."""
    topic = kafka.topic("few", 1, min_insync_replicas="2")
    assert kafka.raw(1).produce(topic, 0, ["x"]).error_code is Code.none


def test_producing_invalid_batches_returns_the_errors_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("refused", 1, max_message_bytes="300")
    raw = kafka.raw(1)
    assert raw.produce(topic, 0, ["x" * 400]).error_code is Code.message_too_large
    entity = produce_request(topic, 0, ["marker"], -1, 1_000, 9)
    body = messages.encode_request(ApiKey.PRODUCE, 9, entity).replace(b"marker", b"MARKER")
    raw.send_body(ApiKey.PRODUCE, 9, body)
    corrupt = raw.take()[1].responses[0].partition_responses[0]
    assert (corrupt.error_code, corrupt.base_offset) == (Code.corrupt_message, -1)
    assert raw.list_offset(topic, 0, -1).offset == 0


ONE = batch(["a", "b"])


def changed(layout: str, at: int, value: int) -> bytes:
    """Returns `ONE` with another value of a field, and the CRC that matches it."""
    data = bytearray(ONE)
    struct.pack_into(layout, data, at, value)
    struct.pack_into(">I", data, 17, crc32c(data[21:]))
    return bytes(data)


RECORDS: dict[str, tuple[bytes, ErrorCode]] = {
    "two": (ONE + ONE, Code.invalid_record),
    "two, the second broken": (ONE + ONE[:-1] + b"!", Code.invalid_record),
    "two, the second of an old magic": (ONE + changed(">b", 16, 1), Code.invalid_record),
    "a beginning behind it": (ONE + ONE[:30], Code.none),
    "a few bytes behind it": (ONE + ONE[:5], Code.none),
    "zeroes behind it": (ONE + bytes(80), Code.corrupt_message),
    "nothing": (b"", Code.invalid_record),
    "cut off": (ONE[:-5], Code.invalid_record),
    "cut off in its header": (ONE[:40], Code.invalid_record),
    "an offset": (changed(">q", 0, 5), Code.invalid_record),
    "a leader epoch": (changed(">i", 12, 7), Code.none),
    "magic 0": (changed(">b", 16, 0), Code.invalid_record),
    "magic 1": (changed(">b", 16, 1), Code.invalid_record),
    "magic 3": (changed(">b", 16, 3), Code.corrupt_message),
    "length 5": (changed(">i", 8, 5), Code.corrupt_message),
    "length 13": (changed(">i", 8, 13), Code.corrupt_message),
    "length 14": (changed(">i", 8, 14), Code.corrupt_message),
    "length -1": (changed(">i", 8, -1), Code.corrupt_message),
    "a byte more than there is": (changed(">i", 8, len(ONE) - 11), Code.invalid_record),
    "a byte less": (changed(">i", 8, len(ONE) - 13), Code.corrupt_message),
    "a control batch": (changed(">h", 21, 0x20), Code.invalid_record),
    "the log's time": (changed(">h", 21, 0x08), Code.none),
    "an unknown attribute": (changed(">h", 21, 0x80), Code.none),
    "a record too many": (changed(">i", 57, 3), Code.invalid_record),
    "no record": (changed(">i", 57, 0), Code.invalid_record),
    "a wrong delta": (changed(">i", 23, 5), Code.invalid_record),
    "a producer without a sequence": (changed(">q", 43, 5), Code.invalid_record),
}


def test_producing_several_or_partial_batches_returns_the_result_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("held", 1)
    raw = kafka.raw(1)
    answers = {name: raw.produce(topic, 0, data) for name, (data, _) in RECORDS.items()}
    wanted = {name: code for name, (_, code) in RECORDS.items()}
    assert {name: answer.error_code for name, answer in answers.items()} == wanted
    taken = [answer.base_offset for answer in answers.values() if not answer.error_code]
    assert taken == list(range(0, 2 * len(taken), 2))
    assert raw.list_offset(topic, 0, -1).offset == 2 * len(taken)
    stored = raw.fetch(topic, 0, 0).records
    attributes = [placed.header.attributes for placed in headers(stored, partial_ok=False)]
    assert attributes == [0, 0, 0, 0, 0x80], "the broker sets the timestamp type, not the producer"


def test_producing_a_transactional_batch_without_a_transaction_is_refused(kafka: Any) -> None:
    topic = kafka.topic("outside", 1)
    raw = kafka.raw(1)
    data = batch(["a"], producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    refused = raw.produce(topic, 0, data)
    assert refused.error_code is Code.transactional_id_authorization_failed
    assert raw.list_offset(topic, 0, -1).offset == 0


def test_list_offsets_returns_the_offsets_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("offsets", 1)
    raw = kafka.raw(1)

    def row(timestamp: int) -> tuple[int, ...]:
        found = raw.list_offset(topic, 0, timestamp)
        return found.error_code, found.timestamp, found.offset, found.leader_epoch

    assert (row(-1), row(-2)) == ((0, -1, 0, 0), (0, -1, 0, 0)), "an epoch begins when its leader starts"
    assert row(1) == (0, -1, -1, -1)
    raw.produce(topic, 0, ["a", "b"])
    time = NOW_MS
    assert (row(-1), row(-2)) == ((0, -1, 2, 0), (0, -1, 0, 0))
    assert (row(time), row(time + 1)) == ((0, time, 0, 0), (0, -1, -1, -1))
    assert row(-3)[:2] == (0, time)


@pytest.mark.parametrize("version", [7, 8, 9, 10, 11])
def test_list_offsets_of_tiered_storage_returns_the_result_of_kafka(kafka: Any, version: int) -> None:
    topic = kafka.topic("tiers", 1)
    raw = kafka.raw(1)
    raw.produce(topic, 0, ["a", "b"])

    def row(timestamp: int) -> tuple[int, ...]:
        found = raw.list_offset(topic, 0, timestamp, version=version)
        return found.error_code, found.timestamp, found.offset, found.leader_epoch

    nothing, unknown = (0, -1, -1, -1), (int(Code.unsupported_version), -1, -1, -1)
    assert row(-4) == ((0, -1, 0, 0) if version >= 8 else unknown), "earliest local"
    assert row(-5) == (nothing if version >= 9 else unknown), "latest tiered"
    assert row(-6) == (nothing if version >= 11 else unknown), "earliest pending upload"
    assert row(-7) == unknown


def test_offset_for_leader_epoch_returns_the_ends_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("ends", 1)
    raw = kafka.raw(1)
    raw.produce(topic, 0, ["a", "b"])

    def end(epoch: int) -> tuple[int, ...]:
        found = raw.epoch_end(topic, 0, epoch)
        return found.error_code, found.leader_epoch, found.end_offset

    assert [end(epoch) for epoch in (0, 1, -1)] == [(0, 0, 2), (0, -1, -1), (0, -1, -1)]


def test_fetching_out_of_range_returns_the_error_of_kafka(kafka: Any) -> None:
    topic = kafka.topic("range", 1)
    raw = kafka.raw(1)
    raw.produce(topic, 0, ["a", "b"])
    at_end = raw.fetch(topic, 0, 2)
    assert (at_end.error_code, at_end.high_watermark, at_end.log_start_offset) == (0, 2, 0)
    assert not at_end.records
    for offset in (3, -1):
        beyond = raw.fetch(topic, 0, offset)
        result = (beyond.error_code, beyond.high_watermark, beyond.log_start_offset)
        assert result == (Code.offset_out_of_range, -1, -1)


def test_fetching_with_a_small_limit_returns_at_least_one_batch(kafka: Any) -> None:
    topic = kafka.topic("one", 1)
    raw = kafka.raw(1)
    for value in ("a", "b"):
        raw.produce(topic, 0, [value])
    sizes = {size: len(raw.fetch(topic, 0, 0, max_bytes=size).records) for size in (1, 1 << 20)}
    assert sizes[1] == sizes[1 << 20] // 2 == len(batch(["a"]))
    (epoch,) = struct.unpack_from(">i", raw.fetch(topic, 0, 0, max_bytes=1).records, 12)
    assert epoch == kafka.partition(topic, 1).leader_epoch


def test_fetching_with_a_matching_epoch_returns_no_diverging_epoch(kafka: Any) -> None:
    """KIP-595's field is set only for a fetch that contains the epoch of the last record and diverges."""
    topic = kafka.topic("diverging", 1)
    raw = kafka.raw(1)
    raw.produce(topic, 0, ["a", "b"])
    fine = raw.fetch(topic, 0, 2, last_epoch=0)
    assert (fine.error_code, fine.diverging_epoch.epoch, fine.diverging_epoch.end_offset) == (0, -1, -1)


def test_a_delayed_fetch_completes_when_the_record_arrives(kafka: Any) -> None:
    topic = kafka.topic("delayed", 1, 2)
    waiting, other = kafka.raw(1), kafka.raw(1)
    waiting.send(ApiKey.FETCH, 12, fetch_request(topic, 0, 0, 12, max_wait_ms=20_000))
    for _ in range(3):
        other.list_offset(topic, 0, -1)
    assert not waiting.ready(), "no record has arrived yet"
    other.produce(topic, 0, ["x"])
    row = waiting.take()[1].responses[0].partitions[0]
    assert (row.error_code, row.high_watermark, len(row.records)) == (0, 1, len(batch(["x"])))


def test_a_delayed_fetch_completes_at_min_bytes_or_at_its_deadline(kafka: Any) -> None:
    topic = kafka.topic("bytes", 1)
    waiting, other = kafka.raw(1), kafka.raw(1)
    size = len(batch(["x"]))
    entity = fetch_request(topic, 0, 0, 12, max_wait_ms=20_000, min_bytes=2 * size)
    waiting.send(ApiKey.FETCH, 12, entity)
    other.produce(topic, 0, ["x"])
    for _ in range(3):
        other.list_offset(topic, 0, -1)
    assert not waiting.ready(), "one batch is not enough"
    other.produce(topic, 0, ["x"])
    assert len(waiting.take()[1].responses[0].partitions[0].records) == 2 * size
    late = other.fetch(topic, 0, 0, max_wait_ms=50, min_bytes=1 << 20)
    assert len(late.records) == 2 * size, "at its deadline the fetch returns the available records"


def test_pipelined_requests_get_their_responses_in_order(kafka: Any) -> None:
    topic = kafka.topic("order", 1)
    raw = kafka.raw(1)
    first = raw.send(ApiKey.FETCH, 12, fetch_request(topic, 0, 0, 12, max_wait_ms=100))
    second = raw.send(ApiKey.PRODUCE, 9, produce_request(topic, 0, ["x"], -1, 1_000, 9))
    assert [raw.take()[0], raw.take()[0]] == [first, second]


def test_unsupported_versions_close_the_connection_or_return_an_error(kafka: Any) -> None:
    raw = kafka.raw()
    body = client_request(ApiKey.API_VERSIONS, 3, client_software_name="t", client_software_version="1").body()
    raw.send_body(ApiKey.API_VERSIONS, 99, body, answered_as=0)
    answer = raw.take()[1]
    assert answer.error_code is Code.unsupported_version
    assert [row.api_key for row in answer.api_keys if row.api_key == 18] == [18]
    closed = kafka.raw()
    closed.send_body(ApiKey.PRODUCE, 99, b"")
    with pytest.raises(ConnectionResetError):
        closed.take()


def test_an_election_changes_metadata_and_leader_epochs(kafka: Any) -> None:
    topic = kafka.topic("elected", 1, 2, 3, min_insync_replicas="1")
    before = kafka.raw(1).produce(topic, 0, ["a"])
    assert before.error_code == 0
    epoch = kafka.partition(topic, 2).leader_epoch
    kafka.kill(1)
    try:
        until(lambda: kafka.partition(topic, 2).leader_id in (2, 3), "a new leader")
        row = kafka.partition(topic, 2)
        assert row.leader_epoch > epoch
        assert (set(row.isr_nodes), set(row.replica_nodes)) == ({2, 3}, {1, 2, 3})
        until(lambda: tuple(kafka.partition(topic, 2).offline_replicas) == (1,), "1 is offline")
        leader = kafka.raw(row.leader_id)
        until(lambda: leader.list_offset(topic, 0, -1).error_code == 0, "it leads")
        for api in WITH_EPOCH:
            code = ASK[api](leader, topic, epoch).error_code
            assert code is Code.fenced_leader_epoch, api
        assert leader.list_offset(topic, 0, -1).leader_epoch == row.leader_epoch
        leader.produce(topic, 0, ["b"])
        ends = [leader.epoch_end(topic, 0, number).end_offset for number in (epoch, row.leader_epoch)]
        assert ends == [1, 2]
        diverging = leader.fetch(topic, 0, 2, last_epoch=epoch).diverging_epoch
        assert (diverging.epoch, diverging.end_offset) == (epoch, 1)
    finally:
        kafka.start(1)
    until(lambda: set(kafka.partition(topic, 2).isr_nodes) == {1, 2, 3}, "all in sync again")


def test_producing_with_too_few_in_sync_replicas_is_refused(kafka: Any) -> None:
    topic = kafka.topic("short", 1, 2, min_insync_replicas="2")
    raw = kafka.raw(1)
    assert raw.produce(topic, 0, ["a"]).error_code is Code.none
    kafka.pause(2)
    try:
        asked = raw.send(ApiKey.PRODUCE, 9, produce_request(topic, 0, ["b"], -1, 15_000, 9))
    finally:
        kafka.kill(2)
    try:
        until(lambda: tuple(kafka.partition(topic, 1).isr_nodes) == (1,), "2 out of the ISR")

        def refused() -> bool:
            # Kafka reports the changed ISR to clients shortly before the leader uses it
            answer = kafka.raw(1).produce(topic, 0, ["c"], timeout_ms=100)
            assert answer.error_code is not Code.none
            return (answer.error_code, answer.base_offset) == (Code.not_enough_replicas, -1)

        until(refused, "an append is refused")
        last: int = kafka.raw(1).produce(topic, 0, ["d"], acks=1).base_offset
        assert last >= 2
        correlation, waited = raw.take()
        assert correlation == asked
        row = kafka.raw(1).fetch(topic, 0, 1)
        code = waited.responses[0].partition_responses[0].error_code
        # docs/compatibility.md, "The high watermark advances below `min.insync.replicas`"
        expected = {"harrow": (Code.not_enough_replicas_after_append, last + 1), "apache": (Code.request_timed_out, 1)}
        assert (code, row.high_watermark) == expected[kafka.name]
    finally:
        kafka.start(2)
    until(lambda: set(kafka.partition(topic, 1).isr_nodes) == {1, 2}, "2 is back")

    def taken() -> Any:  # see `refused`
        row = kafka.raw(1).produce(topic, 0, ["e"])
        return row if row.error_code is Code.none else None

    assert until(taken, "an append is taken").base_offset == last + 1


def test_fetching_from_a_follower_as_a_consumer_returns_records(kafka: Any) -> None:
    topic = kafka.topic("near", 1, 2)
    kafka.raw(1).produce(topic, 0, ["a"])
    row = kafka.raw(2).fetch(topic, 0, 0, version=12, max_wait_ms=5_000)
    assert (row.error_code, row.high_watermark) == (0, 1)
    assert len(row.records) == len(batch(["a"]))
    beyond = kafka.raw(2).fetch(topic, 0, 9)
    # docs/compatibility.md, "A lagging follower does not reset a consumer"
    expected = {"harrow": Code.offset_not_available, "apache": Code.offset_out_of_range}
    assert beyond.error_code is expected[kafka.name]


def test_a_fetch_with_an_unknown_session_id_is_refused(kafka: Any) -> None:
    topic = kafka.topic("session", 1)
    raw = kafka.raw(1)
    first = raw.ask(ApiKey.FETCH, 12, fetch_request(topic, 0, 0, 12, session_epoch=0))
    assert first.error_code is Code.none
    made_up = fetch_request(topic, 0, 0, 12, session_id=first.session_id + 1, session_epoch=7)
    wrong = raw.ask(ApiKey.FETCH, 12, made_up)
    assert wrong.error_code is Code.fetch_session_id_not_found


@pytest.mark.parametrize("version", [1, 4])
def test_describing_log_dirs_returns_folder_and_size_of_a_replica(kafka: Any, version: int) -> None:
    topic = kafka.topic("placed", 1)
    raw = kafka.raw(1)
    raw.produce(topic, 0, ["a"])

    def described(*asked: tuple[str, tuple[int, ...]]) -> Any:
        rows = tuple({"topic": name, "partitions": at} for name, at in asked)
        (folder,) = raw.ask(ApiKey.DESCRIBE_LOG_DIRS, version, topics=rows or None).results
        assert folder.error_code is Code.none
        assert folder.log_dir.startswith("/")
        if version >= 4:
            assert folder.total_bytes > folder.usable_bytes > 0
        return folder.topics

    (found,) = described((topic, (0, 5)), ("nowhere", (0,)))
    assert found.name == topic
    (row,) = found.partitions
    assert row.partition_size == len(batch(["a"]))
    assert (row.partition_index, row.offset_lag, row.is_future_key) == (0, 0, False)
    assert described(("nowhere", (0,))) == ()
    assert topic in [found.name for found in described()]
