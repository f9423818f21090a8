"""Causes of records that the log has twice, and of records whose order changed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.errors import error_name
from harrow.cluster.events.partitions import PartitionLeader

from ...wording import counted
from ..facts import AcknowledgedTwice, AppendedUnanswered, Fact, ResponseFailed, ResponseLost
from ..verdict import Anomaly
from .evidence import ClientResponse, RunEvidence, events_of_partition
from .faults import happened
from .losses import refusal
from .unacknowledged import never_acknowledged, place_of, places_of

DUPLICATIONS = (ResponseLost, ResponseFailed, AppendedUnanswered, AcknowledgedTwice)
"""Facts about duplicates."""


def duplicated(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return why a record was appended twice: a lost response, a broker without response, a client that sent twice."""
    for fact in evidence.facts:
        if text := _of_fact(fact, evidence):
            yield fact.records, text
    yield from _sent_by_application(anomalies, evidence)


def _of_fact(fact: Fact, evidence: RunEvidence) -> str:
    """Return the sentence on a fact about duplicates; empty for any other fact."""
    match fact:
        case ResponseLost():
            return _response_lost(fact, evidence)
        case ResponseFailed():
            return _response_failed(fact, evidence)
        case AppendedUnanswered():
            return _unanswered(fact, evidence)
        case AcknowledgedTwice():
            return _acknowledged_twice(fact, evidence)
        case _:
            return ""


def _sent_by_application(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return that a record id was sent in several requests, each of which was acknowledged to its client."""
    for anomaly in anomalies:
        copies = [
            evidence.acknowledgements.get(place)
            for row in anomaly.rows
            if row.get("operation") == "record" and "offset" in row and (place := place_of(row))
        ]
        known = [copy for copy in copies if copy is not None]
        if len(known) < len(copies) and not any(isinstance(fact, DUPLICATIONS) for fact in evidence.facts):
            yield from _sent_again(anomaly, known, evidence)
        if len(known) < 2 or len(known) < len(copies):
            continue
        times = sorted(copy.time_ns for copy in known)
        names = ", ".join(sorted({copy.client for copy in known}))
        text = (
            f"the copies of record id {anomaly.rows[0].get('record_id')} were all acknowledged to the client "
            f"({names}), {evidence.span(times[0], times[-1])}, and no response was lost: the application sent the "
            "record more than once"
        )
        yield 1, text
        return


def _sent_again(anomaly: Anomaly, known: Sequence[ClientResponse], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return that a copy was never acknowledged, and when the other one was."""
    for records, text in never_acknowledged(places_of(anomaly), evidence):
        other = ""
        if known:
            client, when = known[0].client, evidence.at(known[0].time_ns)
            other = f"; the other copy was acknowledged to {client} at {when}"
        yield records, text + other


def _sender(fact: ResponseLost | ResponseFailed | AppendedUnanswered) -> str:
    return "an idempotent producer" if fact.idempotent else "a producer without idempotence"


def _response_lost(fact: ResponseLost, evidence: RunEvidence) -> str:
    when = evidence.span(fact.first_ns, fact.last_ns)
    return (
        f"{_sender(fact)} ({_client(fact.client, evidence)}) sent {counted(fact.records, 'record')} of "
        f"{fact.place} again, after the responses of broker {fact.broker} to its Produce "
        f"requests were lost {when}"
    )


def _response_failed(fact: ResponseFailed, evidence: RunEvidence) -> str:
    when = evidence.span(fact.first_ns, fact.last_ns)
    return (
        f"{_sender(fact)} ({_client(fact.client, evidence)}) sent {counted(fact.records, 'record')} of "
        f"{fact.place} again, after broker {fact.broker} had appended them and responded "
        f"with {error_name(fact.error)} {when}"
    )


def _acknowledged_twice(fact: AcknowledgedTwice, evidence: RunEvidence) -> str:
    names = ", ".join(_client(number, evidence) for number in fact.clients)
    when = evidence.span(fact.first_ns, fact.last_ns)
    return (
        f"the brokers acknowledged every copy of these records {when}: the client ({names}) sent them more than once, "
        "and not because a response was lost"
    )


def _client(number: int, evidence: RunEvidence) -> str:
    return evidence.clients[number] if number < len(evidence.clients) else f"client {number}"


def _unanswered(fact: AppendedUnanswered, evidence: RunEvidence) -> str:
    """Return the sentence on a leader that appended records and was hit by a fault before it answered."""
    leaders = [
        traced
        for traced in events_of_partition(fact.topic, fact.partition, evidence, PartitionLeader)
        if traced.event.leader_epoch == fact.leader_epoch
    ]
    if not leaders:
        return ""
    leader = leaders[0].event.leader
    fault = next((f for f in evidence.faults if leader in f.nodes and f.begin_ns >= leaders[0].t_ns), None)
    if fault is None:
        return ""
    return (
        f"broker {leader} appended {counted(fact.records, 'record')} of {fact.place} in "
        f"leader epoch {fact.leader_epoch} and never answered: it {happened(fault, evidence)}; "
        f"{_sender(fact)} sent them again"
    )


def reordered(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which batches were refused, where the records of a producer without idempotence changed their order."""
    rows = [row for anomaly in anomalies for row in anomaly.rows]
    if any((row.get("producer_id") or -1) >= 0 for row in rows):
        return
    topics = {anomaly.topic for anomaly in anomalies}
    for row in evidence.refusals:
        if row.topic in topics and row.without_idempotence:
            text = (
                f"{refusal(row, evidence)}; a producer without idempotence sends a refused batch again after batches "
                "that were accepted meanwhile"
            )
            yield row.records, text
