"""What must not grow with the size of a run: the calls for each partition, and the bytes for each operation (L7).

Counted, not timed: calls of Python functions and queries of polars, so that a busy machine changes nothing.
"""

from __future__ import annotations

import random
import subprocess
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from types import FrameType
from typing import Any

import peak_of_a_partition
import pytest
from harrow.harness.checks.judged_run import RunToJudge
from harrow.harness.checks.kernels import judge_jobs, judge_partition, loading
from harrow.harness.checks.partition_jobs import plan_jobs
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.rows import PartitionResult
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType
from harrow.harness.histories.layout import lay_out
from synthetic_run import LOST_IN, TOPIC, TWICE_IN, make_run

CALLS_MOST = 2_500
"""Of a sound partition; 11,400 before the rows of many partitions were read at once."""
BYTES_MOST = 130
"""Of an operation, whose columns have 67 bytes; 200 before the checks queried only the rows that disagree."""


def jobs_of(folder: Path, topics: Sequence[str]) -> list[PartitionJob]:
    layout = lay_out(folder, topics)
    assert layout.problems == []
    jobs, _ = plan_jobs(RunToJudge.read(folder, layout, topics), None, 20)
    return jobs


def results_of(jobs: Sequence[PartitionJob]) -> list[PartitionResult]:
    return list(judge_jobs(jobs))


def calls_of(work: Callable[[], object]) -> Counter[str]:
    """Return how often Python functions were called (`calls`), and how many queries polars ran (`collect`)."""
    found: Counter[str] = Counter()

    def count(_: FrameType, event: str, called: Any) -> None:
        if event == "call":
            found["calls"] += 1
        elif event == "c_call":
            found["calls"] += 1
            found["collect"] += called.__name__ == "collect"

    sys.setprofile(count)
    try:
        work()
    finally:
        sys.setprofile(None)
    return found


def test_sound_partition_costs_no_query_and_a_bounded_number_of_calls(tmp_path: Path) -> None:
    found: dict[int, Counter[str]] = {}
    for partitions in (40, 120):
        run = tmp_path / str(partitions)
        make_run(run, partitions * 300, partitions=partitions)
        jobs = [job for job in jobs_of(run, [TOPIC]) if job.partition not in {LOST_IN, TWICE_IN}]
        results_of(jobs)  # imports are no cost of a partition
        found[len(jobs)] = calls_of(partial(results_of, jobs))
    (few, calls_of_few), (many, calls_of_many) = found.items()
    assert calls_of_few["collect"] == calls_of_many["collect"] == 0
    assert calls_of_many["calls"] - calls_of_few["calls"] < CALLS_MOST * (many - few)


def write_random_history(folder: Path, draws: random.Random, rows: int) -> None:
    """Write rows of three clients, most of them right, in two files."""
    kinds = [OperationFunction.SEND] * 4 + [OperationFunction.POLL] * 4 + list(OperationFunction)
    outcomes = [OperationType.OK] * 6 + [OperationType.FAIL, OperationType.INFO]
    for _ in range(2):
        with HistoryWriter(folder) as history:
            for number in range(rows):
                offset = number // 3 + draws.choice([0, 0, 0, 0, 1])
                history.append(
                    draws.choice(kinds),
                    draws.choice(outcomes),
                    history.name(f"client-{draws.randrange(3)}"),
                    history.name(draws.choice("ab")),
                    draws.randrange(-1, 4),
                    offset,
                    number,
                    key_hash=offset % 5,
                    value_hash=offset,
                    timestamp_ms=number,
                    invoked_ns=number,
                    time_ns=number + 1,
                )


@pytest.mark.parametrize("seed", range(8))
def test_partitions_that_are_read_together_are_judged_as_each_of_them_alone(
    tmp_path: Path, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draws = random.Random(seed)
    write_random_history(tmp_path / "history", draws, draws.randrange(1, 300))
    write_random_history(tmp_path / "drain", draws, draws.randrange(1, 100))
    jobs = jobs_of(tmp_path, ["a", "b"])
    assert len(jobs) > 2
    alone = [judge_partition(job) for job in jobs]
    assert any(result.anomaly_counts for result in alone)
    assert list(judge_jobs(jobs)) == alone
    monkeypatch.setattr(loading, "GROUP_ROWS", 150)  # several groups in a task
    draws.shuffle(jobs)
    shuffled = {(row.topic, row.partition): row for row in judge_jobs(jobs)}
    assert [shuffled[row.topic, row.partition] for row in alone] == alone


def test_partition_that_cannot_be_read_leaves_the_others_of_its_group(tmp_path: Path) -> None:
    make_run(tmp_path, 4_000, partitions=8)
    jobs = jobs_of(tmp_path, [TOPIC])
    jobs[2].ops[0] = jobs[2].ops[0]._replace(rows=10**6)
    results = list(judge_jobs(jobs))
    assert [bool(result.unknown) for result in results] == [n == 2 for n in range(8)]
    assert f"the rows of {TOPIC}-2 could not be read" in results[2].unknown[0]


def test_operation_of_a_partition_with_a_lost_record_costs_a_bounded_number_of_bytes(tmp_path: Path) -> None:
    make_run(tmp_path, 1_800_000, partitions=6)
    script = [sys.executable, peak_of_a_partition.__file__, str(tmp_path), TOPIC, str(LOST_IN)]
    child = subprocess.run(script, check=True, capture_output=True, text=True, timeout=60)
    rows, peak = map(int, child.stdout.split())
    assert rows > 290_000
    assert peak / rows < BYTES_MOST
