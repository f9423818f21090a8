"""A partition for which Spark returned no result is a doubt with its name; no reader of results fails on it (L6)."""

from __future__ import annotations

from pathlib import Path
from typing import Any, cast

import pytest
from harrow.harness.checks import judgement
from harrow.harness.checks.doubts import empty_topics, partition_doubts
from harrow.harness.checks.merged_results import merged
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.promise_findings import PromiseFindings
from harrow.harness.run_folder import RunTimes


class SilentSpark:
    """Spark that returns nothing."""

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        assert plan.exists()
        return []


def test_a_partition_without_a_result_of_spark_is_named_in_a_reason(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Job:
        topic, partition = "orders", 1

    def no_plan(_: Any) -> dict[str, str]:
        return {}

    monkeypatch.setattr(judgement, "pack", no_plan)
    job = cast("PartitionJob", Job())
    results = judgement._run(tmp_path, [job], SilentSpark(), "spark")  # pyright: ignore[reportPrivateUsage]
    promised = PromiseFindings(accounted_topics=("bills",))
    for findings in (PromiseFindings(), promised):
        found = partition_doubts(results, frozenset(), ["job-1"], RunTimes(), findings)
        assert found.reasons == ["orders-1 was not judged: Spark returned no result for it"]
        assert found.notes == []
    assert merged(results, [], promised).anomalies == []
    assert empty_topics(results, ["orders"]) == []
