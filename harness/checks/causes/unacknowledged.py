"""Causes from records in a log that no client was acknowledged: the client does not know that they are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ...histories.recorded_faults import Row
from ...wording import counted
from ..verdict import Anomaly
from .evidence import Place, RunEvidence
from .losses import refusal

AFTER_APPEND = frozenset({"NOT_ENOUGH_REPLICAS_AFTER_APPEND", "REQUEST_TIMED_OUT"})
"""Errors of Produce with which a leader may keep the record."""


def unexpected(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return what the taps have of records that the application does not count as sent."""
    topics = {anomaly.topic for anomaly in anomalies}
    places = [place for anomaly in anomalies for place in places_of(anomaly)]
    yield from never_acknowledged(places, evidence)
    acknowledged = [place for place in places if place in evidence.acknowledgements]
    if acknowledged:
        rows = [evidence.acknowledgements[place] for place in acknowledged]
        names = ", ".join(sorted({str(row["client"]) for row in rows}))
        ended = [int(row["time_ns"]) for row in rows]
        which = counted(len(rows), "of these records was", "of these records were")
        text = (
            f"{which} acknowledged to {names} {evidence.span(min(ended), max(ended))}: the client sent what the "
            "application does not count as sent"
        )
        yield len(rows), text
    for row in evidence.refusals:
        if row["topic"] in topics and row["error"] in AFTER_APPEND:
            yield row["records"], f"{refusal(row, evidence)}, which may be in the log all the same"


def never_acknowledged(places: Sequence[Place], evidence: RunEvidence) -> Iterator[tuple[int, str]]:
    """Yield how many records at `places` are in the log without an acknowledgement, and the first of them."""
    own = [(place, evidence.unacknowledged[place]) for place in places if place in evidence.unacknowledged]
    lost = [(place, row) for place, row in own if row.get("lost")]
    silent = [(place, row) for place, row in own if not row.get("lost")]
    if lost:
        times = [int(row["time_ns"]) for _, row in lost]
        names = ", ".join(sorted({str(row["client"]) for _, row in lost}))
        text = (
            f"{_records(lost)} {_are(lost)} in the log, and the response to {names} was lost "
            f"{evidence.span(min(times), max(times))}: the client does not know that {_they(lost)} appended"
        )
        yield len(lost), text
    if silent:
        text = (
            f"{_records(silent)} {_are(silent)} in the log, and no broker has acknowledged {_them(silent)}: the "
            "request was appended, and its response was an error or never left"
        )
        yield len(silent), text


def places_of(anomaly: Anomaly) -> list[Place]:
    """Return where the records of an anomaly are."""
    return [
        (str(row["topic"]), int(row["partition"]), int(row["offset"]))
        for row in anomaly.operations
        if row.get("operation") == "record" and row.get("offset", -1) >= 0
    ]


def _records(found: Sequence[tuple[Place, Row]]) -> str:
    topic, partition, offset = found[0][0]
    if len(found) == 1:
        return f"the record at offset {offset} of {topic}-{partition}"
    return f"{counted(len(found), 'record')} from offset {offset} of {topic}-{partition} on"


def _are(found: Sequence[Any]) -> str:
    return "is" if len(found) == 1 else "are"


def _them(found: Sequence[Any]) -> str:
    return "it" if len(found) == 1 else "them"


def _they(found: Sequence[Any]) -> str:
    return "it was" if len(found) == 1 else "they were"
