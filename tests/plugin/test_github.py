"""GitHub Actions: a table of verdicts in the summary of the step, and annotations of failed tests (J5, J8)."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.plugin.github import ANNOTATIONS_MOST, ROWS_MOST, annotations_of, table
from harrow.harness.reports.index_page import IndexRow, worst_first
from long_runs import long_run

QUIET = ("-p", "no:randomly", "-p", "no:cacheprovider")


def folder_of(base: Path, name: str, status: Status, **fields: object) -> Path:
    folder = base / name
    folder.mkdir()
    given: dict[str, object] = {"status": status, "guarantees": ("no-loss",), **fields}
    Verdict(**given).write(folder / "verdict.json")  # type: ignore[arg-type]
    (folder / "report.html").write_text("page")
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> list[IndexRow]:
    lost = folder_of(tmp_path, "lost", Status.INVALID, anomaly_counts={"lost-write": 689})
    good = folder_of(tmp_path, "good", Status.VALID)
    return [
        IndexRow(test="t.py::test_good", outcome="passed", folders=(good,)),
        IndexRow(
            test="t.py::test_lost[a|b*]",
            outcome="failed",
            folders=(lost,),
            place=("t.py", 12),
            command="pytest 't.py::test_lost[a|b*]' --harrow-seed=7",
        ),
        IndexRow(test="t.py::test_odd", outcome="failed", reason="Failed: 50 %\nof it", place=("t.py", 3)),
    ]


def test_the_table_has_verdict_guarantee_repeat_command_and_page_the_worst_first(
    tmp_path: Path, rows: list[IndexRow]
) -> None:
    text = table(worst_first(rows), "run 1, seed 7")
    heading, _, _, _, lost, odd, good, _, about, *_ = text.splitlines()
    assert heading == "### Harrow: 1 invalid, 1 failed, 1 valid"
    cells = [cell.strip() for cell in lost.strip("|").split(" | ")]
    assert cells == [
        "<code>t.py::test&#95;lost&#91;a&#124;b&#42;&#93;</code>",
        "**INVALID**",
        "no-loss",
        "689 records were acknowledged or read, and are not in the topic any more &#40;lost-write&#41;",
        "<code>pytest &#39;t.py::test&#95;lost&#91;a&#124;b&#42;&#93;&#39; --harrow-seed=7</code>",
        f"<code>{tmp_path}/lost/report.html</code>".replace("_", "&#95;"),
    ]
    assert "Failed: 50 % of it" in odd
    assert "**VALID**" in good
    assert about == "run 1, seed 7"
    assert text.endswith("\n")
    many = [IndexRow(test=f"t{n}", outcome="passed") for n in range(ROWS_MOST + 3)]
    assert "and 3 more tests" in table(worst_first(many), "")


def test_an_annotation_has_the_file_of_the_repository_and_escaped_text(tmp_path: Path, rows: list[IndexRow]) -> None:
    lost, odd = annotations_of(worst_first(rows), tmp_path / "service", tmp_path)
    assert lost == (
        "::error file=service/t.py,line=12,title=harrow%3A t.py%3A%3Atest_lost[a|b*]::689 records were acknowledged or "
        "read, and are not in the topic any more (lost-write)%0Arepeat with: pytest 't.py::test_lost[a|b*]' "
        "--harrow-seed=7"
    )
    assert odd.endswith("::Failed: 50 %25%0Aof it")
    many = [IndexRow(test=f"t{n}", outcome="failed", place=("t.py", n)) for n in range(20)]
    assert len(annotations_of(worst_first(many), tmp_path, tmp_path)) == ANNOTATIONS_MOST


@pytest.mark.parametrize("workers", [pytest.param((), id="alone"), pytest.param(("-n2",), id="xdist", marks=long_run)])
def test_a_run_appends_one_table_and_annotates_only_in_github_actions(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, workers: tuple[str, ...]
) -> None:
    summary = pytester.path / "summary.md"
    summary.write_text("before\n")
    monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(summary))
    monkeypatch.setenv("GITHUB_WORKSPACE", str(pytester.path))
    pytester.makepyfile(test_it="def test_a(harrow): pass\n\n\ndef test_b(harrow): assert harrow.seed < 0\n")

    said = pytester.runpytest_subprocess(*QUIET, *workers).stdout.str()
    assert "::error" not in said
    text = summary.read_text()
    assert text.startswith("before\n### Harrow: 1 failed")
    assert text.count("### Harrow") == 1
    assert "pytest test&#95;it.py::test&#95;b --harrow-seed=" in text

    if not workers:
        monkeypatch.setenv("GITHUB_ACTIONS", "true")
        monkeypatch.setenv("GITHUB_STEP_SUMMARY", str(pytester.path / "missing" / "summary.md"))
        result = pytester.runpytest_subprocess(*QUIET, "-p", "no:xdist")
        (line,) = re.findall(r"^::error .*", result.stdout.str(), re.MULTILINE)
        assert line.startswith("::error file=test_it.py,line=4,title=harrow%3A test_it.py%3A%3Atest_b::")
        result.stdout.fnmatch_lines(["*GITHUB_STEP_SUMMARY=*summary.md could not be written*"])
