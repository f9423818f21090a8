"""What share groups did with records: what is legal, and what is found (KIP-932, L2, L6)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from oracle_of_shares import share_anomalies
from share_histories import (
    ACCEPTED,
    ACQUIRED,
    ARCHIVED,
    COPIED,
    EXPIRED,
    LOADED,
    REJECTED,
    RELEASED,
    RENEWED,
    SECOND,
    Row,
    anomalies_of,
    doubts_of,
    kernels_find,
    shared,
)

UNKNOWN, NOT_LEADER, INVALID_STATE = 7, 6, 121
Story = tuple[list[Row], range]
"""Rows and the offsets of the final read."""
LATER = [shared(ACQUIRED, at, 50 + at, member=2) for at in (41, 42, 43)]
"""Fetches of later records, after a lock that began in the first seconds has ended."""
LEGAL: dict[str, Story] = {
    "a record that is delivered and accepted": (
        [shared(LOADED, 0, 0), shared(ACQUIRED, 1, 0, 9), shared(ACCEPTED, 2, 0, 9)],
        range(10),
    ),
    "a released record goes to another member": (
        [shared(ACQUIRED, 1, 5), shared(RELEASED, 2, 5), shared(ACQUIRED, 3, 5, member=2, count=2)],
        range(10),
    ),
    "the row of a release comes after that of the next acquisition": (
        [shared(ACQUIRED, 1, 5), shared(ACQUIRED, 3, 5, member=2, count=2), shared(RELEASED, 3.1, 5, lasts=1)],
        range(10),
    ),
    "a lock that expired": (
        [shared(ACQUIRED, 1, 5), shared(EXPIRED, 31, 5), shared(ACQUIRED, 31.1, 5, member=2, count=2)],
        range(10),
    ),
    "a lock that expired, and no row says so": (
        [shared(ACQUIRED, 1, 5), shared(ACQUIRED, 31.1, 5, member=2, count=2)],
        range(10),
    ),
    "a lock of which the end is not known": (
        [shared(ACQUIRED, 1, 5, lock=0), shared(ACQUIRED, 3, 5, member=2, count=2)],
        range(10),
    ),
    "a new leader delivers again what was acquired": (
        [
            shared(ACQUIRED, 1, 5),
            shared(LOADED, 2, 0, epoch=2, node=2),
            shared(ACQUIRED, 3, 5, member=2, epoch=2, node=2),
        ],
        range(10),
    ),
    "a new leader delivers again what was acquired, without a row": (
        [shared(ACQUIRED, 1, 5), shared(ACQUIRED, 3, 5, member=2, epoch=2, node=2)],
        range(10),
    ),
    "a leader loaded the share-partition again": (
        [shared(ACQUIRED, 1, 5), shared(LOADED, 2, 0), shared(ACQUIRED, 3, 5, member=2)],
        range(10),
    ),
    "an acceptance without an answer": (
        [shared(ACQUIRED, 1, 5), shared(ACCEPTED, 2, 5, error=UNKNOWN), shared(ACQUIRED, 33, 5, member=2, count=2)],
        range(10),
    ),
    "an acceptance that was refused": (
        [
            shared(ACQUIRED, 1, 5),
            shared(EXPIRED, 31, 5),
            shared(ACCEPTED, 32, 5, error=INVALID_STATE),
            shared(ACQUIRED, 33, 5, member=2, count=2),
        ],
        range(10),
    ),
    "an acceptance that may have been stored": (
        [shared(ACQUIRED, 1, 5), shared(ACCEPTED, 2, 5, error=UNKNOWN), *LATER],
        range(5, 6),
    ),
    "a group that began behind the record": (
        [shared(LOADED, 0, 40), shared(ACQUIRED, 1, 40), shared(ACCEPTED, 2, 40), *LATER],
        range(41),
    ),
    "the start of a group is chosen again before anything is stored": (
        [
            shared(LOADED, 0, 0),
            shared(ACQUIRED, 1, 0, 9),
            shared(LOADED, 2, 40, epoch=2),
            *[{**row, "leader_epoch": 2} for row in LATER],
        ],
        range(10, 40),
    ),
    "a dead letter without the row of its rejection": (
        [shared(LOADED, 0, 0), shared(ACQUIRED, 1, 5), shared(LOADED, 2, 5, epoch=2), shared(COPIED, 3, 5, epoch=2)],
        range(5, 6),
    ),
    "a record that is not in the topic any more": ([shared(LOADED, 0, 0), shared(ACQUIRED, 1, 5), *LATER], range(0)),
    "a member that holds a record when the run ends": (
        [shared(LOADED, 0, 5), shared(ACQUIRED, 1, 5), shared(ACQUIRED, 2, 6, 9, member=2)],
        range(5, 10),
    ),
    "a lock that was renewed": (
        [shared(ACQUIRED, 1, 5), shared(RENEWED, 30, 5), *LATER],
        range(5, 6),
    ),
    "records between those of a killed broker": (
        [shared(LOADED, 0, 0), *[shared(ACQUIRED, at, 5 + at) for at in (1, 2, 3, 4)]],
        range(9),
    ),
    "an archived record that a member rejected": (
        [shared(ACQUIRED, 1, 5, count=5), shared(REJECTED, 2, 5), shared(ARCHIVED, 3, 5)],
        range(5, 6),
    ),
    "what a session gave back at the limit is no more than given back": (
        [shared(ACQUIRED, 1, 5, count=5), shared(RELEASED, 2, 5)],
        range(5, 6),
    ),
}
WRONG: dict[str, tuple[Story, set[tuple[str, int]]]] = {
    "an accepted record is delivered again": (
        (
            [shared(ACQUIRED, 1, 0, 9), shared(ACCEPTED, 2, 0, 9), shared(ACQUIRED, 3, 8, 9, member=2, count=2)],
            range(0),
        ),
        {("redelivered-after-accept", 8), ("redelivered-after-accept", 9)},
    ),
    "the same by a new leader, and the response was lost": (
        (
            [
                shared(ACQUIRED, 1, 5),
                shared(ACCEPTED, 2, 5, flags=1),
                shared(ACQUIRED, 3, 5, epoch=2, node=2, member=2),
            ],
            range(0),
        ),
        {("redelivered-after-accept", 5)},
    ),
    "a sixth delivery": (([shared(ACQUIRED, 1, 5, count=6)], range(0)), {("over-delivered", 5)}),
    "two members hold a record": (
        ([shared(ACQUIRED, 1, 0, 5), shared(ACQUIRED, 2, 5, 9, member=2, count=2)], range(0)),
        {("wrong-lock", 5)},
    ),
    "the same, behind a renewal": (
        ([shared(ACQUIRED, 1, 5), shared(RENEWED, 30, 5), shared(ACQUIRED, 40, 5, member=2, count=2)], range(0)),
        {("wrong-lock", 5)},
    ),
    "a record is passed over": (
        ([shared(LOADED, 0, 0), shared(ACQUIRED, 1, 6), *LATER], range(5, 6)),
        {("never-delivered", 5)},
    ),
    "an expired record is not delivered again": (
        ([shared(ACQUIRED, 1, 5), shared(EXPIRED, 31, 5), *LATER], range(5, 6)),
        {("stuck-in-flight", 5)},
    ),
    "a lock does not expire": (([shared(ACQUIRED, 1, 5), *LATER], range(5, 6)), {("stuck-in-flight", 5)}),
    "a record is given up": (
        ([shared(ACQUIRED, 1, 5, count=5), shared(EXPIRED, 31, 5), shared(ARCHIVED, 31, 5)], range(5, 6)),
        {("given-up", 5)},
    ),
    "the same on a foreign broker": (
        ([shared(ACQUIRED, 1, 5, count=5, epoch=-1), shared(RELEASED, 2, 5, epoch=-1)], range(5, 6)),
        {("given-up", 5)},
    ),
}


@pytest.mark.parametrize("name", LEGAL)
def test_a_legal_history_has_no_anomaly(name: str) -> None:
    rows, visible = LEGAL[name]
    found = kernels_find(rows, visible)
    assert (anomalies_of(found), doubts_of(found)) == (set(), set())
    assert share_anomalies(rows, visible) == (set(), set())


@pytest.mark.parametrize("name", WRONG)
def test_a_wrong_history_has_its_anomaly(name: str) -> None:
    (rows, visible), wanted = WRONG[name]
    found = kernels_find(rows, visible)
    assert (anomalies_of(found), doubts_of(found)) == (wanted, set())
    assert share_anomalies(rows, visible) == (wanted, set())


def test_a_group_that_must_have_consumed_everything_is_held_to_every_record() -> None:
    rows = [
        shared(LOADED, 0, 2),
        shared(ACQUIRED, 1, 2, 5),
        shared(ACCEPTED, 2, 2, 3),
        shared(REJECTED, 2, 4),
        shared(ACCEPTED, 2, 5, error=INVALID_STATE),
    ]
    found = kernels_find(rows, range(8), claimed=True)
    assert anomalies_of(found) == {("stuck-in-flight", 5), ("never-delivered", 6), ("never-delivered", 7)}
    assert anomalies_of(kernels_find(rows, range(8))) == set()


def test_a_group_without_rows_cannot_have_been_judged() -> None:
    assert doubts_of(kernels_find([], range(3), claimed=True)) == {"never-delivered"}
    assert doubts_of(kernels_find([], range(0), claimed=True)) == set()
    assert doubts_of(kernels_find([shared(ACQUIRED, 1, 5)], range(7), claimed=True)) == {"never-delivered"}


def test_doubts_where_rows_are_missing() -> None:
    foreign = [shared(ACQUIRED, 1, 5, epoch=-1), shared(ACQUIRED, 2, 5, member=2, count=2, epoch=-1)]
    assert doubts_of(kernels_find(foreign)) == {"wrong-lock"}
    assert anomalies_of(kernels_find(foreign)) == set()
    released = [foreign[0], shared(RELEASED, 1.5, 0, 9, error=UNKNOWN, epoch=-1), foreign[1]]
    assert doubts_of(kernels_find(released)) == set()
    assert doubts_of(kernels_find([shared(ACQUIRED, 1, 5, count=3)], limit=0)) == {"over-delivered"}
    assert doubts_of(kernels_find([shared(ACQUIRED, 1, 5, count=2)], limit=0)) == set()
    again = [shared(ACQUIRED, 1, 5), shared(ACCEPTED, 2, 5), shared(ACQUIRED, 4, 5)]
    assert doubts_of(kernels_find(again, resets=[3])) == {"redelivered-after-accept"}
    assert anomalies_of(kernels_find(again, resets=[3])) == set()
    assert anomalies_of(kernels_find(again, resets=[5])) == {("redelivered-after-accept", 5)}


def test_a_finding_says_who_had_the_record_and_what_shows_it() -> None:
    (rows, _), _ = WRONG["two members hold a record"]
    (found,) = kernels_find(rows).result().anomalies
    assert [row["operation"] for row in found.operations] == ["ShareFetch", "ShareFetch"]
    assert [row["member"] for row in found.operations] == [1, 2]
    assert "".join(map(str, found.explanation)) == (
        "the record at offset 5 was delivered to a member while another member held it; share group 9: "
        "1 (ShareFetch on broker 1, delivery 1); 2 (ShareFetch on broker 1, delivery 2)"
    )


@st.composite
def histories(draw: st.DrawFn) -> list[Row]:
    """Rows that mostly make no sense: kernel and oracle must agree about them, too."""
    rows: list[Row] = []
    for _ in range(draw(st.integers(1, 12))):
        kind = draw(st.sampled_from([ACQUIRED, ACQUIRED, ACQUIRED, *range(1, 10)]))
        first = draw(st.integers(0, 5))
        rows.append(
            shared(
                kind,
                draw(st.integers(1, 90)) if kind == ACQUIRED else draw(st.integers(1, 50)),
                first,
                None if kind == LOADED else first + draw(st.integers(0, 3)),
                member=draw(st.integers(1, 2)),
                count=draw(st.sampled_from([0, 0, 2, 3, 5, 6])) if kind in (ACQUIRED, LOADED) else 0,
                epoch=draw(st.sampled_from([1, 1, 1, 2, -1])),
                node=draw(st.sampled_from([1, 1, 2])),
                error=draw(st.sampled_from([0, 0, UNKNOWN, NOT_LEADER, INVALID_STATE]))
                if kind in (2, 3, 4, 5, 7, 9)
                else 0,
                lock=draw(st.sampled_from([None, None, 0, 33])) if kind in (ACQUIRED, RENEWED) else None,
                lasts=draw(st.sampled_from([0.001, 2])),
            )
        )
    return rows


@given(
    histories(),
    st.sets(st.integers(0, 9)),
    st.sampled_from([0, 5]),
    st.booleans(),
    st.sampled_from([[], [], [20]]),
)
@examples(100, 5000)
def test_the_kernel_finds_what_the_oracle_finds(
    rows: list[Row], visible: set[int], limit: int, claimed: bool, resets: list[int]
) -> None:
    found = kernels_find(rows, visible, limit=limit, claimed=claimed, resets=resets)
    wanted = share_anomalies(rows, visible, limit=limit, claimed=claimed, resets=[at * SECOND for at in resets])
    assert (anomalies_of(found), doubts_of(found)) == wanted
