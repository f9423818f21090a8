"""Trace events from rows, for tests that write traces by hand."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from harrow.cluster.events import TracedEvent, TraceEvent, UnknownEvent, traced_event


def traced(row: Mapping[str, Any]) -> TracedEvent[TraceEvent]:
    """Returns the event of a row that has its process under `broker`: a name, or the node id of a broker."""
    fields = dict(row)
    process = fields.pop("broker")
    found = traced_event(fields, process if isinstance(process, str) else f"broker-{process}")
    assert found is not None, f"no row of a trace: {row}"
    assert not isinstance(found.event, UnknownEvent), f"not the fields of its event: {row}"
    return found
