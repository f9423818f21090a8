"""When a partition could serve its clients, by the traces of the brokers and the faults of the run.

A partition serves while a leader is known (`partition.leader`, the highest leader epoch counts), the leader and every
broker of its ISR run and no fault disturbs them, and the ISR has `min.insync.replicas`. An ISR with a broker that has
just died serves no acks=all, so the time until the ISR shrinks is the cluster's. A broker runs from `broker.ready` to
`broker.stopping`, outside of the faults that target it. A fault of the registry, and one whose brokers are not known,
disturbs every broker. A fault that waits for a request disturbs from its effect on. A partition of an internal topic
does not serve while its coordinator loads it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.brokers import BrokerReady, BrokerStopping
from harrow.cluster.events.coordinators import GroupsLoaded, TransactionsLoaded
from harrow.cluster.events.partitions import IsrChanged, PartitionLeader
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS
from harrow.faults.fault_kinds import fault_kind
from harrow.faults.outside import OutsideFault

from ...histories.recorded_faults import RecordedFault
from .spans import EVER, Span, Spans, merged, without

Place = tuple[str, int]
FOREVER_NS = EVER[0][1]
EVENTS = (BrokerReady, BrokerStopping, PartitionLeader, IsrChanged, GroupsLoaded, TransactionsLoaded)
MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Disturbance:
    """One fault as time: what it kept from working, from when to when."""

    id: str
    label: str
    begin_ns: int
    end_ns: int
    """`FOREVER_NS`: it was not healed."""
    nodes: tuple[int, ...] = ()
    """The brokers that it disturbed; none: all of them, unless it hit the application."""
    of_application: bool = False
    """Whether it hit programs or clients of the user's, and no broker."""
    acts_from_ns: int | None = None
    """When it began to act, where that is later than its injection."""

    @property
    def span(self) -> Span:
        """When it disturbed."""
        return (self.begin_ns if self.acts_from_ns is None else self.acts_from_ns, self.end_ns)


def disturbances(faults: Iterable[RecordedFault]) -> list[Disturbance]:
    """Return the faults that were injected."""
    found: list[Disturbance] = []
    for fault in faults:
        if fault.skipped is not None:
            continue
        kind = fault_kind(fault.kind)
        waits = kind is not None and kind.waits_for_traffic
        acts_from_ns = fault.effect_ns if waits and fault.effect_ns is not None else None
        end_ns = FOREVER_NS if fault.end_ns is None else fault.end_ns
        found.append(
            Disturbance(
                id=fault.id,
                label=fault.label,
                begin_ns=fault.begin_ns,
                end_ns=end_ns,
                nodes=fault.nodes,
                of_application=kind is not None and issubclass(kind, OutsideFault),
                acts_from_ns=acts_from_ns,
            )
        )
    return found


@dataclass(slots=True)
class _Leadership:
    """A leader of a partition from `begin_ns` on, and its ISR."""

    begin_ns: int
    leader: int
    isr: frozenset[int]


@dataclass(kw_only=True)
class Availability:
    """When each partition of a run could serve."""

    events: Sequence[TracedEvent[TraceEvent]]
    """Of `EVENTS`."""
    faults: Sequence[Disturbance] = ()
    least_isr: Mapping[str, int] = field(default_factory=dict[str, int])
    """`min.insync.replicas` by topic; 1 where it is not known."""

    @cached_property
    def is_known(self) -> bool:
        """Whether the traces say who leads partitions."""
        return any(isinstance(traced.event, PartitionLeader) for traced in self.events)

    @cached_property
    def of_application(self) -> Spans:
        """When faults disturbed the application itself."""
        return merged(fault.span for fault in self.faults if fault.of_application)

    def leader(self, place: Place, at_ns: int) -> tuple[int, tuple[int, ...]] | None:
        """Return the leader and the ISR at a time; None before the first leader."""
        known = [row for row in self._leaderships.get(place, ()) if row.begin_ns <= at_ns]
        return (known[-1].leader, tuple(sorted(known[-1].isr))) if known else None

    def partitions(self, topic: str) -> int:
        """Return how many partitions of a topic had a leader."""
        return len([place for place in self._leaderships if place[0] == topic])

    def serves(self, place: Place) -> Spans:
        """Return the times at which the partition (topic, partition) could serve."""
        rows = self._leaderships.get(place, [])
        least = self.least_isr.get(place[0], 1)
        found: Spans = []
        for number, row in enumerate(rows):
            end_ns = rows[number + 1].begin_ns if number + 1 < len(rows) else FOREVER_NS
            if len(row.isr) >= least:
                found += without([(row.begin_ns, end_ns)], self._down({row.leader, *row.isr}))
        return without(merged(found), self._loads.get(place, []))

    def _down(self, nodes: Iterable[int]) -> Spans:
        return merged(span for node in nodes for span in self._node_down(node))

    def _node_down(self, node: int) -> Spans:
        """Return when a broker did not run, or a fault disturbed it."""
        if node not in self._down_of:
            spans = [
                fault.span
                for fault in self.faults
                if not fault.of_application and (node in fault.nodes or not fault.nodes)
            ]
            spans += self._not_running.get(node, [])
            self._down_of[node] = merged(spans)
        return self._down_of[node]

    @cached_property
    def _down_of(self) -> dict[int, Spans]:
        return {}

    @cached_property
    def _not_running(self) -> dict[int, Spans]:
        found: dict[int, Spans] = defaultdict(list)
        stopped: dict[int, int] = {}
        for traced in sorted(self.events, key=_time):
            node = traced.node
            if isinstance(traced.event, BrokerStopping):
                stopped.setdefault(node, traced.t_ns)
            elif isinstance(traced.event, BrokerReady) and node in stopped:
                found[node].append((stopped.pop(node), traced.t_ns))
        for node, at_ns in stopped.items():
            found[node].append((at_ns, FOREVER_NS))
        return found

    @cached_property
    def _loads(self) -> dict[Place, Spans]:
        """When coordinators loaded partitions of the internal topics."""
        found: dict[Place, Spans] = defaultdict(list)
        for traced in self.events:
            event = traced.event
            if isinstance(event, GroupsLoaded | TransactionsLoaded):
                topic = OFFSETS if isinstance(event, GroupsLoaded) else TRANSACTIONS
                found[topic.name, event.partition].append((traced.t_ns - event.took_ms * MS, traced.t_ns))
        return {place: merged(spans) for place, spans in found.items()}

    @cached_property
    def _leaderships(self) -> dict[Place, list[_Leadership]]:
        """The leaders of each partition by time; a topic that was created again begins with leader epoch 0 again."""
        found: dict[Place, list[_Leadership]] = defaultdict(list)
        epochs: dict[Place, int] = {}
        ids: dict[Place, object] = {}
        for traced in sorted(self.events, key=_time):
            event = traced.event
            if not isinstance(event, PartitionLeader | IsrChanged):
                continue
            place, epoch = (event.topic, event.partition), event.leader_epoch
            elected = event if isinstance(event, PartitionLeader) else None
            rows = found[place]
            is_new = elected is not None and elected.topic_id != ids.get(place)
            if not is_new and (epoch < epochs.get(place, -1) or not (elected or rows)):
                continue
            if elected is not None:
                ids[place] = elected.topic_id
            epochs[place] = epoch
            leader = rows[-1].leader if elected is None else elected.leader
            rows.append(_Leadership(traced.t_ns, leader, frozenset(event.isr)))
        return dict(found)


def _time(traced: TracedEvent[TraceEvent]) -> int:
    return traced.t_ns
