"""Each event is one JSON line; a failpoint acts at its n-th hit, after it wrote its evidence."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.events import UnknownEvent
from harrow.cluster.events.partitions import IsrChanged
from harrow.cluster.events.processes import ClockCleared
from harrow.cluster.host.knobs import failpoints
from harrow.cluster.host.knobs.failpoints import FailpointError, RealFailpoints
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam.failpoints import AFTER_APPEND, DECLARED
from harrow.cluster.host.trace import WARNINGS_A_SECOND, RealTrace


def trace(folder: Path, **options: Any) -> RealTrace:
    return RealTrace("broker-1", str(folder), RealClock(), **options)


def events(folder: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (folder / "trace.jsonl").read_text().splitlines()]


def test_emit_writes_one_json_line_with_time_and_host(tmp_path: Path) -> None:
    t = trace(tmp_path)
    before = time.monotonic_ns()
    t.emit(UnknownEvent(name="extension.odd", values={"topic": "ördérs\n", "odd": {3, 1}, "raw": b"\x01"}))
    t.emit(IsrChanged(topic="orders", partition=3, leader_epoch=0, isr=(1, 2), cause="shrink"))
    t.emit(ClockCleared())
    t.close()
    first, second, third = events(tmp_path)
    assert before <= first["t_ns"] <= time.monotonic_ns()
    assert first["wall_ms"] > 1_600_000_000_000
    assert {k: v for k, v in first.items() if k not in ("t_ns", "wall_ms")} == {
        "host": "broker-1",
        "event": "extension.odd",
        "topic": "ördérs\n",
        "odd": [1, 3],
        "raw": "01",
    }
    assert list(second.items())[2:] == [
        ("host", "broker-1"),
        ("event", "partition.isr"),
        ("topic", "orders"),
        ("partition", 3),
        ("leader_epoch", 0),
        ("isr", [1, 2]),
        ("cause", "shrink"),
    ]
    assert list(third) == ["t_ns", "wall_ms", "host", "event"]


def test_log_drops_lines_below_its_level(tmp_path: Path) -> None:
    t = trace(tmp_path, level="warning")
    t.log("info", "quiet")
    t.log("error", "loud", topic="orders")
    t.close()
    lines = (tmp_path / "broker.log").read_text().splitlines()
    assert len(lines) == 1
    assert "ERROR" in lines[0]
    assert lines[0].endswith("loud topic=orders")


class SetClock(RealClock):
    """A clock whose monotonic time the test sets."""

    now_ns = 5_000_000_000

    def monotonic_ns(self) -> int:
        return self.now_ns


def test_repeated_warnings_are_limited_and_counted(tmp_path: Path) -> None:
    clock = SetClock()
    t = RealTrace("broker-1", str(tmp_path), clock)
    for number in range(1000):
        t.log("warning", f"closing the link to client {number}: invalid frame")
        t.log("error", f"a bug of the handler {number}")
        t.log("warning", f"log orders-{number} was not closed")  # another log, another kind of line
    clock.now_ns += 1_000_000_000
    t.log("warning", "closing the link to client 7 again")
    for _ in range(20):
        t.log("warning", "closing the link to client 8: invalid frame")
    t.close()
    lines = [line.split(maxsplit=3)[3] for line in (tmp_path / "broker.log").read_text().splitlines()]
    closing = [line for line in lines if line.startswith("closing the link")]
    assert len(closing) == 2 * WARNINGS_A_SECOND
    left_out = [line for line in lines if "left out" in line]
    assert [int(line.split()[0]) for line in left_out] == [990, 11]
    assert lines.index(left_out[0]) < lines.index("closing the link to client 7 again")
    assert sum(line.startswith("a bug of") for line in lines) == 1000
    assert sum(line.startswith("log orders-") for line in lines) == 1000


def test_emit_to_a_full_disk_counts_the_lost_events_and_continues(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    os.symlink("/dev/full", tmp_path / "trace.jsonl")
    t = trace(tmp_path)
    t.emit(ClockCleared())
    t.emit(ClockCleared())
    assert t.lost == 2
    assert capsys.readouterr().err.count("cannot write") == 1
    t.close()


def test_armed_error_fires_once_at_the_nth_hit(tmp_path: Path) -> None:
    t = trace(tmp_path)
    points = RealFailpoints(t)
    points.hit(AFTER_APPEND)
    points.arm(AFTER_APPEND, "error", nth=2)
    points.hit(AFTER_APPEND)
    points.hit("some.other")
    with pytest.raises(FailpointError, match=AFTER_APPEND):
        points.hit(AFTER_APPEND)
    points.hit(AFTER_APPEND)
    [report] = points.report()
    assert (report["hits"], report["fired"], report["armed"]) == (2, 1, False)
    t.close()
    assert [e["event"] for e in events(tmp_path)] == ["failpoint.fired"]


def test_disarmed_failpoint_does_nothing(tmp_path: Path) -> None:
    t = trace(tmp_path)
    points = RealFailpoints(t)
    points.arm(AFTER_APPEND, "error")
    assert points.disarm(AFTER_APPEND)
    assert not points.disarm(AFTER_APPEND)
    points.hit(AFTER_APPEND)
    t.close()


def test_armed_delay_waits_at_the_failpoint(tmp_path: Path) -> None:
    t = trace(tmp_path)
    points = RealFailpoints(t)
    points.arm(AFTER_APPEND, "delay", delay_ms=30)
    before = time.monotonic()
    points.hit(AFTER_APPEND)
    assert time.monotonic() - before >= 0.03
    t.close()


@pytest.mark.parametrize(
    ("name", "action", "nth"), [("no.such", "crash", 1), (AFTER_APPEND, "explode", 1), (AFTER_APPEND, "crash", 0)]
)
def test_arm_with_an_invalid_argument_is_refused(tmp_path: Path, name: str, action: str, nth: int) -> None:
    t = trace(tmp_path)
    with pytest.raises(ConfigError):
        RealFailpoints(t).arm(name, action, nth=nth)
    t.close()


def in_child(folder: Path, action: str) -> int:
    """Fork a child that hits an armed failpoint and then exits with code 3."""
    pid = os.fork()
    if pid == 0:
        points = RealFailpoints(trace(folder))
        points.arm(AFTER_APPEND, action)
        points.hit(AFTER_APPEND)
        os._exit(3)
    return pid


def test_armed_crash_kills_the_process_after_its_evidence_is_on_disk(tmp_path: Path) -> None:
    _, status = os.waitpid(in_child(tmp_path, "crash"), 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    [event] = events(tmp_path)
    assert (event["name"], event["action"]) == (AFTER_APPEND, "crash")


def test_armed_stop_pauses_the_process_until_sigcont(tmp_path: Path) -> None:
    pid = in_child(tmp_path, "stop")
    _, status = os.waitpid(pid, os.WUNTRACED)
    assert os.WIFSTOPPED(status)
    os.kill(pid, signal.SIGCONT)
    _, status = os.waitpid(pid, 0)
    assert os.WEXITSTATUS(status) == 3


def test_every_declared_failpoint_has_a_description() -> None:
    assert DECLARED
    assert all(name.count(".") == 1 and len(doc) > 10 for name, doc in DECLARED.items())


def test_every_declared_failpoint_is_used_in_the_cluster() -> None:
    cluster = Path(failpoints.__file__).parents[1]
    rooms = [p for p in cluster.rglob("*.py") if p.parent.name != "host"]
    text = "".join(path.read_text() for path in rooms)
    constants = {value: name for name, value in vars(failpoints).items() if isinstance(value, str)}
    assert [
        name
        for name in DECLARED
        if f'"{name}"' not in text and text.count(constants.get(name, name)) < 2  # import, use
    ] == []
