"""The vectorised kernels find exactly what the plain-Python oracle finds in small random histories with errors (L6)."""

from __future__ import annotations

import json
from typing import Any

import polars as pl
from harrow.harness.checks.kernels import judge_inputs
from harrow.harness.checks.kernels.inputs import (
    BATCH_SCHEMA,
    OPS_SCHEMA,
    PRODUCED,
    TRANSACTION_SCHEMA,
    arrange,
    rows_outside,
)
from harrow.harness.checks.kernels.unsent_batches import SETTLED_NS
from harrow.harness.checks.log_changes import NOT_TRACED, CleaningBegun, Leadership, LogChanges, Removal
from harrow.harness.checks.oracle import Oracle
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.rows import PartitionResult
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED, RECORDED
from harrow.harness.histories.segments import LOG_COLUMNS
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples

Row = dict[str, Any]
OFFSETS = st.integers(-1, 6)
SMALL = st.integers(0, 2)
JUDGED_ELSEWHERE = frozenset({"aborted-read", "precommitted-read", "torn-transaction", "stuck-lso"}) | {
    "stuck-transaction",
    "resend-in-doubt",
}
"""By the oracle of transactions, in `test_transaction_kernels_match_oracle.py`, and in `test_resent_records.py`."""


@st.composite
def operations(draw: st.DrawFn) -> list[Row]:
    """Sends, reads, breaks and perhaps a final read; often wrong."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 8))):
        kind = draw(
            st.sampled_from(
                [OperationFunction.SEND, OperationFunction.SEND, OperationFunction.POLL, OperationFunction.BREAK]
            )
        )
        outcome = draw(st.sampled_from([OperationType.OK, OperationType.OK, OperationType.INFO, OperationType.FAIL]))
        sent = kind is OperationFunction.SEND
        row = operation(
            kind,
            number,
            draw(OFFSETS if sent else st.integers(0, 6)),
            draw(SMALL),
            draw(SMALL),
            outcome=OperationType.OK if kind is OperationFunction.BREAK else outcome,
            client=draw(st.integers(0, 1)),
        )
        # reads of one transaction have its begin
        begun = draw(st.sampled_from([number, number // 3 * 3]))
        ended = number + draw(st.sampled_from([0, 0, 3]))
        rows.append({**row, "invoked_ns": begun, "time_ns": ended})
    if draw(st.integers(0, 3)):
        final = draw(st.lists(st.tuples(st.integers(0, 6), SMALL, SMALL), max_size=6, unique_by=lambda row: row[0]))
        if draw(st.booleans()):  # mostly as it was sent
            taken = {place[0] for place in final[:2]}
            own = {r["offset"]: r for r in rows if r["kind"] == OperationFunction.SEND}
            final = final[:2] + [
                (at, r["key_hash"], r["value_hash"]) for at, r in own.items() if at >= 0 and at not in taken
            ]
        rows += [operation(OperationFunction.POLL, o, o, k, v, source=DRAINED) for o, k, v in final]
        low = draw(st.sampled_from([0, 0, 0, 2]))
        to_the_end = draw(st.sampled_from([OperationType.OK, OperationType.OK, OperationType.INFO]))
        bounds = operation(
            OperationFunction.BOUNDS, low, draw(st.integers(0, 7)), 0, 0, outcome=to_the_end, source=DRAINED
        )
        # the last batches may still wait for their responses
        rows.append({**bounds, "time_ns": draw(st.sampled_from([low, SETTLED_NS + 2, SETTLED_NS + 9]))})
    return rows


def operation(
    kind: OperationFunction,
    op: int,
    offset: int,
    key: int,
    value: int,
    *,
    outcome: OperationType = OperationType.OK,
    client: int = 0,
    source: int = RECORDED,
) -> Row:
    return {
        "kind": int(kind),
        "outcome": int(outcome),
        "error": 0,
        "offset": offset,
        "op": op,
        "key_hash": key,
        "value_hash": value,
        "timestamp_ms": op % 3 - 1,
        "invoked_ns": op,
        "time_ns": op,
        "client": client,
        "source": source,
    }


@st.composite
def tapped(draw: st.DrawFn) -> list[Row]:
    """Batches that a tap saw."""
    rows: list[Row] = []
    for number in range(draw(st.integers(0, 4))):
        kind, base = draw(st.integers(1, 2)), draw(OFFSETS)
        error = draw(st.sampled_from([0, 0, 6, 10])) if kind == PRODUCED else 0
        base, last = (-1, -1) if error else (max(base, 0), max(base, 0) + draw(st.integers(0, 1)))
        rows.append(
            {
                "kind": kind,
                "flags": draw(st.sampled_from([0, 0, 1])),
                "error": error,
                "client": 0,
                "base_offset": base,
                "last_offset": last,
                "crc": draw(SMALL),
                "count": 1,
                "producer_id": draw(st.sampled_from([-1, 5])),
                "producer_epoch": 0,
                "acks": -1,
                "base_sequence": draw(st.integers(0, 3)),
                "invoked_ns": number,
                "completed_ns": number,
                "created_ns": number,
                "base_timestamp_ms": 0,
                "max_timestamp_ms": 0,
                "node": 1,
            }
        )
    return rows


@st.composite
def log(draw: st.DrawFn) -> list[Row]:
    """One replica's log: mostly contiguous, sometimes not, sometimes damaged."""
    rows: list[Row] = []
    offset = draw(st.sampled_from([0, 0, 1]))
    for _ in range(draw(st.integers(0, 4))):
        last = offset + draw(st.integers(0, 1))
        pid = draw(st.sampled_from([-1, 5]))
        rows.append(
            {
                "base_offset": offset,
                "last_offset": last,
                "leader_epoch": draw(st.sampled_from([1, 1, 1, 2])),
                "crc": draw(SMALL),
                "crc_good": draw(st.sampled_from([True, True, True, False])),
                "attributes": draw(st.sampled_from([0, 0, 0, 0x10])),
                "max_timestamp_ms": 0,
                "producer_id": pid,
                "producer_epoch": draw(st.integers(0, 1)),
                "base_sequence": draw(st.integers(0, 3)) if pid >= 0 else -1,
                "count": last - offset + 1,
                "position": 0,
                "segment": 0,
            }
        )
        offset = last + draw(st.sampled_from([1, 1, 1, 2]))
    return rows


def epoch_cache() -> st.SearchStrategy[list[tuple[int, int]]]:
    """A leader epoch cache: epochs and start offsets that increase."""
    starts = st.lists(st.integers(0, 6), max_size=3, unique=True).map(sorted)
    return starts.map(lambda found: list(enumerate(found, 1)))


TIME_MS = st.sampled_from([0, 1_500, 4_000])
LIMIT_MS = st.sampled_from([-1, 0, 2_000, 4_500, NOT_TRACED])


def removal(node: int, base: int, size: int, reason: str, ms: int, keep_ms: int, keep_bytes: int, left: int) -> Removal:
    return Removal(node, base, base + size, reason, ms * 1_000_000, ms, keep_ms, keep_bytes, left)


def removals() -> st.SearchStrategy[Removal]:
    """Segments that a replica removed, for each reason, too early and in time."""
    reasons = st.sampled_from(["retention.ms", "retention.bytes", "log start offset"])
    return st.builds(
        removal,
        st.integers(0, 2),
        st.integers(0, 4),
        st.integers(1, 3),
        reasons,
        TIME_MS,
        LIMIT_MS,
        st.sampled_from([-1, 0, 100]),
        st.sampled_from([50, 150]),
    )


def cleaning(end: int, ms: int, tombstone_ms: int, lag_ms: int) -> CleaningBegun:
    return CleaningBegun(end, ms * 1_000_000, ms, tombstone_ms, lag_ms)


def cleanings() -> st.SearchStrategy[CleaningBegun]:
    """Passes of log cleaners."""
    return st.builds(cleaning, st.integers(0, 6), TIME_MS, LIMIT_MS, LIMIT_MS)


def leaderships() -> st.SearchStrategy[list[Leadership]]:
    """Elections; one with an older epoch may come late."""
    return st.lists(
        st.builds(Leadership, st.integers(0, 3), st.integers(0, 2), st.integers(0, 7), st.integers(0, 8)), max_size=4
    )


def decision(state: int, at: int) -> Row:
    return {
        "state": state,
        "transactional_id": 0,
        "producer_id": 5,
        "producer_epoch": 0,
        "timeout_ms": 1,
        "time_ns": at,
        "node": 1,
    }


def decisions() -> st.SearchStrategy[list[Row]]:
    """What the coordinators decided of the transactions of the tapped producer."""
    made = st.builds(decision, st.sampled_from([1, 2, 3, 4, 5, 16]), st.integers(0, 8))
    return st.lists(made, max_size=3, unique_by=_time_of)


def _time_of(row: Row) -> int:
    at: int = row["time_ns"]
    return at


def frame(rows: list[Row], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame(rows, schema=schema, orient="row")


@examples(60, 1_000)
@given(
    ops=operations(),
    pending=st.lists(
        st.builds(
            operation,
            st.just(OperationFunction.SEND),
            st.just(99),
            st.just(-1),
            SMALL,
            SMALL,
            outcome=st.sampled_from([OperationType.INFO, OperationType.FAIL]),
        ),
        max_size=2,
    ),
    batches=tapped(),
    logs=st.lists(log(), max_size=3),
    same=st.booleans(),
    epochs=st.dictionaries(st.integers(0, 2), epoch_cache(), max_size=3),
    changes=st.builds(
        LogChanges,
        created_ns=st.sampled_from([0, 0, 0, 3]),
        cleaned_end=st.sampled_from([0, 0, 0, 2, 5]),
        deleted_heads=st.dictionaries(st.integers(0, 2), st.integers(0, 3), max_size=2),
        removals=st.lists(removals(), max_size=2),
        cleanings=st.lists(cleanings(), max_size=2),
        leaderships=leaderships(),
        unclean_epochs=st.sampled_from([[], [], [2]]),
        wrong_clocks=st.sampled_from([False, False, True]),
    ),
    decided=decisions(),
    all_sends=st.booleans(),
    reads_committed=st.sampled_from([True, True, False]),
    whole_taps=st.lists(st.integers(0, 2), unique=True),
)
def test_kernels_find_the_same_anomalies_as_the_oracle(
    ops: list[Row],
    pending: list[Row],
    batches: list[Row],
    logs: list[list[Row]],
    same: bool,
    epochs: dict[int, list[tuple[int, int]]],
    changes: LogChanges,
    decided: list[Row],
    all_sends: bool,
    reads_committed: bool,
    whole_taps: list[int],
) -> None:
    replicas = dict(enumerate([logs[0]] * len(logs) if same and logs else logs))
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    inputs = arrange(
        PartitionJob(
            topic="t",
            partition=0,
            limit=1000,
            created_ns=changes.created_ns,
            cleaned_end=changes.cleaned_end,
            deleted_heads={str(node): base for node, base in changes.deleted_heads.items()},
            removals=changes.removals,
            cleanings=changes.cleanings,
            leaderships=changes.leaderships,
            unclean_epochs=changes.unclean_epochs,
            wrong_clocks=changes.wrong_clocks,
            all_sends=all_sends,
            reads_committed=reads_committed,
            whole_taps=whole_taps,
        ),
        frame(ops, OPS_SCHEMA),
        frame(pending, OPS_SCHEMA),
        frame(batches, BATCH_SCHEMA),
        {node: frame(rows, columns) for node, rows in replicas.items()},
        [],
    )
    inputs.epochs = {node: entries for node, entries in epochs.items() if node in replicas}
    inputs.coordinators.transactions = frame(decided, TRANSACTION_SCHEMA)
    found = judge_inputs(inputs)
    assert not [doubt for doubt in found.unknown if "crashed" in doubt]
    result = found.result()
    assert PartitionResult.from_json(json.loads(json.dumps(result.to_json()))) == result, "as it leaves a task"
    kernels = {(row.name, tuple(sorted(row.offsets))) for row in found.shown if row.name not in JUDGED_ELSEWHERE}
    oracle = Oracle(
        ops,
        pending,
        batches,
        replicas,
        changes=changes,
        epochs=inputs.epochs,
        decisions=decided,
        all_sends=all_sends,
        reads_committed=reads_committed,
        whole_taps=whole_taps,
    )
    assert kernels == oracle.judge()
    for doubt in ("below the log start offset", "compaction has cleaned", "in the log several times"):
        assert any(doubt in text for _, text in found.doubts) == (doubt in oracle.doubts())


RANGES = st.tuples(st.integers(0, 20), st.integers(0, 6)).map(lambda pair: (pair[0], sum(pair)))


@given(ranges=st.lists(RANGES, max_size=6).map(sorted), offsets=st.lists(st.integers(-2, 30), max_size=12).map(sorted))
def test_rows_within_ranges_of_offsets_are_left_out(ranges: list[tuple[int, int]], offsets: list[int]) -> None:
    left = rows_outside(ranges, pl.DataFrame({"offset": offsets}, schema={"offset": pl.Int64}))
    outside = [at for at in offsets if not any(first <= at <= last for first, last in ranges)]
    assert left["offset"].to_list() == outside
