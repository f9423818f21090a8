"""How the programs of a test ended: `programs.json` of the run folder (schema 1).

Owns: `ProgramEnd`, one for each end of each program until the verdict, by time. Written before each verdict by
`harness/programs/of_run.py`. `by` says who ended it: `ITSELF`, a `FAULT` of the run, or the `TEST` (`stop()`).

May fail: a file that cannot be read, or of another version, raises HarrowError.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Literal

from harrow.cluster.errors import HarrowError

from .. import run_folder

SCHEMA_VERSION = 1
By = Literal["itself", "fault", "test"]
ITSELF: By = "itself"
FAULT: By = "fault"
TEST: By = "test"
WORDS_MOST = 3
WORD_MOST = 200
TAIL_BYTES = 8192


@dataclass(frozen=True, slots=True, kw_only=True)
class ProgramEnd:
    """One end of one program."""

    name: str
    exit_code: int
    """As a shell reports it: 128 + the signal."""
    ended_ns: int
    """On the monotonic clock; 0 where it is not known."""
    by: By
    started_again: bool
    """Whether a later start followed."""
    last_words: tuple[str, ...] = ()
    """The last lines of its stdout and stderr."""


def last_lines(path: Path, most: int) -> list[str]:
    """Return the last lines of a file that are not empty; none where it cannot be read."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, 2) - TAIL_BYTES))
            text = file.read().decode(errors="replace")
    except OSError:
        return []
    return [line for line in text.splitlines() if line.strip()][-most:]


def last_words(path: Path) -> tuple[str, ...]:
    """Return the last lines of a program's output, each of bounded length."""
    return tuple(line.strip()[:WORD_MOST] for line in last_lines(path, WORDS_MOST))


def write_program_ends(run: Path, ends: Sequence[ProgramEnd]) -> None:
    """Write `programs.json`."""
    body = {"schema_version": SCHEMA_VERSION, "ends": [asdict(end) for end in ends]}
    (run / run_folder.PROGRAM_ENDS).write_text(json.dumps(body, indent=1) + "\n", encoding="utf-8")


def read_program_ends(run: Path) -> list[ProgramEnd]:
    """Read `programs.json`; empty where the test had no program."""
    path = run / run_folder.PROGRAM_ENDS
    if not path.exists():
        return []
    try:
        body = json.loads(path.read_text(encoding="utf-8"))
        if body["schema_version"] != SCHEMA_VERSION:
            raise HarrowError(
                f"{path} has schema version {body['schema_version']}, expected {SCHEMA_VERSION}: run the test again"
            )
        rows: list[dict[str, Any]] = body["ends"]
        ends = [_end(row) for row in rows]
    except (ValueError, KeyError, TypeError) as error:
        raise HarrowError(f"{path} cannot be read: {error!r}: run the test again") from error
    return sorted(ends, key=lambda end: end.ended_ns)


def _end(row: dict[str, Any]) -> ProgramEnd:
    row["last_words"] = tuple(row["last_words"])
    return ProgramEnd(**row)
