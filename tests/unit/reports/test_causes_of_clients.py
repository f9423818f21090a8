"""What a client did last and what it repeated, and records that no client was acknowledged, by hand-made rows (L6)."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
from harrow.harness.checks.causes.client_requests import stopped_clients
from harrow.harness.checks.causes.evidence import (
    ClientResponse,
    DeliveryErrors,
    EndedTransactions,
    Refusals,
    RunEvidence,
    UnfinishedTransaction,
)
from harrow.harness.checks.causes.rules import MAY_HAVE_STOPPED, causes
from harrow.harness.checks.rows import OperationRow
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.recorded_faults import RecordedFault
from harrow.harness.histories.request_rows import ClientRequest, RequestCount

COUNTED_ONLY = frozenset({"Fetch", "Produce", "Heartbeat"})


def at(seconds: float) -> int:
    return round(seconds * 1e9)


def asked(
    api: str, seconds: float, error: str = "", *, subject: str = "", broker: int = 2, **flags: bool
) -> ClientRequest:
    return ClientRequest(
        client="reader",
        api=api,
        error=error,
        broker=broker,
        invoked_ns=at(seconds),
        completed_ns=at(seconds),
        subject=subject,
        **flags,
    )


def often(api: str, number: int, first: float, last: float, *, error: str = "", broker: int = 2) -> RequestCount:
    return RequestCount(
        client="reader", api=api, error=error, broker=broker, count=number, first_ns=at(first), last_ns=at(last)
    )


def counts_of(rows: list[ClientRequest]) -> list[RequestCount]:
    return [often(row.api, 1, row.completed_ns / 1e9, row.completed_ns / 1e9, error=row.error) for row in rows]


def said(*rows: ClientRequest | RequestCount, **evidence: Any) -> list[str]:
    """The sentences for these requests; what is counted only has no row."""
    requests = [row for row in rows if isinstance(row, ClientRequest)]
    counts = [row for row in rows if isinstance(row, RequestCount)] + counts_of(requests)
    kept = [row for row in requests if row.api not in COUNTED_ONLY or row.error or row.lost or row.hit]
    known = RunEvidence(started_ns=0, requests=kept, request_counts=counts, **evidence)
    return [text for _, text in stopped_clients(known)]


def fault(kind: str, begin_s: float, *nodes: int, label: str = "") -> RecordedFault:
    return RecordedFault(
        id="1",
        kind=kind,
        label=label or kind,
        nodes=nodes,
        begin_ns=at(begin_s),
        effect_ns=at(begin_s),
        end_ns=at(begin_s + 1),
        skipped=None,
        details={"program": "copier"} if kind.endswith("program") else {},
    )


def anomaly(name: str, *operations: dict[str, Any]) -> Anomaly:
    return Anomaly(
        name=name,
        topic="orders",
        partition=0,
        offsets=(17,),
        operations=cast("tuple[OperationRow, ...]", operations),
        explanation="",
    )


def test_a_refused_offset_fetch_after_which_nothing_was_read() -> None:
    (text,) = said(
        asked("SyncGroup", 1.0, subject="billing"),
        asked("OffsetFetch", 1.2, "UNKNOWN_SERVER_ERROR", subject="billing", hit=True),
        often("Heartbeat", 40, 1.1, 9.0),
    )
    assert text == (
        "broker 2 returned UNKNOWN_SERVER_ERROR to OffsetFetch of billing of client reader at 1.20 s (a fault of the "
        "run did it); after that it never sent OffsetFetch with success, and never Fetch; it went on with Heartbeat, "
        "40 times in the whole run, until 9.00 s"
    )


def test_a_lost_response_after_which_a_client_was_silent() -> None:
    (text,) = said(asked("InitProducerId", 2.0, lost=True, subject="shop"))
    assert text.startswith("InitProducerId of shop of client reader lost its response from broker 2 at 2.00 s; after")
    assert text.endswith("; it sent nothing more")


@pytest.mark.parametrize(
    "later",
    [[asked("OffsetFetch", 1.4)], [often("Fetch", 5, 1.3, 9.0)]],
    ids=["it asked again", "it read all the same"],
)
def test_a_client_that_went_on_after_a_failure_is_not_named(later: list[Any]) -> None:
    assert said(asked("OffsetFetch", 1.2, "NOT_COORDINATOR"), *later) == []


def test_a_request_that_ended_with_its_connection_is_no_failure() -> None:
    assert said(asked("JoinGroup", 9.0, unanswered=True)) == []
    assert said(asked("JoinGroup", 9.0, unanswered=True, hit=True))


def test_a_client_that_never_asks_for_its_coordinator_again() -> None:
    commits = [asked("OffsetCommit", 2 + n, "NOT_COORDINATOR", subject="billing") for n in range(5)]
    (text,) = said(asked("FindCoordinator", 0.5), *commits)
    assert text == (
        "client reader got NOT_COORDINATOR for OffsetCommit of billing 5 times, from 2.00 s to 6.00 s, and never sent "
        "FindCoordinator after the first"
    )
    assert said(*commits, asked("FindCoordinator", 3.5), asked("OffsetCommit", 8)) == []


def test_a_client_whose_coordinator_was_killed_and_that_asks_for_no_other_one() -> None:
    rows: list[ClientRequest | RequestCount] = [
        asked("FindCoordinator", 0.5),
        often("Heartbeat", 9, 1.0, 3.0, broker=2),
        often("Metadata", 4, 0.4, 20.0, broker=3),
    ]
    (text,) = said(*rows, faults=[fault("kill", 3.5, 2)])
    assert text == (
        "broker 2, the coordinator of client reader, was killed at 3.50 s; after that the client never sent "
        "FindCoordinator or a request of its group, although it sent requests until 20.00 s"
    )
    assert said(*rows, faults=[fault("kill", 3.5, 1)]) == []
    assert said(*rows, asked("FindCoordinator", 4), faults=[fault("kill", 3.5, 2)]) == []


def test_a_client_that_asks_again_and_again_and_reads_nothing() -> None:
    rows = [often("Metadata", 12_000, 0.5, 9.0), often("ApiVersions", 2, 0.4, 0.6)]
    (text,) = said(*rows)
    assert text == "client reader sent Metadata 12000 times from 0.50 s to 9.00 s, and it never received a record"
    (text,) = said(*rows, often("Fetch", 3, 1, 2))
    assert text.endswith("and none of its 3 Fetch requests returned a record")
    assert said(*rows, readers={"reader"}) == []
    assert said(*rows, often("Produce", 3, 1, 2)) == []
    assert said(often("Metadata", 20, 0.5, 9.0)) == []


@pytest.mark.parametrize("name", ["lost-write", *sorted(MAY_HAVE_STOPPED)])
def test_a_client_that_stopped_is_named_where_something_is_missing_or_waits(name: str) -> None:
    known = RunEvidence(started_ns=0, request_counts=[often("Metadata", 500, 1, 2)])
    found = causes([anomaly(name)], known).get(name, ())
    assert bool(found) == (name != "lost-write")


# ------------------------------------------------------------------------------------- transactions

ABORTED = EndedTransactions(transactional_id="job", topic="charges", transactions=1, first_ns=at(5), last_ns=at(5))


def missing_output(**evidence: Any) -> tuple[str, ...]:
    known = RunEvidence(started_ns=0, request_counts=[often("Produce", 1, 1, 1)], **evidence)
    return causes([anomaly("missing-output")], known).get("missing-output", ())


def end_txn(invoked: float, completed: float, *, unanswered: bool = False) -> ClientRequest:
    return ClientRequest(
        client="job",
        api="EndTxn",
        error="",
        broker=1,
        invoked_ns=at(invoked),
        completed_ns=at(completed),
        subject="job",
        unanswered=unanswered,
        hit=unanswered,
    )


def test_a_kill_before_end_txn_is_named_with_the_transaction() -> None:
    killed = fault("kill_program", 3.2, label="kill_program('copier')")
    (text,) = missing_output(aborted=[ABORTED], faults=[killed])
    assert text == (
        "1 transaction was aborted of job, with records of charges, at 5.00 s; no client had sent EndTxn for it, after "
        "the fault kill_program('copier') at 3.20 s"
    )


def test_an_abort_that_the_client_asked_for_is_no_missing_end() -> None:
    (text,) = missing_output(aborted=[ABORTED], requests=[end_txn(4.9, 5.01)])
    assert "EndTxn" not in text
    (text,) = missing_output(aborted=[ABORTED], requests=[end_txn(1.9, 2.01)])
    assert "no client had sent EndTxn for it" in text


def test_a_transaction_without_a_decision_is_named() -> None:
    open_one = UnfinishedTransaction(transactional_id="job", topic="charges", begun_ns=at(4))
    (text,) = missing_output(unfinished=[open_one])
    assert text == (
        "job began a transaction with records of charges at 4.00 s, and it was neither committed nor aborted; no "
        "client had sent EndTxn for it"
    )
    (text,) = missing_output(unfinished=[open_one], requests=[end_txn(4.5, 4.6, unanswered=True)])
    assert text.endswith("neither committed nor aborted; its EndTxn at 4.60 s was not served")


def test_a_failed_delivery_to_the_sink_is_named() -> None:
    refused = Refusals(
        topic="charges",
        error="NOT_ENOUGH_REPLICAS",
        without_idempotence=True,
        records=4,
        first_ns=at(1),
        last_ns=at(2),
    )
    reported = DeliveryErrors(
        topic="charges", error="_MSG_TIMED_OUT", refused=False, records=3, first_ns=at(1), last_ns=at(1)
    )
    found = missing_output(refusals=[refused], delivery_errors=[reported])
    assert found == (
        "brokers refused 4 records of charges with NOT_ENOUGH_REPLICAS from 1.00 s to 2.00 s",
        "3 delivery reports of charges had the error _MSG_TIMED_OUT at 1.00 s",
    )
    assert missing_output(refusals=[replace(refused, topic="orders")]) == ()


# ------------------------------------------------------------------------------------- unacknowledged

PLACE, OTHER = ("orders", 0, 17), ("orders", 0, 30)


def record(place: tuple[str, int, int]) -> dict[str, Any]:
    topic, partition, offset = place
    return {"operation": "record", "topic": topic, "partition": partition, "offset": offset, "record_id": "7"}


def cause(name: str, *places: tuple[str, int, int], **evidence: Any) -> tuple[str, ...]:
    known = RunEvidence(started_ns=0, **evidence)
    return causes([anomaly(name, *map(record, places))], known).get(name, ())


def test_a_record_whose_response_was_lost_is_unknown_to_its_client() -> None:
    (text,) = cause("unexpected", PLACE, unacknowledged={PLACE: ClientResponse(client="shop", time_ns=at(2))})
    assert text == (
        "the record at offset 17 of orders-0 is in the log, and the response to shop was lost at 2.00 s: the client "
        "does not know that it was appended"
    )


def test_a_record_without_any_acknowledgement_is_named() -> None:
    (text,) = cause("unexpected", PLACE, OTHER, unacknowledged={PLACE: None, OTHER: None})
    assert text.startswith(
        "2 records from offset 17 of orders-0 on are in the log, and no broker has acknowledged them:"
    )


def test_an_acknowledged_record_that_was_not_expected_names_its_client() -> None:
    (text,) = cause("unexpected", PLACE, acknowledgements={PLACE: ClientResponse(client="shop", time_ns=at(3))})
    assert text.startswith("1 of these records was acknowledged to shop at 3.00 s: the client sent what")


def test_a_copy_without_an_acknowledgement_explains_the_duplicate() -> None:
    acknowledged = {OTHER: ClientResponse(client="shop", time_ns=at(3))}
    (text,) = cause("duplicate", PLACE, OTHER, unacknowledged={PLACE: None}, acknowledgements=acknowledged)
    assert text.startswith("the record at offset 17 of orders-0 is in the log, and no broker has acknowledged it: the")
    assert text.endswith("; the other copy was acknowledged to shop at 3.00 s")
