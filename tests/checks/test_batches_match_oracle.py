"""The checks of batches without a request and of their order in real time find what their oracle finds (L1, L6)."""

from __future__ import annotations

from typing import Any

import polars as pl
from harrow.harness.checks.kernels import real_time, unsent_batches
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA, PRODUCED, arrange
from harrow.harness.checks.log_changes import Leadership, LogChanges
from harrow.harness.checks.oracle_of_batches import batches_out_of_place
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED, RECORDED
from harrow.harness.histories.segments import LOG_COLUMNS
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

Row = dict[str, Any]
END_NS = unsent_batches.SETTLED_NS + 20
TIMES = st.integers(0, 11)


def batch(offset: int, number: int, *, sequenced: bool, epoch: int, attributes: int) -> Row:
    """A batch of one record in a log, whose CRC is its number."""
    return {
        "base_offset": offset,
        "last_offset": offset,
        "leader_epoch": epoch,
        "crc": number,
        "crc_good": True,
        "attributes": attributes,
        "max_timestamp_ms": 0,
        "producer_id": 5 if sequenced else -1,
        "producer_epoch": 0 if sequenced else -1,
        "base_sequence": number if sequenced else -1,
        "count": 1,
        "position": 0,
        "segment": 0,
    }


def asked(of: Row, offset: int, error: int, crc: int, began: int, took: int, records: int) -> Row:
    """A request with a batch, as the tap of broker 1 saw it."""
    base = -1 if error else offset
    return {
        "kind": PRODUCED,
        "flags": 0,
        "error": error,
        "client": 0,
        "base_offset": base,
        "last_offset": base,
        "crc": crc,
        "count": records,
        "producer_id": of["producer_id"],
        "producer_epoch": of["producer_epoch"],
        "acks": -1,
        "base_sequence": of["base_sequence"],
        "invoked_ns": began,
        "completed_ns": began + took,
        "created_ns": began,
        "base_timestamp_ms": 0,
        "max_timestamp_ms": 0,
        "node": 1,
    }


def operation(kind: OperationFunction, offset: int, source: int, outcome: OperationType) -> Row:
    """A recorded send, or a row of the final read; the content is the offset."""
    return {
        "kind": int(kind),
        "outcome": int(outcome),
        "error": 0,
        "offset": offset,
        "op": max(offset, 0),
        "key_hash": 1,
        "value_hash": offset,
        "timestamp_ms": 0,
        "invoked_ns": 0,
        "time_ns": 0,
        "client": 0,
        "source": source,
    }


@st.composite
def stories(draw: st.DrawFn) -> tuple[list[Row], list[Row], list[Row]]:
    """A log of a few batches, the requests of most of them, and operations of recorders."""
    log: list[Row] = []
    rows: list[Row] = []
    for number in range(draw(st.integers(2, 5))):
        own = batch(
            number,
            number,
            sequenced=draw(st.booleans()),
            epoch=draw(st.sampled_from([1] * 5 + [2])),
            attributes=draw(st.sampled_from([0] * 10 + [0x08, 0x20])),
        )
        log.append(own)
        result = draw(st.sampled_from(["responded", "responded", "refused", "none"]))
        for _ in range(0 if result == "none" else draw(st.sampled_from([1, 1, 2]))):
            offset = number if draw(st.integers(0, 9)) else number + 1
            crc = number if draw(st.integers(0, 9)) else 99
            error = draw(st.sampled_from([10, 10, 87, 6])) if result == "refused" else 0
            records = draw(st.sampled_from([1] * 5 + [2]))
            rows.append(asked(own, offset, error, crc, draw(TIMES), draw(TIMES), records))
    final = [
        operation(OperationFunction.POLL, at, DRAINED, OperationType.OK)
        for at in range(len(log))
        if draw(st.integers(0, 9))
    ]
    bounds = operation(OperationFunction.BOUNDS, len(log), DRAINED, OperationType.OK)
    bounds |= {"op": draw(st.sampled_from([0, 0, 0, 2])), "time_ns": END_NS}
    sends = [
        operation(OperationFunction.SEND, at, RECORDED, draw(st.sampled_from([OperationType.OK, OperationType.FAIL])))
        for at in draw(st.lists(st.integers(0, 6), max_size=1))
    ]
    return log, rows, [*sends, *final, bounds]


@examples(150, 3_000)
@given(
    story=stories(),
    changes=st.builds(
        LogChanges,
        created_ns=st.sampled_from([0] * 8 + [1]),
        cleaned_end=st.sampled_from([0, 0, 0, 2]),
        leaderships=st.sampled_from(
            [
                *[[Leadership(1, 1, 0, 0), Leadership(2, 1, 0, 5)]] * 4,
                [Leadership(1, 1, 1, 0), Leadership(2, 2, 0, 5)],
                [Leadership(1, 1, 0, 0), Leadership(1, 2, 0, 5)],
                [Leadership(1, 1, 3, 9), Leadership(1, 1, 0, 5)],
                [],
            ]
        ),
    ),
    whole_taps=st.sampled_from([[1], [1], [1, 2], []]),
    other=st.sampled_from([False, False, True]),
)
def test_kernels_of_batches_find_the_same_anomalies_as_their_oracle(
    story: tuple[list[Row], list[Row], list[Row]], changes: LogChanges, whole_taps: list[int], other: bool
) -> None:
    log, rows, ops = story
    changed = [{**log[0], "crc": 7}, *log[1:]]
    logs = {1: log, 2: changed if other else log}
    rows = [row for row in rows if row["completed_ns"] >= changes.created_ns]
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    job = PartitionJob(
        topic="t",
        partition=0,
        limit=100,
        whole_taps=whole_taps,
        leaderships=changes.leaderships,
        cleaned_end=changes.cleaned_end,
        created_ns=changes.created_ns,
    )
    inputs = arrange(
        job,
        pl.DataFrame(ops, OPS_SCHEMA),
        pl.DataFrame(schema=OPS_SCHEMA),
        pl.DataFrame(rows, BATCH_SCHEMA),
        {node: pl.DataFrame(of, columns) for node, of in logs.items()},
        [],
    )
    found = PartitionFindings("t", 0, 100)
    real_time.batches_in_real_time_order(inputs, found)
    unsent_batches.batches_without_request(inputs, found)
    kept = [row for row in ops if row["source"] == DRAINED or not changes.created_ns]
    sends = [row for row in kept if row["kind"] == OperationFunction.SEND]
    expected = batches_out_of_place(
        rows,
        logs,
        {row["offset"]: row for row in kept if row["kind"] == OperationFunction.POLL},
        [row for row in sends if row["outcome"] == OperationType.FAIL],
        [row for row in sends if row["outcome"] == OperationType.OK],
        changes=changes,
        low=ops[-1]["op"],
        end_ns=END_NS,
        whole_taps=whole_taps,
    )
    assert {(row.name, tuple(sorted(row.offsets))) for row in found.shown} == set(expected)
