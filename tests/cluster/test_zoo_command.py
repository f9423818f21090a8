"""`harrow zoo`: trials in simulation, the ledger, the schedules and the table of a page (M1)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner
from harrow.faults.zoo.bug import Bug
from harrow.harness.commands import cli
from harrow.harness.commands import zoo as command_module
from harrow.harness.commands.schedule_files import read_schedule
from harrow.harness.simulation import run_schedule
from harrow.harness.zoo.alarms import Judged, source_of
from harrow.harness.zoo.catalog import ZOO
from harrow.harness.zoo.directed import plan_directed
from harrow.harness.zoo.table import SIMULATED
from long_runs import long_run


def zoo(*words: str) -> tuple[int, str]:
    result = CliRunner().invoke(cli, ["zoo", *words])
    return result.exit_code, result.output


def test_a_bug_is_found_and_its_schedule_repeats_it(tmp_path: Path) -> None:
    page = tmp_path / "zoo.md"
    page.write_text("\n".join((*SIMULATED, "")))
    options = ("--trials", "2", "--jobs", "1", "--no-shrink", "--out", str(tmp_path), "--write", str(page))
    code, output = zoo("kafka_5494", *options)
    assert code == 0, output
    assert "2 of 2" in output
    assert "| 17 | KAFKA-5494 | 2 of 2 | 34-100 |" in page.read_text()
    rows = [json.loads(line) for line in (tmp_path / "zoo" / "ledger.jsonl").read_text().splitlines()]
    assert [(row["bug"], row["found"], row["false_alarms"]) for row in rows] == [("kafka_5494", True, 0)] * 2
    again = run_schedule(read_schedule(tmp_path / "zoo" / "kafka_5494-1.json"))
    assert {name for name, _ in again.anomalies} == set(rows[1]["anomalies"])


def test_a_bug_that_is_not_found_in_its_budget_fails_the_command(tmp_path: Path) -> None:
    code, output = zoo(
        "1",
        "--search",
        "random",
        "--trials",
        "1",
        "--jobs",
        "1",
        "--budget",
        "1",
        "--floor",
        "1",
        "--out",
        str(tmp_path),
    )
    row = json.loads((tmp_path / "zoo" / "ledger.jsonl").read_text())
    assert row["seconds"] >= 1 or row["found"]
    assert code == (0 if row["found"] else 1), output


def test_the_list_names_each_bug() -> None:
    code, output = zoo("--list")
    assert code == 0
    assert "kip_101" in output


def test_an_unknown_bug_is_an_error() -> None:
    result = CliRunner().invoke(cli, ["zoo", "kip_1001"])
    assert "did you mean kip_101" in str(result.exception)


def test_runs_without_a_bug_have_no_anomaly_and_are_of_all_searches(tmp_path: Path) -> None:
    sources = {source_of(number, ZOO) for number in range(3 * len(ZOO))}
    assert sources == {"random", "guided", *(bug.name for bug in ZOO)}
    code, output = zoo("--alarms", "3", "--jobs", "1", "--out", str(tmp_path))
    assert code == 0, output
    assert "0 false alarms" in output


@long_run
def test_runs_without_a_bug_can_be_those_of_one_search(tmp_path: Path) -> None:
    assert {source_of(number, ZOO, "guided") for number in range(10)} == {"guided"}
    assert {source_of(number, ZOO, "directed") for number in range(len(ZOO))} == {bug.name for bug in ZOO}
    arguments = ("--alarms", "1", "--first", "77", "--search", "random", "--jobs", "1")
    code, output = zoo(*arguments, "--out", str(tmp_path))
    assert code == 0, output
    assert "1 runs without a bug" in output


def test_searches_of_one_bug_alone_have_no_runs_without_it(tmp_path: Path) -> None:
    code, output = zoo("--alarms", "1", "--search", "events", "--out", str(tmp_path))
    assert code == 2
    assert "random, guided, directed" in output


def test_a_false_alarm_is_written_and_fails_the_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown = plan_directed(ZOO[0], 1)
    judged = Judged(source="random", status="invalid", anomalies=("lost-write",), schedule=shown)

    def one_alarm(_numbers: Sequence[int], _bugs: Sequence[Bug], _search: None) -> list[Judged]:
        return [judged]

    monkeypatch.setattr(command_module, "judge_unplanted", one_alarm)
    code, output = zoo("--alarms", "1", "--jobs", "1", "--out", str(tmp_path))
    assert code == 1
    assert "1 false alarms" in output
    assert read_schedule(tmp_path / "zoo" / "false-alarm-random-1.json").steps == shown.steps
