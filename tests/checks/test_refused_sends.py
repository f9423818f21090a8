"""Refused sends: a doubt only where no record that was appended later can be one of them (L6)."""

from __future__ import annotations

from harrow.cluster.errors import ErrorCode
from harrow.harness.checks import Status, Verdict, judge
from judged_runs import NOW_MS, TOPIC, RunFolder, record_batch

NOT_LEADER = int(ErrorCode.not_leader_or_follower)


def judged(run: RunFolder) -> Verdict:
    return judge(run.done(), topics=[TOPIC], guarantee="no-loss", engine="inline")


def refuse(run: RunFolder, values: str, *, at_ms: int, client: str = "app") -> None:
    """A broker refuses a batch of the records `values`, which have the timestamp `at_ms`."""
    batch = record_batch(list(values), timestamp_ms=NOW_MS + at_ms)
    run.tapped(batch, -1, error=NOT_LEADER, client=client)


def append(run: RunFolder, values: str, offset: int, *, at_ms: int, client: str = "app", partition: int = 0) -> bytes:
    """A broker appends a batch of the records `values`; return its bytes."""
    batch = record_batch(list(values), base_offset=offset, timestamp_ms=NOW_MS + at_ms)
    run.tapped(batch, offset, client=client, partition=partition)
    return batch


def final(run: RunFolder, values: str, *, at_ms: dict[int, int], partition: int = 0) -> None:
    stamps = {offset: NOW_MS + at_ms.get(offset, 0) for offset in range(len(values))}
    run.final(dict(enumerate(values)), timestamps=stamps, partition=partition)


def test_records_that_a_client_stamps_again_at_each_attempt_leave_no_doubt(run: RunFolder) -> None:
    """KafkaJS: three attempts are refused, each with timestamps of its own, and the fourth is appended."""
    for attempt in range(3):
        refuse(run, "abcd", at_ms=10 * attempt)
    run.logs(append(run, "abcd", 0, at_ms=40))
    final(run, "abcd", at_ms=dict.fromkeys(range(4), 40))
    verdict = judged(run)
    assert verdict.status is Status.VALID, str(verdict)
    (note,) = [note for note in verdict.notes if "refused" in note]
    assert note == (
        "brokers refused 3 batches of app with NOT_LEADER_OR_FOLLOWER, each attempt counted: whether their records "
        "were sent again cannot be seen"
    )


def test_refused_records_after_which_too_few_were_appended_are_a_doubt(run: RunFolder) -> None:
    run.logs(append(run, "xyz", 0, at_ms=0), record_batch(["e"], base_offset=3))
    refuse(run, "abcd", at_ms=10)
    run.tapped(record_batch(["e"]), 3)
    final(run, "xyze", at_ms={})
    verdict = judged(run)
    assert verdict.status is Status.UNKNOWN
    assert "refused at least 3 records of app with NOT_LEADER_OR_FOLLOWER" in verdict.reasons[0]


def test_records_that_another_client_appended_cannot_be_the_refused_ones(run: RunFolder) -> None:
    refuse(run, "ab", at_ms=0)
    run.logs(append(run, "cd", 0, at_ms=20, client="other"))
    final(run, "cd", at_ms={0: 20, 1: 20})
    verdict = judged(run)
    assert verdict.status is Status.UNKNOWN
    assert "at least 2 records of app" in verdict.reasons[0]


def test_refused_records_may_have_been_sent_again_to_another_partition(run: RunFolder) -> None:
    run.logs(append(run, "x", 0, at_ms=0))
    refuse(run, "ab", at_ms=10)
    other = append(run, "ab", 0, at_ms=20, partition=1)
    for node in (1, 2, 3):
        run.log(node, other, partition=1)
    final(run, "x", at_ms={})
    final(run, "ab", at_ms={0: 20, 1: 20}, partition=1)
    assert judged(run).status is Status.VALID


def test_attempts_with_the_same_sequence_count_once(run: RunFolder) -> None:
    """Sarama repeats a batch many times with the same sequence; in the end nothing was appended."""
    run.logs(append(run, "x", 0, at_ms=0))
    for attempt in range(50):
        batch = record_batch(["a", "b"], producer_id=7, sequence=0, timestamp_ms=NOW_MS + 10 + attempt)
        run.tapped(batch, -1, error=NOT_LEADER)
    final(run, "x", at_ms={})
    verdict = judged(run)
    assert verdict.status is Status.UNKNOWN
    assert "refused at least 2 records of app" in verdict.reasons[0]
