"""Every event of a trace as a value (`trace.jsonl`, and the trace of a simulation).

A component emits an event by `host.trace.emit(ControllerElected(epoch=7))`. Readers take events from the rows of a
trace (`traced.py`), and know an event by its class. The files are by subject; each class says when it is emitted and
by whom. An extension defines its own events as further subclasses of `TraceEvent`.

A new kind of event is a class here; nothing else has to list it.
"""

from . import brokers, controllers, coordinators, links, logs, partitions, processes, requests
from .event import EVENT_KINDS, TraceEvent, UnknownEvent
from .traced import TracedEvent, traced_event, traced_line

__all__ = [
    "EVENT_KINDS",
    "TraceEvent",
    "TracedEvent",
    "UnknownEvent",
    "brokers",
    "controllers",
    "coordinators",
    "links",
    "logs",
    "partitions",
    "processes",
    "requests",
    "traced_event",
    "traced_line",
]
