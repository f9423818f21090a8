"""The start of a test on the monotonic clock: every time that a user reads is relative to it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from harrow.cluster.errors import HarrowError

from .. import run_folder
from .format import HistoryFile, read_history
from .recorded_faults import json_lines
from .tap import read_tap


def started_ns(folder: Path) -> int:
    """Return `started_ns` of run.json (the cluster's first use); else the time of the first operation; else 0."""
    given = run_folder.read_run(folder).get("started_ns")
    if isinstance(given, int) and given > 0:
        return given
    times = [int(row["t_ns"]) for row in json_lines(folder / run_folder.FAULTS) if "t_ns" in row][:1]
    for path in run_folder.operation_files(folder / run_folder.HISTORY):
        times += _first(path, read_history)
    for path in run_folder.tap_files(folder / run_folder.CLUSTER):
        times += _first(path, read_tap)
    return min(times, default=0)


def _first(path: Path, read: Callable[[Path], HistoryFile]) -> list[int]:
    try:
        rows = read(path).rows
    except (HarrowError, OSError, ValueError):
        return []
    return [int(rows["invoked_ns"][0])] if len(rows) else []
