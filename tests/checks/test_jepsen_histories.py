"""Histories of Jepsen's kind: a verdict finds what the table says, and the page has the same table (L1, L6)."""

from __future__ import annotations

from pathlib import Path

import pytest
from harrow.harness.checks import SparkHandle, Status
from harrow.harness.checks.guarantees import forbidden
from harrow.harness.checks.imported import judge_history, read_history_file
from jepsen_cases import CASES, Case

HISTORIES = Path(__file__).with_name("histories")
PAGE = Path(__file__).parents[2] / "docs" / "histories.md"
GUARANTEES = "exactly-once,ordered"


def names_of(text: str) -> set[str]:
    return {name.strip() for name in text.split(",") if name.strip()}


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.history)
def test_a_history_of_jepsens_kind_is_judged_as_the_table_says(case: Case, tmp_path: Path) -> None:
    found = read_history_file(HISTORIES / f"{case.history}.edn")
    verdict = judge_history(found, tmp_path / "run", guarantee=GUARANTEES, engine="inline")
    assert verdict.anomaly_counts.keys() == names_of(case.harrow), str(verdict)
    wrong = names_of(case.harrow) & forbidden(GUARANTEES.split(","))
    if not wrong:
        assert verdict.status is (Status.UNKNOWN if case.doubt else Status.VALID), str(verdict)
    else:
        assert verdict.status is Status.INVALID


def test_there_are_at_least_forty_histories_and_each_is_in_the_table_once() -> None:
    files = sorted(path.stem for path in HISTORIES.glob("*.edn"))
    assert sorted(case.history for case in CASES) == files
    assert len(files) >= 40


def test_a_difference_of_names_has_a_reason() -> None:
    unexplained = [case.history for case in CASES if not case.why and names_of(case.jepsen) != names_of(case.harrow)]
    same = {"g1a-failed-send", "g1a-aborted-transaction", "g1c-reads-of-each-other", "read-before-send"}
    assert set(unexplained) == same | {"nothing-happened"}, "another word for the same"


def test_the_page_has_the_table() -> None:
    rows = [f"| `{case.history}` | {case.jepsen or 'nothing'} | {shown(case)} | {case.why} |" for case in CASES]
    assert "\n".join(rows) in PAGE.read_text(encoding="utf-8")


def shown(case: Case) -> str:
    return ", ".join(f"`{name}`" for name in case.harrow.split(", ") if name) or (
        "a doubt" if case.doubt else "nothing"
    )


@pytest.mark.parametrize("name", ["aborted-transaction-does-not-rewind", "g1c-reads-of-each-other"])
def test_spark_finds_the_same(name: str, spark: SparkHandle, tmp_path: Path) -> None:
    (case,) = (case for case in CASES if case.history == name)
    found = read_history_file(HISTORIES / f"{name}.edn")
    verdict = judge_history(found, tmp_path / "run", guarantee=GUARANTEES, spark=spark)
    assert verdict.anomaly_counts.keys() == names_of(case.harrow)


def test_a_history_without_times_and_without_invocations_says_nothing_of_real_time(tmp_path: Path) -> None:
    """The completions alone do not say when a send began, so that no order in real time is wrong."""
    lines = (HISTORIES / "realtime-order.edn").read_text().splitlines()
    file = tmp_path / "completions.edn"
    file.write_text("\n".join(line for line in lines if ":type :ok" in line))
    verdict = judge_history(read_history_file(file), tmp_path / "run", engine="inline")
    assert verdict.valid, str(verdict)
