"""Where records are from and their order in real time, in runs of recorded clients with and without taps (L1)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harrow.cluster.events.brokers import BrokerReady
from harrow.cluster.host.seam import REQUEST_UNANSWERED, TappedRequest
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


def test_the_record_of_a_send_that_the_client_refused_is_found_in_any_partition(
    runs: Callable[[str], RunFolder],
) -> None:
    known, unknown = record_batch(["a"]), record_batch(["b"], base_offset=1)
    wrong, again = runs("wrong"), runs("again")
    for run in (wrong, again):
        run.tapped(known, 0)
        run.send("b", outcome=OperationType.FAIL, partition=-1)
        run.logs(known, unknown)
        run.final({0: "a", 1: "b"})
    again.send("b", outcome=None)  # of which the result is not known
    assert verdict_on(wrong).anomaly_counts["failed-write"] == 1
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


MESSAGE_TOO_LARGE, NOT_LEADER = 10, 6


def story_without_recorders(run: RunFolder, *, unanswered: bool = False, starts: int = 1) -> None:
    """Broker 1 leads, and its tap has a batch at offset 0; the log has one at offset 1, and a later one at offset 2."""
    flags = REQUEST_UNANSWERED if unanswered else 0
    run.requested(TappedRequest("app", 0, 0, run.tick(), run.tick(), flags))
    for _ in range(starts):
        run.trace(1, BrokerReady(node_id=1))
    run.leader(1, 1, 0)
    batches = [record_batch([text], base_offset=at, epoch=1) for at, text in enumerate("abc")]
    run.tapped(batches[0], 0)
    run.tapped(batches[2], 2)
    run.wait(1)
    run.final({0: "a", 1: "b", 2: "c"})
    run.logs(*batches)


def verdict_with_replicas(run: RunFolder) -> Verdict:
    replicas = {(TOPIC, 0): [1, 2, 3]}
    return judge(run.done(), topics=[TOPIC], guarantee="best-effort", engine="inline", replicas=replicas)


def test_a_batch_that_no_request_has_is_of_unknown_origin(run: RunFolder) -> None:
    story_without_recorders(run)
    verdict = verdict_with_replicas(run)
    assert verdict.anomaly_counts == {"unknown-origin": 1}
    assert "none of the Produce requests that it received has this batch" in str(verdict)


def test_a_batch_of_which_every_request_was_refused_is_a_failed_write(run: RunFolder) -> None:
    story_without_recorders(run)
    run.tapped(record_batch(["b"], base_offset=1), -1, error=MESSAGE_TOO_LARGE)
    verdict = verdict_with_replicas(run)
    assert verdict.anomaly_counts == {"failed-write": 1}
    assert "refused each request with it, with MESSAGE_TOO_LARGE" in str(verdict)


@pytest.mark.parametrize(
    ("unanswered", "starts"),
    [(True, 1), (False, 2), (False, 0)],
    ids=["a request without response", "a broker that started again", "a broker without trace"],
)
def test_a_tap_that_may_lack_requests_makes_no_batch_suspect(run: RunFolder, unanswered: bool, starts: int) -> None:
    story_without_recorders(run, unanswered=unanswered, starts=starts)
    assert not verdict_with_replicas(run).anomaly_counts


def test_a_request_with_an_error_that_may_follow_its_append_explains_the_batch(run: RunFolder) -> None:
    story_without_recorders(run)
    run.tapped(record_batch(["b"], base_offset=1), -1, error=NOT_LEADER)
    assert not verdict_with_replicas(run).anomaly_counts


def test_batches_of_plain_clients_have_an_order_in_real_time(runs: Callable[[str], RunFolder]) -> None:
    right, wrong, retried = runs("right"), runs("wrong"), runs("retried")
    for run, order, producer_id in ((right, (0, 1), -1), (wrong, (1, 0), -1), (retried, (1, 0), 7)):
        batches = [
            record_batch([text], base_offset=at, producer_id=producer_id, sequence=at if producer_id >= 0 else -1)
            for at, text in enumerate("ab")
        ]
        for at in order:
            run.tapped(batches[at], at)
        run.logs(*batches)
        run.final({0: "a", 1: "b"})
    assert not found(right)
    verdict = verdict_on(wrong)
    assert verdict.anomaly_counts == {"realtime-order": 1}
    assert "after the response for the batch at offset 1 was ready" in str(verdict)
    assert not found(retried)  # the first attempt may have no row
