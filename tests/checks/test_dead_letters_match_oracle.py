"""The rules of dead letters find what the plain oracle finds (L5)."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.harness.histories.commits import Commit
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_oracle import judge_pipeline
from harrow.harness.promises.record import Record
from harrow.harness.promises.relations import Relation, filtered, flat_mapped, mapped
from harrow.harness.promises.retries import RetryPromise
from harrow.harness.promises.shapes import Rows
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
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


@st.composite
def topic_of(
    draw: st.DrawFn, name: str, values: st.SearchStrategy[Any], most: int
) -> list[tuple[Record, int]]:
    """Records of a topic with one partition, each with the time at which it was acknowledged; 0: not known."""
    found: list[tuple[Record, int]] = []
    for offset, value in enumerate(draw(st.lists(values, max_size=most))):
        key = draw(st.sampled_from(["a", "a", "a", None]))
        found.append((record(value, offset=offset, key=key, topic=name), draw(st.integers(0, 9))))
    return found


def saved(folder: Path, topic: list[tuple[Record, int]]) -> str:
    """Write the times of the records of a topic."""
    path = folder / f"{topic[0][0].topic if topic else 'empty'}.npy"
    rows = [(given.partition, given.offset, given.offset, time) for given, time in topic]
    np.save(path, np.array(rows, np.int64).reshape(-1, 4))
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
        "delay": data.draw(topic_of("delay", ORDER, 2)),
        "dead": data.draw(topic_of("dead", again | ORDER, 3)),
    }
    commit = st.builds(
        Commit, group=st.just("g"), partition=st.just(0), offset=st.integers(0, 5), completed_ns=st.integers(1, 9)
    )  # fmt: skip
    commits = data.draw(st.lists(commit, max_size=2))
    records = {name: [given for given, _ in topic] for name, topic in topics.items()}
    times = {
        (given.topic, given.offset): time for topic in topics.values() for given, time in topic
    }
    pairing = Pairing(relation=relation, record_id="order", rows=Rows())
    with tempfile.TemporaryDirectory() as folder:
        files = {name: saved(Path(folder), topic) for name, topic in topics.items()}
        found = checked(
            records["orders"], records["bills"], pairing, Path(folder), commits=commits, times=files["bills"],
            retries=records["delay"], letters=records["dead"], topic_times=files, promise=PROMISE, ordered=False,
        )  # fmt: skip
    expected = judge_pipeline(
        records["orders"], records["bills"], pairing, commits=commits, retries=records["delay"],
        letters=records["dead"], time_of=lambda given: times[given.topic, given.offset],
    )  # fmt: skip
    expected.counts.pop("out-of-order-output", None)
    assert anomalies(found) == anomalies(expected)
    assert sum(found.late.values()) == expected.late.total()
    assert not (found.problems or found.raised or found.other_ids)
