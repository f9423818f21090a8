"""The kernels' doubts are those of the plain-Python oracle: faults that were met, and refused sends (L6)."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from harrow.cluster.host.seam import COMPLETE_COMMIT, PREPARE_ABORT, PREPARE_COMMIT, TRANSACTION_ONGOING
from harrow.harness.checks.kernels import judge_inputs
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, TRANSACTION_SCHEMA, PartitionInputs, arrange
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.rows import PartitionResult, PartitionTraffic
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED, RECORDED
from harrow.harness.histories.segments import LOG_COLUMNS
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_doubts import met, operation_spans, refused_records

Row = dict[str, Any]
TIME = st.integers(0, 12)
SPANS = st.tuples(TIME, TIME).map(lambda pair: (min(pair), max(pair)))


@st.composite
def operations(draw: st.DrawFn) -> list[Row]:
    """Operations at small times, and a final read with small timestamps."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 5))):
        kind = draw(st.sampled_from([OperationFunction.SEND, OperationFunction.POLL, OperationFunction.COMMIT]))
        outcome = OperationType.OK
        if kind is OperationFunction.SEND:
            outcome = draw(st.sampled_from([OperationType.OK, OperationType.INFO, OperationType.FAIL]))
        began, ended = draw(SPANS)
        rows.append(operation(kind, outcome, number, number, began, ended, RECORDED, 0))
    for offset in range(draw(st.integers(0, 6))):
        stamp = draw(st.integers(0, 5))
        read = OperationFunction.POLL
        rows.append(operation(read, OperationType.OK, offset, offset, 50, 50, DRAINED, stamp))
    rows.append(operation(OperationFunction.BOUNDS, OperationType.OK, 0, 9, 50, 50, DRAINED, 0))
    return rows


def operation(
    kind: OperationFunction,
    outcome: OperationType,
    op: int,
    offset: int,
    began: int,
    ended: int,
    source: int,
    stamp: int,
) -> Row:
    return {
        "kind": int(kind),
        "outcome": int(outcome),
        "error": 0,
        "offset": offset,
        "op": op,
        "key_hash": 1,
        "value_hash": offset + 1,
        "timestamp_ms": stamp,
        "invoked_ns": began,
        "time_ns": ended,
        "client": 9,
        "source": source,
    }


@st.composite
def tapped(draw: st.DrawFn) -> list[Row]:
    """Batches that were appended, refused or delivered."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 6))):
        began, ended = draw(SPANS)
        error = draw(st.sampled_from([0, 19, 19]))
        stamp = draw(st.integers(0, 4))
        appended = not error or draw(st.integers(0, 3)) == 0  # the error came after the append
        base = draw(st.integers(0, 6)) if appended else -1
        rows.append(
            {
                "kind": draw(st.sampled_from([1, 1, 1, 2])),
                "flags": 0,
                "error": error,
                "client": draw(st.integers(0, 2)),
                "base_offset": base,
                "last_offset": base + int(appended),
                "crc": draw(st.integers(0, 9)),
                "count": draw(st.integers(0 if error else 1, 3)),
                "producer_id": draw(st.sampled_from([-1, 5])),
                "producer_epoch": draw(st.integers(0, 1)),
                "acks": -1,
                "base_sequence": draw(st.integers(0, 4)),
                "invoked_ns": began,
                "completed_ns": ended,
                "created_ns": draw(TIME),
                "base_timestamp_ms": stamp,
                "max_timestamp_ms": stamp + draw(st.integers(0, 2)),
                "node": number,
            }
        )
    return rows


@st.composite
def decisions(draw: st.DrawFn) -> list[Row]:
    """States that a coordinator recorded, by time; some are of a producer that sent nothing."""
    states = [TRANSACTION_ONGOING, PREPARE_COMMIT, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT]
    times = sorted(draw(st.lists(TIME, max_size=5)))
    return [
        {
            "state": draw(st.sampled_from(states)),
            "transactional_id": 1,
            "producer_id": draw(st.sampled_from([5, 6])),
            "producer_epoch": 0,
            "timeout_ms": 1,
            "time_ns": time_ns,
            "node": 1,
        }
        for time_ns in times
    ]


def inputs_of(ops: list[Row], batches: list[Row], job: PartitionJob, *, stamped: bool = False) -> PartitionInputs:
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    log: list[Row] = [dict.fromkeys(LOG_COLUMNS, 0) | {"crc_good": True, "attributes": 8}]
    frame = pl.DataFrame(log if stamped else [], schema=columns, orient="row")
    return arrange(
        job,
        pl.DataFrame(ops, schema=OPS_SCHEMA),
        pl.DataFrame(schema=OPS_SCHEMA),
        pl.DataFrame(batches, schema=BATCH_SCHEMA),
        {1: frame} if stamped else {},
        [],
    )


@examples(30, 750)
@given(
    ops=operations(),
    batches=tapped(),
    transactions=decisions(),
    windows=st.lists(SPANS, max_size=4).map(sorted),
    started_ns=st.sampled_from([0, 0, 4]),
    own=st.lists(st.integers(0, 2), max_size=1),
)
def test_each_fault_is_met_by_the_operations_of_the_oracle(
    ops: list[Row],
    batches: list[Row],
    transactions: list[Row],
    windows: list[tuple[int, int]],
    started_ns: int,
    own: list[int],
) -> None:
    job = PartitionJob(topic="t", partition=0, windows=windows, started_ns=started_ns, own_clients=own)
    inputs = inputs_of(ops, batches, job)
    inputs.coordinators.transactions = pl.DataFrame(transactions, schema=TRANSACTION_SCHEMA)
    found = judge_inputs(inputs)
    assert not [doubt for doubt in found.unknown if "crashed" in doubt]
    spans = operation_spans(ops, batches, started_ns=started_ns, own_clients=own, transactions=transactions)
    if not spans:
        assert found.traffic is None
        return
    each, any_fault = met(spans, windows)
    assert found.traffic == PartitionTraffic(
        began_ns=min(began for began, _ in spans),
        ended_ns=max(ended for _, ended in spans),
        met=each,
        met_any=any_fault,
    )


@examples(30, 750)
@given(ops=operations(), batches=tapped(), stamped=st.booleans())
def test_refused_records_that_the_log_lacks_are_those_of_the_oracle(
    ops: list[Row], batches: list[Row], stamped: bool
) -> None:
    job = PartitionJob(topic="t", partition=0)
    found = judge_inputs(inputs_of(ops, batches, job, stamped=stamped))
    assert not [doubt for doubt in found.unknown if "crashed" in doubt]
    result = found.result()
    assert PartitionResult.from_json(json.loads(json.dumps(result.to_json()))) == result, "as it leaves a task"
    expected = refused_records(ops, [], batches, identify=not stamped)
    lacking = {row.client: row.records for row in (found.refused.lacking if found.refused else ())}
    assert lacking == expected
