"""The rules of dead letters find what the plain oracle finds (H8, L5)."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.relations import Relation, filtered, flat_mapped, mapped
from harrow.harness.promises.retries import ATTEMPTS_HEADER, DUE_HEADER, REASON_HEADERS, RetryPromise
from harrow.harness.promises.shapes import Rows
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_pipelines import judge_pipeline
from pipelines_by_hand import anomalies, checked, record

PROMISE = RetryPromise.of(retry_topics=("delay", "retry"), dead_letters="dead", attempts=3)
RELATIONS: list[tuple[str, Relation | None]] = [
    ("by id", None),
    ("mapped", mapped(lambda order: {"order": order["order"], "total": order["amount"]})),
    ("filtered", filtered(lambda order: order["amount"] > 0)),
    ("flat_mapped", flat_mapped(lambda order: [{"order": order["order"]}] * order["amount"])),
]
ORDER = st.fixed_dictionaries({"order": st.integers(0, 1), "amount": st.integers(0, 2)})
BILL = st.fixed_dictionaries({"order": st.integers(0, 2), "total": st.integers(0, 2)})


MS = st.integers(0, 9)
HEADERS = st.fixed_dictionaries(
    {}, optional={ATTEMPTS_HEADER: st.integers(0, 4), DUE_HEADER: MS, REASON_HEADERS[0]: st.sampled_from(["no", ""])}
)


@st.composite
def topic_of(draw: st.DrawFn, name: str, values: st.SearchStrategy[Any], most: int) -> list[tuple[Record, int]]:
    """Records of a topic with one partition, each with the time at which it was acknowledged; 0: not known."""
    found: list[tuple[Record, int]] = []
    for offset, value in enumerate(draw(st.lists(values, max_size=most))):
        key = draw(st.sampled_from(["a", "a", "a", None]))
        headers = draw(HEADERS) if name in ("delay", "retry", "dead") else {}
        given = record(value, offset=offset, key=key, topic=name, headers=headers, timestamp_ms=draw(MS))
        found.append((given, draw(MS) * 1_000_000))
    return found


def saved(folder: Path, topic: list[tuple[Record, int]]) -> str:
    """Write the times of the records of a topic."""
    path = folder / f"{topic[0][0].topic if topic else 'empty'}.npy"
    rows = [(given.partition, given.offset, given.offset, time, 0, producer_of(given)) for given, time in topic]
    np.save(path, np.array(rows, np.int64).reshape(-1, 6))
    return str(path)


def producer_of(given: Record) -> int:
    """Return the producer id of a record, which depends on its timestamp."""
    return given.timestamp_ms % 5 - 1


def delivered(folder: Path, reads: dict[int, int]) -> str:
    """Write how often each input of partition 0 was delivered."""
    path = folder / "reads.npy"
    rows = [(0, offset, offset) for offset, count in reads.items() for _ in range(count)]
    np.save(path, np.array(rows, np.int64).reshape(-1, 3))
    return str(path)


@pytest.mark.parametrize(("name", "relation"), RELATIONS, ids=[name for name, _ in RELATIONS])
@examples(25, 1_000)
@given(data=st.data())
def test_outputs_and_dead_letters_are_judged_as_by_the_oracle(
    name: str, relation: Relation | None, data: st.DataObject
) -> None:
    del name
    orders = data.draw(topic_of("orders", ORDER, 4))
    again = st.sampled_from([given.json for given, _ in orders]) if orders else ORDER
    topics = {
        "orders": orders,
        "bills": data.draw(topic_of("bills", BILL, 3)),
        "delay": data.draw(topic_of("delay", ORDER, 3)),
        "retry": data.draw(topic_of("retry", ORDER, 3)),
        "dead": data.draw(topic_of("dead", again | ORDER, 3)),
    }
    commit = st.builds(
        Commit,
        group=st.just("g"),
        partition=st.just(0),
        offset=st.integers(0, 5),
        completed_ns=st.integers(1, 9_000_000),
    )
    commits = data.draw(st.lists(commit, max_size=2))
    records = {name: [given for given, _ in topic] for name, topic in topics.items()}
    times = {(given.topic, given.offset): time for topic in topics.values() for given, time in topic}
    reads = {given.offset: data.draw(st.integers(0, 3)) for given, _ in orders}
    promise = replace(PROMISE, once=data.draw(st.booleans()), tolerance_ms=data.draw(st.sampled_from([0, 3])))
    retries = records["delay"] + records["retry"]
    pairing = Pairing(relation=relation, record_id="order", rows=Rows())
    with tempfile.TemporaryDirectory() as folder:
        files = {name: saved(Path(folder), topic) for name, topic in topics.items()}
        found = checked(
            records["orders"],
            records["bills"],
            pairing,
            Path(folder),
            commits=commits,
            times=files["bills"],
            retries=retries,
            letters=records["dead"],
            topic_times=files,
            promise=promise,
            reads=delivered(Path(folder), reads),
        )
    expected = judge_pipeline(
        records["orders"],
        records["bills"],
        pairing,
        commits=commits,
        retries=retries,
        letters=records["dead"],
        time_of=lambda given: times[given.topic, given.offset],
        promise=promise,
        reads_of=lambda given: reads[given.offset],
        producer_of=producer_of,
    )
    assert anomalies(found) == anomalies(expected)
    assert sum(found.late.values()) == expected.late.total()
    assert not (found.problems or found.raised or found.other_ids)
