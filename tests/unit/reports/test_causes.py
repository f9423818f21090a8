"""Each rule of cause states only what was recorded, and says nothing without evidence (L6)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, cast

import pytest
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.coordinators import GroupChanged, TransactionChanged
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_READ, OFFSET_SENT
from harrow.faults.fault_kinds import FAULTS
from harrow.harness.checks.causes.coordinator_facts import OffsetOfGroup, old_offset_reads
from harrow.harness.checks.causes.evidence import (
    ClientResponse,
    DeliveryErrors,
    EndedTransactions,
    PlainCommits,
    Refusals,
    RunEvidence,
    UncommittedReader,
    UnfinishedTransaction,
)
from harrow.harness.checks.causes.rules import RULES, causes
from harrow.harness.checks.facts import AppendedUnanswered, Fact, fact_of
from harrow.harness.checks.rows import OperationRow
from harrow.harness.checks.verdict import Anomaly
from harrow.harness.histories.recorded_faults import RecordedFault
from traced_rows import traced

Row = dict[str, Any]


def at(seconds: float) -> int:
    return round(seconds * 1e9)


def anomaly(name: str, *operations: Row, records: int = 1) -> Anomaly:
    return Anomaly(
        name=name,
        topic="orders",
        partition=0,
        offsets=(1,),
        operations=cast("tuple[OperationRow, ...]", operations),
        explanation="",
        records=records,
    )


def fault(kind: str, node: int, begin_s: float, end_s: float | None) -> RecordedFault:
    return RecordedFault(
        id="1",
        kind=kind,
        label=kind,
        nodes=(node,),
        begin_ns=at(begin_s),
        effect_ns=at(begin_s),
        end_ns=None if end_s is None else at(end_s),
        skipped=None,
    )


def lost(**fields: Any) -> Row:
    return {
        "fact": "acknowledged-and-lost",
        "topic": "orders",
        "partition": 0,
        "broker": 3,
        "acks": 1,
        "records": 31,
        "first_ns": at(0.2),
        "last_ns": at(4.1),
        "first_offset": 100,
        "last_offset": 130,
        **fields,
    }


def event(name: str, seconds: float, broker: int, **fields: Any) -> TracedEvent[TraceEvent]:
    place = {"topic": "orders", "partition": 0}
    return traced({"event": name, "t_ns": at(seconds), "broker": broker, **place, **fields})


def rebalance(state: str, seconds: float) -> TracedEvent[TraceEvent]:
    changed = GroupChanged(group="billing", partition=4, state=state, generation=1, members=1)
    return TracedEvent(at(seconds), "broker-1", changed)


LEADS = event("partition.leader", 0.05, 3, leader=3, leader_epoch=0, isr=[1, 2, 3])
NEXT = event("partition.leader", 1.78, 2, leader=2, leader_epoch=1, isr=[1, 2])
CUT = event("partition.truncated", 4.45, 3, **{"from": 131, "to": 100})


KINDS: dict[str, Callable[[Row], object]] = {
    "facts": fact_of,
    "refusals": lambda row: Refusals(**row),
    "delivery_errors": lambda row: DeliveryErrors(**row),
    "aborted": lambda row: EndedTransactions(**row),
    "committed": lambda row: EndedTransactions(**row),
    "plain_commits": lambda row: PlainCommits(**row),
    "uncommitted_readers": lambda row: UncommittedReader(**row),
    "unfinished": lambda row: UnfinishedTransaction(**row),
}


def cause(name: str, *operations: Row, records: int = 1, **evidence: Any) -> tuple[str, ...]:
    for field in KINDS.keys() & evidence.keys():
        rows: list[Row | object] = evidence[field]
        evidence[field] = [KINDS[field](cast("Row", row)) if isinstance(row, dict) else row for row in rows]
    known = RunEvidence(started_ns=0, **evidence)
    return causes([anomaly(name, *operations, records=records)], known).get(name, ())


def test_lost_records_of_an_isolated_leader_name_fault_acks_next_leader_and_truncation() -> None:
    isolated = fault("isolate", 3, 0.14, 4.16)
    (found,) = cause("lost-write", facts=[lost()], faults=[isolated], events=[LEADS, NEXT, CUT])
    assert found == (
        "broker 3 was isolated from 0.14 s to 4.16 s; with acks=1 it acknowledged 31 records of orders-0 from 0.20 s "
        "to 4.10 s; broker 2 became leader in leader epoch 1 at 1.78 s without them, and broker 3 discarded them at "
        "4.45 s"
    )


def test_a_leader_that_was_killed_after_its_acknowledgements_is_named_with_that_kill() -> None:
    killed = fault("kill", 3, 0.52, 3)
    (found,) = cause("lost-write", facts=[lost(last_ns=at(0.5))], faults=[killed], events=[NEXT])
    assert found.startswith(
        "with acks=1 broker 3 acknowledged 31 records of orders-0 from 0.20 s to 0.50 s; then it was killed at 0.52 s"
    )


def test_an_isr_of_one_broker_is_named_as_the_reason_why_acks_all_was_not_enough() -> None:
    alone = event("partition.isr", 0.1, 3, isr=[3], leader_epoch=0)
    (found,) = cause("lost-write", facts=[lost(acks=-1)], events=[LEADS, alone])
    assert found.startswith("with acks=all broker 3 acknowledged 31 records")
    assert found.endswith(", while the ISR had no other broker")


def test_the_fault_that_takes_the_leadership_is_named_before_a_slow_link() -> None:
    faults = [fault("isolate", 3, 0.14, 4.16), fault("slow_link", 3, 0.3, 4)]
    (found,) = cause("lost-write", facts=[lost()], faults=faults)
    assert found.startswith("broker 3 was isolated from 0.14 s")
    (found,) = cause("lost-write", facts=[lost(acks=0)], faults=faults[1:])
    assert found.startswith("broker 3 had slow links from 0.30 s to 4.00 s; with acks=0 it appended 31")


@pytest.mark.parametrize(
    "faults",
    [[fault("isolate", 2, 0.14, 4.16)], [fault("isolate", 3, 4.5, 5)], [fault("kill", 3, 0.01, 0.1)], []],
    ids=["another broker", "after the next leader", "before the first acknowledgement", "none"],
)
def test_a_fault_that_cannot_have_caused_the_loss_is_not_named(faults: list[RecordedFault]) -> None:
    (found,) = cause("lost-write", facts=[lost()], faults=faults, events=[NEXT])
    assert not any(words in found for words in (kind.words for kind in FAULTS.values() if kind.words))


@pytest.mark.parametrize("name", sorted(RULES))
def test_without_evidence_there_is_no_sentence(name: str) -> None:
    other = Fact(topic="orders", partition=0, records=31)
    faults = [fault("kill", 1, 0.1, 0.2)]
    assert cause(name, facts=[other], faults=faults, events=[LEADS, NEXT, CUT]) == ()


def test_another_record_at_the_same_offset_names_the_leader_that_wrote_it() -> None:
    (found,) = cause("inconsistent-offsets", facts=[lost()], events=[LEADS, NEXT])
    assert found == (
        "broker 2 became leader of orders-0 in leader epoch 1 at 1.78 s, and wrote other records at the offsets that "
        "broker 3 had acknowledged"
    )


DOUBLE: Row = {"topic": "orders", "partition": 0, "records": 12, "first_ns": at(0.52), "last_ns": at(0.52)}


def test_a_lost_response_names_the_producer_and_the_time() -> None:
    fact = {**DOUBLE, "fact": "response-lost", "broker": 2, "client": 1, "idempotent": False}
    (found,) = cause("duplicate", facts=[fact], clients=["x", "shop"])
    assert found == (
        "a producer without idempotence (shop) sent 12 records of orders-0 again, after the responses of broker 2 to "
        "its Produce requests were lost at 0.52 s"
    )


def test_a_failed_response_names_the_producer_and_the_error() -> None:
    fact = {**DOUBLE, "fact": "response-failed", "broker": 2, "client": 1, "error": 7, "idempotent": False}
    (found,) = cause("duplicate", facts=[fact], clients=["x", "shop"])
    assert found == (
        "a producer without idempotence (shop) sent 12 records of orders-0 again, after broker 2 had appended them and "
        "responded with REQUEST_TIMED_OUT at 0.52 s"
    )


def test_an_append_without_answer_names_the_fault_of_that_leader() -> None:
    fact = AppendedUnanswered(topic="orders", partition=0, records=12, leader_epoch=0, idempotent=False)
    (found,) = cause("duplicate", facts=[fact], events=[LEADS], faults=[fault("kill", 3, 0.52, 3)])
    assert found == (
        "broker 3 appended 12 records of orders-0 in leader epoch 0 and never answered: it was killed at 0.52 s; "
        "a producer without idempotence sent them again"
    )
    assert cause("duplicate", facts=[fact], events=[LEADS]) == (), "no fault, no sentence"


def test_copies_that_were_all_acknowledged_are_the_clients_own() -> None:
    fact = {**DOUBLE, "fact": "acknowledged-twice", "clients": [0]}
    (found,) = cause("duplicate", facts=[fact], clients=["shop"])
    assert found.startswith("the brokers acknowledged every copy of these records at 0.52 s: the client (shop) sent")


def test_copies_by_record_id_that_were_all_acknowledged_are_the_applications_own() -> None:
    place = {"operation": "record", "topic": "orders", "partition": 0, "record_id": "7"}
    copies = [{**place, "offset": 3}, {**place, "offset": 9}]
    acks = {("orders", 0, n): ClientResponse(client="shop", time_ns=at(n)) for n in (3, 9)}
    (found,) = cause("duplicate", *copies, acknowledgements=acks)
    assert found == (
        "the copies of record id 7 were all acknowledged to the client (shop), from 3.00 s to 9.00 s, and no response "
        "was lost: the application sent the record more than once"
    )
    del acks["orders", 0, 3]
    assert cause("duplicate", *copies, acknowledgements=acks) == (), "a response may have been lost"


def test_missing_records_name_delivery_errors_and_refusals_of_their_topic_only() -> None:
    times = {"first_ns": at(1), "last_ns": at(5)}
    error = {"topic": "orders", "error": "_MSG_TIMED_OUT", "refused": False, "records": 2_775, **times}
    refusal = {"topic": "orders", "error": "NOT_ENOUGH_REPLICAS", "records": 40, "without_idempotence": False, **times}
    other = {**error, "topic": "bills", "records": 9}
    assert cause("missing", delivery_errors=[error, other], refusals=[refusal]) == (
        "the delivery reports of 2,775 records of orders had the error _MSG_TIMED_OUT from 1.00 s to 5.00 s",
        "brokers refused 40 records of orders with NOT_ENOUGH_REPLICAS from 1.00 s to 5.00 s",
    )


COMMIT: Row = {
    "operation": "commit",
    "client": "billing-1",
    "group": "audit",
    "reading_group": "billing",
    "offset": 7,
    "completed_ns": at(1),
}


@pytest.mark.parametrize(
    ("row", "expected"),
    [
        ({"producer_id": 4, "member": "audit-2", "generation": 3}, "metadata of the member audit-2 of that group"),
        ({"producer_id": 4}, "metadata that name a group and no member"),
        ({}, "by OffsetCommit: its group.id is not that of the consumer"),
    ],
    ids=["another member", "no member", "another client"],
)
def test_offsets_for_another_group_name_how_they_were_committed(row: Row, expected: str) -> None:
    later = {**COMMIT, **row, "completed_ns": at(2)}
    state = rebalance("PreparingRebalance", 1.5)
    (found,) = cause("commit-for-other-group", {**COMMIT, **row}, later, events=[state])
    assert found.startswith("billing-1 committed 2 offsets for group audit from 1.00 s to 2.00 s ")
    assert expected in found
    assert found.endswith("; group billing, which reads the partition, rebalanced at 1.50 s")


def test_missing_records_name_batches_that_a_broker_took_for_retries() -> None:
    fact = {
        "fact": "sequence-used-again",
        "topic": "orders",
        "partition": 0,
        "broker": 2,
        "client": 0,
        "batches": 1,
        "records": 3,
        "producer_id": 7,
        "base_sequence": 5,
        "base_offset": 12,
        "first_ns": at(1),
        "last_ns": at(1),
    }
    (found,) = cause("missing", facts=[fact, {**fact, "topic": "bills"}], clients=["franz"])
    assert found == (
        "broker 2 acknowledged 1 batch of franz without appending, at 1.00 s, because the log had another batch under "
        "the same sequence: a broker takes the later one for a retry. The first has base sequence 5 of producer id 7 "
        "(offset 12 of orders-0). Either franz sent a retry with a new timestamp, or it gave the sequence of earlier "
        "records to other records"
    )


def test_an_early_commit_names_group_offset_and_the_rebalance_after_it() -> None:
    commit = {"operation": "commit", "group": "billing", "topic": "orders", "partition": 1, "offset": 240}
    states = [
        rebalance(state, seconds)
        for seconds, state in ((0.5, "PreparingRebalance"), (1.4, "Stable"), (1.5, "PreparingRebalance"))
    ]
    timed = {**commit, "completed_ns": at(1.3)}
    (found,) = cause("commit-before-output", timed, records=31, events=states)
    assert found == (
        "group billing committed offset 240 of orders-1 at 1.30 s, before the outputs of all records below it "
        "were written; the group rebalanced at 1.50 s"
    )
    assert cause("missing-output", commit, records=31) == (), "a commit without time is no evidence"


def test_commits_of_one_group_and_partition_are_one_sentence() -> None:
    """Three sentences that differ in an offset alone would leave no room for the refusal that explains them."""
    commit = {"operation": "commit", "group": "billing", "topic": "orders", "partition": 1}
    early = [
        anomaly("missing-output", {**commit, "offset": offset, "completed_ns": at(seconds)})
        for offset, seconds in ((58, 2.1), (3, 1.3), (40, 2.0))
    ]
    refusals = [
        Refusals(
            topic="bills",
            error="NOT_ENOUGH_REPLICAS",
            records=1,
            without_idempotence=True,
            first_ns=at(1.2),
            last_ns=at(1.2),
        )
    ]
    found = causes(early, RunEvidence(started_ns=0, refusals=refusals))["missing-output"]
    assert found[0] == (
        "group billing committed offset 3 of orders-1 at 1.30 s, and 2 later offsets until 2.10 s, before the outputs "
        "of all records below them were written"
    )
    assert found[1:] == ("brokers refused 1 record of bills with NOT_ENOUGH_REPLICAS at 1.20 s",)


def test_sentences_are_ordered_by_records_and_bounded() -> None:
    facts = [lost(partition=number, records=number) for number in range(1, 9)]
    found = cause("lost-write", facts=facts)
    assert [text.split("orders-")[1][0] for text in found] == ["8", "7", "6"]


ABORTED = {"transactional_id": "billing", "topic": "bills", "transactions": 3, "first_ns": at(1), "last_ns": at(2.5)}


def test_missing_outputs_name_aborted_transactions_and_the_producer_that_fenced_them() -> None:
    empty = TransactionChanged(transactional_id="billing", state="Empty", producer_id=7, epoch=1, partitions=0)
    began = TracedEvent(at(1.2), "broker-1", empty)
    assert cause("missing-output", aborted=[ABORTED], events=[began]) == (
        (
            "3 transactions were aborted of billing, with records of bills, from 1.00 s to 2.50 s; a producer began "
            "with the same transactional id at 1.20 s, which fences the one before"
        ),
    )
    (plain,) = cause("missing-output", aborted=[ABORTED], events=[began._replace(t_ns=at(0.5))])
    assert "fences" not in plain
    assert cause("missing-output", aborted=[{**ABORTED, "topic": "orders"}]) == ()


def test_unexpected_outputs_name_aborted_inputs_and_who_read_them() -> None:
    readers = [{"client": "biller", "topic": "bills"}]
    assert cause("unexpected-output", aborted=[ABORTED], uncommitted_readers=readers) == (
        (
            "3 transactions were aborted of billing, with records of bills, from 1.00 s to 2.50 s; biller read bills "
            "with isolation.level=read_uncommitted"
        ),
    )
    assert cause("unexpected-output", aborted=[ABORTED]) == ()


def test_doubled_outputs_name_commits_outside_the_transactions() -> None:
    commits = [{"group": "billing", "topic": "bills", "commits": 4}]
    written = [{**ABORTED, "topic": "orders"}]
    assert cause("duplicate-output", committed=written, plain_commits=commits) == (
        (
            "group billing committed its offsets of bills outside the transactions of billing: after a crash between "
            "the two, records are processed again"
        ),
    )
    assert cause("duplicate-output", plain_commits=commits) == ()


def offset_row(kind: int, broker: int, offset: int, seconds: float) -> OffsetOfGroup:
    return OffsetOfGroup(
        kind=kind,
        error=0,
        node=broker,
        group="billing",
        topic="orders",
        partition=1,
        client=f"biller-{broker}",
        offset=offset,
        invoked_ns=at(seconds),
        completed_ns=at(seconds + 0.01),
    )


COMMITTED_BY_2 = offset_row(OFFSET_COMMITTED, 2, 6, 1.0)
READ_FROM_3 = offset_row(OFFSET_READ, 3, 3, 1.5)
COMMITTED_LATER = offset_row(OFFSET_COMMITTED, 2, 9, 2.0)


def test_doubled_outputs_name_the_replaced_coordinator_that_returned_an_old_offset() -> None:
    reads = old_offset_reads([COMMITTED_LATER, READ_FROM_3, COMMITTED_BY_2])
    assert cause("duplicate-output", old_offset_reads=reads) == (
        (
            "broker 3 returned 3 as the committed offset of orders-1 to biller-3 at 1.51 s, although broker 2, which "
            "coordinated group billing before and after, had committed offset 6 at 1.01 s: a coordinator that was "
            "replaced and does not know it returns old offsets, and records from there on are processed again"
        ),
    )


@pytest.mark.parametrize(
    "rows",
    [
        [COMMITTED_BY_2, replace(READ_FROM_3, node=2), COMMITTED_LATER],
        [COMMITTED_BY_2, replace(READ_FROM_3, offset=6), COMMITTED_LATER],
        [COMMITTED_BY_2, READ_FROM_3],
        [replace(COMMITTED_BY_2, error=7), READ_FROM_3, COMMITTED_LATER],
        [replace(COMMITTED_BY_2, group="other"), READ_FROM_3, COMMITTED_LATER],
        [offset_row(OFFSET_SENT, 2, 6, 1.0), READ_FROM_3, COMMITTED_LATER],
    ],
    ids=["same-coordinator", "not-older", "nothing-after", "failed", "other-group", "not-committed"],
)
def test_a_read_that_does_not_show_a_replaced_coordinator_is_not_named(rows: list[OffsetOfGroup]) -> None:
    assert old_offset_reads(rows) == []


ELECTED: Row = {
    "operation": "broker 2 became leader",
    "completed_ns": at(1.78),
    "broker": 2,
    "leader_epoch": 1,
    "log_end_offset": 100,
}


def test_a_leader_without_committed_records_had_discarded_them() -> None:
    cut = event("partition.truncated", 1.2, 2, **{"from": 131, "to": 100})
    (found,) = cause("incomplete-leader", ELECTED, events=[LEADS, cut, NEXT])
    assert found == (
        "broker 2 discarded offsets 100 to 130 at 1.20 s; it became leader of orders-0 in leader epoch 1 at 1.78 s "
        "with a log that ends at offset 100"
    )


def test_a_leader_without_committed_records_names_its_last_fault_before() -> None:
    faults = [fault("power_loss", 2, 0.9, 1.1), fault("kill", 2, 2.5, 3.0)]
    (found,) = cause("incomplete-leader", ELECTED, faults=faults)
    assert found.startswith("broker 2 lost power at 0.90 s; it became leader of orders-0")


def test_records_that_retention_removed_too_early_name_the_broker_and_the_rule() -> None:
    fact = {
        "fact": "removed-early",
        "topic": "orders",
        "partition": 0,
        "broker": 3,
        "reason": "retention.ms",
        "records": 7,
        "first_ns": at(2.0),
        "last_ns": at(2.0),
        "first_offset": 0,
        "last_offset": 6,
    }
    (found,) = cause("lost-write", facts=[fact])
    assert found == (
        "broker 3 removed offsets 0 to 6 of orders-0 at 2.00 s by retention.ms, too early; followers and later leaders "
        "begin behind them"
    )
