"""Each checker has a hand-made bad history and a valid counterpart, checked on the real Spark (L1, L3, L6)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.histories import OperationType
from judged_runs import NOW_MS, TOPIC, RunFolder, record_batch
from run_stories import BAD, GOOD, Story, acked_and_gone, good, good_with_logs


def judged_by_both(run: RunFolder, guarantee: str, spark: SparkHandle) -> Verdict:
    """Return the verdict of Spark; that of the kernels in this process is the same (J7)."""
    inline = judge(run.done(), topics=[TOPIC], guarantee=guarantee, engine="inline")
    verdict = judge(run.folder, topics=[TOPIC], guarantee=guarantee, spark=spark)
    assert (inline.engine, verdict.engine) == ("inline", "spark")
    assert replace(inline, engine="spark", elapsed_ms=verdict.elapsed_ms) == verdict
    return verdict


@pytest.mark.parametrize("name", BAD)
def test_judging_a_bad_history_is_invalid_with_the_expected_anomalies(
    name: str, run: RunFolder, spark: SparkHandle
) -> None:
    story, guarantee, names = BAD[name]
    story(run)
    verdict = judged_by_both(run, guarantee, spark)
    assert verdict.status is Status.INVALID, str(verdict)
    assert verdict.anomaly_names() == names, str(verdict)
    assert verdict.anomalies[0].operations, "an anomaly is shown with its operations"
    assert Verdict.from_json((run.folder / "verdict.json").read_text()) == verdict
    for shown in names:
        assert shown in str(verdict)


@pytest.mark.parametrize("name", GOOD)
def test_judging_a_good_history_is_valid(name: str, run: RunFolder, spark: SparkHandle) -> None:
    GOOD[name](run)
    guarantee = (
        "exactly-once"
        if name in {"two legal sends", "followers read ahead", "waited before a paused leader"}
        else "exactly-once, ordered"
    )
    verdict = judged_by_both(run, guarantee, spark)
    assert verdict.status is Status.VALID, str(verdict)
    assert not verdict.anomalies


def nothing_acked(run: RunFolder) -> None:
    run.send("a", outcome=OperationType.INFO)
    run.final({})


def nothing_read(run: RunFolder) -> None:
    run.send("a", 0)


def no_overlap(run: RunFolder) -> None:
    run.fault(1, 2)
    good(run)


def events_of_long_ago(run: RunFolder) -> None:
    """Timestamps of the user's own do not stretch an operation over a fault that it never met."""
    batch, later = record_batch(["a"]), record_batch(["b"], base_offset=1)
    run.tapped(batch, 0, created_ns=0)
    start = run.tick()
    run.fault(start, run.tick())
    run.tapped(later, 1, created_ns=0)
    run.final({0: "a", 1: "b"})
    run.logs(batch, later)


def only_during(run: RunFolder) -> None:
    run.fault(1, 10**12)
    good(run)


def not_converged(run: RunFolder) -> None:
    good(run)
    run.logs(record_batch(["a", "b"]), record_batch(["c"], base_offset=2), nodes=(1, 2))
    run.log(3, record_batch(["a", "b"]))


def unreadable(run: RunFolder) -> None:
    good(run)
    run.log(1, record_batch(["a", "b", "c"])[:30] + b"\xff" * 200)


def order_unknowable(run: RunFolder) -> None:
    batch = record_batch(["a"])
    run.tapped(batch, 0)
    run.final({0: "a"})
    run.logs(batch)


def order_of_copies_unknowable(run: RunFolder) -> None:
    """acks=0, and two records are the same: which of them was sent first is not known."""
    for value in ("a", "a", "b"):
        run.send(value, -1)
    run.final({0: "a", 1: "b", 2: "a"})


def order_of_another_client_unknowable(run: RunFolder) -> None:
    """A recorded client and one that the taps alone saw."""
    first, second = record_batch(["a"]), record_batch(["b", "c"], base_offset=1)
    run.tapped(first, 0, client="recorded")
    run.send("a", 0, client="recorded")
    run.tapped(second, 1)
    run.final({0: "a", 1: "b", 2: "c"})
    run.logs(first, second)


UNKNOWN: dict[str, tuple[Story, str]] = {
    "nothing acknowledged": (nothing_acked, "nothing was acknowledged"),
    "nothing read": (nothing_read, "needs the final read"),
    "no overlap": (no_overlap, "fault 1, kill(broker(1)) on broker 1, from 0.00 s to 0.00 s, met no operation"),
    "events of long ago": (events_of_long_ago, "met no operation"),
    "nothing before the fault": (only_during, "before the first fault"),
    "not converged": (not_converged, "not converged"),
    "unreadable log": (unreadable, "could not be read"),
    "order of a plain producer on the tap": (order_unknowable, "the guarantee 'ordered' cannot be checked"),
    "order of records without offsets that are the same": (
        order_of_copies_unknowable,
        "the guarantee 'ordered' cannot be checked for 2 records",
    ),
    "order of a plain producer beside a recorded one": (
        order_of_another_client_unknowable,
        "the guarantee 'ordered' cannot be checked for 2 records",
    ),
    "an unknown topic": (lambda _: None, "no operation and no log of topic"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_judging_an_incomplete_run_is_unknown_with_the_reason(name: str, run: RunFolder, spark: SparkHandle) -> None:
    story, reason = UNKNOWN[name]
    story(run)
    verdict = judge(run.done(), topics=[TOPIC], guarantee="ordered", spark=spark)
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert reason in "\n".join(verdict.reasons)
    assert not verdict.valid


def test_a_fault_that_overlaps_traffic_keeps_the_verdict_valid(run: RunFolder, spark: SparkHandle) -> None:
    run.send("a", 0)
    start = run.tick()
    run.send("b", 1)
    run.fault(start, run.tick())
    run.final({0: "a", 1: "b"})
    verdict = judge(run.done(), topics=[TOPIC], spark=spark)
    assert verdict.status is Status.VALID, str(verdict)
    assert verdict.operation_counts["operations_during_faults"] == 1


@pytest.mark.parametrize(
    ("acks", "idempotent", "guarantees", "status"),
    [
        (-1, True, ("exactly-once", "ordered"), Status.INVALID),
        (-1, False, ("no-loss",), Status.INVALID),
        (1, False, ("best-effort",), Status.VALID),
    ],
)
def test_the_guarantee_is_derived_from_the_recorded_settings(
    acks: int, idempotent: bool, guarantees: tuple[str, ...], status: Status, run: RunFolder, spark: SparkHandle
) -> None:
    run.producer(acks=acks, idempotent=idempotent)
    acked_and_gone(run)
    verdict = judge(run.done(), topics=[TOPIC], spark=spark)
    assert verdict.guarantees == guarantees
    assert verdict.guarantee_reason
    assert verdict.status is status, str(verdict)
    assert verdict.anomaly_counts == {"lost-write": 1}, "what the guarantee allows is reported too"


def test_many_partitions_and_topics_are_judged_in_the_same_verdict(run: RunFolder, spark: SparkHandle) -> None:
    for partition in range(100):
        run.send(f"a{partition}", 0, partition=partition)
        run.final({0: f"a{partition}"} if partition != 42 else {}, partition=partition)
    run.send("x", 0, topic="other")
    run.final({}, topic="other")
    verdict = judge(run.done(), topics=[TOPIC], spark=spark)
    assert [(a.topic, a.partition) for a in verdict.anomalies] == [(TOPIC, 42)]
    assert verdict.operation_counts["acknowledged"] == 100


def test_a_verdict_shows_a_bounded_number_of_anomalies_and_counts_all(run: RunFolder, spark: SparkHandle) -> None:
    for offset in range(500):
        run.send(f"a{offset}", offset)
    run.final({})
    verdict = judge(run.done(), topics=[TOPIC], spark=spark, limit=7)
    assert verdict.anomaly_counts["lost-write"] == 500
    assert len(verdict.anomalies) == 7
    assert len(str(verdict)) < 5000
    assert "500 records were acknowledged or read" in str(verdict)


def test_a_missing_replica_or_an_incomplete_isr_is_unknown(run: RunFolder, spark: SparkHandle) -> None:
    good_with_logs(run)
    folder = run.done()
    verdict = judge(folder, topics=[TOPIC], spark=spark, replicas={(TOPIC, 0): [1, 2, 3, 4]})
    assert verdict.status is Status.UNKNOWN
    assert "broker 4 could not be read" in "\n".join(verdict.reasons)
    assert judge(folder, topics=[TOPIC], spark=spark, replicas={(TOPIC, 0): [1, 2, 3]}).valid


def test_an_unknown_guarantee_is_refused_before_any_work(run: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"unknown guarantee 'no-los'; use .*no-loss"):
        judge(run.done(), topics=[TOPIC], guarantee="no-los")


def test_identical_values_sent_at_other_times_are_not_duplicates(run: RunFolder, spark: SparkHandle) -> None:
    first, second = record_batch(["a"]), record_batch(["a"], base_offset=1, timestamp_ms=NOW_MS + 1)
    run.tapped(first, 0, lost=True)
    run.tapped(second, 1)
    run.final({0: "a", 1: "a"}, timestamps={1: NOW_MS + 1})
    run.logs(first, second)
    assert judge(run.done(), topics=[TOPIC], guarantee="exactly-once", spark=spark).valid
