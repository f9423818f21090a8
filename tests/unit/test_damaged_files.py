"""Damaged files: each value of a schedule, a verdict and a run.json is replaced, and each time the error is clean.

A clean error is one of Harrow's, which names the place of the value; a command ends with it, and without a traceback
(J5, K9).
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from harrow import HarrowError, kill, leader, lose_response
from harrow.faults import Schedule, ScheduledFault, began, isr_count
from harrow.harness import run_folder
from harrow.harness.checks.verdict import Anomaly, Status, Verdict
from harrow.harness.commands import cli
from harrow.harness.run_settings import RunSettings, settings_of

WRONG: tuple[Any, ...] = (None, True, 7, -1, 1.5, "x", [], ["x", 1], {}, {"x": 1})
RECORDED = sorted((Path(__file__).parent.parent / "schedules").glob("*.json"))


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path of each value in a JSON value."""
    yield path
    rows: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        rows = list(value.items())  # pyright: ignore[reportUnknownArgumentType] - any JSON
    elif isinstance(value, list):
        rows = list(enumerate(value))  # pyright: ignore[reportUnknownArgumentType] - any JSON
    for key, inner in rows:
        yield from places(inner, (*path, key))


def replaced(value: Any, path: tuple[Any, ...], new: Any) -> Any:
    """The value with another one at a path."""
    if not path:
        return new
    whole = copy.deepcopy(value)
    inner = whole
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = new
    return whole


def damaged(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    for path in places(value):
        for new in WRONG:
            yield path, replaced(value, path, new)


def a_schedule() -> str:
    step = ScheduledFault(
        id="1", fault=kill(leader("orders", 0), seconds=(1, 2)), nodes=(1,), duration_ms=5, details={}, fired_ms=3
    )
    late = ScheduledFault(
        id="2",
        fault=lose_response(where={"topic": "orders"}, probability=0.5),
        after=(began("1"),),
        until=(isr_count("orders", 0, 2),),
        overlaps=True,
    )
    run = RunSettings(config={"min.insync.replicas": 2}, plants=("a.b",)).to_json()
    return Schedule(steps=(step, late), run=run, notes={"found": "x"}, duration_ms=9).to_json()


def read_schedule(text: str) -> None:
    schedule = Schedule.from_json(text)
    if schedule.run:
        settings_of(schedule)


def test_a_schedule_with_any_value_replaced_is_read_or_refused_with_the_place() -> None:
    whole = json.loads(a_schedule())
    read_schedule(json.dumps(whole))
    refused = 0
    for path, broken in damaged(whole):
        try:
            read_schedule(json.dumps(broken))
        except HarrowError as error:
            refused += 1
            text = str(error)
            if path[:1] == ("steps",) and len(path) > 1:
                assert text.startswith(f"steps[{path[1]}]: "), (path, text)
        except Exception as error:
            pytest.fail(f"{path}: {error!r}")
    assert refused > 400


@pytest.mark.parametrize(
    ("path", "value", "words"),
    [
        (("steps", 0, "at_ms"), "soon", "steps[0]: at_ms is 'soon': expected a whole number"),
        (("steps", 0, "fault", "seconds"), "1", "steps[0]: fault: kill(seconds='1'): expected a number"),
        (("steps", 0, "fault", "target"), 5, "steps[0]: fault: it is 5: expected an object with role, topic"),
        (("steps", 0, "fault", "target", "partition"), "0", "steps[0]: fault: partition is '0': expected a whole"),
        (("steps", 1, "after", 0, "step"), 1, "steps[1]: after[0]: step is 1: expected a text"),
        (("steps", 0, "att_ms"), 5, "steps[0]: no field 'att_ms'; did you mean 'at_ms'?"),
        (("cap",), 0, "schedule: cap is 0: expected at least 1 broker"),
        (("run", "brokers"), "5", "run of a schedule: brokers is '5': expected a whole number"),
        (("steps", 0, "fault", "name"), "kil", "steps[0]: fault: no fault 'kil'; did you mean kill?"),
    ],
)
def test_the_error_of_a_schedule_says_what_is_wrong_and_where(path: tuple[Any, ...], value: Any, words: str) -> None:
    broken = replaced(json.loads(a_schedule()), path, value)
    with pytest.raises(HarrowError) as caught:
        read_schedule(json.dumps(broken))
    assert str(caught.value).startswith(words)


def test_recorded_schedules_are_still_read() -> None:
    assert len(RECORDED) > 10
    for path in RECORDED:
        read_schedule(path.read_text(encoding="utf-8"))


def a_verdict() -> Verdict:
    anomaly = Anomaly(
        name="lost-write",
        topic="orders",
        partition=0,
        offsets=(1,),
        operations=({"operation": "send"},),
        explanation="it is gone",
    )
    return Verdict(
        status=Status.INVALID,
        guarantees=("no-loss",),
        operation_counts={"acknowledged": 1},
        anomaly_counts={"lost-write": 1},
        anomalies=(anomaly,),
        causes={"lost-write": ("a kill",)},
        reasons=("r",),
        notes=("n",),
        planted=("p",),
        added_guarantees={"billed-once": ("billed-twice",)},
        elapsed_ms=1.5,
    )


def a_run() -> dict[str, Any]:
    return {
        "schema_version": 1,
        "started_ns": 5,
        "seed": 1,
        "brokers": 1,
        "config": {"a": 1},
        "log_dirs": {"1": ["data"]},
        "unrecorded": ["taps"],
        "topics": ["orders"],
        "histories": 1,
        "chaos_blocks": 1,
        "promised": False,
        "replicas": {"orders-0": {"replicas": [1], "isr": [1]}},
        "progress": {"ended_ns": 9, "min_insync_replicas": {"orders": 1}, "recovers_within_s": None},
    }


def check(folder: Path) -> tuple[int, str, BaseException | None]:
    result = CliRunner().invoke(cli, ["check", str(folder)])
    error = result.exception
    return result.exit_code, result.output, None if isinstance(error, SystemExit) else error


def test_check_of_a_damaged_verdict_names_the_file_and_the_cause(tmp_path: Path) -> None:
    path = tmp_path / run_folder.VERDICT
    whole = json.loads(a_verdict().to_json())
    assert Verdict.from_json(json.dumps(whole)) == a_verdict()
    refused = 0
    for where, broken in damaged(whole):
        path.write_text(json.dumps(broken), encoding="utf-8")
        try:
            Verdict.from_json(path.read_text(encoding="utf-8"))
        except HarrowError:
            refused += 1
        except Exception as error:
            pytest.fail(f"{where}: {error!r}")
    assert refused > 150
    for text, words in (
        ('{"schema', "verdict.json: it is not JSON"),
        ("[]", "verdict.json: the verdict has schema version None"),
        (json.dumps(whole | {"status": "good"}), "verdict.json: status is 'good': expected valid, unknown, invalid"),
        (json.dumps(replaced(whole, ("anomalies", 0, "offsets"), ["a"])), "anomalies[0]: offsets[0] is 'a': expected"),
    ):
        path.write_text(text, encoding="utf-8")
        code, output, raised = check(tmp_path)
        assert (code, raised) == (1, None)
        assert words in output
        assert "the data of the run is gone" in output


def test_check_of_a_damaged_run_json_names_the_file_and_the_value(tmp_path: Path) -> None:
    path = tmp_path / run_folder.RUN
    (tmp_path / run_folder.VERDICT).write_text(a_verdict().to_json(), encoding="utf-8")
    refused = 0
    for where, broken in damaged(a_run()):
        path.write_text(json.dumps(broken), encoding="utf-8")
        code, output, raised = check(tmp_path)
        if raised is None:
            assert code == 1
            assert "lost-write" in output, where
        else:
            assert isinstance(raised, HarrowError), (where, raised)
            assert str(raised).startswith(f"{path}: "), (where, raised)
            refused += 1
    assert refused > 80
    path.write_text('{"seed', encoding="utf-8")
    assert "run.json: Unterminated string" in str(check(tmp_path)[2])
    path.write_text(json.dumps(a_run() | {"topics": 5}), encoding="utf-8")
    assert "run.json: topics is 5: expected a list of texts; run the test again" in str(check(tmp_path)[2])


@pytest.mark.parametrize("command", [["chaos"], ["simulate"], ["shrink"]])
def test_a_command_with_a_damaged_schedule_ends_with_the_file_and_the_place(tmp_path: Path, command: list[str]) -> None:
    path = tmp_path / "schedule.json"
    path.write_text(json.dumps(replaced(json.loads(a_schedule()), ("steps", 0, "nodes"), 1)))
    given = [*command, *(["--schedule"] if command != ["shrink"] else []), str(path)]
    result = CliRunner().invoke(cli, given)
    assert isinstance(result.exception, HarrowError), result.output
    assert str(result.exception) == f"{path}: steps[0]: nodes is 1: expected a list of whole numbers or None"


def test_a_fault_that_resembles_a_known_one_is_named() -> None:
    result = CliRunner().invoke(cli, ["chaos", "--faults", "kil"])
    assert result.exit_code == 2
    assert "did you mean 'kill'?" in result.output
