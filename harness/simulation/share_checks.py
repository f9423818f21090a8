"""What must hold of a share group in a simulation, by what its members saw (KIP-932). No input or output.

Owns: `ShareLog`, which the members fill, and its `judge`. Times are virtual, in nanoseconds. A member knows only when
it sent a request and when the response arrived, so each rule takes the bounds that are in favour of the brokers:

* `redelivered-after-accept`: a record was acquired by a fetch that was sent after the response to its acceptance or
  rejection had arrived, before its lock can have ended. A later acceptance may have no effect and no error: its record
  is already below the start offset, because another member accepted it, or because the lock ended after the last
  delivery that the limit allows (the leader need not have stored that);
* `wrong-lock`: a record was acquired a second time while a member held it for sure: its lock had not ended, it had
  acknowledged nothing, its session was the same before and after, and the leader and its epoch were the same;
* `over-delivered`: a delivery count beyond the limit, or one that did not rise after a release had been stored;
* `never-delivered`: a record is over that no member acquired as often as the limit says, accepted or rejected.

A leader that was paused, and does not know yet that there is another one, gives records from its memory, in Kafka as
here: what responses said is not stored. So what an earlier leadership gives says nothing about what a later one stored.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.ids import TopicPartition

from ..requests.share_member import RELEASE
from .checks import FoundAnomaly

NEVER_NS = -1
CLOCK_MS = 2
"""Brokers have clocks of whole milliseconds: a lock may end so much earlier."""
Place = tuple[TopicPartition, int]


@dataclass(slots=True, kw_only=True, eq=False)
class Delivery:
    """One record that one member acquired."""

    member: str
    tp: TopicPartition
    offset: int
    count: int
    """How often it was delivered, with this time, as the broker says."""
    fetched_ns: int
    """When the fetch was sent, at the latest."""
    got_ns: int
    node: int
    """The broker that gave it."""
    held_until_ns: int = NEVER_NS
    """The last moment at which the member surely held it, if the lock had not ended: its session was alive then."""
    type: int | None = None
    """Of its acknowledgement; None: the member said nothing."""
    said_ns: int = NEVER_NS
    """When the acknowledgement was sent, at the earliest."""
    known_ns: int = NEVER_NS
    """When the response said that it is stored."""

    @property
    def place(self) -> Place:
        """Partition and offset."""
        return self.tp, self.offset

    def is_stored(self, lock_ns: int) -> bool:
        """Whether the acknowledgement has surely been stored, and as that of who held the record."""
        return NEVER_NS != self.known_ns < self.fetched_ns + lock_ns


class Elected(NamedTuple):
    """A broker took over a partition."""

    t_ns: int
    tp: TopicPartition
    node: int
    epoch: int


@dataclass(slots=True, kw_only=True)
class ShareLog:
    """Everything that the members of one group saw."""

    limit: int
    lock_ms: int
    deliveries: list[Delivery] = field(default_factory=list[Delivery])
    lost_fetches: dict[TopicPartition, int] = field(default_factory=dict[TopicPartition, int])
    """How many fetches had no response that the member saw: each may have acquired records."""

    def judge(self, ends: Mapping[TopicPartition, int], elections: Iterable[Elected]) -> Iterator[FoundAnomaly]:
        """Yield what is wrong. `ends`: up to where every record of a partition is over."""
        by_place: dict[Place, list[Delivery]] = defaultdict(list)
        for row in self.deliveries:
            by_place[row.place].append(row)
        elected: dict[TopicPartition, list[Elected]] = defaultdict(list)
        for election in elections:
            elected[election.tp].append(election)
        for place, rows in sorted(by_place.items()):
            name = f"{place[0]} at offset {place[1]}"
            for row in rows:
                if row.count > self.limit:
                    yield "over-delivered", f"{name}: delivery {row.count} to {row.member}"
                for other in rows:
                    if other is not row:
                        yield from self._pair(name, row, other, elected[place[0]])
        for tp, end in ends.items():
            for offset in range(end):
                if not self._may_be_over(tp, by_place.get((tp, offset), ())):
                    yield "never-delivered", f"{tp} at offset {offset}: {by_place.get((tp, offset), ())}"

    def _pair(self, name: str, first: Delivery, then: Delivery, elected: Sequence[Elected]) -> Iterator[FoundAnomaly]:
        """What is wrong with two deliveries of a record, if `then` was later."""
        shown = f"{name}: {first}, then {then}"
        then_epoch, first_epoch = _epoch(then, then.fetched_ns, elected), _epoch(first, first.got_ns, elected)
        lock_ns = (self.lock_ms - CLOCK_MS) * NS_PER_MS
        after = first.is_stored(lock_ns) and then.fetched_ns >= first.known_ns and then_epoch >= first_epoch
        if after and first.type != RELEASE:
            yield "redelivered-after-accept", shown
        if after and first.type == RELEASE and then.count <= first.count:
            yield "over-delivered", f"{shown}: the count did not rise"
        ends_ns = first.fetched_ns + lock_ns
        if first.said_ns != NEVER_NS:
            ends_ns = min(ends_ns, first.said_ns)
        held = first.got_ns <= then.fetched_ns and then.got_ns < min(ends_ns, first.held_until_ns)
        same = first.node == then.node and first_epoch == then_epoch
        if held and same and not any(first.fetched_ns <= row.t_ns <= then.got_ns for row in elected):
            yield "wrong-lock", shown

    def _may_be_over(self, tp: TopicPartition, rows: Iterable[Delivery]) -> bool:
        """Whether a record that is over was accepted, rejected, or delivered as often as the limit says."""
        seen = list(rows)
        if any(row.type not in (None, RELEASE) for row in seen):
            return True
        most = max((row.count for row in seen), default=0)
        return most + self.lost_fetches.get(tp, 0) >= self.limit


def _epoch(delivery: Delivery, at_ns: int, elected: Iterable[Elected]) -> int:
    """The leader epoch of the broker that gave a record."""
    epochs = (row.epoch for row in elected if row.node == delivery.node and row.t_ns <= at_ns)
    return max(epochs, default=-1)
