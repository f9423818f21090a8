"""Each checker has a hand-made bad history and a valid counterpart, checked on the real Spark (L1, L3, L6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.checks import SparkHandle, Status, Verdict, judge
from harrow.harness.histories import OperationType
from judged_runs import NOW_MS, TOPIC, RunFolder, record_batch

Story = Callable[[RunFolder], None]


def good(run: RunFolder) -> None:
    for offset, value in enumerate("abc"):
        run.send(value, offset)
        run.read(value, offset)
    run.final(dict(enumerate("abc")))


def good_with_logs(run: RunFolder) -> None:
    good(run)
    run.logs(record_batch(["a", "b"]), record_batch(["c"], base_offset=2, epoch=1))


def acked_and_gone(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", 1)
    run.final({0: "a"})


def overwritten(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "z"})


def read_and_gone(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("b", 1)
    run.final({0: "a"})


def acked_without_offset(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", -1)
    run.final({0: "a"})


def skipped_by_the_final_read(run: RunFolder) -> None:
    run.send("a", 0)
    run.send("b", 1)
    run.final({0: "a"}, high=2)
    run.logs(record_batch(["a", "b"]))


def two_readers_two_values(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("a", 0, client="one")
    run.read("z", 0, client="two")
    run.final({0: "a"})


def sent_once_there_twice(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 1: "a"})


def unknown_and_there_twice(run: RunFolder) -> None:
    run.send("x", 2)
    run.send("a", outcome=None)
    run.final({0: "a", 1: "a", 2: "x"})


def reordered(run: RunFolder) -> None:
    run.send("first", 1)
    run.send("second", 0)
    run.final({0: "second", 1: "first"})


def read_backwards(run: RunFolder) -> None:
    good(run)
    run.read("a", 0)


def batch_lost(run: RunFolder) -> None:
    kept, gone = record_batch(["a"]), record_batch(["b"])
    run.tapped(kept, 0)
    run.tapped(gone, 1)
    run.final({0: "a"})
    run.logs(kept)


def batch_replaced(run: RunFolder) -> None:
    acked, other = record_batch(["a"]), record_batch(["z"], epoch=1)
    run.tapped(acked, 0)
    run.final({0: "z"})
    run.logs(other)


def sequence_twice(run: RunFolder) -> None:
    batch = record_batch(["a"], producer_id=7, sequence=0)
    run.tapped(batch, 0)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1, producer_id=7, sequence=0))


def lost_response_retried(run: RunFolder) -> None:
    batch = record_batch(["a"])
    run.tapped(batch, 0, lost=True)
    run.tapped(batch, 1)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1))


def sequences_back(run: RunFolder) -> None:
    later, earlier = (
        record_batch([v], base_offset=o, producer_id=7, sequence=1 - o) for o, v in enumerate("ba")
    )
    run.tapped(later, 0)
    run.tapped(earlier, 1)
    run.final({0: "b", 1: "a"})
    run.logs(later, earlier)


def replicas_differ(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a"})
    run.logs(record_batch(["a"]), nodes=(1, 2))
    run.log(3, record_batch(["z"]))


def replicas_differ_in_epoch(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a"})
    run.logs(record_batch(["a"]), nodes=(1, 2))
    run.log(3, record_batch(["a"], epoch=1))


def bit_flipped(run: RunFolder) -> None:
    good_with_logs(run)
    path = run.log(3, record_batch(["a", "b"]), record_batch(["c"], base_offset=2, epoch=1))
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.write_bytes(bytes(data))


def hole(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 2: "b"})
    run.logs(record_batch(["a"]), record_batch(["b"], base_offset=2))


def epoch_back(run: RunFolder) -> None:
    run.send("a", 0)
    run.final({0: "a", 1: "b"})
    run.logs(record_batch(["a"], epoch=3), record_batch(["b"], base_offset=1, epoch=2))


def epoch_cache_wrong(run: RunFolder) -> None:
    """The log has epochs 0 and 1, and its cache says that epoch 1 begins one record later."""
    for offset, value in enumerate("abc"):
        run.send(value, offset)
    run.final({0: "a", 1: "b", 2: "c"})
    first = record_batch(["a"], epoch=0)
    later = [record_batch([value], base_offset=at, epoch=1) for at, value in ((1, "b"), (2, "c"))]
    run.logs(first, *later)
    run.epoch_cache(1, [(0, 0), (1, 2)])


def two_leaders(run: RunFolder) -> None:
    good(run)
    for node in (1, 2):
        run.trace(
            node, event="partition.leader", topic=TOPIC, partition=0, leader=node, leader_epoch=4
        )


def two_controllers(run: RunFolder) -> None:
    good(run)
    for node in (1, 2):
        run.trace(node, event="controller.elected", epoch=4)


def fenced_member(run: RunFolder) -> None:
    """A leader adds two followers to its ISR; its metadata lists one of them."""
    good(run)
    for added, isr in ((2, [1, 2]), (3, [1, 2, 3])):
        run.expansion(added, isr, live=[1, 2])


BAD: dict[str, tuple[Story, str, set[str]]] = {
    "acknowledged, gone": (acked_and_gone, "no-loss", {"lost-write"}),
    "acknowledged, overwritten": (overwritten, "no-loss", {"lost-write", "inconsistent-offsets"}),
    "read, gone": (read_and_gone, "no-loss", {"lost-write"}),
    "acknowledged without offset": (acked_without_offset, "no-loss", {"lost-write"}),
    "in the logs, not read": (skipped_by_the_final_read, "at-least-once", {"unseen"}),
    "two values": (two_readers_two_values, "no-loss", {"inconsistent-offsets", "lost-write"}),
    "duplicate": (sent_once_there_twice, "exactly-once", {"duplicate"}),
    "duplicate of unknown": (unknown_and_there_twice, "exactly-once", {"duplicate"}),
    "reordered": (reordered, "ordered", {"nonmonotonic-send"}),
    "read backwards": (read_backwards, "ordered", {"nonmonotonic-poll"}),
    "batch lost": (batch_lost, "no-loss", {"lost-write"}),
    "batch replaced": (batch_replaced, "no-loss", {"lost-write", "inconsistent-offsets"}),
    "sequence twice": (sequence_twice, "exactly-once", {"duplicate"}),
    "retry after a lost response": (lost_response_retried, "exactly-once", {"duplicate"}),
    "sequences back": (sequences_back, "ordered", {"nonmonotonic-send"}),
    "replicas differ": (replicas_differ, "no-loss", {"replica-divergence"}),
    "replicas differ in epoch": (replicas_differ_in_epoch, "no-loss", {"replica-divergence"}),
    "bit flipped": (bit_flipped, "no-loss", {"corrupt-batch"}),
    "hole": (hole, "no-loss", {"log-gap"}),
    "epoch back": (epoch_back, "no-loss", {"epoch-regression"}),
    "epoch cache wrong": (epoch_cache_wrong, "no-loss", {"epoch-cache-mismatch"}),
    "two leaders": (two_leaders, "no-loss", {"two-leaders"}),
    "two controllers": (two_controllers, "no-loss", {"two-controllers"}),
    "fenced member": (fenced_member, "best-effort", {"fenced-in-isr"}),
}


@pytest.mark.parametrize("name", BAD)
def test_judging_a_bad_history_is_invalid_with_the_expected_anomalies(
    name: str, run: RunFolder, spark: SparkHandle
) -> None:
    story, guarantee, names = BAD[name]
    story(run)
    verdict = judge(run.done(), topics=[TOPIC], guarantee=guarantee, spark=spark)
    assert verdict.status is Status.INVALID, str(verdict)
    assert verdict.anomaly_names() == names, str(verdict)
    assert verdict.anomalies[0].operations, "an anomaly is shown with its operations"
    assert Verdict.from_json((run.folder / "verdict.json").read_text()) == verdict
    for shown in names:
        assert shown in str(verdict)


def legal_pair(run: RunFolder) -> None:
    """The same record sent twice, both acknowledged."""
    batch = record_batch(["a"])
    run.tapped(batch, 0)
    run.tapped(batch, 1)
    run.tapped(batch, 1, fetched=True)
    run.final({0: "a", 1: "a"})
    run.logs(batch, record_batch(["a"], base_offset=1))


def info_appended(run: RunFolder) -> None:
    """Of unknown outcome, and there: once is legal; absent is legal too; so is any place in the order."""
    run.send("late", outcome=OperationType.INFO)
    run.send("a", 0)
    run.send("never", outcome=OperationType.INFO)
    run.final({0: "a", 1: "late"})


def sequences_wrap(run: RunFolder) -> None:
    first = record_batch(["a"], producer_id=7, sequence=2**31 - 1)
    second = record_batch(["b"], base_offset=1, producer_id=7, sequence=0)
    run.tapped(first, 0)
    run.tapped(second, 1)
    run.final({0: "a", 1: "b"})
    run.logs(first, second)


def reread_after_rebalance(run: RunFolder) -> None:
    good(run)
    run.rebalanced()
    run.read("a", 0)


def retention(run: RunFolder) -> None:
    run.send("a", 0)
    run.read("a", 0)
    run.send("b", 1)
    run.final({1: "b"}, low=1)


def waited_unread(run: RunFolder) -> None:
    """Made while its leader was paused, read by the broker when that was over: it overlapped the fault."""
    batch, later = record_batch(["a"]), record_batch(["b"], base_offset=1)
    run.tapped(batch, 0)
    start = run.tick()
    run.fault(start, run.tick() + 1)
    run.tick()
    run.tapped(later, 1, created_ns=start + 1)
    run.final({0: "a", 1: "b"})
    run.logs(batch, later)


def above_the_high_watermark(run: RunFolder) -> None:
    """A follower was given a batch that was truncated later: legal."""
    kept = record_batch(["a"])
    run.tapped(kept, 0)
    run.tapped(record_batch(["z"]), 1, fetched=True, client="broker-2")
    run.final({0: "a"})
    run.logs(kept)


def members_known_to_be_live(run: RunFolder) -> None:
    """A leader adds both followers; its metadata lists them."""
    good(run)
    for added, isr in ((2, [1, 2]), (3, [1, 2, 3])):
        run.expansion(added, isr, live=[1, 2, 3])


GOOD: dict[str, Story] = {
    "plain": good,
    "with logs": good_with_logs,
    "two legal sends": legal_pair,
    "of unknown outcome": info_appended,
    "sequences wrap": sequences_wrap,
    "read again after a rebalance": reread_after_rebalance,
    "retention": retention,
    "waited before a paused leader": waited_unread,
    "followers read ahead": above_the_high_watermark,
    "members known to be live": members_known_to_be_live,
}


@pytest.mark.parametrize("name", GOOD)
def test_judging_a_good_history_is_valid(name: str, run: RunFolder, spark: SparkHandle) -> None:
    GOOD[name](run)
    guarantee = (
        "exactly-once"
        if name in {"two legal sends", "followers read ahead", "waited before a paused leader"}
        else "exactly-once, ordered"
    )
    verdict = judge(run.done(), topics=[TOPIC], guarantee=guarantee, spark=spark)
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


UNKNOWN: dict[str, tuple[Story, str]] = {
    "nothing acknowledged": (nothing_acked, "nothing was acknowledged"),
    "nothing read": (nothing_read, "nothing was read"),
    "no overlap": (
        no_overlap,
        "fault 1, kill(broker(1)) on broker 1, from 0.00 s to 0.00 s, met no operation",
    ),
    "events of long ago": (events_of_long_ago, "met no operation"),
    "nothing before the fault": (only_during, "before the first fault"),
    "not converged": (not_converged, "not converged"),
    "unreadable log": (unreadable, "could not be read"),
    "order of a plain producer on the tap": (
        order_unknowable,
        "the guarantee 'ordered' cannot be checked",
    ),
    "an unknown topic": (lambda _: None, "no operation and no log of topic"),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_judging_an_incomplete_run_is_unknown_with_the_reason(
    name: str, run: RunFolder, spark: SparkHandle
) -> None:
    story, reason = UNKNOWN[name]
    story(run)
    verdict = judge(run.done(), topics=[TOPIC], guarantee="ordered", spark=spark)
    assert verdict.status is Status.UNKNOWN, str(verdict)
    assert reason in "\n".join(verdict.reasons)
    assert not verdict.valid


def test_a_fault_that_overlaps_traffic_keeps_the_verdict_valid(
    run: RunFolder, spark: SparkHandle
) -> None:
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
    acks: int,
    idempotent: bool,
    guarantees: tuple[str, ...],
    status: Status,
    run: RunFolder,
    spark: SparkHandle,
) -> None:
    run.producer(acks=acks, idempotent=idempotent)
    acked_and_gone(run)
    verdict = judge(run.done(), topics=[TOPIC], spark=spark)
    assert verdict.guarantees == guarantees
    assert verdict.guarantee_reason
    assert verdict.status is status, str(verdict)
    assert verdict.anomaly_counts == {"lost-write": 1}, "what the guarantee allows is reported too"


def test_many_partitions_and_topics_are_judged_in_the_same_verdict(
    run: RunFolder, spark: SparkHandle
) -> None:
    for partition in range(100):
        run.send(f"a{partition}", 0, partition=partition)
        run.final({0: f"a{partition}"} if partition != 42 else {}, partition=partition)
    run.send("x", 0, topic="other")
    run.final({}, topic="other")
    verdict = judge(run.done(), topics=[TOPIC], spark=spark)
    assert [(a.topic, a.partition) for a in verdict.anomalies] == [(TOPIC, 42)]
    assert verdict.operation_counts["acknowledged"] == 100


def test_a_verdict_shows_a_bounded_number_of_anomalies_and_counts_all(
    run: RunFolder, spark: SparkHandle
) -> None:
    for offset in range(500):
        run.send(f"a{offset}", offset)
    run.final({})
    verdict = judge(run.done(), topics=[TOPIC], spark=spark, limit=7)
    assert verdict.anomaly_counts["lost-write"] == 500
    assert len(verdict.anomalies) == 7
    assert len(str(verdict)) < 5000
    assert "500 records were acknowledged or read" in str(verdict)


def test_a_missing_replica_or_an_incomplete_isr_is_unknown(
    run: RunFolder, spark: SparkHandle
) -> None:
    good_with_logs(run)
    folder = run.done()
    verdict = judge(folder, topics=[TOPIC], spark=spark, replicas={(TOPIC, 0): [1, 2, 3, 4]})
    assert verdict.status is Status.UNKNOWN
    assert "broker 4 could not be read" in "\n".join(verdict.reasons)
    assert judge(folder, topics=[TOPIC], spark=spark, replicas={(TOPIC, 0): [1, 2, 3]}).valid


def test_an_unknown_guarantee_is_refused_before_any_work(run: RunFolder) -> None:
    with pytest.raises(ConfigError, match=r"unknown guarantee 'no-los'; use .*no-loss"):
        judge(run.done(), topics=[TOPIC], guarantee="no-los")


def test_identical_values_sent_at_other_times_are_not_duplicates(
    run: RunFolder, spark: SparkHandle
) -> None:
    first, second = record_batch(["a"]), record_batch(["a"], base_offset=1, timestamp_ms=NOW_MS + 1)
    run.tapped(first, 0, lost=True)
    run.tapped(second, 1)
    run.final({0: "a", 1: "a"}, timestamps={1: NOW_MS + 1})
    run.logs(first, second)
    assert judge(run.done(), topics=[TOPIC], guarantee="exactly-once", spark=spark).valid
