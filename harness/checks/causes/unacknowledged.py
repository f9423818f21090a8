"""Causes from records in a log that no client was acknowledged: the client does not know that they are there."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence, Sized

from ...wording import counted
from ..rows import OperationRow
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
        names = ", ".join(sorted({row.client for row in rows}))
        ended = [row.time_ns for row in rows]
        which = counted(len(rows), "of these records was", "of these records were")
        text = (
            f"{which} acknowledged to {names} {evidence.span(min(ended), max(ended))}: the client sent what the "
            "application does not count as sent"
        )
        yield len(rows), text
    for row in evidence.refusals:
        if row.topic in topics and row.error in AFTER_APPEND:
            yield row.records, f"{refusal(row, evidence)}, which may be in the log all the same"


def never_acknowledged(places: Sequence[Place], evidence: RunEvidence) -> Iterator[tuple[int, str]]:
    """Yield how many records at `places` are in the log without an acknowledgement, and the first of them."""
    own = [place for place in places if place in evidence.unacknowledged]
    lost = [(place, response) for place in own if (response := evidence.unacknowledged[place]) is not None]
    silent = [place for place in own if evidence.unacknowledged[place] is None]
    if lost:
        times = [response.time_ns for _, response in lost]
        names = ", ".join(sorted({response.client for _, response in lost}))
        text = (
            f"{_records([place for place, _ in lost])} {_are(lost)} in the log, and the response to {names} was lost "
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
    return [place for row in anomaly.rows if row.get("operation") == "record" if (place := place_of(row))]


def place_of(row: OperationRow) -> Place | None:
    """Return the place of a record; None where it is not known."""
    topic, partition, offset = row.get("topic"), row.get("partition"), row.get("offset")
    if topic is None or partition is None or offset is None or offset < 0:
        return None
    return topic, partition, offset


def _records(found: Sequence[Place]) -> str:
    topic, partition, offset = found[0]
    if len(found) == 1:
        return f"the record at offset {offset} of {topic}-{partition}"
    return f"{counted(len(found), 'record')} from offset {offset} of {topic}-{partition} on"


def _are(found: Sized) -> str:
    return "is" if len(found) == 1 else "are"


def _them(found: Sized) -> str:
    return "it" if len(found) == 1 else "them"


def _they(found: Sized) -> str:
    return "it was" if len(found) == 1 else "they were"
