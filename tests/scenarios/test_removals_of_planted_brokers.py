"""Brokers with a planted bug remove records that their settings keep; the verdict on real processes names them (L2)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import pytest
from harrow import Harrow
from harrow.harness.checks import Status, Verdict
from harrow.harness.errors import VerdictError
from topics_and_traces import trace_events
from waiting import until

FAST: dict[str, object] = {
    "log.retention.check.interval.ms": 100,
    "log.segment.delete.delay.ms": 200,
    "log.cleaner.backoff.ms": 50,
}
SMALL_SEGMENTS = {"internal.segment.bytes": "4000"}
COMPACTED = {**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}
VICTIM = 3


def planted(module: str) -> pytest.MarkDecorator:
    """Runs the test with the bug planted, and without it."""
    marks = [
        pytest.param(bool(plants), marks=pytest.mark.harrow(brokers=2, config=FAST, plant=plants), id=label)
        for label, plants in ((module, (module,)), ("unplanted", ()))
    ]
    return pytest.mark.parametrize("is_planted", marks)


def send(harrow: Harrow, records: int, *, key: Callable[[int], str], gone: int = -1) -> None:
    """Sends records; the one with the number `gone` is a tombstone."""
    producer = harrow.producer(batch_num_messages=10)
    for number in range(records):
        value = None if number == gone else f"{number} " + "x" * 50
        producer.produce("orders", value, key(number))
    producer.flush(30)


def await_events(harrow: Harrow, name: str, enough: Callable[[Mapping[str, Any]], bool]) -> None:
    """Waits until every broker has traced such an event of the topic."""
    until(
        lambda: all(
            any(row.get("topic") == "orders" and enough(row) for row in trace_events(harrow.cluster, node, name))
            for node in harrow.cluster.brokers
        )
    )


def verdict_of(harrow: Harrow) -> Verdict:
    try:
        return harrow.verify("orders", guarantee="no-loss")
    except VerdictError as error:
        return error.verdict


@planted("planted_cleaners")
def test_a_compacted_topic_keeps_last_values_and_young_tombstones(harrow: Harrow, is_planted: bool) -> None:
    """`key 3` is written 30 times and then no more; `key 9` is deleted, and its tombstone must stay for a day."""
    harrow.topic("orders", config=COMPACTED)

    def key(number: int) -> str:
        if number < 2:
            return "key 9"
        return f"key {number % 7}" if number < 200 else "key 8"

    send(harrow, 400, key=key, gone=1)
    await_events(harrow, "log.cleaned", lambda row: row["end"] > 250)
    send(harrow, 200, key=lambda _: "key 8")
    await_events(harrow, "log.cleaned", lambda row: row["end"] > 400)
    verdict = verdict_of(harrow)
    if not is_planted:
        assert verdict.status is Status.VALID, str(verdict)
        return
    assert verdict.status is Status.INVALID, str(verdict)
    of_victim = [number for number in range(2, 200) if number % 7 == VICTIM]
    assert verdict.anomaly_counts == {"lost-write": 1 + len(of_victim)}, str(verdict)
    assert verdict.anomalies[0].offsets == (1,), "the tombstone"
    assert "compaction removed it" in str(verdict)


@planted("planted_retention")
def test_retention_by_time_keeps_young_segments(harrow: Harrow, is_planted: bool) -> None:
    harrow.topic("orders", config=SMALL_SEGMENTS)
    send(harrow, 300, key=lambda number: f"key {number}")
    if is_planted:
        await_events(harrow, "log.segments-deleted", lambda row: max(row["base_offsets"]) > 0)
    verdict = verdict_of(harrow)
    if not is_planted:
        assert verdict.status is Status.VALID, str(verdict)
        return
    assert verdict.anomaly_names() == {"lost-write"}, str(verdict)
    assert "too early: retention.ms is" in verdict.anomalies[0].explanation
    assert "by retention.ms, too early" in verdict.causes["lost-write"][0]
