"""Removals by compaction and retention explain a missing record only where the settings allow them (L2, B7, B8).

Also leaders that lack committed records (L3).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from harrow.cluster.events.logs import LogCleaning, SegmentsDeleted
from harrow.cluster.events.partitions import UncleanElection, WakeUpMissed
from harrow.cluster.events.processes import ClockSet
from harrow.cluster.wire.records import build_batch
from harrow.harness.checks import Status, Verdict
from harrow.harness.checks.judgement import judge
from harrow.harness.histories.format import OperationType
from judged_runs import NOW_MS, TOPIC, RunFolder, record_batch

DAY_MS = 86_400_000
Record = tuple[str, str | None]
"""Key and value."""


@pytest.fixture
def run(tmp_path: Path) -> RunFolder:
    return RunFolder(tmp_path)


def judged(run: RunFolder, guarantee: str = "no-loss") -> Verdict:
    return judge(run.done(), topics=[TOPIC], guarantee=guarantee, engine="inline")


def cleaned(run: RunFolder, end: int, *, after_ms: int = 10_000, tombstones_ms: int = 0, lag_ms: int = 0) -> None:
    """A log cleaner begins a pass over the offsets below `end`, so long after the records were sent."""
    event = LogCleaning(
        topic=TOPIC,
        partition=0,
        first_dirty=0,
        first_uncleanable=end,
        delete_retention_ms=tombstones_ms,
        min_lag_ms=lag_ms,
    )
    run.trace(1, event, t_ns=run.clock_ns + after_ms * 1_000_000, wall_ms=NOW_MS + after_ms)


def keeps(run: RunFolder, records: Mapping[int, Record], high: int) -> None:
    """The final read has these records."""
    for offset, (key, value) in records.items():
        run.final({offset: value or ""}, key=key, high=high)
    run.final({}, high=high)


def sends(run: RunFolder, *records: Record) -> None:
    """Each record is acknowledged at its place in the list."""
    for offset, (key, value) in enumerate(records):
        run.send(value, offset, key=key)


# ------------------------------------------------------------------------------------------------------- compaction


def test_a_record_with_a_later_record_of_its_key_may_be_gone(run: RunFolder) -> None:
    sends(run, ("a", "old"), ("b", "kept"), ("a", "new"))
    cleaned(run, 2)
    keeps(run, {1: ("b", "kept"), 2: ("a", "new")}, 3)
    assert not judged(run).anomaly_counts


def test_the_last_value_of_a_key_may_not_be_gone(run: RunFolder) -> None:
    sends(run, ("a", "last"), ("b", "kept"))
    cleaned(run, 1)
    keeps(run, {1: ("b", "kept")}, 2)
    assert judged(run).anomaly_counts == {"lost-write": 1}


def test_a_tombstone_explains_only_what_is_before_it(run: RunFolder) -> None:
    """The key was deleted and written again; the value that came after the tombstone is gone."""
    sends(run, ("a", None), ("a", "written again"), ("b", "kept"))
    cleaned(run, 2)
    keeps(run, {2: ("b", "kept")}, 3)
    verdict = judged(run)
    assert verdict.anomaly_counts == {"lost-write": 1}
    assert verdict.anomalies[0].offsets == (1,)


def test_a_later_tombstone_explains_a_value_and_may_go_itself(run: RunFolder) -> None:
    sends(run, ("a", "deleted"), ("a", None), ("b", "kept"))
    cleaned(run, 2)
    keeps(run, {2: ("b", "kept")}, 3)
    assert not judged(run).anomaly_counts


def test_a_tombstone_of_unknown_outcome_may_be_later(run: RunFolder) -> None:
    run.send("deleted", 0, key="a")
    run.send(None, key="a", outcome=OperationType.INFO)
    run.send("kept", 2, key="b")
    cleaned(run, 2)
    keeps(run, {2: ("b", "kept")}, 3)
    assert not judged(run).anomaly_counts


@pytest.mark.parametrize(("after_ms", "lost"), [(4_000, 1), (60_000, 0)])
def test_a_tombstone_stays_for_its_retention_time(run: RunFolder, after_ms: int, lost: int) -> None:
    sends(run, ("a", "deleted"), ("a", None), ("b", "kept"))
    cleaned(run, 2, after_ms=after_ms, tombstones_ms=60_000)
    keeps(run, {2: ("b", "kept")}, 3)
    assert judged(run).anomaly_counts.get("lost-write", 0) == lost


@pytest.mark.parametrize(("after_ms", "lost"), [(4_000, 1), (60_000, 0)])
def test_a_record_younger_than_the_compaction_lag_stays(run: RunFolder, after_ms: int, lost: int) -> None:
    sends(run, ("a", "old"), ("a", "new"), ("b", "kept"))
    cleaned(run, 2, after_ms=after_ms, lag_ms=60_000)
    keeps(run, {1: ("a", "new"), 2: ("b", "kept")}, 3)
    assert judged(run).anomaly_counts.get("lost-write", 0) == lost


def test_ages_are_not_judged_where_a_fault_changed_a_clock(run: RunFolder) -> None:
    sends(run, ("a", "old"), ("a", "new"), ("b", "kept"))
    cleaned(run, 2, after_ms=4_000, lag_ms=60_000)
    run.trace(2, ClockSet(kind="jump", by_ms=DAY_MS, rate=1.0, period_ms=0))
    keeps(run, {1: ("a", "new"), 2: ("b", "kept")}, 3)
    assert not judged(run).anomaly_counts


# --------------------------------------------------------------------------------------------- replicas of such a log


def compacted_log(records: Mapping[int, Record]) -> list[bytes]:
    """A log with a batch for each record that is left."""
    return [
        build_batch(
            [(key.encode(), None if value is None else value.encode(), ())], timestamp_ms=NOW_MS, base_offset=offset
        )
        for offset, (key, value) in records.items()
    ]


WHOLE: Mapping[int, Record] = {0: ("a", "old"), 1: ("b", "last"), 2: ("a", "new"), 3: ("c", "x")}
DELETED: Mapping[int, Record] = {0: ("a", "old"), 1: ("a", None), 2: ("c", "x")}


@pytest.mark.parametrize(
    ("first", "second", "found"),
    [
        (WHOLE, {1: WHOLE[1], 2: WHOLE[2], 3: WHOLE[3]}, ""),
        (WHOLE, {0: WHOLE[0], 2: WHOLE[2], 3: WHOLE[3]}, "has no record of the key"),
        (WHOLE, {0: WHOLE[0], 1: WHOLE[1], 3: WHOLE[3]}, "has the key last at offset 0"),
        (WHOLE, {**WHOLE, 1: ("b", "another")}, "has another value there"),
        (DELETED, {2: DELETED[2]}, ""),
        (DELETED, {0: DELETED[0], 2: DELETED[2]}, "must keep the tombstone of key 'a'"),
    ],
)
def test_every_replica_keeps_the_last_value_of_each_key(
    run: RunFolder, first: Mapping[int, Record], second: Mapping[int, Record], found: str
) -> None:
    end = max(first)
    cleaned(run, end)
    run.log(1, *compacted_log(first))
    run.log(2, *compacted_log(second))
    verdict = judged(run, "best-effort")
    assert verdict.anomaly_counts == ({"replica-divergence": 1} if found else {})
    assert not found or found in verdict.anomalies[0].explanation


# -------------------------------------------------------------------------------------------------------- retention


def deleted(
    run: RunFolder,
    node: int,
    bases: Sequence[int],
    end: int,
    *,
    after_ms: int = 5_000,
    reason: str = "retention.ms",
    keep_ms: int = DAY_MS,
    keep_bytes: int = -1,
    bytes_left: int = 100,
) -> None:
    """A broker removes segments so long after the records were sent."""
    event = SegmentsDeleted(
        topic=TOPIC,
        partition=0,
        base_offsets=tuple(bases),
        reason=reason,
        end=end,
        bytes_left=bytes_left,
        retention_ms=keep_ms,
        retention_bytes=keep_bytes,
    )
    run.trace(node, event, t_ns=run.clock_ns + after_ms * 1_000_000, wall_ms=NOW_MS + after_ms)


def two_records(run: RunFolder, *, timestamp_ms: int = NOW_MS) -> None:
    """Two acknowledged records that a consumer received; the first one is gone from the logs and the final read."""
    first = record_batch(["a"], timestamp_ms=timestamp_ms)
    second = record_batch(["b"], base_offset=1, timestamp_ms=timestamp_ms)
    for offset, batch in enumerate((first, second)):
        run.tapped(batch, offset)
        run.tapped(batch, offset, fetched=True)
    for node in (1, 2):
        path = run.log(node, second)
        path.rename(path.with_name(f"{1:020}.log"))
    run.final({1: "b"}, low=1)


def test_a_segment_that_is_old_enough_may_go(run: RunFolder) -> None:
    two_records(run)
    for node in (1, 2):
        deleted(run, node, [0], 1, after_ms=DAY_MS + 2_000)
    assert not judged(run).anomaly_counts


def test_a_segment_that_is_too_young_may_not_go(run: RunFolder) -> None:
    two_records(run)
    deleted(run, 1, [0], 1)
    deleted(run, 2, [0], 1, reason="log start offset")
    verdict = judged(run)
    assert verdict.anomaly_counts == {"lost-write": 1}
    text = "broker 1 removed the segment of offsets 0 to 0 too early"
    assert text in verdict.anomalies[0].explanation


def test_each_lost_record_names_the_segment_that_had_it(run: RunFolder) -> None:
    """As in a final read whose first request came before the removals, and whose second one came after them."""
    batches = [record_batch([value], base_offset=offset, timestamp_ms=NOW_MS) for offset, value in enumerate("abc")]
    for offset, batch in enumerate(batches):
        run.tapped(batch, offset)
    for node in (1, 2):
        path = run.log(node, batches[2])
        path.rename(path.with_name(f"{2:020}.log"))
        deleted(run, node, [0], 1)
        deleted(run, node, [1], 2)
    run.final({0: "a", 2: "c"})
    verdict = judged(run)
    assert verdict.anomaly_counts == {"lost-write": 2}
    for offset, anomaly in enumerate(verdict.anomalies):
        assert f"broker 1 removed the segment of offsets {offset} to {offset} too early" in anomaly.explanation
    assert "removed offsets 0 to 1 of orders-0" in verdict.causes["lost-write"][0]


def test_records_of_another_time_may_go_at_once(run: RunFolder) -> None:
    """Their producer set a timestamp of last year."""
    two_records(run, timestamp_ms=NOW_MS - 365 * DAY_MS)
    deleted(run, 1, [0], 1)
    deleted(run, 2, [0], 1)
    assert not judged(run).anomaly_counts


def test_a_removal_with_a_wrong_clock_is_legal(run: RunFolder) -> None:
    two_records(run)
    deleted(run, 1, [0], 1)
    deleted(run, 2, [0], 1)
    run.trace(2, ClockSet(kind="jump", by_ms=DAY_MS, rate=1.0, period_ms=0))
    assert not judged(run).anomaly_counts


def test_a_removal_of_another_replica_that_was_in_time_makes_it_legal(run: RunFolder) -> None:
    two_records(run)
    deleted(run, 1, [0], 1)
    deleted(run, 2, [0], 1, after_ms=DAY_MS + 2_000)
    assert not judged(run).anomaly_counts


@pytest.mark.parametrize(("keep_bytes", "lost"), [(100, 0), (101, 1), (-1, 1)])
def test_by_size_a_log_keeps_as_many_bytes_as_the_setting_says(run: RunFolder, keep_bytes: int, lost: int) -> None:
    two_records(run)
    for node in (1, 2):
        deleted(run, node, [0], 1, reason="retention.bytes", keep_bytes=keep_bytes)
    assert judged(run).anomaly_counts.get("lost-write", 0) == lost


# ------------------------------------------------------------------------------------------------------------ leaders


def test_a_leader_without_a_committed_record_is_named_although_the_record_comes_back(run: RunFolder) -> None:
    """A follower without the last record leads for a while; the old leader leads again and still has the record."""
    batches = record_batch(["a"]), record_batch(["b"], base_offset=1)
    run.leader(1, 0, 0)
    run.tapped(batches[0], 0)
    run.tapped(batches[1], 1)
    run.leader(2, 1, 1)
    run.leader(1, 2, 2)
    run.final({0: "a", 1: "b"})
    run.logs(*batches)
    verdict = judged(run)
    assert verdict.anomaly_counts == {"incomplete-leader": 1}
    assert "broker 2 became leader in leader epoch 1" in verdict.anomalies[0].explanation


def test_a_leader_that_learns_late_of_its_election_is_judged_by_what_was_committed_before(run: RunFolder) -> None:
    run.leader(1, 0, 0)
    run.leader(2, 2, 0)
    run.tapped(record_batch(["a"]), 0, node=2)
    run.leader(3, 1, 0)
    run.logs(record_batch(["a"]))
    assert not judged(run).anomaly_counts


def test_what_only_the_leader_acknowledged_was_not_committed(run: RunFolder) -> None:
    run.leader(1, 0, 0)
    run.tapped(record_batch(["a"]), 0, acks=1)
    run.leader(2, 1, 0)
    run.tapped(record_batch(["b"]), 0, node=2)
    run.logs(record_batch(["b"]))
    assert "incomplete-leader" not in judged(run).anomaly_counts


def test_after_an_unclean_election_leaders_may_lack_records(run: RunFolder) -> None:
    run.leader(1, 0, 0)
    run.tapped(record_batch(["a"]), 0)
    run.trace(3, UncleanElection(topic=TOPIC, partition=0, leader=2, leader_epoch=1, isr=(1,)))
    run.leader(2, 1, 0)
    run.logs(record_batch(["a"]))
    assert "incomplete-leader" not in judged(run).anomaly_counts


# ------------------------------------------------------------------------------------------- reads that do not repeat


def test_an_offset_that_one_reader_received_and_another_passed_over_is_named(run: RunFolder) -> None:
    sends(run, ("k", "a"), ("k", "b"), ("k", "c"))
    for offset, value in enumerate("abc"):
        run.read(value, offset, client="one")
    run.read("a", 0, client="two")
    run.read("c", 2, client="two")
    keeps(run, {0: ("k", "a"), 1: ("k", "b"), 2: ("k", "c")}, 3)
    for guarantee in ("ordered", "exactly-once", "no-loss"):
        verdict = judged(run, guarantee)
        assert (verdict.status, verdict.anomaly_counts) == (Status.INVALID, {"poll-skip": 1})
        (anomaly,) = verdict.anomalies
        assert anomaly.offsets == (0, 2)
        assert "read offset 2 after 0, past 1 record that it did not receive" in anomaly.explanation


@pytest.mark.parametrize(
    ("by_group", "whose"),
    [(True, "to which its group had assigned the partition"), (False, "whose position the application had set before")],
)
def test_a_skip_says_whether_the_application_or_the_group_had_set_the_position(
    by_group: bool, whose: str, run: RunFolder
) -> None:
    sends(run, ("k", "a"), ("k", "b"), ("k", "c"), ("k", "d"))
    run.rebalanced(by_group=by_group)
    run.read("a", 0)
    run.read("d", 3)
    keeps(run, {at: ("k", value) for at, value in enumerate("abcd")}, 4)
    verdict = judged(run, "exactly-once, ordered")
    assert verdict.status is Status.INVALID
    assert whose in verdict.anomalies[0].explanation


@pytest.mark.parametrize("by_group", [True, False])
def test_a_jump_to_a_position_that_was_set_is_legal(by_group: bool, run: RunFolder) -> None:
    sends(run, ("k", "a"), ("k", "b"), ("k", "c"))
    run.read("a", 0)
    run.rebalanced(by_group=by_group)
    run.read("c", 2)
    keeps(run, {at: ("k", value) for at, value in enumerate("abc")}, 3)
    assert not judged(run, "exactly-once, ordered").anomaly_counts


def test_an_offset_with_another_record_at_the_second_read_is_named(run: RunFolder) -> None:
    run.read("a", 0)
    run.rebalanced()
    run.read("z", 0)
    keeps(run, {0: ("k", "a")}, 1)
    assert set(judged(run).anomaly_counts) == {"inconsistent-offsets", "lost-write"}


# --------------------------------------------------------------------------------------------------- missed wake-ups


def test_a_missed_wake_up_is_named_once_for_each_purgatory(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a"})
    for _ in range(2):
        run.trace(1, WakeUpMissed(topic=TOPIC, partition=0, purgatory="ConsumerFetch"))
    verdict = judged(run)
    assert verdict.anomaly_counts == {"missed-wake-up": 1}
    assert "in the purgatory ConsumerFetch of broker 1" in verdict.anomalies[0].explanation
