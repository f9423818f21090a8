"""Which offsets a fetch response begins from, across the requests of a session (J6, KIP-227)."""

from __future__ import annotations

from typing import Any

from harrow.cluster.proxy.fetch_sessions import SESSIONS_MOST, Asked, FetchSessions
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest


def fetch(session_id: int, epoch: int, *rows: tuple[str, int, int], forgotten: Any = ()) -> FetchRequest:
    partitions = [FetchPartition(t, p, -1, offset, -1, -1, 1024) for t, p, offset in rows]
    return FetchRequest(-1, -1, 0, 1, 1, 0, session_id, epoch, partitions, list(forgotten), "")


def offsets(asked: dict[Any, Asked]) -> dict[Any, int]:
    return {place: row.offset for place, row in asked.items()}


def test_a_session_keeps_the_offsets_of_partitions_that_a_request_does_not_name() -> None:
    sessions = FetchSessions()
    sessions.answered(7, sessions.asked(fetch(0, 0, ("t", 0, 5), ("t", 1, 6))))
    assert offsets(sessions.asked(fetch(7, 1, ("t", 1, 9)))) == {("t", 0): 5, ("t", 1): 9}
    assert offsets(sessions.asked(fetch(7, 2, forgotten=[("t", 0)]))) == {("t", 1): 9}


def test_a_session_keeps_the_leader_epochs_of_partitions_that_a_request_does_not_name() -> None:
    sessions = FetchSessions()
    row = FetchPartition("t", 0, 4, 5, -1, -1, 1024)
    request = FetchRequest(-1, -1, 0, 1, 1, 0, 0, 0, [row], [], "")
    sessions.answered(7, sessions.asked(request))
    assert sessions.asked(fetch(7, 1)) == {("t", 0): Asked(5, 4)}


def test_a_request_outside_of_a_session_closes_the_session_that_it_names() -> None:
    sessions = FetchSessions()
    sessions.answered(7, sessions.asked(fetch(0, 0, ("t", 0, 5))))
    assert offsets(sessions.asked(fetch(7, -1, ("t", 1, 1)))) == {("t", 1): 1}
    assert offsets(sessions.asked(fetch(7, 1, ("t", 2, 2)))) == {("t", 2): 2}


def test_the_number_of_sessions_is_bounded_and_the_latest_used_stay() -> None:
    sessions = FetchSessions()
    for number in range(1, SESSIONS_MOST + 1):
        sessions.answered(number, sessions.asked(fetch(0, 0, ("t", number, 1))))
    sessions.asked(fetch(1, 1))
    sessions.answered(SESSIONS_MOST + 1, sessions.asked(fetch(0, 0, ("t", 0, 1))))
    assert offsets(sessions.asked(fetch(1, 2))) == {("t", 1): 1}
    assert sessions.asked(fetch(2, 1)) == {}, "the longest unused one"
