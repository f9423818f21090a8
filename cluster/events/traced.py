"""A row of a trace: an event with its time and the process in which it happened, as a value and as JSON.

A row has `t_ns`, `wall_ms`, `host`, `event`, then the fields of the event. Text that is not such a row, as the last
line of a process that was killed, is none.
"""

from __future__ import annotations

import json
from typing import Any, Generic, NamedTuple, TypeVar

from ..broker_folder import BROKER_PREFIX
from .event import EVENT_KINDS, TraceEvent, UnknownEvent

E_co = TypeVar("E_co", bound=TraceEvent, covariant=True)
END_OF_LINE = ("\n", "", "\r\n")
_decode = json.JSONDecoder().raw_decode


class TracedEvent(NamedTuple, Generic[E_co]):
    """An event in a trace."""

    t_ns: int
    """On the monotonic clock, which the processes of one machine share."""
    process: str
    """The name of the process's folder: `broker-1`, `registry`."""
    event: E_co
    wall_ms: int | None = None
    """As the clock of the process showed it; None: the row has none."""
    host: str | None = None
    """As the process calls itself; None: the row does not say it."""

    @property
    def node(self) -> int:
        """The node id of the broker; -1 of another process."""
        number = self.process.removeprefix(BROKER_PREFIX)
        return int(number) if number.isdecimal() else -1

    def row(self) -> dict[str, Any]:
        """Return the row as JSON has it, with the process under `broker`: for verdicts."""
        row: dict[str, Any] = {"t_ns": self.t_ns}
        if self.wall_ms is not None:
            row["wall_ms"] = self.wall_ms
        if self.host is not None:
            row["host"] = self.host
        row["event"] = self.event.event_name
        row |= self.event.json_fields()
        row["broker"] = self.process
        return row


def traced_event(row: dict[str, Any], process: str) -> TracedEvent[TraceEvent] | None:
    """Return the event of a row in the trace of `process`, None for one without name or time; `row` is consumed."""
    try:
        t_ns, name = row.pop("t_ns"), row.pop("event")
        kind = EVENT_KINDS.get(name)
    except (KeyError, AttributeError, TypeError):  # JSON of another shape
        return None
    wall_ms, host = row.pop("wall_ms", None), row.pop("host", None)
    event = UnknownEvent(name=name, values=row) if kind is None else kind.from_fields(row)
    return TracedEvent(t_ns, process, event, wall_ms, host)


def traced_line(line: bytes, process: str) -> TracedEvent[TraceEvent] | None:
    """Return the event of a line in the trace of `process`; None for a line that is no row."""
    text = line.decode(errors="replace")
    try:
        row, end = _decode(text)  # half the time of json.loads(line)
    except ValueError:
        return None
    return traced_event(row, process) if text[end:] in END_OF_LINE else None
