"""What compaction and retention removed in a simulation is judged as on real processes (B6, B7, B8, L2).

Simulated brokers with the planted cleaners and the planted retention of `support/`; runs without them are valid.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from harrow.cluster.events.logs import LogCleaned, SegmentsDeleted
from harrow.cluster.host.simulated.host import EPOCH_MS, WorldTrace
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.harness.checks.log_changes import LogChanges
from harrow.harness.checks.oracle_of_removals import untapped
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.simulation import SimulationOptions, run_seed
from harrow.harness.simulation.checks import changes_of, legal_start
from harrow.harness.zoo.catalog import bug_named
from harrow.harness.zoo.directed import plan_directed
from harrow.harness.zoo.trial import SimulatedRuns

SMALL_SEGMENTS = {"internal.segment.bytes": "1500"}
COMPACTED = SimulationOptions(
    brokers=3,
    partitions=1,
    seconds=4.0,
    batches=120,
    keys=7,
    topic_config={**SMALL_SEGMENTS, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"},
    config={"log.cleaner.backoff.ms": 200, "log.cleaner.dedupe.buffer.size": 1 << 20},
)
KEPT = replace(COMPACTED, keys=0, topic_config=SMALL_SEGMENTS, config={"log.retention.check.interval.ms": 300})
SEEDS = range(3)
CLEANED, DELETED = LogCleaned.EVENT, SegmentsDeleted.EVENT


@pytest.mark.parametrize("seed", SEEDS)
def test_a_key_that_has_no_value_any_more_is_lost(seed: int) -> None:
    result = run_seed(seed, replace(COMPACTED, plants=("planted_cleaners",)))
    assert {name for name, _ in result.anomalies} == {"lost-write"}, result.anomalies


@pytest.mark.parametrize("seed", SEEDS)
def test_compaction_that_keeps_last_values_is_valid(seed: int) -> None:
    result = run_seed(seed, COMPACTED, keep_trace=True)
    assert result.status == "valid", (result.anomalies, result.reasons)
    assert f'"{CLEANED}"' in result.trace


@pytest.mark.parametrize("seed", SEEDS)
def test_young_segments_that_retention_removes_are_lost(seed: int) -> None:
    result = run_seed(seed, replace(KEPT, plants=("planted_retention",)), keep_trace=True)
    assert f'"{DELETED}"' in result.trace
    assert "lost-write" in {name for name, _ in result.anomalies}, result.anomalies


@pytest.mark.parametrize("seed", SEEDS)
def test_segments_that_are_older_than_their_retention_are_removed_legally(seed: int) -> None:
    old = replace(KEPT, topic_config={**SMALL_SEGMENTS, "retention.ms": "900"})
    result = run_seed(seed, old, keep_trace=True)
    assert f'"{DELETED}"' in result.trace
    names = {name for name, _ in result.anomalies}
    assert names <= {"offset-out-of-range", "not-converged"}, result.anomalies


def test_a_leader_without_committed_records_is_found() -> None:
    bug = bug_named("kip_497")
    found = SimulatedRuns().run(plan_directed(bug, 1))
    assert "incomplete-leader" in found.anomalies


# ------------------------------------------------------------------------------------------------ by hand

SENT_MS = 5_000
KEEP_MS = 60_000


def send(offset: int, outcome: OperationType = OperationType.OK) -> dict[str, int]:
    return {
        "kind": OperationFunction.SEND,
        "outcome": outcome,
        "offset": offset,
        "invoked_ns": SENT_MS * NS_PER_MS,
        "time_ns": (SENT_MS + 5) * NS_PER_MS,
        "timestamp_ms": EPOCH_MS + SENT_MS,
    }


SENT = untapped([send(offset) for offset in range(9)], acks=-1)


def changes(after_ms: int, *, wrong_clocks: bool = False, **fields: Any) -> LogChanges:
    """The trace of a broker that removed the segments of offsets 0 to 2 and 3 to 6, so long after the sends."""
    trace = WorldTrace()
    removal = SegmentsDeleted(
        topic="orders",
        partition=0,
        base_offsets=(0, 3),
        end=7,
        reason="retention.ms",
        retention_ms=KEEP_MS,
        retention_bytes=-1,
        bytes_left=100,
    )
    trace.write((SENT_MS + after_ms) * NS_PER_MS, "broker-1", replace(removal, **fields))
    return changes_of(trace, ["orders"], wrong_clocks=wrong_clocks)["orders", 0]


@pytest.mark.parametrize(
    ("given", "start"),
    [
        (changes(1_000), 0),
        (changes(KEEP_MS), 7),
        (changes(1_000, wrong_clocks=True), 7),
        (changes(1_000, reason="log start offset"), 7),
        (changes(1_000, reason="retention.bytes", retention_bytes=50), 7),
        (changes(1_000, reason="retention.bytes", retention_bytes=101), 0),
        (changes(KEEP_MS, retention_ms=-1), 0),
    ],
    ids=["young", "old", "wrong-clocks", "on-request", "large", "small", "for-ever"],
)
def test_a_log_begins_legally_where_no_removal_was_too_early(given: LogChanges, start: int) -> None:
    assert legal_start(7, given, SENT) == start


def test_only_acknowledged_sends_stand_for_produce_requests() -> None:
    rows = [send(1), send(2, OperationType.INFO), send(-1)]
    assert [row["base_offset"] for row in untapped(rows, acks=1)] == [1]
    assert {row["acks"] for row in untapped(rows, acks=1)} == {1}
