"""The kernels of transactions and groups find what the plain-Python oracle finds in random histories (L1, L2, L6)."""

from __future__ import annotations

from typing import Any

import polars as pl
from harrow.harness.checks.kernels import groups, transactions
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import (
    BATCH_SCHEMA,
    MEMBER_SCHEMA,
    OFFSET_SCHEMA,
    OPS_SCHEMA,
    TRANSACTION_SCHEMA,
    CoordinatorRows,
    arrange,
)
from harrow.harness.checks.oracle_of_transactions import TransactionOracle
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.checks.segments import LOG_COLUMNS
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED
from hypothesis import given, settings
from hypothesis import strategies as st

Row = dict[str, Any]
SECOND = 10**9
TIMES = st.sampled_from([*range(1, 12), 20 * SECOND, 50 * SECOND])
CHECKS = (
    transactions.committed_reads,
    transactions.torn_transactions,
    transactions.stuck,
    groups.owners,
    groups.regressions,
    groups.beyond_the_end,
)


@st.composite
def log(draw: st.DrawFn) -> list[Row]:
    """A replica's log of two transactional producers, with markers."""
    rows: list[Row] = []
    offset = 0
    for _ in range(draw(st.integers(0, 7))):
        is_marker = draw(st.booleans())
        last = offset if is_marker else offset + draw(st.integers(0, 1))
        attributes = (
            0x30 | draw(st.sampled_from([0, 0x10000]))
            if is_marker
            else draw(st.sampled_from([0, 0x10, 0x10]))
        )
        rows.append(
            {
                "base_offset": offset, "last_offset": last, "leader_epoch": 1, "crc": draw(st.integers(0, 2)),
                "crc_good": True, "attributes": attributes, "max_timestamp_ms": 0,
                "producer_id": draw(st.sampled_from([5, 5, 5, 6])), "producer_epoch": draw(st.sampled_from([0, 0, 1])),
                "base_sequence": draw(st.integers(0, 2)), "count": last - offset + 1, "position": 0, "segment": 0,
            }
        )  # fmt: skip
        offset = last + 1
    return rows


SEEN = st.tuples(
    st.integers(0, 6), st.integers(1, 2), st.sampled_from([0, 2, 2, 2, 6]), TIMES, st.booleans()
)
"""A batch of the log by its number, what the tap has of it, flags, time, and whether the tap has other bytes."""


def tapped(rows: list[Row], seen: list[tuple[int, int, int, int, bool]]) -> list[Row]:
    """Return what a tap has of batches of the log."""
    found: list[Row] = []
    data = [row for row in rows if not row["attributes"] & 0x20]
    for number, kind, flags, time, other in seen:
        if number >= len(data):
            continue
        row = data[number]
        same = (
            "base_offset",
            "last_offset",
            "count",
            "producer_id",
            "producer_epoch",
            "base_sequence",
        )
        found.append(
            {
                **{name: row[name] for name in same}, "kind": kind, "flags": flags if kind == 2 else 0, "error": 0,
                "client": number % 2, "crc": row["crc"] + other, "acks": -1, "invoked_ns": time, "completed_ns": time,
                "created_ns": time, "base_timestamp_ms": 0, "max_timestamp_ms": 0, "node": 1,
            }
        )  # fmt: skip
    return found


STATES = st.fixed_dictionaries(
    {
        "state": st.integers(1, 5),
        "transactional_id": st.just(0),
        "producer_id": st.sampled_from([5, 5, 5, 6]),
        "producer_epoch": st.sampled_from([0, 0, 1]),
        "timeout_ms": st.sampled_from([1, 60_000]),
        "time_ns": TIMES,
        "node": st.just(1),
    }
)
OFFSETS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, 1, 1, 2, 3]),
        "error": st.sampled_from([0, 0, 0, 0, 7]),
        "group": st.sampled_from([0, 0, 0, 1]),
        "client": st.integers(0, 1),
        "member": st.integers(0, 1),
        "generation": st.sampled_from([1, 2, 2, -1]),
        "offset": st.integers(0, 9),
        "producer_id": st.just(-1),
        "invoked_ns": TIMES,
        "lasts": st.integers(0, 2),
        "node": st.integers(1, 2),
    }
).map(lambda row: {**row, "completed_ns": row["invoked_ns"] + row["lasts"]})
MEMBERS = st.fixed_dictionaries(
    {
        "kind": st.sampled_from([1, 1, 2]),
        "group": st.sampled_from([0, 0, 0, 1]),
        "member": st.integers(0, 2),
        "client": st.just(0),
        "generation": st.integers(1, 2),
        "time_ns": TIMES,
        "node": st.just(1),
    }
)


def frame(rows: list[Row], schema: dict[str, Any]) -> pl.DataFrame:
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema)


def kernels_find(
    batches: list[Row], rows: list[Row], states: list[Row], offsets: list[Row], members: list[Row], *, end_ns: int,
    high: int, windows: list[tuple[int, int]],
) -> set[tuple[str, tuple[int, ...]]]:  # fmt: skip
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    job = PartitionJob(topic="t", partition=0, limit=1000, windows=windows)
    final = [
        {
            **dict.fromkeys(OPS_SCHEMA, 0), "kind": int(OperationFunction.BOUNDS), "offset": high, "time_ns": end_ns,
            "outcome": int(OperationType.OK), "source": DRAINED,
        }
    ] if end_ns else []  # fmt: skip
    inputs = arrange(
        job, frame(final, OPS_SCHEMA), frame([], OPS_SCHEMA), frame(batches, BATCH_SCHEMA), {1: frame(rows, columns)},
        [],
    )  # fmt: skip
    inputs.coordinators = CoordinatorRows(
        transactions=frame(states, TRANSACTION_SCHEMA),
        offsets=frame(offsets, OFFSET_SCHEMA),
        members=frame(members, MEMBER_SCHEMA),
    ).since(0)
    findings = PartitionFindings("t", 0, 1000)
    for check in CHECKS:
        check(inputs, findings)
    return {(row["name"], tuple(sorted(row["offsets"]))) for row in findings.result()["anomalies"]}


@settings(max_examples=400, deadline=None)
@given(
    seen=st.lists(SEEN, max_size=6),
    rows=log(),
    states=st.lists(STATES, max_size=4),
    offsets=st.lists(OFFSETS, max_size=7),
    members=st.lists(MEMBERS, max_size=6),
    end_ns=st.sampled_from([0, 30, 60 * SECOND, 200 * SECOND]),
    high=st.integers(0, 8),
    windows=st.sampled_from([[], [(1, 15 * SECOND)]]),
)
def test_kernels_find_the_same_anomalies_as_the_oracle(
    seen: list[tuple[int, int, int, int, bool]], rows: list[Row], states: list[Row], offsets: list[Row],
    members: list[Row], end_ns: int, high: int, windows: list[tuple[int, int]],
) -> None:  # fmt: skip
    batches = tapped(rows, seen)
    found = kernels_find(
        batches, rows, states, offsets, members, end_ns=end_ns, high=high, windows=windows
    )
    oracle = TransactionOracle(
        batches, rows, states, offsets, members, end_ns=end_ns, high=high if end_ns else None,
        healed_ns=max((end for _, end in windows if end <= end_ns), default=0),
    )  # fmt: skip
    assert found == oracle.judge()
