"""What stands beside the brokers has lanes of its own on the page, and its name in the terminal's summary (J8, K2)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from harrow.harness.histories.program_ends import By, ProgramEnd, write_program_ends
from harrow.harness.reports import terminal_summary
from harrow.harness.reports.beside import LANES_MOST, SPANS_MOST
from harrow.harness.reports.picture import build_model
from rich.console import Console
from run_folders import START_NS, make_run_folder

Row = dict[str, Any]
STATES = {
    "isolate_dependency": ("isolated", "cut off"),
    "cut_dependency": ("isolated", "cut off one way"),
    "half_open_dependency": ("isolated", "half-open"),
    "slow_dependency": ("slow", "slow"),
    "throttle_dependency": ("slow", "throttled"),
    "kill_program": ("dead", "dead"),
    "terminate_program": ("dead", "dead"),
    "pause_program": ("paused", "paused"),
}
"""By kind of fault: the state of the lane, and what it says."""
KINDS_OF_PROGRAMS = ("kill_program", "pause_program", "terminate_program")


def ns(at_s: float) -> int:
    return START_NS + round(at_s * 1e9)


def add_fault(folder: Path, number: int, kind: str, begin_s: float, end_s: float, **details: str) -> None:
    """Append a fault's rows to `faults.jsonl`, its effect 0.1 s after its beginning."""
    given: Row = {"id": str(number), "fault": kind, "label": f"{kind}(…)", "targets": []}
    rows: list[Row] = [
        {"t_ns": ns(begin_s), "event": "inject", **given, "evidence": {"duration_ms": 9, **details}},
        {"t_ns": ns(begin_s + 0.1), "event": "effect", **given, "evidence": {}},
        {"t_ns": ns(end_s), "event": "healed", **given, "evidence": {}},
    ]
    with (folder / "faults.jsonl").open("a") as file:
        file.writelines("\n" + json.dumps(row) for row in rows)  # its last line is incomplete


def end_of(name: str, at_s: float, by: By, *, again: bool) -> ProgramEnd:
    return ProgramEnd(name=name, exit_code=3, ended_ns=ns(at_s), by=by, started_again=again)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = make_run_folder(tmp_path / "run")
    about = json.loads((folder / "run.json").read_text())
    (folder / "run.json").write_text(json.dumps({**about, "started_ns": START_NS}))
    return folder


def lanes(folder: Path) -> dict[str, Any]:
    return {lane["name"]: lane for lane in build_model(folder)["beside"]}


def test_without_a_fault_beside_the_brokers_there_is_no_lane(folder: Path) -> None:
    assert lanes(folder) == {}


@pytest.mark.parametrize("kind", STATES)
def test_a_fault_is_on_the_lane_of_what_it_hit_and_on_none_of_a_broker(folder: Path, kind: str) -> None:
    of = "program" if kind in KINDS_OF_PROGRAMS else "dependency"
    before = build_model(folder)["brokers"]
    add_fault(folder, 10, kind, 8.0, 9.5, **{of: "store"})
    state, text = STATES[kind]
    span = {"s": 8.1, "e": 9.5, "state": state, "text": text}
    assert lanes(folder)["store"] == {"name": "store", "kind": of, "spans": [span], "marks": []}
    assert build_model(folder)["brokers"] == before


def test_faults_of_a_dependency_and_of_its_program_share_a_lane(folder: Path) -> None:
    add_fault(folder, 10, "kill_program", 8, 9, program="store")
    add_fault(folder, 11, "isolate_dependency", 10, 11, dependency="store", mode="reset")
    add_fault(folder, 12, "reset_dependency", 12, 12, dependency="store")
    add_fault(folder, 13, "pause_program", 12, 13, program="billing")
    assert list(lanes(folder)) == ["store", "billing"]
    store = lanes(folder)["store"]
    assert store["kind"] == "dependency"
    assert [span["text"] for span in store["spans"]] == ["dead", "cut off"]
    assert store["marks"] == [{"t": 12.1, "text": "connections were reset"}]


def test_a_program_that_ended_by_itself_has_a_lane(folder: Path) -> None:
    ends = [end_of("billing", 9, "itself", again=True), end_of("billing", 14, "itself", again=False)]
    write_program_ends(folder, [*ends, end_of("job", 5, "test", again=False)])
    model = build_model(folder)
    (lane,) = model["beside"]
    assert [mark["t"] for mark in lane["marks"]] == [9, 14]
    assert lane["spans"] == [{"s": 14, "e": model["duration"], "state": "dead", "text": "ended"}]


def test_lanes_and_their_spans_are_bounded(folder: Path) -> None:
    for number in range(SPANS_MOST + 5):
        add_fault(folder, 100 + number, "isolate_dependency", 8, 9, dependency="a")
    for number in range(LANES_MOST + 5):
        add_fault(folder, 1_000 + number, "pause_program", 8, 9, program=f"p{number}")
    found = lanes(folder)
    assert len(found) == LANES_MOST
    assert len(found["a"]["spans"]) == SPANS_MOST


def test_the_terminal_names_what_was_hit(folder: Path) -> None:
    add_fault(folder, 10, "isolate_dependency", 8, 9, dependency="store")
    add_fault(folder, 11, "kill_program", 8, 9, program="billing")
    out = io.StringIO()
    terminal_summary(folder, Console(file=out, width=120))
    text = out.getvalue()
    assert "isolate_dependency(…) on dependency store, 8.00 s to 9.00 s" in text
    assert "kill_program(…) on program billing" in text
    assert "registry" not in text
