"""The line of long commands: on a terminal, and in the log of a CI job (J9)."""

from __future__ import annotations

import io
import json
import re
from pathlib import Path

import pytest
from harrow.cluster.tap.layouts import FETCHED, PRODUCED, TAP_DTYPE, TAP_ROW
from harrow.harness.commands import progress
from harrow.harness.commands.live_counts import LiveCounts, RunCounter
from harrow.harness.commands.progress import CLEAR, ProgressLine
from waiting import until


class Stream(io.StringIO):
    def __init__(self, *, terminal: bool) -> None:
        super().__init__()
        self._terminal = terminal

    def isatty(self) -> bool:
        return self._terminal


def test_a_terminal_shows_one_line_that_is_removed_at_the_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "30")
    stream = Stream(terminal=True)
    with ProgressLine(lambda: "7 records acknowledged, 3 faults", stream=stream) as line:
        until(lambda: stream.getvalue().count("7 records") >= 2)
        with line.hidden():
            before = stream.getvalue()
            stream.write("a seed\n")
        assert before.endswith(CLEAR)
    text = stream.getvalue()
    assert re.match(r"\r\x1b\[K0:00  7 records acknowledged,\r", text)
    assert text.endswith(CLEAR)
    assert text.count("\n") == 1


def test_a_log_gets_a_line_now_and_then_and_no_control_characters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "LOG_EVERY_S", 0.01)
    stream = Stream(terminal=False)
    with ProgressLine(lambda: "3 faults", stream=stream):
        until(lambda: stream.getvalue().count("\n") >= 2)
    assert set(stream.getvalue().splitlines()) == {"0:00  3 faults"}


def test_a_short_run_writes_nothing_into_a_log() -> None:
    stream = Stream(terminal=False)
    with ProgressLine(lambda: "3 faults", stream=stream):
        pass
    assert stream.getvalue() == ""


def tap_row(kind: int, count: int, *, error: int = 0) -> bytes:
    given = {"kind": kind, "count": count, "error": error}
    return TAP_ROW.pack(*(given.get(name, 0) for name, _ in TAP_DTYPE))


def test_live_counts_read_only_what_is_new_and_ignore_an_earlier_run(tmp_path: Path) -> None:
    broker = tmp_path / "cluster" / "broker-1"
    broker.mkdir(parents=True)
    tap, faults = broker / "tap.bin", tmp_path / "faults.jsonl"
    tap.write_bytes(tap_row(PRODUCED, 100))
    counter = RunCounter(tmp_path)
    assert counter.counts() == LiveCounts()
    tap.unlink()
    tap.write_bytes(tap_row(PRODUCED, 5) + tap_row(PRODUCED, 2, error=6) + tap_row(FETCHED, 4)[:-1])
    rows = [{"event": "inject"}, {"event": "effect"}]
    faults.write_text("".join(json.dumps(row) + "\n" for row in rows) + '{"event": "eff')
    assert counter.counts() == LiveCounts(acknowledged=5, faults=1)
    with tap.open("ab") as file:
        file.write(tap_row(FETCHED, 4)[-1:])
    assert counter.counts() == LiveCounts(acknowledged=5, delivered=4, faults=1)
    assert str(counter.counts()) == "5 records acknowledged, 4 delivered, 1 fault"
