"""Compares the purgatory with a naive model: a list of operations that is searched completely at every event (E2).

An operation waits until a number of events under its keys has happened, or until its deadline. For every order of
arrivals, events, deadlines and purges, both must complete the same operations, by the same cause, at the same time,
each one once; and a purge must remove every completed operation.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import cast

from harrow.cluster.purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from hypothesis import given
from hypothesis import strategies as st
from long_runs import examples
from manual_host import ManualHost

KEYS = "abc"
Ending = tuple[int, str, int]
"""(number of the operation, "event" or "deadline", time of the completion)"""


@dataclass(slots=True)
class ModelOperation:
    """An operation of the model."""

    number: int
    keys: frozenset[str]
    needed: int
    deadline_ms: int


class Model:
    """The expected completions, by the definition of a purgatory."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.events: Counter[str] = Counter()
        self.waiting: list[ModelOperation] = []
        self.endings: list[Ending] = []

    def complete(self, op: ModelOperation) -> bool:
        return sum(self.events[key] for key in op.keys) >= op.needed

    def arrive(self, op: ModelOperation) -> None:
        if self.complete(op):
            self.endings.append((op.number, "event", self.now_ms))
        else:
            self.waiting.append(op)

    def event(self, key: str) -> None:
        self.events[key] += 1
        self._end("event", [op for op in self.waiting if key in op.keys and self.complete(op)])

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        for op in sorted(self.waiting, key=lambda op: op.deadline_ms):
            if op.deadline_ms <= end:
                self.now_ms = max(self.now_ms, op.deadline_ms)
                self._end("deadline", [op])
        self.now_ms = end

    def _end(self, how: str, ended: list[ModelOperation]) -> None:
        self.endings += [(op.number, how, self.now_ms) for op in ended]
        self.waiting = [op for op in self.waiting if op not in ended]


class WatchedOperation(DelayedOperation):
    """The same operation for the purgatory."""

    __slots__ = ("endings", "host", "model", "op")

    def __init__(self, op: ModelOperation, model: Model, host: ManualHost, endings: list[Ending]) -> None:
        super().__init__(op.deadline_ms)
        self.op, self.model, self.host, self.endings = op, model, host, endings

    def try_complete(self) -> bool:
        return self.model.complete(self.op) and self.force_complete()

    def on_complete(self) -> None:
        self.endings.append((self.op.number, "event", self.host.now_ms))

    def on_expiration(self) -> None:
        number, _, when = self.endings.pop()
        assert number == self.op.number, "on_expiration must directly follow on_complete"
        self.endings.append((number, "deadline", when))


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("arrive"),
            st.frozensets(st.sampled_from(KEYS), min_size=1),
            st.integers(0, 3),
            st.integers(1, 3_000),
        ),
        st.tuples(st.just("event"), st.sampled_from(KEYS)),
        st.tuples(st.just("advance"), st.integers(0, 300)),
        st.tuples(st.just("purge")),
    ),
    min_size=10,
    max_size=60,
)


@examples(50, 150)
@given(STEPS, st.sampled_from([0, 3, 1000]))
def test_random_actions_complete_the_same_operations_as_the_model(
    steps: list[tuple[object, ...]], purge_interval: int
) -> None:
    host = ManualHost()
    model = Model(host.now_ms)
    purgatory = Purgatory("test", PurgatoryTimer(host), purge_interval)
    endings: list[Ending] = []
    for number, (action, *rest) in enumerate(steps):
        if action == "arrive":
            keys, needed, delay = cast("tuple[frozenset[str], int, int]", tuple(rest))
            op = ModelOperation(number, keys, needed + sum(model.events[k] for k in keys), host.now_ms + delay)
            model.arrive(op)
            watched = WatchedOperation(op, model, host, endings)
            done = purgatory.try_complete_else_watch(watched, keys)
            assert done is (op not in model.waiting)
        elif action == "event":
            (key,) = cast("tuple[str]", tuple(rest))
            before = len(endings)
            model.event(key)
            assert purgatory.check_and_complete(key) == len(endings) - before
        elif action == "advance":
            (ms,) = cast("tuple[int]", tuple(rest))
            model.advance(ms)
            host.advance(ms)
        else:
            purgatory.purge()
            assert purgatory.watched == sum(len(op.keys) for op in model.waiting)
        assert sorted(endings) == sorted(model.endings)
        assert purgatory.delayed == len(model.waiting)
    assert len({number for number, *_ in endings}) == len(endings), "an operation completed twice"
    assert not host.events
