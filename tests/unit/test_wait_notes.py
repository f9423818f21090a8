"""Notes of long waits: after a few seconds, again while the wait lasts, with its bound and what is lacking (J9)."""

from __future__ import annotations

import re
from collections.abc import Iterator

import pytest
from harrow.cluster import wait_notes
from harrow.cluster.convergence import DescribedCluster
from harrow.cluster.errors import ClusterError
from harrow.cluster.view import ClusterView
from harrow.cluster.wait_notes import AFTER_S, AGAIN_S, WaitNotes, noted
from waiting import until


@pytest.fixture
def notes() -> Iterator[list[str]]:
    heard: list[str] = []
    before = wait_notes.listen(heard.append)
    yield heard
    wait_notes.listen(before)


def test_a_wait_is_noted_after_a_while_and_again_while_it_lasts(notes: list[str]) -> None:
    clock = [0.0]
    waiter = WaitNotes(most_s=60, clock_s=lambda: clock[0])
    for tenth in range(int(10 * (AFTER_S + AGAIN_S + 1))):
        clock[0] = tenth / 10
        waiter.look("full ISRs", f"{tenth} lacks")
    assert notes == [
        f"waits for full ISRs: {10 * AFTER_S:.0f} lacks ({AFTER_S:.0f} s of at most 60 s)",
        f"waits for full ISRs: {10 * (AFTER_S + AGAIN_S):.0f} lacks ({AFTER_S + AGAIN_S:.0f} s of at most 60 s)",
    ]


def test_another_wait_begins_its_own_time(notes: list[str]) -> None:
    clock = [0.0]
    waiter = WaitNotes(clock_s=lambda: clock[0])
    for tenth in range(200):
        clock[0] = tenth / 10
        waiter.look("" if tenth % 2 else "short waits", "")
    assert notes == []


def test_a_call_that_blocks_is_noted_from_another_thread(notes: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(wait_notes, "AFTER_S", 0.02)
    with noted("a topic", most_s=30, detail=lambda: "broker 1 is paused"):
        until(lambda: bool(notes))
    assert re.fullmatch(r"waits for a topic: broker 1 is paused \(\d+ s of at most 30 s\)", notes[0])


class NotedError(Exception):
    """The wait was noted."""


class Leaderless(DescribedCluster):
    @property
    def bootstrap_servers(self) -> str:
        return ""

    """A cluster without a leader for its partition; `NotedError` ends a wait that was noted."""

    def __init__(self, notes: list[str]) -> None:
        self._notes = notes

    def describe(self) -> ClusterView:
        if self._notes:
            raise NotedError
        raise ClusterError("no leader")

    def state(self) -> dict[int, list[dict[str, object]]]:
        return {}


def test_a_wait_for_convergence_is_noted_with_what_is_lacking(
    notes: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(wait_notes, "AFTER_S", 0.0)
    with pytest.raises(ClusterError, match=r"no full ISRs of equal logs after 0\.0 s: no leader"):
        Leaderless(notes).await_replicated(0)
    with pytest.raises(NotedError):
        Leaderless(notes).await_replicated(60)
    (note,) = notes
    assert re.fullmatch(r"waits for full ISRs of equal logs: no leader \(\d+ s of at most 60 s\)", note)


def test_an_error_of_the_listener_is_no_error_of_the_wait() -> None:
    def fail(note: str) -> None:
        raise ValueError(note)

    before = wait_notes.listen(fail)
    clock = [0.0]
    waiter = WaitNotes(clock_s=lambda: clock[0])
    waiter.look("a topic")
    clock[0] = 2 * AFTER_S
    waiter.look("a topic")
    wait_notes.listen(before)
