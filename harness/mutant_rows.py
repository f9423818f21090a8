"""What each run of a suite says of the mutant in it, as JSON lines in the file that `HARROW_MUTANT_ROWS` names.

Owns: `MutantRow`, and how it is written and read. A row is written when a run ends, by the process that ends it: the
test's, or that of a seed. A mutant inside of a client writes a row without a test when it acts for the first time in
its process (`mutants/injected/`). Rows are appended in one write each, so that processes do not mix them.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from harrow.cluster.events.requests import RequestChanged
from harrow.cluster.mutants.changing_link import chosen_mutant, links_changed

from . import run_folder
from .histories.recorded_faults import read_faults
from .histories.trace_events import read_trace

ROWS = "HARROW_MUTANT_ROWS"
"""The environment variable that names the file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class MutantRow:
    """A run, or a process in which a mutant of a client acted."""

    test: str = ""
    changed: int = 0
    """How many connections had changed requests, or 1 for a process."""
    faults: tuple[str, ...] = ()
    """Kinds of the faults that took effect."""
    guarantees: tuple[str, ...] = ()
    """What its verdicts were asked for."""


def note_run(folder: Path, test: str, guarantees: Iterable[str]) -> None:
    """Append the row of a run that has ended; nothing without a mutant."""
    file = os.environ.get(ROWS, "")
    if not file or not chosen_mutant():
        return
    traced = sum(1 for path in run_folder.trace_files(folder) for _ in read_trace(path, kinds=(RequestChanged,)))
    faults = {fault.kind for fault in read_faults(folder / run_folder.FAULTS) if fault.effect_ns is not None}
    row = MutantRow(
        test=test,
        changed=traced or links_changed[0],
        faults=tuple(sorted(faults)),
        guarantees=tuple(sorted(set(guarantees))),
    )
    append(Path(file), row)


def append(file: Path, row: MutantRow) -> None:
    """Append a row in one write."""
    line = json.dumps(asdict(row), separators=(",", ":")) + "\n"
    descriptor = os.open(file, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(descriptor, line.encode())
    finally:
        os.close(descriptor)


def read_rows(file: Path) -> list[MutantRow]:
    """Return all rows; none without a file."""
    if not file.exists():
        return []
    found: list[MutantRow] = []
    for line in file.read_text(encoding="utf-8").splitlines():
        given = json.loads(line)
        lists = {name: tuple(given.get(name, ())) for name in ("faults", "guarantees")}
        found.append(MutantRow(test=given.get("test", ""), changed=given.get("changed", 0), **lists))
    return found
