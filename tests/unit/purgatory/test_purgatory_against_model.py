"""The purgatory against a naive model: a list of operations that is walked whole at every event (E2).

An operation waits until events under its keys have happened so many times, or for its deadline. Whatever
the order of arrivals, events, deadlines and purges, both must complete the same operations, in the same
way, at the same moment, each once; and nobody is kept who is done.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import cast

from harrow.cluster.host.seam import Host
from harrow.cluster.purgatory import DelayedOperation, Purgatory, PurgatoryTimer
from hypothesis import given, settings
from hypothesis import strategies as st

from .hand_host import HandHost

KEYS = "abc"
Ending = tuple[int, str, int]
"""(number of the operation, how, when)"""


@dataclass(slots=True)
class Plain:
    """An operation of the model."""

    number: int
    keys: frozenset[str]
    needed: int
    deadline_ms: int


class Model:
    """What should happen, by the definition alone."""

    def __init__(self, now_ms: int) -> None:
        self.now_ms = now_ms
        self.events: Counter[str] = Counter()
        self.waiting: list[Plain] = []
        self.endings: list[Ending] = []

    def complete(self, one: Plain) -> bool:
        return sum(self.events[key] for key in one.keys) >= one.needed

    def arrive(self, one: Plain) -> None:
        if self.complete(one):
            self.endings.append((one.number, "event", self.now_ms))
        else:
            self.waiting.append(one)

    def event(self, key: str) -> None:
        self.events[key] += 1
        self._end("event", [one for one in self.waiting if key in one.keys and self.complete(one)])

    def advance(self, ms: int) -> None:
        end = self.now_ms + ms
        for one in sorted(self.waiting, key=lambda one: one.deadline_ms):
            if one.deadline_ms <= end:
                self.now_ms = max(self.now_ms, one.deadline_ms)
                self._end("deadline", [one])
        self.now_ms = end

    def _end(self, how: str, ended: list[Plain]) -> None:
        self.endings += [(one.number, how, self.now_ms) for one in ended]
        self.waiting = [one for one in self.waiting if one not in ended]


class Real(DelayedOperation):
    """The same operation for the purgatory."""

    __slots__ = ("endings", "expired", "host", "model", "plain")

    def __init__(self, plain: Plain, model: Model, host: HandHost, endings: list[Ending]) -> None:
        super().__init__(plain.deadline_ms)
        self.plain, self.model, self.host, self.endings = plain, model, host, endings
        self.expired = False

    def try_complete(self) -> bool:
        return self.model.complete(self.plain) and self.force_complete()

    def on_complete(self) -> None:
        self.endings.append((self.plain.number, "event", self.host.now))

    def on_expiration(self) -> None:
        number, _, when = self.endings.pop()
        assert number == self.plain.number, "completed, and at once told that it expired"
        self.endings.append((number, "deadline", when))


STEPS = st.lists(
    st.one_of(
        st.tuples(
            st.just("arrive"),
            st.frozensets(st.sampled_from(KEYS), min_size=1),
            st.integers(1, 3),
            st.integers(1, 3_000),
        ),
        st.tuples(st.just("event"), st.sampled_from(KEYS)),
        st.tuples(st.just("advance"), st.integers(0, 300)),
        st.tuples(st.just("purge")),
    ),
    min_size=10,
    max_size=60,
)


@settings(max_examples=150, deadline=None)
@given(STEPS, st.sampled_from([0, 3, 1000]))
def test_it_does_what_a_list_does(steps: list[tuple[object, ...]], purge_interval: int) -> None:
    host = HandHost()
    model = Model(host.now)
    purgatory = Purgatory("test", PurgatoryTimer(cast("Host", host)), purge_interval)
    endings: list[Ending] = []
    for number, (action, *rest) in enumerate(steps):
        if action == "arrive":
            keys, needed, delay = cast("tuple[frozenset[str], int, int]", tuple(rest))
            plain = Plain(
                number, keys, needed + sum(model.events[k] for k in keys), host.now + delay
            )
            model.arrive(plain)
            done = purgatory.try_complete_else_watch(Real(plain, model, host, endings), keys)
            assert done is (plain not in model.waiting)
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
            assert purgatory.watched == sum(len(one.keys) for one in model.waiting)
        assert sorted(endings) == sorted(model.endings)
        assert purgatory.delayed == len(model.waiting)
    assert len({number for number, *_ in endings}) == len(endings), "each at most once"
    assert not host.logged
