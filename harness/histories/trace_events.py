"""Reads the events of traces (`trace.jsonl`) as values: of one file, or of all processes of a run.

A reader names the kinds of events that it wants, and only the lines of these are decoded. A line that is no row, as a
torn last line, is skipped, and so is a row that lacks a field of its event. Only `read_whole_trace` gives events that
no class reads, as `UnknownEvent`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar, cast

from harrow.cluster.events import TracedEvent, TraceEvent, traced_line

from ..run_folder import registry_trace, trace_files

E = TypeVar("E", bound=TraceEvent)
EVENT_NAME = re.compile(rb'"event": ?"([^"]*)"')
TIME = re.compile(rb'"t_ns": ?(\d+)')


@dataclass(frozen=True, slots=True, kw_only=True)
class UnreadEvent(TraceEvent):
    """An event of which the reader wants the time alone."""


def read_trace(
    path: Path, *, kinds: Iterable[type[E]], unless: re.Pattern[bytes] | None = None, since: int = 0
) -> Iterator[TracedEvent[E]]:
    """Yield the events of `kinds` in the trace of one process, in order.

    `unless`: lines that match are skipped before they are decoded. `since`: the position in the file of the first line.
    """
    process, wanted = path.parent.name, {kind.EVENT.encode(): kind for kind in kinds}
    with path.open("rb") as file:
        file.seek(since)
        for line in file:
            found = EVENT_NAME.search(line)
            kind = None if found is None else wanted.get(found[1])
            if kind is None or (unless is not None and unless.search(line)):
                continue
            traced = traced_line(line, process)
            if traced is not None and isinstance(traced.event, kind):
                yield cast("TracedEvent[E]", traced)


def read_whole_trace(path: Path, *, times_of: Iterable[type[TraceEvent]] = ()) -> Iterator[TracedEvent[TraceEvent]]:
    """Yield every event in the trace of one process, in order; those of the kinds `times_of` as `UnreadEvent`."""
    process, timed, unread = path.parent.name, {kind.EVENT.encode() for kind in times_of}, UnreadEvent()
    with path.open("rb") as file:
        for line in file:
            found = EVENT_NAME.search(line)
            if found is not None and found[1] in timed and line.endswith(b"}\n") and (time := TIME.search(line)):
                yield TracedEvent(int(time[1]), process, unread)
            elif (traced := traced_line(line, process)) is not None:
                yield traced


def events_of_brokers(run: Path, kinds: Iterable[type[E]]) -> list[TracedEvent[E]]:
    """Return the events of `kinds` of every broker of a run."""
    return _read_traces(trace_files(run), kinds)


def events_of_cluster(run: Path, kinds: Iterable[type[E]]) -> list[TracedEvent[E]]:
    """Return the events of `kinds` of every broker and of the registry."""
    registry = registry_trace(run)
    return _read_traces([*trace_files(run), *([registry] if registry.exists() else [])], kinds)


def _read_traces(paths: Iterable[Path], kinds: Iterable[type[E]]) -> list[TracedEvent[E]]:
    chosen = tuple(kinds)
    return [traced for path in paths for traced in read_trace(path, kinds=chosen)]
