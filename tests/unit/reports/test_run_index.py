"""The index of a pytest run shows every test that used Harrow, the worst first, and any name safely (J8)."""

from __future__ import annotations

import json
import re
from html.parser import HTMLParser
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from harrow.harness.checks.verdict import Status, Verdict
from harrow.harness.plugin.run_index import RunIndex
from harrow.harness.plugin.workers import folder_name
from harrow.harness.reports.index_page import ROWS_MOST, IndexRow, render, write_index


def run_folder_of(base: Path, name: str, status: Status, **fields: Any) -> Path:
    folder = base / name
    folder.mkdir(parents=True)
    Verdict(status=status, guarantees=("no-loss",), **fields).write(folder / "verdict.json")
    (folder / "run.json").write_text(json.dumps({"schema_version": 1, "seed": 2**63 - 25}))
    (folder / "report.html").write_text("page")
    return folder


@pytest.fixture
def rows(tmp_path: Path) -> list[IndexRow]:
    bad = run_folder_of(
        tmp_path,
        "bad-1",
        Status.INVALID,
        anomaly_counts={"lost-write": 31, "duplicate": 2},
        causes={"lost-write": ("broker 3 was isolated",)},
    )
    unknown = run_folder_of(tmp_path, "un-1", Status.UNKNOWN, reasons=("no fault was injected",))
    good = run_folder_of(tmp_path, "good-1", Status.VALID)
    return [
        IndexRow(test="t.py::test_good", outcome="passed", folders=(good,), duration_s=1.25, seed="7"),
        IndexRow(test="t.py::test_other", outcome="failed"),
        IndexRow(
            test="t.py::test_bad",
            outcome="failed",
            folders=(bad,),
            seed=str(2**63 - 25),
            command="pytest t.py::test_bad --harrow-seed=9",
        ),
        IndexRow(test="t.py::test_unknown", outcome="failed", folders=(unknown,)),
        IndexRow(test="half-1", outcome="interrupted", folders=(tmp_path / "gone",)),
    ]


def text_of_page(page: str) -> str:
    class Texts(HTMLParser):
        found = ""

        def handle_data(self, data: str) -> None:
            self.found += f" {data}"

    parser = Texts()
    parser.feed(page[page.index("<main>") :])
    return " ".join(parser.found.split())


def test_the_index_shows_the_worst_test_first_with_words_seed_and_command(tmp_path: Path, rows: list[IndexRow]) -> None:
    page = write_index(tmp_path / "index.html", rows, title="Run", about=["seed 7"]).read_text()
    assert text_of_page(page) == (
        "Harrow Run seed 7 1 invalid, 1 unknown, 1 failed, 1 interrupted, 1 valid "
        "INVALID t.py::test_bad 31 records were acknowledged or read, and are not in the topic any more (lost-write): "
        "broker 3 was isolated 2 records are in the topic more often than they were sent (duplicate); "
        "the guarantee allows this seed 9223372036854775783 · report Repeat with pytest t.py::test_bad --harrow-seed=9 "
        "UNKNOWN t.py::test_unknown no fault was injected report "
        "FAILED t.py::test_other "
        "INTERRUPTED half-1 "
        "VALID t.py::test_good 1.2 s · seed 7 · report"
    )
    assert re.findall(r'href="([^"]*)"', page) == [f"{n}-1/report.html" for n in ("bad", "un", "good")]
    assert not list(tmp_path.glob("*.partial"))
    assert "<script" not in page


def test_odd_names_are_text_and_their_links_work(tmp_path: Path) -> None:
    name = "te st#1?%\"'<b>&ü"
    folder = run_folder_of(tmp_path, name, Status.VALID)
    test, command = f"t.py::{name}</script>", f"pytest '{name}'"
    row = IndexRow(test=test, outcome="passed", folders=(folder,), command=command)
    page = render([row], tmp_path, title=name, about=[name])
    assert "<b>" not in page
    assert "</script>" not in page
    assert name in text_of_page(page)
    (link,) = re.findall(r'href="([^"]*)"', page)
    assert link == "te%20st%231%3F%25%22%27%3Cb%3E%26%C3%BC/report.html"


def test_a_long_run_is_bounded(tmp_path: Path) -> None:
    rows = [IndexRow(test=f"t{n}", outcome="passed") for n in range(ROWS_MOST + 5)]
    page = render(rows, tmp_path, title="Run")
    assert page.count("<section") == ROWS_MOST
    assert "5 more tests" in page
    assert "no test used Harrow" in render([], tmp_path, title="Run")


def report(nodeid: str, when: str, outcome: str = "passed", **fields: Any) -> pytest.TestReport:
    given: dict[str, Any] = {"user_properties": [], "sections": [], "duration": 0.5, **fields}
    return cast("pytest.TestReport", SimpleNamespace(nodeid=nodeid, when=when, outcome=outcome, **given))


def test_reports_and_left_folders_become_rows(tmp_path: Path) -> None:
    run = tmp_path / "20260101-000000-1"
    bad = run_folder_of(run, "gw0/bad", Status.INVALID, anomaly_counts={"missing": 1})
    quiet = run_folder_of(run, f"gw1/{folder_name('t.py::test_quiet')}", Status.VALID)
    half = run_folder_of(run, "half", Status.VALID)
    index = RunIndex()
    for when in ("setup", "call", "teardown"):
        index.pytest_runtest_logreport(
            report(
                "t.py::test_bad",
                when,
                "failed" if when == "call" else "passed",
                user_properties=[("harrow.folder", str(bad)), ("harrow.seed", "5")],
                sections=[("harrow", "repeat with: pytest again"), ("Captured stdout", "x")],
            )
        )
        index.pytest_runtest_logreport(report("t.py::test_quiet", when))
        index.pytest_runtest_logreport(report("t.py::test_without_harrow", when))
    assert index.rows(run) == [
        IndexRow(
            test="t.py::test_bad", outcome="failed", folders=(bad,), seed="5", command="pytest again", duration_s=1.5
        ),
        IndexRow(test="t.py::test_quiet", outcome="passed", folders=(quiet,), seed=str(2**63 - 25), duration_s=1.5),
        IndexRow(test="half", outcome="interrupted", folders=(half,), seed=str(2**63 - 25)),
    ]
