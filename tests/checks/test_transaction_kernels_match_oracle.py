"""The kernels of transactions and groups find what the plain-Python oracle finds in random histories (L1, L2, L6)."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_transactions import TransactionOracle
from transaction_histories import SECOND, anomalies_of, kernels_find

Row = dict[str, Any]
TIMES = st.sampled_from([*range(1, 12), 20 * SECOND, 50 * SECOND])


@st.composite
def log(draw: st.DrawFn) -> list[Row]:
    """A replica's log of two transactional producers, with markers."""
    rows: list[Row] = []
    offset = 0
    for _ in range(draw(st.integers(0, 7))):
        is_marker = draw(st.booleans())
        last = offset if is_marker else offset + draw(st.integers(0, 1))
        attributes = 0x30 | draw(st.sampled_from([0, 0x10000])) if is_marker else draw(st.sampled_from([0, 0x10, 0x10]))
        rows.append(
            {
                "base_offset": offset,
                "last_offset": last,
                "leader_epoch": 1,
                "crc": draw(st.integers(0, 2)),
                "crc_good": True,
                "attributes": attributes,
                "max_timestamp_ms": 0,
                "producer_id": draw(st.sampled_from([5, 5, 5, 6])),
                "producer_epoch": draw(st.sampled_from([0, 0, 1])),
                "base_sequence": draw(st.integers(0, 2)),
                "count": last - offset + 1,
                "position": 0,
                "segment": 0,
            }
        )
        offset = last + 1
    return rows


SEEN = st.tuples(st.integers(0, 6), st.integers(1, 2), st.sampled_from([0, 2, 2, 2, 6]), TIMES, st.booleans())
"""A batch of the log by its number, what the tap has of it, flags, time, and whether the tap has other bytes."""


def tapped(rows: list[Row], seen: list[tuple[int, int, int, int, bool]]) -> list[Row]:
    """Return what a tap has of batches of the log."""
    found: list[Row] = []
    data = [row for row in rows if not row["attributes"] & 0x20]
    for number, kind, flags, time, other in seen:
        if number >= len(data):
            continue
        row = data[number]
        same = ("base_offset", "last_offset", "count", "producer_id", "producer_epoch", "base_sequence")
        found.append(
            {
                **{name: row[name] for name in same},
                "kind": kind,
                "flags": flags if kind == 2 else 0,
                "error": 0,
                "client": number % 2,
                "crc": row["crc"] + other,
                "acks": -1,
                "invoked_ns": time,
                "completed_ns": time,
                "created_ns": time,
                "base_timestamp_ms": 0,
                "max_timestamp_ms": 0,
                "node": 1,
            }
        )
    return found


STATES = st.fixed_dictionaries(
    {
        "state": st.sampled_from([1, 2, 3, 4, 5, 16]),
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
        "producer_id": st.sampled_from([-1, -1, 5]),
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
        "leader_epoch": st.integers(1, 2),
        "instance": st.sampled_from([0, 0, 5, 6]),
        "time_ns": TIMES,
        "node": st.just(1),
    }
)


@examples(60, 2_000)
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
    seen: list[tuple[int, int, int, int, bool]],
    rows: list[Row],
    states: list[Row],
    offsets: list[Row],
    members: list[Row],
    end_ns: int,
    high: int,
    windows: list[tuple[int, int]],
) -> None:
    batches = tapped(rows, seen)
    found = kernels_find(batches, rows, states, offsets, members, end_ns=end_ns, high=high, windows=windows)
    oracle = TransactionOracle(
        batches,
        rows,
        states,
        offsets,
        members,
        end_ns=end_ns,
        high=high if end_ns else None,
        healed_ns=max((end for _, end in windows if end <= end_ns), default=0),
    )
    assert anomalies_of(found) == oracle.judge()
