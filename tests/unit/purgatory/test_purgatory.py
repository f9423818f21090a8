"""Purgatory: complete once, by event or deadline (E2), on a hand-driven host."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from harrow.cluster.host.seam import Host
from harrow.cluster.purgatory import DelayedOperation, Purgatory, PurgatoryTimer

from .hand_host import HandHost


class Op(DelayedOperation):
    __slots__ = ("log", "on_done", "ready", "tries")

    def __init__(self, deadline_ms: int) -> None:
        super().__init__(deadline_ms)
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


def make(purge: int = 1000) -> tuple[HandHost, Purgatory]:
    host = HandHost()
    return host, Purgatory("test", PurgatoryTimer(cast("Host", host)), purge)


def test_an_operation_that_can_complete_is_not_watched() -> None:
    _, purgatory = make()
    op = Op(200)
    op.ready = True
    assert purgatory.try_complete_else_watch(op, ["k"])
    assert (op.log, purgatory.watched, purgatory.delayed) == (["complete"], 0, 0)


def test_an_event_between_first_try_and_watching_is_not_missed() -> None:
    _, purgatory = make()
    op = Op(200)

    class Keys:
        def __iter__(self) -> Any:
            op.ready = True  # the event comes while the keys are watched
            return iter(["k"])

    assert purgatory.try_complete_else_watch(op, cast("Any", Keys()))
    assert op.tries == 2
    assert purgatory.delayed == 0


def test_by_event_once_and_never_by_its_deadline_after() -> None:
    host, purgatory = make()
    op = Op(200)
    assert not purgatory.try_complete_else_watch(op, ["a", "b"])
    assert (purgatory.watched, purgatory.delayed) == (2, 1)
    assert purgatory.check_and_complete("a") == 0
    op.ready = True
    assert purgatory.check_and_complete("b") == 1
    assert purgatory.check_and_complete("a") == 0
    host.advance(1000)
    assert op.log == ["complete"]
    assert (purgatory.watched, purgatory.delayed) == (0, 0)


def test_by_deadline_once_and_never_by_an_event_after() -> None:
    host, purgatory = make()
    op = Op(150)
    purgatory.try_complete_else_watch(op, ["k"])
    host.advance(49)
    assert op.log == []
    host.advance(1)
    assert op.log == ["complete", "expired"]
    op.ready = True
    assert purgatory.check_and_complete("k") == 0
    assert purgatory.delayed == 0


def test_a_deadline_that_has_passed_expires_on_the_next_turn() -> None:
    host, purgatory = make()
    op = Op(90)
    assert not purgatory.try_complete_else_watch(op, ["k"])
    assert op.log == []
    host.advance(0)
    assert op.log == ["complete", "expired"]


def test_a_completion_may_complete_others_under_the_same_key() -> None:
    _, purgatory = make()
    first, second = Op(500), Op(500)
    for op in (first, second):
        purgatory.try_complete_else_watch(op, ["k"])
    second.ready = True

    def finish_first() -> None:
        first.ready = True
        purgatory.check_and_complete("k")

    second.on_done = finish_first  # first was tried before, in vain, in the same sweep
    assert purgatory.check_and_complete("k") == 1
    assert first.log == second.log == ["complete"]
    assert purgatory.watched == 0


def test_completed_operations_are_purged_from_the_lists_that_did_not_wake_them() -> None:
    _, purgatory = make(purge=10)
    for _ in range(50):
        op = Op(10_000)
        purgatory.try_complete_else_watch(op, ["busy", "idle"])
        op.ready = True
        purgatory.check_and_complete("busy")
        assert purgatory.watched <= 12
    assert purgatory.delayed == 0


def test_many_deadlines_need_few_calls_of_the_host() -> None:
    host, purgatory = make()
    ops = [Op(30_000) for _ in range(1000)]
    for op in ops:
        purgatory.try_complete_else_watch(op, ["k"])
    assert host.calls == 1
    host.advance(30_000)
    assert all(op.log == ["complete", "expired"] for op in ops)
    assert host.calls < 10


def test_an_operation_that_fails_at_its_deadline_keeps_no_other_from_its_own() -> None:
    host, purgatory = make()
    bad, good = Op(150), Op(150)

    def fail() -> None:
        raise RuntimeError("planted")

    bad.on_done = fail
    for op in (bad, good):
        purgatory.try_complete_else_watch(op, ["k"])
    host.advance(100)
    assert good.log == ["complete", "expired"]
    assert any("planted" in line for line in host.logged)


def test_what_was_tried_just_now_is_watched_without_a_try() -> None:
    host, purgatory = make()
    op = Op(200)
    purgatory.watch(op, ["k"])
    assert (op.tries, purgatory.delayed) == (0, 1)
    assert purgatory.waiting("k")
    assert not purgatory.waiting("other")
    host.advance(150)
    assert op.log == ["complete", "expired"]


def test_check_all_tries_everything() -> None:
    _, purgatory = make()
    ops = [Op(200), Op(200)]
    for key, op in zip("ab", ops, strict=True):
        purgatory.watch(op, [key])
        op.ready = True
    purgatory.check_all()
    assert [op.log for op in ops] == [["complete"], ["complete"]]
    assert not purgatory.waiting("a")
    assert purgatory.delayed == 0
