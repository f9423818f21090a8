"""A fault has met an operation when it touched a client of the run, whatever topics are judged (L6)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harrow.cluster.host.seam import CONNECTION_CLOSED, CONNECTION_OPENED, REQUEST_HIT, TappedRequest
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.checks import Status, Verdict, judge
from judged_runs import TOPIC, RunFolder, record_batch

Story = Callable[[RunFolder, int, int], None]
"""What happens from the beginning to the end of the fault, in nanoseconds."""


def judged(run: RunFolder, during: Story, *, kind: str = "pause", before: bool = True) -> Verdict:
    """A record before the fault and one after it, and in between what `during` writes."""
    if before:
        run.tapped(record_batch(["a"]), 0, node=2, created_ns=0)
    start = run.tick()
    end = start + 1_000_000
    during(run, start, end)
    run.fault(start, end, kind=kind)
    run.clock_ns = end + 1_000_000
    run.tapped(record_batch(["b"]), 1, node=2)
    if not before:
        run.tapped(record_batch(["a"]), 0, node=2)
    run.final({0: "a", 1: "b"})
    return judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline")


def nothing(run: RunFolder, start: int, end: int) -> None:
    """No client is touched."""


def a_batch_of_another_topic(run: RunFolder, start: int, end: int) -> None:
    """The input of the job; only its output is judged."""
    run.tapped(record_batch(["x"]), 0, node=2, topic="requests")


def a_batch_of_a_broker(run: RunFolder, start: int, end: int) -> None:
    run.tapped(record_batch(["x"]), 0, node=2, fetched=True, client="broker-3")


def a_batch_of_the_final_read(run: RunFolder, start: int, end: int) -> None:
    run.tapped(record_batch(["a"]), 0, node=2, fetched=True, client="harrow-drain")


def requested(api: int, client: str = "billing", *, error: int = 0, flags: int = 0) -> Story:
    def story(run: RunFolder, start: int, end: int) -> None:
        run.requested(TappedRequest(client, api, error, start + 10, end - 10, flags))

    return story


def waited_over_the_fault(run: RunFolder, start: int, end: int) -> None:
    """A JoinGroup that was read before the fault and answered after it."""
    run.requested(TappedRequest("billing", ApiKey.JOIN_GROUP, 0, start - 100, end + 100))


def asked_after_the_fault(run: RunFolder, start: int, end: int) -> None:
    run.requested(TappedRequest("billing", ApiKey.JOIN_GROUP, 0, end + 100, end + 200))


def a_connection_that_ended_with_its_broker(run: RunFolder, start: int, end: int) -> None:
    opened = start - 100
    run.requested(TappedRequest("billing", CONNECTION_OPENED, 0, opened, opened))


def a_connection_that_was_closed(run: RunFolder, start: int, end: int) -> None:
    run.requested(TappedRequest("billing", CONNECTION_CLOSED, 0, start - 100, start + 100))


TOUCHED: dict[str, tuple[Story, str]] = {
    "a batch of another topic": (a_batch_of_another_topic, "pause"),
    "an OffsetFetch that was refused": (requested(ApiKey.OFFSET_FETCH, error=14, flags=REQUEST_HIT), "refuse_request"),
    "a Metadata request": (requested(ApiKey.METADATA), "pause"),
    "a request that waited over the fault": (waited_over_the_fault, "pause"),
    "a connection that ended with its broker": (a_connection_that_ended_with_its_broker, "kill"),
    "a connection that was closed": (a_connection_that_was_closed, "isolate"),
    "a program that was killed": (nothing, "kill_program"),
    "a program that was ended between two records": (nothing, "terminate_program"),
}


@pytest.mark.parametrize("name", TOUCHED)
def test_a_fault_that_touched_a_client_leaves_no_doubt(name: str, run: RunFolder) -> None:
    story, kind = TOUCHED[name]
    verdict = judged(run, story, kind=kind)
    assert verdict.status is Status.VALID, str(verdict)


UNTOUCHED: dict[str, tuple[Story, str]] = {
    "nothing": (nothing, "pause"),
    "a broker's own fetch": (a_batch_of_a_broker, "pause"),
    "the final read": (a_batch_of_the_final_read, "pause"),
    "a request of Harrow's": (requested(ApiKey.METADATA, "harrow"), "pause"),
    "a request after the fault": (asked_after_the_fault, "kill"),
    "a connection to a broker that lives": (a_connection_that_ended_with_its_broker, "pause"),
}


@pytest.mark.parametrize("name", UNTOUCHED)
def test_a_fault_that_touched_no_client_is_named(name: str, run: RunFolder) -> None:
    story, kind = UNTOUCHED[name]
    verdict = judged(run, story, kind=kind)
    assert verdict.status is Status.UNKNOWN
    assert f"fault 1, {kind}(broker(1)) on broker 1" in verdict.reasons[0]
    assert "met no operation" in verdict.reasons[0]


def test_a_batch_of_any_topic_is_traffic_before_the_first_fault(run: RunFolder) -> None:
    run.tapped(record_batch(["x"]), 0, node=2, topic="requests")
    verdict = judged(run, a_batch_of_another_topic, before=False)
    assert verdict.status is Status.VALID, str(verdict)


def test_without_any_traffic_before_the_first_fault_the_verdict_is_unknown(run: RunFolder) -> None:
    verdict = judged(run, a_batch_of_another_topic, before=False)
    assert "nothing was acknowledged before the first fault" in verdict.reasons
