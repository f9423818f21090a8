"""Causes in pipelines with transactions: what was aborted, who read uncommitted data or began at old offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.events.coordinators import TransactionChanged

from ...wording import counted
from ..verdict import Anomaly
from .commits import committed_early
from .evidence import DeliveryErrors, EndedTransactions, Refusals, RunEvidence, UnfinishedTransaction
from .losses import refusal

AFTER_END_NS = 100_000_000
"""So much may lie between the row of a decision and that of the EndTxn that asked for it."""


def outputs_missing(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which commits were early, and which transactions with outputs were aborted or fenced."""
    yield from committed_early(anomalies, evidence)
    sources = {anomaly.topic for anomaly in anomalies}
    for row in evidence.aborted:
        if row.topic not in sources:
            yield 0, _aborted(row, evidence) + _without_end(row, evidence) + _fenced(row, evidence)
    for begun in evidence.unfinished:
        if begun.topic not in sources:
            yield (
                0,
                f"{begun.transactional_id} began a transaction with records of {begun.topic} at "
                f"{evidence.at(begun.begun_ns)}, and it was neither committed nor aborted"
                + _without_end(begun, evidence),
            )
    reported = [failed for failed in evidence.delivery_errors if not failed.refused]
    failures: list[Refusals | DeliveryErrors] = [*evidence.refusals, *reported]
    for failed in failures:
        if failed.topic not in sources:
            yield failed.records, _failed_delivery(failed, evidence)


def _failed_delivery(row: Refusals | DeliveryErrors, evidence: RunEvidence) -> str:
    """Return what became of records of an output: refused by brokers, or given up by the client."""
    if isinstance(row, Refusals):
        return refusal(row, evidence)
    when = evidence.span(row.first_ns, row.last_ns)
    reports = counted(row.records, "delivery report", "delivery reports")
    return f"{reports} of {row.topic} had the error {row.error} {when}"


def _without_end(row: EndedTransactions | UnfinishedTransaction, evidence: RunEvidence) -> str:
    """Return that no EndTxn for a transaction was served, and which program a fault had hit before."""
    if not evidence.request_counts:
        return ""
    unfinished = isinstance(row, UnfinishedTransaction)
    ended_ns = row.begun_ns if isinstance(row, UnfinishedTransaction) else row.first_ns
    asked = [
        request
        for request in evidence.requests
        if request.api == "EndTxn"
        and request.subject == row.transactional_id
        and (
            request.invoked_ns > ended_ns
            if unfinished
            else request.invoked_ns <= ended_ns <= request.completed_ns + AFTER_END_NS
        )
    ]
    if any(not request.unanswered for request in asked):
        return ""
    text = "; no client had sent EndTxn for it"
    if asked:
        text = f"; its EndTxn at {evidence.at(asked[-1].completed_ns)} was not served"
    hit = [fault for fault in evidence.faults if fault.of_program and (unfinished or fault.begin_ns <= ended_ns)]
    return text + (f", after the fault {hit[-1].label} at {evidence.at(hit[-1].begin_ns)}" if hit else "")


def _aborted(row: EndedTransactions, evidence: RunEvidence) -> str:
    when = evidence.span(row.first_ns, row.last_ns)
    transactions = counted(row.transactions, "transaction was", "transactions were")
    return f"{transactions} aborted of {row.transactional_id}, with records of {row.topic}, {when}"


def _fenced(row: EndedTransactions, evidence: RunEvidence) -> str:
    """Return that another producer took the transactional id after the first abort."""
    began = [
        traced.t_ns
        for traced in evidence.events
        if isinstance(traced.event, TransactionChanged)
        and traced.event.transactional_id == row.transactional_id
        and traced.t_ns >= row.first_ns
    ]
    if not began:
        return ""
    times = f" ({len(began)} times)" if len(began) > 1 else ""
    return (
        f"; a producer began with the same transactional id at {evidence.at(began[0])}{times}, "
        "which fences the one before"
    )


def outputs_unexpected(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return who read uncommitted data of a topic with aborted transactions."""
    sinks = {anomaly.topic for anomaly in anomalies}
    for row in evidence.aborted:
        readers = [reader.client for reader in evidence.uncommitted_readers if reader.topic == row.topic]
        if row.topic not in sinks and readers:
            names = ", ".join(sorted(readers))
            yield (
                row.transactions,
                f"{_aborted(row, evidence)}; {names} read {row.topic} with isolation.level=read_uncommitted",
            )


def outputs_doubled(anomalies: Sequence[Anomaly], evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    """Return which group committed its offsets outside the transactions of the outputs, or began at old ones."""
    sinks = {anomaly.topic for anomaly in anomalies}
    writers = sorted(row.transactional_id for row in evidence.committed if row.topic in sinks)
    for row in evidence.plain_commits if writers else ():
        if row.topic not in sinks:
            yield (
                row.commits,
                (
                    f"group {row.group} committed its offsets of {row.topic} outside the transactions of "
                    f"{', '.join(writers)}: after a crash between the two, records are processed again"
                ),
            )
    yield from _begun_at_old_offsets(evidence)


def _begun_at_old_offsets(evidence: RunEvidence) -> Iterable[tuple[int, str]]:
    for row in evidence.old_offset_reads:
        place = f"{row.topic}-{row.partition}"
        yield (
            row.committed - row.offset,
            (
                f"broker {row.broker} returned {row.offset} as the committed offset of {place} to "
                f"{row.client} at {evidence.at(row.time_ns)}, although broker {row.other_broker}, which "
                f"coordinated group {row.group} before and after, had committed offset {row.committed} at "
                f"{evidence.at(row.committed_ns)}: a coordinator that was replaced and does not know it returns "
                "old offsets, and records from there on are processed again"
            ),
        )
