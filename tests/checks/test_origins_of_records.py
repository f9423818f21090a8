"""Where records are from and their order in real time, in runs of recorded clients with and without taps (L1)."""

from __future__ import annotations

from collections.abc import Callable

from harrow.harness.checks import Verdict, judge
from harrow.harness.histories.format import OperationType
from judged_runs import TOPIC, RunFolder, record_batch

NEW = {"failed-write", "unknown-origin", "read-before-send", "realtime-order"}


def verdict_on(run: RunFolder) -> Verdict:
    return judge(run.done(), topics=[TOPIC], guarantee="best-effort", engine="inline")


def found(run: RunFolder) -> set[str]:
    return verdict_on(run).anomaly_counts.keys() & NEW


def test_a_record_that_was_sent_after_an_acknowledgement_has_the_higher_offset(
    runs: Callable[[str], RunFolder],
) -> None:
    right, wrong = runs("right"), runs("wrong")
    for run, offsets in ((right, (0, 1)), (wrong, (1, 0))):
        run.send("a", offsets[0], client="first", key="k")
        run.send("b", offsets[1], client="second", key="l")
    right.final({0: "a"}, key="k", high=2)
    right.final({1: "b"}, key="l")
    wrong.final({0: "b"}, key="l", high=2)
    wrong.final({1: "a"}, key="k")
    assert not found(right)
    verdict = verdict_on(wrong)
    assert verdict.anomaly_counts == {"realtime-order": 1}
    assert "after the record at offset 1 was acknowledged" in str(verdict)


def test_an_offset_that_was_given_again_after_a_loss_is_no_wrong_order(run: RunFolder) -> None:
    """Record a was acknowledged at offset 1 and lost; with acks=1 that is legal, and so is a lower offset after it."""
    run.send("a", 1, client="first")
    run.send("b", 0, client="second")
    run.final({0: "b"})
    assert found(run) == set()


def test_a_record_that_was_read_before_its_send_is_found(run: RunFolder) -> None:
    run.read("a", 0)
    run.send("a", 0)
    run.read("a", 0, client="late reader")
    run.final({0: "a"})
    verdict = verdict_on(run)
    assert verdict.anomaly_counts == {"read-before-send": 1}


def test_the_record_of_a_failed_send_is_found_where_no_other_producer_wrote_it(
    runs: Callable[[str], RunFolder],
) -> None:
    known, unknown = record_batch(["a"]), record_batch(["b"], base_offset=1)
    wrong, other, again = runs("wrong"), runs("other"), runs("again")
    for run in (wrong, other, again):
        run.tapped(known, 0)
        run.send("b", outcome=OperationType.FAIL)
        run.logs(known, unknown)
        run.final({0: "a", 1: "b"})
    other.tapped(unknown, 1, client="a producer without recorder")
    again.send("b", 1)
    verdict = verdict_on(wrong)
    assert verdict.anomaly_counts["failed-write"] == 1, str(verdict)
    assert not found(other)
    assert not found(again)


def test_a_record_that_no_recorded_client_sent_is_no_anomaly_in_a_run(run: RunFolder) -> None:
    """Another producer may have sent it, and the broker may have died before it wrote a row."""
    run.send("a", 0)
    run.final({0: "a", 1: "b"})
    assert not found(run)


def test_without_taps_a_failed_send_is_not_judged(run: RunFolder) -> None:
    run.send("b", outcome=OperationType.FAIL)
    run.send("a", 0)
    run.final({0: "a", 1: "b"})
    assert not found(run)


def test_a_folder_without_final_read_has_no_order_in_real_time(run: RunFolder) -> None:
    run.send("a", 1, client="first")
    run.send("b", 0, client="second")
    assert not found(run)
