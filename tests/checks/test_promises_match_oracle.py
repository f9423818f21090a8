"""The checks of topics and the oracle find the same anomalies in random topics, in this process and on Spark (L5)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.promises import join
from harrow.harness.promises.topic_promise import TopicPromise
from harrow.harness.promises.topic_results import judge_topics
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_promises import Anomaly, PlainRecord, id_anomalies, order_anomalies
from promised_runs import PromisedRun

TOPICS = ("orders", "bills")


@dataclass(frozen=True)
class Case:
    """Records in the order of appending (topic, partition, id, key), and what the application believes."""

    records: list[tuple[str, int, int | None, int | None]] = field(default_factory=list[Any])
    expected: list[int] | None = None
    ordered: bool = True
    sends: list[int] = field(default_factory=list[int])
    """Times of the sends of the first records; -1: not recorded."""


@st.composite
def cases(draw: st.DrawFn) -> Case:
    """Mostly what a correct application writes, with a few changes."""
    ids = draw(st.lists(st.integers(0, 12), max_size=16))
    records: list[tuple[str, int, int | None, int | None]] = []
    for identity in ids:
        key = identity % 3
        usual = ("orders", key % 2, identity, key)
        odd = st.tuples(
            st.sampled_from(TOPICS), st.integers(0, 1), st.none() | st.integers(0, 12), st.none() | st.integers(0, 2)
        )
        records.append(draw(st.just(usual) | st.just(usual) | odd))
    believed = st.just(ids) | st.permutations(ids) | st.lists(st.integers(0, 12), max_size=16)
    expected = draw(st.none() | believed)
    times = st.lists(st.integers(-1, 20), max_size=len(records))
    return Case(records, None if expected is None else list(expected), draw(st.booleans()), draw(times))


def write(case: Case, folder: Path) -> list[tuple[PlainRecord, int]]:
    """Write the run folder; return its records, each with the time of its send, or -1."""
    run = PromisedRun(folder, TOPICS)
    plain: list[tuple[PlainRecord, int]] = []
    for at, (topic, partition, identity, key) in enumerate(case.records):
        text = None if key is None else f"key-{key}"
        offset = run.record({"order": identity}, key=text, partition=partition, topic=topic)
        record = PlainRecord(topic, partition, offset, None if identity is None else str(identity), text)
        time = case.sends[at] if at < len(case.sends) else -1
        if time >= 0:
            run.acknowledged(offset, time + 1, partition=partition, topic=topic)
        plain.append((record, time))
    run.write()
    return plain


def oracle(case: Case, plain: Sequence[tuple[PlainRecord, int]]) -> set[Anomaly]:
    records = [record for record, _ in plain]
    expected = None if case.expected is None else [str(identity) for identity in case.expected]
    found = id_anomalies(records, _deduplicated(case, expected))
    by_position = case.ordered and expected is not None
    sends = {record[:3]: time for record, time in plain if time >= 0}
    return found | order_anomalies(records, expected if by_position else None, sends)


def _deduplicated(case: Case, expected: list[str] | None) -> list[str] | None:
    return expected if case.ordered or expected is None else sorted(set(expected))


def judged(case: Case, folder: Path, **engine: Any) -> PromiseFindings:
    expected: Any = case.expected
    if expected is not None and not case.ordered:
        expected = set(expected)
    promise = TopicPromise.of(
        guarantee="ordered", record_id=lambda record: record["order"], expected=expected, order_key=None
    )
    assert promise is not None
    return judge_topics(folder, TOPICS, promise, limit=1_000, **engine)


def as_tuples(findings: PromiseFindings) -> set[Anomaly]:
    """The anomalies as the oracle names them."""
    found: set[Anomaly] = set()
    for anomaly in findings.anomalies:
        name, shown = anomaly.name, anomaly.operations
        if name in ("missing", "unexpected"):
            found.add((name, shown[0]["record_id"]))
        elif name == "duplicate":
            found.add((name, shown[0]["topic"], shown[0]["record_id"]))
        elif name == "split-key":
            found.add((name, shown[0]["topic"], shown[0]["key"]))
        else:
            found.add((name, anomaly.topic, anomaly.partition, *anomaly.offsets))
    return found


def check(case: Case, folder: Path, **engine: Any) -> None:
    plain = write(case, folder)
    findings = judged(case, folder, **engine)
    expected = oracle(case, plain)
    assert as_tuples(findings) == expected
    assert Counter(findings.anomaly_counts) == Counter(str(anomaly[0]) for anomaly in expected)


@examples(30, 500)
@given(cases())
def test_reducers_and_oracle_find_the_same_anomalies(case: Case) -> None:
    with TemporaryDirectory() as folder:
        check(case, Path(folder), engine="inline")


FAULTY = Case(
    records=[
        ("orders", 0, 0, 0),
        ("orders", 1, 1, 1),
        ("orders", 1, 1, 1),
        ("orders", 0, 6, 0),
        ("orders", 0, 3, 0),
        ("orders", 1, 9, 0),
        ("bills", 0, 2, 2),
        ("bills", 0, None, None),
        ("orders", 0, 11, 2),
    ],
    expected=[0, 1, 2, 3, 6, 9, 7, 7],
)
FAULTY_NAMES = {"missing", "unexpected", "duplicate", "out-of-order", "split-key"}


def test_the_faulty_case_has_an_anomaly_of_each_name(tmp_path: Path) -> None:
    assert {anomaly[0] for anomaly in oracle(FAULTY, write(FAULTY, tmp_path))} == FAULTY_NAMES


def test_one_task_of_spark_finds_what_the_oracle_finds(spark: SparkHandle, tmp_path: Path) -> None:
    check(FAULTY, tmp_path, spark=spark)


def test_several_tasks_of_spark_find_what_the_oracle_finds(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(join, "TASK_ROWS", 4)
    monkeypatch.setattr(join, "BUCKET_ROWS", 5)
    check(FAULTY, tmp_path, spark=spark)
