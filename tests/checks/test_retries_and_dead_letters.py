"""What a verdict says of retries and dead letters: each anomaly in words, and each doubt (H8, L5, L6)."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from harrow.harness.checks.doubts import count_doubts
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit, commit_times
from harrow.harness.histories.contents import FinalRead
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.pipeline_results import PipelineResults, PipelineRun
from harrow.harness.promises.pipeline_words import PipelineWords
from harrow.harness.promises.retries import ATTEMPTS_HEADER, DUE_HEADER, REASON_HEADERS, RetryPromise
from harrow.harness.promises.retry_columns import RetryColumns
from harrow.harness.promises.retry_words import RetryWords
from harrow.harness.promises.shapes import Rows
from pipelines_by_hand import chunks_of, record

WITH_DELAY = RetryPromise.of(retry_topics=("orders-delay", "orders-retry"), dead_letters="orders-dead", attempts=3)
BY_DELAY = RetryPromise.of(retry_topics=("orders-retry-1s", "orders-retry-1m"), dead_letters="orders-dead", attempts=3)


def order(number: int = 17, *, offset: int = 0, **more: Any) -> Record:
    return record({"order": number, **more}, offset=offset, key="ada", topic="orders")


def bill(number: int = 17, *, offset: int = 0) -> Record:
    return record({"order": number}, offset=offset, topic="bills")


def retry(
    topic: str, attempts: int | None, due_ms: int | None, at_ms: int, *, offset: int = 0, number: int = 17
) -> Record:
    """A record of a retry topic that was written `at_ms`."""
    headers = {ATTEMPTS_HEADER: attempts, DUE_HEADER: due_ms}
    known = {name: value for name, value in headers.items() if value is not None}
    return record({"order": number}, offset=offset, key="ada", topic=topic, timestamp_ms=at_ms, headers=known)


def dead(
    at_ms: int = 9_000,
    *,
    offset: int = 0,
    key: str | None = "ada",
    number: int = 17,
    attempts: int | None = None,
    reason: str | None = "no such customer",
) -> Record:
    given: dict[str, Any] = {REASON_HEADERS[0]: reason, ATTEMPTS_HEADER: attempts}
    return record(
        {"order": number},
        offset=offset,
        key=key,
        topic="orders-dead",
        timestamp_ms=at_ms,
        headers={name: value for name, value in given.items() if value is not None},
    )


def judged(
    folder: Path,
    orders: list[Record],
    bills: list[Record],
    others: list[Record],
    promise: RetryPromise = WITH_DELAY,
    *,
    commits: list[Commit] | None = None,
    removed: str = "",
    reads: str = "",
    times: dict[str, str] | None = None,
    taken: dict[str, Any] | None = None,
    ordered: bool = False,
    order_key: str | None = None,
) -> PromiseFindings:
    """Return what the verdict is given. `others`: the records of retry topics and dead letters."""
    pairing = Pairing(relation=None, record_id="order", rows=Rows())
    by_topic: dict[str, list[Record]] = {name: [] for name in promise.all_topics}
    for other in others:
        by_topic[other.topic].append(other)
    chunks = {name: chunks_of(given, folder / name, 2) for name, given in by_topic.items()}
    letters = chunks.pop(promise.dead_letters or "", [])
    given_commits = commit_times(commits or [])
    inputs = PipelineInputs(
        pairing=pairing,
        source=chunks_of(orders, folder / "source", 2),
        sink=chunks_of(bills, folder / "sink", 2),
        commits=given_commits,
        retries=[chunk for own in chunks.values() for chunk in own],
        letters=letters,
        retry=RetryColumns(promise=promise),
        reads=reads,
        topic_times=times or {},
        ordered=ordered,
        order_key=order_key,
    )
    found = check_pipeline(inputs, folder=folder / "join", engine="inline")
    words = PipelineWords(
        pairing=pairing,
        source="orders",
        sink="bills",
        commits=given_commits,
        partitions=(),
        chunks=[numbered.chunk for numbered in inputs.chunks()],
        retries=RetryWords(promise=promise, sink="bills", asked_ns=20_000_000_000, commits=taken or {}),
        order_key=order_key,
    )
    lost = [FinalRead(topic=removed, partition=0, low=1, high=2, records=1)] if removed else []
    run = PipelineRun(
        pairing=pairing,
        source="orders",
        sink="bills",
        commits=given_commits,
        retry=promise,
        retry_partitions=lost,
        ordered=ordered,
    )
    return PipelineResults(run, found, words, 20).findings()


def texts(found: PromiseFindings) -> dict[str, str]:
    return {row.name: str(row.explanation) for row in found.anomalies}


FLOW = [
    retry("orders-delay", 1, 1_000, 500),
    retry("orders-retry", 1, 1_000, 1_001),
    retry("orders-delay", 2, 3_000, 1_100, offset=1),
    retry("orders-retry", 2, 3_000, 3_002, offset=1),
]
LEVELS = [retry("orders-retry-1s", 1, 1_000, 500), retry("orders-retry-1m", 2, 61_000, 1_001)]
SPRING = [retry("orders-retry-1s", 2, 1_000, 500), retry("orders-retry-1m", 3, 61_000, 1_001)]


@pytest.mark.parametrize(
    ("promise", "flow", "attempts"),
    [(WITH_DELAY, FLOW, 3), (BY_DELAY, LEVELS, 3), (BY_DELAY, SPRING, 4)],
    ids=["a delay topic", "a topic for each delay", "as Spring counts"],
)
@pytest.mark.parametrize("end", ["output", "dead letter"])
def test_a_correct_flow_has_nothing_to_report(
    tmp_path: Path, promise: RetryPromise, flow: list[Record], attempts: int, end: str
) -> None:
    letter = dead(61_002, attempts=attempts)
    bills, others = ([bill()], flow) if end == "output" else ([], [*flow, letter])
    found = judged(tmp_path, [order()], bills, others, promise)
    assert not (found.anomaly_counts or found.doubts), texts(found)
    assert not found.reasons
    judged_dues = [note for note in found.notes if "attempt-before-due" in note]
    assert not judged_dues


def test_an_input_with_neither_fate_says_how_far_its_retries_got(tmp_path: Path) -> None:
    found = judged(tmp_path, [order()], [], FLOW[:3])
    assert texts(found) == {
        "missing-output": "bills has no output for order 17, and orders-dead no dead letter; its last retry is "
        "orders-delay-0@1, with 2 attempts, due at 3.00 s"
    }
    waiting = retry("orders-delay", 2, 30_000, 1_100, offset=1)
    found = judged(tmp_path, [order()], [], [waiting])
    assert "after the final read at 20.00 s: wait longer in the test" in str(texts(found))
    assert found.anomalies[0].operations[-1]["due_after_read"] is True
    found = judged(tmp_path, [order()], [], [], promise=BY_DELAY)
    assert "orders-retry-1s and orders-retry-1m never had it" in str(texts(found))


def test_an_output_and_a_dead_letter_are_both_shown(tmp_path: Path) -> None:
    found = judged(tmp_path, [order()], [bill()], [dead()])
    assert found.anomaly_counts == {"output-and-dead-letter": 1}
    (row,) = found.anomalies
    assert (row.topic, row.offsets) == ("orders-dead", [0])
    assert [shown["operation"] for shown in row.operations] == ["record", "output", "dead letter"]
    assert "order 17 has an output in bills, and lies in orders-dead" in row.explanation
    replayed = judged(tmp_path, [order(), order(offset=1)], [bill()], [dead()])
    assert not replayed.anomaly_counts
    doubled = judged(tmp_path, [order()], [], [dead(), dead(offset=1)])
    assert texts(doubled) == {
        "duplicate-output": "orders-dead has more dead letters of order 17 than orders has inputs"
    }


def test_a_dead_letter_of_no_input_is_unexpected(tmp_path: Path) -> None:
    found = judged(tmp_path, [order()], [bill()], [dead(number=4)])
    assert "a dead letter of order 4, and no record of orders" in texts(found)["unexpected-output"]


@pytest.mark.parametrize(
    ("letter", "words"),
    [
        (dead(reason=None), "no reason"),
        (dead(key=None), "the key null, and its input has ada"),
        (
            record({"order": 17, "paid": True}, key="ada", topic="orders-dead", headers={REASON_HEADERS[1]: "x"}),
            "another value than its input orders-0@0",
        ),
    ],
    ids=["reason", "key", "value"],
)
def test_a_dead_letter_has_its_reason_and_its_input(tmp_path: Path, letter: Record, words: str) -> None:
    found = judged(tmp_path, [order()], [], [letter])
    assert found.anomaly_counts == {"dead-letter-without-reason": 1}
    assert words in texts(found)["dead-letter-without-reason"]


def test_attempts_are_counted_by_the_header(tmp_path: Path) -> None:
    third = retry("orders-delay", 3, 9_000, 3_100, offset=2)
    found = judged(tmp_path, [order()], [bill()], [*FLOW, third])
    assert texts(found) == {
        "too-many-attempts": "orders-delay-0@2 says 3 attempts for order 17, more than attempts=3 allows"
    }
    late = dead(attempts=4)
    assert "orders-dead-0@0 says 4 attempts" in str(texts(judged(tmp_path, [order()], [], [*FLOW, late])))


def test_a_count_that_begins_again_is_found_by_the_deliveries(tmp_path: Path) -> None:
    import numpy as np

    again = [retry("orders-delay", 1, 4_000, 3_100, offset=2), retry("orders-retry", 1, 4_000, 4_001, offset=2)]
    for deliveries, producer, wrong in ((1, 8, True), (2, 8, False), (1, 7, False), (1, -1, False)):
        reads = tmp_path / f"{deliveries}.npy"
        np.save(reads, np.array([(0, 0, 0)] * deliveries, np.int64))
        times = tmp_path / "times.npy"
        batches = [(0, 0, 1, 0, 0, 7), (0, 2, 2, 0, 0, producer)]
        np.save(times, np.array(batches, np.int64))
        found = judged(
            tmp_path, [order()], [bill()], [*FLOW, *again], reads=str(reads), times={"orders-delay": str(times)}
        )
        assert ("too-many-attempts" in found.anomaly_counts) is wrong
        assert ("the job may count in memory" in str(texts(found))) is wrong


def test_a_retry_that_was_sent_again_is_named_beside_the_second_output(tmp_path: Path) -> None:
    bills = [bill(), bill(offset=1)]
    again = retry("orders-retry", 1, 1_000, 5_001, offset=2)
    found = judged(tmp_path, [order()], bills, [*FLOW, again])
    assert texts(found) == {
        "duplicate-output": "bills has the output for order 17 more often than the inputs require; orders-retry-0@2 is "
        "the same retry as orders-retry-0@0, with 1 attempt, due at 1.00 s: it was sent again"
    }
    (row,) = found.anomalies
    assert (row.topic, row.offsets) == ("bills", [1])
    shown = [(each["operation"], each["offset"]) for each in row.operations if each["operation"] == "retry"]
    assert shown == [("retry", 0), ("retry", 2)]
    (row,) = judged(tmp_path, [order()], bills, FLOW).anomalies
    assert str(row.explanation).endswith("the inputs require")


def test_an_input_that_a_group_does_not_get_past_is_named_with_its_deliveries(tmp_path: Path) -> None:
    import numpy as np

    reads = tmp_path / "reads.npy"
    np.save(reads, np.array([(0, 0, 0)] * 37 + [(0, 1, 1)] * 2, np.int64))
    before = Commit(group="billing", partition=0, offset=1, completed_ns=5)
    orders = [order(16), order(17, offset=1), order(18, offset=2)]
    found = judged(tmp_path, orders, [bill(16)], [], commits=[before], reads=str(reads))
    rows = [row.operations[0] for row in found.anomalies]
    assert [(row.get("deliveries"), row.get("stopped_group")) for row in rows] == [(2, "billing"), (None, None)]
    assert str(found.anomalies[0].explanation).endswith("; clients were delivered it 2 times")


def test_attempts_without_a_header_are_counted_by_records(tmp_path: Path) -> None:
    same = [retry("orders-retry", None, None, at, offset=at) for at in range(3)]
    found = judged(tmp_path, [order()], [bill()], same)
    assert "too-many-attempts" not in found.anomaly_counts
    assert "1 input more often than attempts=3 allows" in found.doubts["too-many-attempts"]
    once = RetryPromise.of(retry_topics="orders-retry", attempts=3, once=True)
    found = judged(tmp_path, [order()], [bill()], same, once)
    assert "orders-retry has order 17 3 times" in texts(found)["too-many-attempts"]
    found = judged(tmp_path, [order()], [bill()], same[:2])
    assert any("was judged by the number of records" in note for note in found.notes)
    assert any("attempt-before-due was not judged: no record" in note for note in found.notes)


def test_an_attempt_before_its_time_is_named_with_both_times(tmp_path: Path) -> None:
    early = retry("orders-retry", 1, 1_000, 700)
    found = judged(tmp_path, [order()], [bill()], [FLOW[0], early])
    assert texts(found) == {
        "attempt-before-due": "the next attempt for order 17 was due at 1.00 s (orders-delay-0@0), and "
        "orders-retry-0@0 was written 0.300 s before"
    }
    (shown,) = [row for row in found.anomalies[0].operations if row["operation"] == "attempt"]
    assert shown["early_ms"] == 300
    levels = [LEVELS[0], retry("orders-retry-1m", 2, 61_000, 600)]
    found = judged(tmp_path, [order()], [bill()], levels, BY_DELAY)
    assert "orders-retry-1m-0@0 was written 0.400 s before" in texts(found)["attempt-before-due"]
    within = judged(tmp_path, [order()], [bill()], [FLOW[0], retry("orders-retry", 1, 1_000, 960)])
    assert not within.anomaly_counts


def test_what_cannot_be_judged_is_a_doubt_or_a_note(tmp_path: Path) -> None:
    named = RetryPromise.of(retry_topics="orders-retry", attempts=3, attempts_header="tries", due_header="when")
    found = judged(tmp_path, [order()], [bill()], [retry("orders-retry", 1, 1_000, 500)], named)
    assert "attempts_header=" in found.doubts["too-many-attempts"]
    assert "due_header=" in found.doubts["attempt-before-due"]
    nothing = judged(tmp_path, [order()], [bill()], [])
    assert "nothing was retried: orders-delay and orders-retry has no record" in nothing.notes
    once = judged(tmp_path, [order()], [bill()], LEVELS[:1], BY_DELAY)
    assert any("no attempt of" in note for note in once.notes)
    lost = judged(tmp_path, [order()], [], [], removed="orders-dead")
    assert "missing-output" not in lost.anomaly_counts
    assert "which may have been dead letters" in lost.doubts["missing-output"]
    assert "cannot be excluded" in lost.doubts["dead-letter-without-reason"]
    kept = judged(tmp_path, [order()], [bill()], [], removed="orders-delay")
    assert {"too-many-attempts", "attempt-before-due"} <= set(kept.doubts)


def test_the_group_that_took_a_retry_is_named(tmp_path: Path) -> None:
    taken = commit_times([Commit(group="scheduler", partition=0, offset=2, completed_ns=4_000_000_000)])
    early = Commit(group="billing", partition=0, offset=1, completed_ns=5)
    found = judged(tmp_path, [order()], [], FLOW[:3], commits=[early], taken={"orders-delay": taken})
    assert texts(found)["missing-output"].endswith(
        "due at 3.00 s, and group scheduler has committed offset 2 of orders-delay: it will not be read again"
    )
    (row,) = [row for row in found.anomalies[0].operations if row["operation"] == "commit"]
    assert (row["group"], row["topic"], row["offset"]) == ("scheduler", "orders-delay", 2)


def test_retries_of_a_key_are_sent_in_the_order_of_their_due_times(tmp_path: Path) -> None:
    waits = [retry("orders-delay", 1, 1_000, 500, number=1), retry("orders-delay", 1, 2_000, 600, offset=1, number=2)]
    sent = [
        retry("orders-retry", 1, 2_000, 2_001, number=2),
        retry("orders-retry", 1, 1_000, 2_002, offset=1, number=1),
    ]
    orders, bills = [order(1), order(2, offset=1)], [bill(1), bill(2, offset=1)]
    found = judged(tmp_path, orders, bills, [*waits, *sent], ordered=True)
    assert texts(found) == {
        "due-out-of-order": "orders-delay-0@0 was due at 1.00 s, before orders-delay-0@1 with the same key ada at "
        "2.00 s, but it was sent as orders-retry-0@1 behind orders-retry-0@0"
    }
    assert not judged(tmp_path, orders, bills, [*waits, *sent]).anomaly_counts


@pytest.mark.parametrize("order_key", [None, "customer"])
def test_a_later_order_that_is_billed_during_a_retry_is_out_of_order(tmp_path: Path, order_key: str | None) -> None:
    """Both orders have the record key `ada`, and each has its own customer."""
    orders = [order(1, customer="c1"), order(2, offset=1, customer="c2")]
    waited = [retry("orders-delay", 1, 1_000, 500, number=1), retry("orders-retry", 1, 1_000, 1_001, number=1)]
    for retried in waited:
        retried.__dict__["value"] = orders[0].value
    found = judged(tmp_path, orders, [bill(2), bill(1, offset=1)], waited, ordered=True, order_key=order_key)
    assert found.anomaly_counts == ({"out-of-order-output": 1} if order_key is None else {})


def test_an_empty_topic_of_retries_or_dead_letters_is_a_note() -> None:
    """A job in which nothing failed has no retries; an empty source is a reason all the same."""
    counts = Counter({"acknowledged": 2, "replica_logs": 1})
    promised = PromiseFindings(accounted_topics=("bills", *WITH_DELAY.all_topics))
    found = count_doubts(counts, ["at-least-once"], ["orders-dead"], promised)
    assert not found.reasons
    assert found.notes == ["no record was ever in orders-dead"]
    found = count_doubts(counts, ["at-least-once"], ["orders", "orders-dead"], promised)
    assert "no record was ever in orders: " in found.reasons[0]
