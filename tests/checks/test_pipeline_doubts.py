"""Doubts of a pipeline's verdict: what is legal or not known is never called invalid, and never valid (L5, L6)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow import folded, identity, mapped
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit, commit_times
from harrow.harness.histories.contents import FinalRead
from harrow.harness.promises.output_times import rewritten
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.pipeline_results import PipelineResults, PipelineRun
from harrow.harness.promises.pipeline_words import PipelineWords
from harrow.harness.promises.relations import Relation
from harrow.harness.promises.shapes import Rows
from pipelines_by_hand import chunks_of, record


def order(number: int, *, partition: int = 0, offset: int | None = None, **more: Any) -> Record:
    at = number if offset is None else offset
    return record({"order": number, **more}, partition=partition, offset=at, key="k", topic="orders")


def bill(number: int, *, offset: int | None = None, **more: Any) -> Record:
    at = number if offset is None else offset
    return record({"order": number, **more}, offset=at, key="k", topic="bills")


def read(topic: str, records: list[Record], low: int = 0) -> list[FinalRead]:
    """Return what the final read counted, for partitions without control records."""
    parts: list[FinalRead] = []
    for partition in {r.partition for r in records} or {0}:
        offsets = [r.offset for r in records if r.partition == partition]
        high = max(offsets, default=low - 1) + 1
        parts.append(FinalRead(topic=topic, partition=partition, low=low, high=high, records=len(offsets)))
    return parts


def verdict_part(
    folder: Path,
    orders: list[Record],
    bills: list[Record],
    *,
    relation: Relation | None = None,
    record_id: Any = "order",
    commits: list[Commit] | None = None,
    times: dict[int, int] | None = None,
    loose: bool = False,
    **more: Any,
) -> PromiseFindings:
    """Return what the verdict is given, for one partition of each topic."""
    pairing = Pairing(relation=relation, record_id=record_id, rows=Rows(loose, None))
    folder.mkdir(exist_ok=True)
    path = folder / "times.npy"
    np.save(path, np.array([(0, at, at, ns) for at, ns in sorted((times or {}).items())], np.int64).reshape(-1, 4))
    given = commit_times(commits or [])
    inputs = PipelineInputs(
        pairing=pairing,
        source=chunks_of(orders, folder / "source", 2),
        sink=chunks_of(bills, folder / "sink", 2),
        commits=given,
        times=str(path),
        ordered=more.get("ordered", False),
    )
    found = check_pipeline(inputs, folder=folder / "join", engine="inline")
    partitions = read("orders", orders, more.pop("source_low", 0))
    words = PipelineWords(
        pairing=pairing,
        source="orders",
        sink="bills",
        commits=given,
        partitions=partitions,
        chunks=[numbered.chunk for numbered in inputs.chunks()],
    )
    run = PipelineRun(
        pairing=pairing,
        source="orders",
        sink="bills",
        commits=given,
        source_partitions=partitions,
        sink_partitions=read("bills", bills, more.pop("sink_low", 0)),
        **more,
    )
    return PipelineResults(run, found, words, 20).findings()


def order_of(given: Record) -> Any:
    return None if given.value is None else given["order"]


def commit(offset: int, ns: int, group: str = "billing") -> Commit:
    return Commit(group=group, partition=0, offset=offset, completed_ns=ns)


def test_outputs_of_removed_inputs_are_a_doubt_and_no_anomaly(tmp_path: Path) -> None:
    found = verdict_part(tmp_path, [order(3)], [bill(2, offset=0), bill(3, offset=1)], source_low=2)
    assert found.anomaly_counts == {}
    assert "1 unexpected-output found, which may be legal" in found.doubts["unexpected-output"]
    assert "orders-0" in found.doubts["missing-output"]


def test_removed_outputs_are_a_doubt_and_no_loss(tmp_path: Path) -> None:
    found = verdict_part(tmp_path, [order(0), order(1)], [bill(1)], sink_low=1, commits=[commit(2, 9)], times={1: 5})
    assert found.anomaly_counts == {}
    assert "1 missing-output found" in found.doubts["missing-output"]
    assert "duplicate-output cannot be excluded" in found.doubts["duplicate-output"]


def test_final_states_in_a_compacted_sink_are_judged(tmp_path: Path) -> None:
    relation = folded(lambda state, given: state + given["amount"], 0)
    orders = [order(n, amount=n) for n in range(3)]
    last = record(b"3", offset=7, key="k", topic="bills")
    found = verdict_part(tmp_path, orders, [last], relation=relation, record_id=None)
    assert not (found.anomaly_counts or found.doubts)
    assert not found.reasons
    wrong = record(b"4", offset=7, key="k", topic="bills")
    found = verdict_part(tmp_path / "wrong", orders, [wrong], relation=relation, record_id=None)
    assert found.anomaly_counts == {"wrong-output": 1}
    assert found.anomalies[0].explanation == ("the final output for record k of 3 records is wrong: expected 3, is 4")


@pytest.mark.parametrize("factor", [1, 2], ids=["commutative", "depends on the order"])
def test_final_state_across_partitions_is_unknown_only_where_the_order_matters(tmp_path: Path, factor: int) -> None:
    relation = folded(lambda state, given: state * factor + given["amount"], 0)
    orders = [order(0, amount=1), order(1, partition=1, offset=0, amount=5)]
    wrong = record(b"99", offset=0, key="k", topic="bills")
    found = verdict_part(tmp_path, orders, [wrong], relation=relation, record_id=None)
    if factor == 1:
        assert found.anomaly_counts == {"wrong-output": 1}
    else:
        assert found.anomaly_counts == {}
        assert "depends on the order of records in several partitions" in found.reasons[0]
    for right in {6, 5 * factor + 1, factor + 5}:
        output = record(str(right).encode(), offset=0, key="k", topic="bills")
        folder = tmp_path / str(right)
        found = verdict_part(folder, orders, [output], relation=relation, record_id=None)
        assert (found.anomaly_counts == {}) is (factor == 2 or right == 6)


def test_commits_of_one_group_of_two_are_a_doubt(tmp_path: Path) -> None:
    commits = [commit(1, 3, "audit"), commit(1, 9, "billing")]
    found = verdict_part(tmp_path, [order(0)], [bill(0)], commits=commits, times={0: 5})
    assert found.anomaly_counts == {}
    assert "group audit 1 times, and never by group billing" in found.doubts["commit-before-output"]
    both = [commit(1, 3, "audit"), commit(1, 4, "billing")]
    found = verdict_part(tmp_path / "both", [order(0)], [bill(0)], commits=both, times={0: 5})
    assert found.anomaly_counts == {"commit-before-output": 1}


def test_named_group_without_commits_is_a_doubt(tmp_path: Path) -> None:
    found = verdict_part(tmp_path, [order(0)], [bill(0)], group="biling")
    assert "check the name" in found.doubts["commit-before-output"]


def test_offsets_that_were_written_twice_have_no_certain_time(tmp_path: Path) -> None:
    given: dict[str, Any] = {"commits": [commit(1, 3)], "times": {0: 5}}
    found = verdict_part(tmp_path, [order(0)], [bill(0)], rewritten=["orders-0"], **given)
    assert found.anomaly_counts == {}
    assert "written twice" in found.doubts["commit-before-output"]
    batches = np.array([(0, 0, 4, 10, 7), (0, 0, 4, 12, 7), (1, 0, 4, 10, 7), (1, 0, 4, 20, 8)], np.int64)
    assert rewritten(batches) == [1]
    assert rewritten(batches[:0]) == []


def test_function_that_raises_for_an_input_leaves_its_output_unjudged(tmp_path: Path) -> None:
    broken = Record(topic="orders", partition=0, offset=1, value=b"{not json", key=b"k")
    found = verdict_part(
        tmp_path, [order(0), broken], [bill(0), bill(1)], relation=mapped(lambda given: {"order": given["order"]})
    )
    assert found.anomaly_counts == {}
    assert "NotJsonError" in found.reasons[0]
    assert "orders-0@1" in found.reasons[0]


def test_function_that_raises_for_an_output_calls_nothing_missing(tmp_path: Path) -> None:
    broken = Record(topic="bills", partition=0, offset=1, value=b"\xff\x00", key=b"k")
    found = verdict_part(tmp_path, [order(0), order(1)], [bill(0), broken], commits=[commit(2, 9)], times={0: 5})
    assert found.anomaly_counts == {}
    assert "record_id raised NotJsonError" in found.reasons[0]


def test_record_id_that_returns_none_leaves_a_record_out(tmp_path: Path) -> None:
    heartbeat = Record(topic="bills", partition=0, offset=1, value=None, key=b"heartbeat")
    found = verdict_part(tmp_path, [order(0)], [bill(0), heartbeat], record_id=order_of)
    assert not (found.anomaly_counts or found.doubts)
    assert found.operation_counts["pipeline_outputs_not_judged"] == 1


def test_empty_sink_is_never_valid(tmp_path: Path) -> None:
    found = verdict_part(tmp_path, [order(0)], [], relation=None)
    assert any("the job produced nothing" in reason for reason in found.reasons)
    found = verdict_part(tmp_path / "source", [], [])
    assert any("the source orders is empty" in reason for reason in found.reasons)


def test_values_of_several_shapes_cannot_be_paired_without_record_id(tmp_path: Path) -> None:
    relation = mapped(lambda given: {"a": 1} if given["order"] else {"b": 1})
    found = verdict_part(tmp_path, [order(0), order(1)], [bill(0)], relation=relation, record_id=None)
    assert "give record_id=" in found.reasons[0]


def test_job_that_writes_the_json_in_another_form_is_right(tmp_path: Path) -> None:
    spaced = Record(topic="bills", offset=0, partition=0, key=b"k", value=b'{ "amount": 1.50, "order": 0.0 }')
    orders = [order(0, amount=1.5)]
    for record_id in ("order", None):
        folder = tmp_path / str(record_id)
        found = verdict_part(folder, orders, [spaced], relation=identity, record_id=record_id)
        assert found.anomaly_counts == {}
    keyless = Record(topic="bills", offset=0, partition=0, value=json.dumps(dict(orders[0])).encode())
    found = verdict_part(tmp_path / "keyless", orders, [keyless], relation=identity)
    assert found.anomaly_counts == {"wrong-output": 1}
    assert "is key null" in found.anomalies[0].explanation
