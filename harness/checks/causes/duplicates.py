"""Causes of records that the log has twice, and of records whose order changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from harrow.cluster.errors import error_name

from ...histories.recorded_faults import Row
from ...wording import counted
from ..verdict import Anomaly
from .evidence import RunEvidence, events_of_partition
from .faults import happened
from .losses import refusal
from .unacknowledged import never_acknowledged, places_of


def duplicated(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return why a record was appended twice: a lost response, a broker without response, a client that sent twice."""
    for fact in evidence.facts:
        sentence = DUPLICATIONS.get(fact["fact"])
        text = sentence(fact, evidence) if sentence is not None else ""
        if text:
            yield fact["records"], text
    yield from _sent_by_application(anomalies, evidence)


def _sent_by_application(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return that a record id was sent in several requests, each of which was acknowledged to its client."""
    for anomaly in anomalies:
        copies = [
            evidence.acknowledgements.get((row["topic"], row["partition"], row["offset"]))
            for row in anomaly.operations
            if row.get("operation") == "record" and "offset" in row
        ]
        known = [copy for copy in copies if copy is not None]
        if len(known) < len(copies) and not any(fact["fact"] in DUPLICATIONS for fact in evidence.facts):
            yield from _sent_again(anomaly, known, evidence)
        if len(known) < 2 or len(known) < len(copies):
            continue
        times = sorted(copy["time_ns"] for copy in known)
        names = ", ".join(sorted({str(copy["client"]) for copy in known}))
        text = (
            f"the copies of record id {anomaly.operations[0].get('record_id')} were all acknowledged to the client "
            f"({names}), {evidence.span(times[0], times[-1])}, and no response was lost: the application sent the "
            "record more than once"
        )
        yield 1, text
        return


def _sent_again(anomaly: Anomaly, known: Sequence[Row], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return that a copy was never acknowledged, and when the other one was."""
    for records, text in never_acknowledged(places_of(anomaly), evidence):
        other = ""
        if known:
            client, when = known[0]["client"], evidence.at(int(known[0]["time_ns"]))
            other = f"; the other copy was acknowledged to {client} at {when}"
        yield records, text + other


def _sender(fact: Row) -> str:
    return "an idempotent producer" if fact["idempotent"] else "a producer without idempotence"


def _response_lost(fact: Row, evidence: RunEvidence) -> str:
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    return (
        f"{_sender(fact)} ({_client(fact['client'], evidence)}) sent {counted(fact['records'], 'record')} of "
        f"{fact['topic']}-{fact['partition']} again, after the responses of broker {fact['broker']} to its Produce "
        f"requests were lost {when}"
    )


def _response_failed(fact: Row, evidence: RunEvidence) -> str:
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    return (
        f"{_sender(fact)} ({_client(fact['client'], evidence)}) sent {counted(fact['records'], 'record')} of "
        f"{fact['topic']}-{fact['partition']} again, after broker {fact['broker']} had appended them and responded "
        f"with {error_name(fact['error'])} {when}"
    )


def _acknowledged_twice(fact: Row, evidence: RunEvidence) -> str:
    names = ", ".join(_client(number, evidence) for number in fact["clients"])
    when = evidence.span(fact["first_ns"], fact["last_ns"])
    return (
        f"the brokers acknowledged every copy of these records {when}: the client ({names}) sent them more than once, "
        "and not because a response was lost"
    )


def _client(number: int, evidence: RunEvidence) -> str:
    return evidence.clients[number] if number < len(evidence.clients) else f"client {number}"


def _unanswered(fact: Row, evidence: RunEvidence) -> str:
    """Return the sentence on a leader that appended records and was hit by a fault before it answered."""
    leaders = [
        row
        for row in events_of_partition(fact, evidence, "partition.leader")
        if row.get("leader_epoch") == fact["leader_epoch"]
    ]
    if not leaders:
        return ""
    leader = leaders[0]["leader"]
    fault = next((f for f in evidence.faults if leader in f.nodes and f.begin_ns >= leaders[0]["t_ns"]), None)
    if fault is None:
        return ""
    return (
        f"broker {leader} appended {counted(fact['records'], 'record')} of {fact['topic']}-{fact['partition']} in "
        f"leader epoch {fact['leader_epoch']} and never answered: it {happened(fault, evidence)}; "
        f"{_sender(fact)} sent them again"
    )


DUPLICATIONS: Mapping[str, Callable[[Row, RunEvidence], str]] = {
    "response-lost": _response_lost,
    "response-failed": _response_failed,
    "appended-unanswered": _unanswered,
    "acknowledged-twice": _acknowledged_twice,
}


def reordered(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which batches were refused, where the records of a producer without idempotence changed their order."""
    rows = [row for anomaly in anomalies for row in anomaly.operations]
    if any((row.get("producer_id") or -1) >= 0 for row in rows):
        return
    topics = {anomaly.topic for anomaly in anomalies}
    for row in evidence.refusals:
        if row["topic"] in topics and row.get("without_idempotence"):
            text = (
                f"{refusal(row, evidence)}; a producer without idempotence sends a refused batch again after batches "
                "that were accepted meanwhile"
            )
            yield row["records"], text
