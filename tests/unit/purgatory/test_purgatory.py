"""Purgatory: every operation completes once, by an event or by its deadline (E2), on a host with manual time."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import pytest
from harrow.cluster.purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from harrow.cluster.purgatory.purgatory import PROBE_MS
from manual_host import ManualHost

START_MS = ManualHost().now_ms


class Op(DelayedOperation):
    __slots__ = ("log", "on_done", "ready", "tries")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(START_MS + delay_ms)
        self.ready = False
        self.tries = 0
        self.log: list[str] = []
        self.on_done: Callable[[], object] = lambda: None

    def try_complete(self) -> bool:
        self.tries += 1
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.log.append("complete")
        self.on_done()

    def on_expiration(self) -> None:
        self.log.append("expired")


def make(purge: int = 1000) -> tuple[ManualHost, Purgatory]:
    host = ManualHost()
    return host, Purgatory("test", PurgatoryTimer(host), purge)


def test_an_operation_whose_condition_holds_completes_and_is_not_watched() -> None:
    _, purgatory = make()
    op = Op(100)
    op.ready = True
    assert purgatory.try_complete_else_watch(op, ["k"])
    assert (op.log, purgatory.watched, purgatory.delayed) == (["complete"], 0, 0)


def test_an_event_between_the_first_try_and_the_watch_completes_the_operation() -> None:
    _, purgatory = make()
    op = Op(100)

    class Keys:
        def __iter__(self) -> Any:
            op.ready = True  # the event happens after the first try and before the key is watched
            return iter(["k"])

    assert purgatory.try_complete_else_watch(op, cast("Any", Keys()))
    assert op.tries == 2
    assert purgatory.delayed == 0


def test_an_operation_completed_by_an_event_does_not_expire_at_its_deadline() -> None:
    host, purgatory = make()
    op = Op(100)
    assert not purgatory.try_complete_else_watch(op, ["a", "b"])
    assert (purgatory.watched, purgatory.delayed) == (2, 1)
    assert purgatory.check_and_complete("a") == 0
    op.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    host.advance(1000)
    assert op.log == ["complete"]
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_an_operation_completed_by_its_deadline_does_not_complete_again_at_an_event() -> None:
    host, purgatory = make()
    op = Op(50)
    purgatory.try_complete_else_watch(op, ["k"])
    host.advance(49)
    assert op.log == []
    host.advance(1)
    assert op.log == ["complete", "expired"]
    op.ready = True
    assert purgatory.check_and_complete("k") == 0
    assert purgatory.delayed == 0


def test_an_operation_whose_deadline_has_passed_expires_in_the_loops_next_turn() -> None:
    host, purgatory = make()
    op = Op(-10)
    assert not purgatory.try_complete_else_watch(op, ["k"])
    assert op.log == []
    host.advance(0)
    assert op.log == ["complete", "expired"]


def test_a_completion_that_completes_another_operation_of_its_key_completes_both_once() -> None:
    _, purgatory = make()
    first, second = Op(500), Op(500)
    for op in (first, second):
        purgatory.try_complete_else_watch(op, ["k"])
    second.ready = True

    def finish_first() -> None:
        first.ready = True
        purgatory.check_and_complete("k")

    second.on_done = finish_first  # the same call has already tried `first`, whose condition did not hold
    assert purgatory.check_and_complete("k") == 1
    assert first.log == second.log == ["complete"]
    assert purgatory.watched == 0


def test_completed_operations_leave_the_lists_of_their_other_keys_by_purging() -> None:
    _, purgatory = make(purge=10)
    for _ in range(50):
        op = Op(10_000)
        purgatory.try_complete_else_watch(op, ["busy", "idle"])
        op.ready = True
        purgatory.check_and_complete("busy")
        assert purgatory.watched <= 12
    assert purgatory.delayed == 0


def test_a_thousand_equal_deadlines_arm_fewer_than_ten_host_timers() -> None:
    host, purgatory = make()
    ops = [Op(30_000) for _ in range(1000)]
    for op in ops:
        purgatory.try_complete_else_watch(op, ["k"])
    assert host.calls_scheduled == 1
    host.advance(30_000)
    assert [op.log for op in ops] == [["complete", "expired"]] * 1000
    assert host.calls_scheduled < 10


def test_an_operation_that_raises_at_its_deadline_does_not_stop_the_others() -> None:
    host, purgatory = make()
    bad, good = Op(50), Op(50)

    def fail() -> None:
        raise RuntimeError("planted")

    bad.on_done = fail
    for op in (bad, good):
        purgatory.try_complete_else_watch(op, ["k"])
    host.advance(100)
    assert good.log == ["complete", "expired"]
    assert any("planted" in str(fields) for _event, fields in host.events)


def test_watch_does_not_try_the_operation() -> None:
    host, purgatory = make()
    op = Op(100)
    purgatory.watch(op, ["k"])
    assert (op.tries, purgatory.delayed) == (0, 1)
    assert purgatory.waiting("k")
    assert not purgatory.waiting("other")
    host.advance(150)
    assert op.log == ["complete", "expired"]


def test_an_operation_is_watched_only_once() -> None:
    _, purgatory = make()
    op = Op(100)
    purgatory.watch(op, ["k"])
    with pytest.raises(AssertionError, match="put there once"):
        purgatory.watch(op, ["other"])
    op.force_complete()
    with pytest.raises(AssertionError, match="completed operation"):
        purgatory.watch(op, ["k"])


def test_check_all_tries_the_operations_of_every_key() -> None:
    _, purgatory = make()
    ops = [Op(100), Op(100)]
    for key, op in zip("ab", ops, strict=True):
        purgatory.watch(op, [key])
        op.ready = True
    purgatory.check_all()
    assert [op.log for op in ops] == [["complete"], ["complete"]]
    assert not purgatory.waiting("a")
    assert purgatory.delayed == 0


# ------------------------------------------------------------------------------------------------- missed wake-ups


class Asked(Op):
    """An operation that says at its deadline whether it waits in vain."""

    def due_keys(self) -> list[str]:
        return ["k"] if self.ready else []


@pytest.mark.parametrize(
    ("ready", "reported_after_ms", "missed"),
    [(True, None, ["k"]), (True, 5, []), (True, PROBE_MS + 5, ["k"]), (False, None, [])],
    ids=["never reported", "reported in time", "reported late", "waits for good reason"],
)
def test_an_operation_that_could_complete_at_its_deadline_was_not_woken(
    ready: bool, reported_after_ms: int | None, missed: list[str]
) -> None:
    host, purgatory = make()
    found: list[object] = []
    purgatory.on_missed = found.append
    op = Asked(100)
    purgatory.watch(op, ["k"])
    op.ready = ready
    host.advance(100)
    assert op.log == ["complete", "expired"]
    passed_ms = 0
    if reported_after_ms is not None:
        host.advance(passed_ms := reported_after_ms)
        purgatory.check_and_complete("k")
    host.advance(3 * PROBE_MS - passed_ms)
    assert found == missed
    assert purgatory.delayed == 0
