"""High watermarks that go back, from the files of the taps to the verdict on the real Spark (L2)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.harness.checks import SparkHandle, Status, judge
from judged_runs import TOPIC, RunFolder

BAD: dict[str, str] = {
    "high watermark": "high-watermark-regression",
    "last stable offset": "lso-regression",
    "log start offset": "log-start-regression",
    "latest offset of a new leader": "end-offset-regression",
}


def history(run: RunFolder) -> None:
    for offset, value in enumerate("abc"):
        run.send(value, offset)
        run.read(value, offset)
    run.final(dict(enumerate("abc")))


@pytest.mark.parametrize("what", BAD)
def test_an_offset_that_goes_back_is_invalid(what: str, tmp_path: Path, spark: SparkHandle) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.said(1, 4, 3, stable=2, start=2)
    if what == "high watermark":
        run.said(1, 4, 2, stable=2, start=2)
    elif what == "last stable offset":
        run.said(1, 4, 3, stable=1, start=2)
    elif what == "log start offset":
        run.said(1, 4, 3, stable=2, start=0)
    else:
        run.said(2, 5, 2, listed=True)
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", spark=spark)
    assert verdict.status is Status.INVALID, str(verdict)
    assert verdict.anomaly_names() == {BAD[what]}, str(verdict)
    first, second = verdict.anomalies[0].operations
    assert first["client"] == second["client"] == "app"
    assert first["completed_ns"] < second["invoked_ns"]


def test_a_new_leader_that_is_behind_and_lists_nothing_is_valid(tmp_path: Path, spark: SparkHandle) -> None:
    run = RunFolder(tmp_path / "run")
    history(run)
    run.said(1, 4, 3)
    run.said(2, 5, 2)
    run.said(2, 5, 3, listed=True)
    verdict = judge(run.done(), topics=[TOPIC], guarantee="no-loss", spark=spark)
    assert not verdict.anomalies, str(verdict)
