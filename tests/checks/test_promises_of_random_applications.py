"""A correct application has no anomaly, whatever it sends; a single mistake has the anomaly of its name (L5, L6)."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.promises.topic_promise import TopicPromise
from harrow.harness.promises.topic_results import judge_topics
from hypothesis import assume, given
from hypothesis import strategies as st
from long_runs import examples
from promised_runs import TOPIC, PromisedRun

PARTITIONS = 3
Sent = tuple[int, int, int]
"""Record id, key and partition."""


@st.composite
def applications(draw: st.DrawFn) -> list[Sent]:
    """What a correct application sends, in its order: a partition for each key; an id may be sent twice on purpose."""
    ids = draw(st.lists(st.integers(0, 20), min_size=2, max_size=20))
    partition_of = draw(st.lists(st.integers(0, PARTITIONS - 1), min_size=4, max_size=4))
    return [(identity, identity % 4, partition_of[identity % 4]) for identity in ids]


def appended(sent: list[Sent], shuffle: list[int]) -> list[Sent]:
    """The order of appending: partitions progress at different speeds, each in the order of sending."""
    waiting = {p: [record for record in sent if record[2] == p] for p in range(PARTITIONS)}
    log = [waiting[choice % PARTITIONS].pop(0) for choice in shuffle if waiting[choice % PARTITIONS]]
    return log + [record for rest in waiting.values() for record in rest]


def judged(log: list[Sent], believed: list[Sent] | set[int]) -> PromiseFindings:
    with TemporaryDirectory() as folder:
        run = PromisedRun(Path(folder), partitions=PARTITIONS)
        for identity, key, partition in log:
            run.record({"order": identity}, key=f"key-{key}", partition=partition)
        expected = believed if isinstance(believed, set) else [record[0] for record in believed]
        promise = TopicPromise.of(
            guarantee="exactly-once, ordered", record_id="order", expected=expected, order_key=None
        )
        assert promise is not None
        return judge_topics(run.write(), [TOPIC], promise, engine="inline")


@examples(20, 300)
@given(applications(), st.lists(st.integers(0, 5)))
def test_a_correct_application_is_never_called_wrong(sent: list[Sent], shuffle: list[int]) -> None:
    findings = judged(appended(sent, shuffle), sent)
    assert not findings.anomaly_counts
    assert not findings.reasons
    assert not findings.doubts
    assert findings.operation_counts["matched"] == len(sent)


@examples(20, 300)
@given(applications(), st.data())
def test_a_single_mistake_has_its_name(sent: list[Sent], data: st.DataObject) -> None:
    at = data.draw(st.integers(0, len(sent) - 1))
    record = sent[at]
    lost = judged(sent[:at] + sent[at + 1 :], sent)
    assert dict(lost.anomaly_counts) == {"missing": 1}
    twice = judged([*sent[: at + 1], *sent[at:]], sent)
    assert dict(twice.anomaly_counts) == {"duplicate": 1}
    invented = judged([*sent, (99, 99, 0)], sent)
    assert dict(invented.anomaly_counts) == {"unexpected": 1}
    same_key = [other for other in sent if other[1] == record[1] and other is not record]
    if same_key:
        moved = (record[0], record[1], (record[2] + 1) % PARTITIONS)
        split = judged([*sent[:at], moved, *sent[at + 1 :]], sent)
        assert split.anomaly_counts["split-key"] == 1


@examples(20, 300)
@given(applications(), st.data())
def test_swapped_neighbours_of_a_key_are_out_of_order(sent: list[Sent], data: st.DataObject) -> None:
    unique = list(dict.fromkeys(sent))
    pairs = [
        (first, second)
        for first, left in enumerate(unique)
        for second, right in enumerate(unique[first + 1 :], first + 1)
        if left[1] == right[1] and all(other[1] != left[1] for other in unique[first + 1 : second])
    ]
    assume(pairs)
    first, second = data.draw(st.sampled_from(pairs))
    log = list(unique)
    log[first], log[second] = log[second], log[first]
    findings = judged(log, unique)
    assert dict(findings.anomaly_counts) == {"out-of-order": 1}
    assert not judged(log, {record[0] for record in unique}).anomaly_counts, "a set has no order"
