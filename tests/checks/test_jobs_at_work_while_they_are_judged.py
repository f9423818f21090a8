"""A job that works on while the final read runs: what it commits afterwards is no evidence against it (L5, L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow import Topic
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.promises.pipeline_promise import PipelinePromise
from promised_runs import PromisedRun


def judged(run: PromisedRun, sink: object) -> PromiseFindings:
    """Return what the verdict is given; the job's outputs have the ids of its inputs."""
    run.asked_ns = run.committed(2)
    promise = PipelinePromise.of("orders", sink, guarantee=None, record_id="order", relation=None, group=None)
    run.committed(3)
    return promise.judge(run.write(), engine="inline")


def run_with(folder: Path, outputs: int) -> PromisedRun:
    """Return a run with three inputs, and so many outputs in the topic."""
    run = PromisedRun(folder, ("orders", "bills"), partitions=1)
    for topic, count in (("orders", 3), ("bills", outputs)):
        for number in range(count):
            run.record({"order": number}, topic=topic)
    return run


@pytest.mark.parametrize("kind", ["topic", "rows"])
def test_a_commit_after_the_final_read_is_no_commit_before_output(tmp_path: Path, kind: str) -> None:
    """The job wrote the third output and committed after the final read had asked for the high watermarks."""
    sink = Topic(name="bills", partitions=1) if kind == "topic" else [{"order": 0}, {"order": 1}]
    found = judged(run_with(tmp_path, 2), sink)
    assert found.anomaly_counts == {"missing-output": 1}
    (anomaly,) = found.anomalies
    assert "the job has not finished, because group billing has committed" in anomaly.explanation
    assert "offset 2 of 3" in anomaly.explanation
    assert "await_caught_up('billing', 'orders')" in anomaly.explanation


def test_a_commit_before_the_final_read_is(tmp_path: Path) -> None:
    found = judged(run_with(tmp_path, 1), Topic(name="bills", partitions=1))
    assert found.anomaly_counts == {"missing-output": 2, "commit-before-output": 1}
