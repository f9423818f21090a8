"""Causes of records that no log has: acknowledged and lost, refused, or given up by the client."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.events import TracedEvent
from harrow.cluster.events.partitions import IsrChanged, PartitionLeader, PartitionTruncated

from ...wording import counted
from ..facts import AcknowledgedAndLost, RemovedEarly, SequenceUsedAgain
from ..verdict import Anomaly
from .evidence import Refusals, RunEvidence, events_of_partition
from .faults import fault_of, happened

ACKS = {-1: "acks=all", 0: "acks=0", 1: "acks=1"}


def lost(_: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return a sentence for each broker and setting of acks that acknowledged what no log has."""
    for fact in evidence.facts:
        if isinstance(fact, AcknowledgedAndLost):
            yield fact.records, _lost_sentence(fact, evidence)
        elif isinstance(fact, RemovedEarly):
            yield fact.records, _removed_sentence(fact, evidence)


def _removed_sentence(fact: RemovedEarly, evidence: RunEvidence) -> str:
    return (
        f"broker {fact.broker} removed offsets {fact.first_offset} to {fact.last_offset} of {fact.place} "
        f"{evidence.span(fact.first_ns, fact.last_ns)} by {fact.reason}, too early; "
        "followers and later leaders begin behind them"
    )


def _lost_sentence(fact: AcknowledgedAndLost, evidence: RunEvidence) -> str:
    broker, acks = fact.broker, ACKS.get(fact.acks, f"acks={fact.acks}")
    leader = _next_leader(fact, evidence)
    fault = fault_of(fact, evidence, None if leader is None else leader.t_ns)
    verb = "appended" if fact.acks == 0 else "acknowledged"
    what = f"{verb} {counted(fact.records, 'record')} of {fact.place}"
    when = evidence.span(fact.first_ns, fact.last_ns)
    if fault is None:
        text = f"with {acks} broker {broker} {what} {when}"
    elif fault.begin_ns > fact.last_ns:
        text = f"with {acks} broker {broker} {what} {when}; then it {happened(fault, evidence)}"
    else:
        text = f"broker {broker} {happened(fault, evidence)}; with {acks} it {what} {when}"
    isr = _isr_at(fact, evidence)
    if isr == [broker]:
        text += ", while the ISR had no other broker"
    if leader is not None:
        text += (
            f"; broker {leader.event.leader} became leader in leader epoch {leader.event.leader_epoch} "
            f"at {evidence.at(leader.t_ns)} without them"
        )
        last = _last_isr(fact, evidence, leader)
        if last is not None and leader.event.leader not in last:
            text += f", by an unclean election: it was outside the ISR {last}"
    cut = _truncation(fact, evidence)
    if cut is not None:
        text += f", and broker {broker} discarded them at {evidence.at(cut.t_ns)}"
    return text


def _next_leader(fact: AcknowledgedAndLost, evidence: RunEvidence) -> TracedEvent[PartitionLeader] | None:
    """Return the event of the first other leader after the first acknowledgement."""
    rows = events_of_partition(fact.topic, fact.partition, evidence, PartitionLeader)
    return next((row for row in rows if row.t_ns > fact.first_ns and row.event.leader != fact.broker), None)


def _isr_at(fact: AcknowledgedAndLost, evidence: RunEvidence) -> list[int] | None:
    """Return the ISR of the last acknowledgement, as the acknowledging broker traced it."""
    rows: list[TracedEvent[PartitionLeader | IsrChanged]]
    rows = events_of_partition(fact.topic, fact.partition, evidence, PartitionLeader, IsrChanged)
    known = [row.event.isr for row in rows if row.node == fact.broker and row.t_ns <= fact.first_ns and row.event.isr]
    return sorted(known[-1]) if known else None


def _last_isr(
    fact: AcknowledgedAndLost, evidence: RunEvidence, leader: TracedEvent[PartitionLeader]
) -> list[int] | None:
    """Return the last ISR before this leader's epoch, as its leaders traced it."""
    rows: list[TracedEvent[PartitionLeader | IsrChanged]]
    rows = events_of_partition(fact.topic, fact.partition, evidence, PartitionLeader, IsrChanged)
    known = [
        row.event.isr for row in rows if row.t_ns < leader.t_ns and row.node != leader.event.leader and row.event.isr
    ]
    return sorted(known[-1]) if known else None


def _truncation(fact: AcknowledgedAndLost, evidence: RunEvidence) -> TracedEvent[PartitionTruncated] | None:
    """Return the event in which the broker cut the lost records off its log."""
    rows = events_of_partition(fact.topic, fact.partition, evidence, PartitionTruncated)
    return next(
        (
            row
            for row in rows
            if row.node == fact.broker
            and row.t_ns > fact.first_ns
            and row.event.to_offset <= fact.first_offset < row.event.from_offset
        ),
        None,
    )


def same_offsets(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which leader wrote other records at the offsets of lost ones."""
    places = {(anomaly.topic, anomaly.partition) for anomaly in anomalies}
    for fact in evidence.facts:
        if not isinstance(fact, AcknowledgedAndLost) or (fact.topic, fact.partition) not in places:
            continue
        leader = _next_leader(fact, evidence)
        if leader is not None:
            text = (
                f"broker {leader.event.leader} became leader of {fact.place} in leader epoch "
                f"{leader.event.leader_epoch} at {evidence.at(leader.t_ns)}, and wrote other records at the offsets "
                f"that broker {fact.broker} "
                "had acknowledged"
            )
            yield fact.records, text


def not_stored(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return what became of records that the application believes to have sent: lost, refused, given up."""
    topics = {anomaly.topic for anomaly in anomalies}
    yield from lost(anomalies, evidence)
    for fact in evidence.facts:
        if isinstance(fact, SequenceUsedAgain) and fact.topic in topics:
            yield fact.records, _used_again(fact, evidence)
    for row in evidence.delivery_errors:
        if row.topic in topics:
            what = "produce() refused" if row.refused else "the delivery reports of"
            said = "with the error" if row.refused else "had the error"
            when = evidence.span(row.first_ns, row.last_ns)
            yield (
                row.records,
                f"{what} {counted(row.records, 'record')} of {row.topic} {said} {row.error} {when}",
            )
    for refused in evidence.refusals:
        if refused.topic in topics:
            yield refused.records, refusal(refused, evidence)


def _used_again(fact: SequenceUsedAgain, evidence: RunEvidence) -> str:
    number = fact.client
    name = evidence.clients[number] if number < len(evidence.clients) else f"client {number}"
    when = evidence.span(fact.first_ns, fact.last_ns)
    return (
        f"broker {fact.broker} acknowledged {counted(fact.batches, 'batch', 'batches')} of {name} without "
        f"appending, {when}, because the log had another batch under the same sequence: a broker takes the later one "
        f"for a retry. The first has base sequence {fact.base_sequence} of producer id {fact.producer_id} "
        f"(offset {fact.base_offset} of {fact.place}). Either {name} sent a retry with a new "
        "timestamp, or it gave the sequence of earlier records to other records"
    )


def refusal(row: Refusals, evidence: RunEvidence) -> str:
    """Return how many records brokers refused, with which error, and when."""
    when = evidence.span(row.first_ns, row.last_ns)
    return f"brokers refused {counted(row.records, 'record')} of {row.topic} with {row.error} {when}"


def incomplete(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return what the broker that became leader without committed records had discarded before, or what befell it."""
    for anomaly in anomalies:
        event = next((row for row in anomaly.rows if "log_end_offset" in row), None)
        if event is None:
            continue
        node, elected_ns, end = event["broker"], event["completed_ns"], event["log_end_offset"]
        then = (
            f"it became leader of {anomaly.place} in leader epoch {event['leader_epoch']} at {evidence.at(elected_ns)} "
            f"with a log that ends at offset {end}"
        )
        cuts = [
            row
            for row in events_of_partition(anomaly.topic, anomaly.partition, evidence, PartitionTruncated)
            if row.node == node and row.t_ns <= elected_ns and row.event.to_offset <= end
        ]
        own = [fault for fault in evidence.faults if node in fault.nodes]
        earlier = [fault for fault in own if fault.begin_ns <= elected_ns]
        if cuts:
            cut = cuts[-1]
            gone = f"{cut.event.to_offset} to {cut.event.from_offset - 1}"
            what = f"discarded offsets {gone} at {evidence.at(cut.t_ns)}"
            yield 1, f"broker {node} {what}; {then}"
        elif earlier:
            yield 1, f"broker {node} {happened(earlier[-1], evidence)}; {then}"
