"""What a verdict is planned from: fault windows, and the rows that were laid out for each partition (L6)."""

from __future__ import annotations

import json
from pathlib import Path

import polars as pl
import pytest
from harrow.harness.checks.judgement import FOREVER_NS, fault_windows
from harrow.harness.checks.kernels import judge_partition
from harrow.harness.checks.kernels.inputs import OPS_SCHEMA, PartitionJob
from harrow.harness.histories.layout import RowRange


def fault_file(folder: Path, *rows: tuple[str, int, int]) -> Path:
    path = folder / "faults.jsonl"
    lines = [json.dumps({"event": event, "id": number, "t_ns": at}) for event, number, at in rows]
    path.write_text("\n".join(lines))
    return path


def test_fault_windows_are_ordered_by_start_and_an_unhealed_fault_has_no_end(
    tmp_path: Path,
) -> None:
    path = fault_file(
        tmp_path, ("inject", 1, 10), ("inject", 2, 20), ("healed", 2, 30), ("inject", 3, 5)
    )
    assert fault_windows(path) == ([(5, FOREVER_NS), (10, FOREVER_NS), (20, 30)], None)


def test_fault_that_was_healed_before_its_injection_is_a_problem_of_the_file(
    tmp_path: Path,
) -> None:
    windows, problem = fault_windows(fault_file(tmp_path, ("inject", 1, 10), ("healed", 1, 9)))
    assert windows == []
    assert problem is not None
    assert "fault 1 was healed at 9 ns, before its injection at 10 ns" in problem


def test_windows_out_of_order_are_refused_by_a_job() -> None:
    with pytest.raises(AssertionError):
        PartitionJob(topic="t", partition=0, windows=[(5, 6), (1, 2)])
    with pytest.raises(AssertionError):
        PartitionJob(topic="t", partition=0, windows=[(5, 4)])


def test_partition_with_fewer_rows_than_were_laid_out_is_unknown(tmp_path: Path) -> None:
    path = tmp_path / "rows.parquet"
    pl.DataFrame({name: [0, 0] for name in OPS_SCHEMA}, schema=OPS_SCHEMA).write_parquet(path)
    whole = PartitionJob(topic="t", partition=0, ops=[RowRange(str(path), 0, 2)])
    assert judge_partition(whole)["unknown"] == []
    short = PartitionJob(topic="t", partition=0, ops=[RowRange(str(path), 0, 3)])
    assert "could not be read" in judge_partition(short)["unknown"][0]
