"""The stages of a pipeline's checks find what the plain oracle finds, for every relation, also on Spark (L5)."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit
from harrow.harness.promises import join
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.relations import (
    RecordRelation,
    Relation,
    filtered,
    flat_mapped,
    folded,
    identity,
    mapped,
    windowed,
)
from harrow.harness.promises.retries import RetryPromise
from harrow.harness.promises.shapes import Rows, is_a
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_pipelines import judge_pipeline
from pipelines_by_hand import anomalies, checked, record

FEW = examples(15, 300)


def bill_of(order: Record) -> dict[str, Any]:
    return {"order": order["order"], "total": order["amount"] * 2}


def priced(order: Record) -> dict[str, Any]:
    """Bills of two shapes."""
    bill = {"order": order["order"], "total": order["amount"]}
    return bill | {"discount": 1} if order["amount"] > 1 else bill


def lines_of(order: Record) -> list[dict[str, Any]]:
    return [{"order": order["order"], "line": n} for n in range(order["amount"])]


def total(state: int, order: Record) -> int:
    return state + int(order["amount"])


def totals(state: dict[str, Any], order: Record) -> dict[str, Any]:
    return {"customer": order["customer"], "total": state.get("total", 0) * 2 + order["amount"]}


def count_of(window: Any) -> dict[str, Any]:
    return {"customer": window[0]["customer"], "start": window.start_ms, "count": len(window)}


def customer_of(row: Record) -> Any:
    return row["customer"]


def window_id(row: Record) -> tuple[Any, Any]:
    return row["customer"], row["start"]


RELATIONS: list[tuple[str, Relation | None, Any]] = [
    ("by id", None, "order"),
    ("identity", identity, "order"),
    ("identity by value", identity, None),
    ("mapped", mapped(bill_of), "order"),
    ("mapped by value", mapped(bill_of), None),
    ("mapped to two shapes", mapped(priced), "order"),
    ("mapped with a key", mapped(lambda order: (order["customer"], bill_of(order))), "order"),
    ("filtered", filtered(lambda order: order["amount"] > 0), "order"),
    ("flat_mapped", flat_mapped(lines_of), "order"),
    ("flat_mapped by value", flat_mapped(lines_of), None),
]
KEYED: list[tuple[str, Relation, Any]] = [
    ("folded by key", folded(total, 0), None),
    ("folded by id", folded(totals, {}), "customer"),
    ("folded by a field", folded(totals, {}, key="customer"), customer_of),
    ("windowed", windowed(1, count_of), window_id),
]


@st.composite
def placed(draw: st.DrawFn, values: st.SearchStrategy[Any], topic: str, most: int) -> list[Record]:
    """Records in partitions, with offsets in their order."""
    partitions = draw(st.integers(1, 2))
    ends: Counter[int] = Counter()
    records: list[Record] = []
    for value in draw(st.lists(values, max_size=most)):
        partition = draw(st.integers(0, partitions - 1))
        records.append(
            record(
                value,
                partition=partition,
                offset=ends[partition],
                topic=topic,
                key=value.get("customer", draw(st.sampled_from([None, "a"]))),
                timestamp_ms=draw(st.sampled_from([0, 900, 1000, 1500])),
            )
        )
        ends[partition] += 1
    return records


ORDERS = st.fixed_dictionaries(
    {"order": st.integers(0, 3), "amount": st.integers(0, 2), "customer": st.sampled_from(["a", "b"])}
)
OUTPUTS = st.one_of(
    ORDERS,
    st.fixed_dictionaries(
        {"order": st.integers(0, 3), "total": st.integers(0, 4)},
        optional={"discount": st.just(1), "line": st.integers(0, 1), "customer": st.just("a")},
    ),
    st.fixed_dictionaries({"order": st.integers(0, 3), "line": st.integers(0, 1)}),
)


def derived(relation: Relation | None, orders: list[Record]) -> list[Any]:
    """Outputs that a correct job would write, so that histories are not all wrong."""
    outputs: list[Any] = []
    for order in orders:
        results: Any = [order]
        if isinstance(relation, RecordRelation):
            results = relation.outputs(order)
        for result in results:
            value = result[1] if is_a(result, tuple) else result
            outputs.append(dict(value))
    return outputs


def _saved(path: Path, times: dict[tuple[int, int], int]) -> str:
    """Write when the record of each partition and offset was acknowledged."""
    batches = [(partition, offset, offset, time) for (partition, offset), time in times.items()]
    file = path.with_suffix(".npy")
    np.save(file, np.array(sorted(batches), np.int64).reshape(-1, 4))
    return str(file)


@pytest.mark.parametrize(("name", "relation", "record_id"), RELATIONS, ids=[r[0] for r in RELATIONS])
@pytest.mark.parametrize("loose", [False, True], ids=["topic", "rows"])
@FEW
@given(data=st.data())
def test_stages_find_what_the_oracle_finds(
    name: str, relation: Relation | None, record_id: Any, loose: bool, data: st.DataObject
) -> None:
    if loose and name == "mapped with a key":
        return
    orders = data.draw(placed(ORDERS, "orders", 5))
    right = derived(relation, orders)
    chosen = OUTPUTS if not right else st.one_of(st.sampled_from(right), OUTPUTS)
    outputs = data.draw(placed(chosen, "bills", 5))
    commit = st.builds(
        Commit,
        group=st.sampled_from("gh"),
        partition=st.integers(0, 1),
        offset=st.integers(0, 6),
        completed_ns=st.integers(1, 9),
    )
    commits = data.draw(st.lists(commit, max_size=3))
    times = {(output.partition, output.offset): data.draw(st.integers(1, 9)) for output in outputs}
    pairing = Pairing(relation=relation, record_id=record_id, rows=Rows(loose))
    retries = data.draw(placed(ORDERS, "retries", 3)) if record_id is not None else []
    retried = {(r.partition, r.offset): data.draw(st.integers(1, 9)) for r in retries}
    if pairing.by_value and len({unit.shape for o in orders for unit in pairing.expected(o)}) > 1:
        return
    with tempfile.TemporaryDirectory() as folder:
        files = [_saved(Path(folder) / name, of) for name, of in (("a", times), ("b", retried))]
        found = checked(
            orders,
            outputs,
            pairing,
            Path(folder),
            commits=commits,
            times=files[0],
            retries=retries,
            topic_times={"retries": files[1]},
            promise=None if record_id is None else RetryPromise.of(retry_topics="retries"),
        )
    expected = judge_pipeline(
        orders,
        outputs,
        pairing,
        commits=commits,
        retries=retries,
        time_of=lambda r: (retried if r.topic == "retries" else times)[r.partition, r.offset],
    )
    assert anomalies(found) == anomalies(expected)
    assert +Counter(found.late) == +expected.late
    assert not (found.problems or found.raised or found.undecided)


@pytest.mark.parametrize(("name", "relation", "record_id"), KEYED, ids=[r[0] for r in KEYED])
@pytest.mark.parametrize("loose", [False, True], ids=["topic", "rows"])
@FEW
@given(data=st.data())
def test_keyed_stages_find_what_the_oracle_finds(
    name: str, relation: Relation, record_id: Any, loose: bool, data: st.DataObject
) -> None:
    if loose and record_id is None:
        return
    orders = data.draw(placed(ORDERS, "orders", 6))
    rows: st.SearchStrategy[Any] = st.fixed_dictionaries(
        {
            "customer": st.sampled_from(["a", "b", "c"]),
            "total": st.integers(0, 6),
            "start": st.sampled_from([0, 1000]),
            "count": st.integers(1, 3),
        }
    )
    outputs = data.draw(placed(rows, "totals", 5))
    if name == "folded by key":
        outputs = [
            record(output["total"], partition=output.partition, offset=output.offset, key=output["customer"])
            for output in outputs
        ]
    pairing = Pairing(relation=relation, record_id=record_id, rows=Rows(loose, "customer"))
    with tempfile.TemporaryDirectory() as folder:
        found = checked(orders, outputs, pairing, Path(folder))
    expected = judge_pipeline(orders, outputs, pairing)
    assert anomalies(found) == anomalies(expected)
    assert sum(found_of.keys for found_of in found.undecided) == expected.undecided
    assert not (found.problems or found.raised)


@pytest.mark.parametrize("tasks", ["one task", "several tasks"])
def test_stages_find_the_same_on_spark(
    spark: SparkHandle, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, tasks: str
) -> None:
    if tasks == "several tasks":
        monkeypatch.setattr(join, "TASK_ROWS", 6)
    orders = [
        record({"order": n, "amount": n % 3, "customer": f"c{n % 2}"}, offset=n, key=f"c{n % 2}", topic="orders")
        for n in range(20)
    ]
    bills = [bill_of(order) for order in orders]
    bills[3]["total"] = 9
    bills[6], bills[4] = bills[4], bills[6]
    bills += [bills[5], {"order": 77, "total": 0}]
    del bills[1]
    outputs = [record(bill, offset=n, topic="bills") for n, bill in enumerate(bills)]
    sums = [record(value, offset=n, key=f"c{n}", topic="sums") for n, value in enumerate([10, 8])]
    commits = [Commit(group="billing", partition=0, offset=8, completed_ns=5)]
    for number, (relation, record_id, written) in enumerate(
        [(mapped(bill_of), "order", outputs), (folded(total, 0), None, sums)]
    ):
        pairing = Pairing(relation=relation, record_id=record_id, rows=Rows())
        folder = tmp_path / str(number)
        found = checked(orders, written, pairing, folder, commits=commits, spark=spark)
        expected = judge_pipeline(orders, written, pairing, commits=commits)
        assert anomalies(found) == anomalies(expected) != {}
        assert +Counter(found.late) == +expected.late
