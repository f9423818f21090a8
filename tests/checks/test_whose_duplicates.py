"""Identical records: duplicates, legal sends, what cannot be judged, and whose fault a duplicate is (L1, L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from crc32c import crc32c
from harrow.harness.checks import Status, Verdict
from harrow.harness.checks.judgement import judge
from judged_runs import NOW_MS, TOPIC, RunFolder, record_batch


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path / "run")


def judged(run: RunFolder) -> Verdict:
    return judge(run.done(), topics=[TOPIC], guarantee="exactly-once", engine="inline")


def anchor(run: RunFolder) -> bytes:
    """An acknowledged batch at offset 0: without one the run proves nothing."""
    batch = record_batch(["first"])
    run.tapped(batch, 0)
    return batch


def test_identical_records_of_one_batch_without_acknowledgement_are_no_duplicate(run: RunFolder) -> None:
    first = anchor(run)
    twice = record_batch(["tick", "tick"], base_offset=1)
    run.tapped(twice, 1, lost=True)
    run.final({0: "first", 1: "tick", 2: "tick"})
    run.logs(first, twice)
    verdict = judged(run)
    assert not verdict.anomaly_counts
    assert verdict.status is Status.UNKNOWN
    assert "whether a retry or the application wrote them cannot be judged" in verdict.reasons[0]


def test_identical_records_that_were_acknowledged_are_legal(run: RunFolder) -> None:
    first = anchor(run)
    ticks = [record_batch(["tick"], base_offset=offset) for offset in (1, 2)]
    for offset, batch in enumerate(ticks, 1):
        run.tapped(batch, offset)
    run.final({0: "first", 1: "tick", 2: "tick"})
    run.logs(first, *ticks)
    assert judged(run).status is Status.VALID


def test_copy_after_two_acknowledged_copies_cannot_be_judged(run: RunFolder) -> None:
    first = anchor(run)
    ticks = [record_batch(["tick"], base_offset=offset) for offset in (1, 2, 3)]
    for offset, batch in enumerate(ticks, 1):
        run.tapped(batch, offset, lost=offset == 3)
    run.final({0: "first", 1: "tick", 2: "tick", 3: "tick"})
    run.logs(first, *ticks)
    assert judged(run).status is Status.UNKNOWN


def test_lost_response_and_an_acknowledged_later_copy_are_a_duplicate_by_a_retry(run: RunFolder) -> None:
    first = anchor(run)
    copies = [record_batch(["order 7"], base_offset=offset) for offset in (1, 2)]
    run.tapped(copies[0], 1, lost=True)
    run.tapped(copies[1], 2)
    run.final({0: "first", 1: "order 7", 2: "order 7"})
    run.logs(first, *copies)
    verdict = judged(run)
    assert verdict.anomaly_counts == {"duplicate": 1}
    assert verdict.anomalies[0].explanation.endswith("a retry was appended again")


def under_epochs(run: RunFolder, *, acked: bool, timestamps: tuple[int, int] = (NOW_MS, NOW_MS)) -> Verdict:
    """One value under producer epochs 0 and 1; `acked`: the copy under epoch 0 was acknowledged."""
    before = record_batch(["order 7"], producer_id=9, sequence=4, timestamp_ms=timestamps[0])
    again = record_batch(
        ["order 7"], base_offset=1, producer_id=9, producer_epoch=1, sequence=0, timestamp_ms=timestamps[1]
    )
    run.tapped(before, 0, lost=not acked, client="shop")
    run.tapped(again, 1, client="shop")
    run.final({0: "order 7", 1: "order 7"}, timestamps=dict(enumerate(timestamps)))
    run.logs(before, again)
    return judged(run)


def test_copy_under_the_next_producer_epoch_is_the_clients_duplicate(run: RunFolder) -> None:
    verdict = under_epochs(run, acked=False)
    assert verdict.status is Status.INVALID
    assert verdict.anomaly_counts == {"duplicate": 1}
    text = verdict.anomalies[0].explanation
    assert "the client shop sent it under producer epoch 0 (batch at offset 0) and again under producer epoch 1" in text
    assert "the client doubled it, and not the brokers" in text
    assert "confluentinc/librdkafka#4953" in text


def test_acknowledged_record_and_a_later_one_under_the_next_epoch_are_legal(run: RunFolder) -> None:
    assert under_epochs(run, acked=True).status is Status.VALID


def test_records_with_other_timestamps_are_legal_under_two_epochs(run: RunFolder) -> None:
    assert under_epochs(run, acked=False, timestamps=(NOW_MS, NOW_MS + 1)).status is Status.VALID


def test_recorded_duplicate_under_two_epochs_names_the_client(run: RunFolder) -> None:
    before = record_batch(["order 7"], producer_id=9, sequence=4)
    again = record_batch(["order 7"], base_offset=1, producer_id=9, producer_epoch=1, sequence=0)
    run.send("order 7", 1)
    run.tapped(again, 1, client="shop")
    run.final({0: "order 7", 1: "order 7"})
    run.logs(before, again)
    verdict = judged(run)
    assert verdict.anomaly_counts == {"duplicate": 1}
    assert "the client shop sent it under producer epoch 0" in verdict.anomalies[0].explanation


def test_control_batches_and_aborted_records_are_legal(run: RunFolder) -> None:
    """A transaction of two records at offsets 1 and 2, aborted by the marker at offset 3; the reader passes over it."""
    first = anchor(run)
    aborted = with_attributes(record_batch(["x", "y"], base_offset=1, producer_id=9, sequence=0), 0x10)
    marker = with_attributes(record_batch(["abort"], base_offset=3, producer_id=9), 0x30)
    last = record_batch(["last"], base_offset=4)
    run.tapped(aborted, 1)
    run.tapped(last, 4)
    run.read("first", 0)
    run.read("last", 4)
    run.final({0: "first", 1: "x", 2: "y", 4: "last"})
    run.logs(first, aborted, marker, last)
    run.coordinators_did_nothing(1, 2, 3)
    verdict = judged(run)
    assert verdict.status is Status.VALID, str(verdict)
    assert not verdict.anomaly_counts


def with_attributes(batch: bytes, attributes: int) -> bytes:
    """Sets the attributes of a batch, and its CRC."""
    body = attributes.to_bytes(2, "big") + batch[23:]
    return batch[:17] + crc32c(body).to_bytes(4, "big") + body
