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
from typing import Any

from harrow.cluster.broker_folder import BROKER_PREFIX
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS
from harrow.faults.fault_kinds import fault_kind
from harrow.faults.outside import OutsideFault

from ...histories.recorded_faults import RecordedFault
from .spans import EVER, Span, Spans, merged, without

Event = Mapping[str, Any]
Place = tuple[str, int]
FOREVER_NS = EVER[0][1]
READY, STOPPING = "broker.ready", "broker.stopping"
LEADER, ISR = "partition.leader", "partition.isr"
LOADED = {"group.loaded": OFFSETS.name, "transactions.loaded": TRANSACTIONS.name}
"""Events of coordinators, and the topic of the partition that they loaded."""
EVENTS = (READY, STOPPING, LEADER, ISR, *LOADED)
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

    events: Sequence[Event]
    """Of `EVENTS`, with `broker`: the name of the folder of the broker."""
    faults: Sequence[Disturbance] = ()
    least_isr: Mapping[str, int] = field(default_factory=dict[str, int])
    """`min.insync.replicas` by topic; 1 where it is not known."""

    @cached_property
    def is_known(self) -> bool:
        """Whether the traces say who leads partitions."""
        return any(event["event"] == LEADER for event in self.events)

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
        for event in sorted(self.events, key=_time):
            node = _node(event)
            if event["event"] == STOPPING:
                stopped.setdefault(node, _time(event))
            elif event["event"] == READY and node in stopped:
                found[node].append((stopped.pop(node), _time(event)))
        for node, at_ns in stopped.items():
            found[node].append((at_ns, FOREVER_NS))
        return found

    @cached_property
    def _loads(self) -> dict[Place, Spans]:
        """When coordinators loaded partitions of the internal topics."""
        found: dict[Place, Spans] = defaultdict(list)
        for event in self.events:
            if event["event"] in LOADED:
                span = (_time(event) - event["took_ms"] * MS, _time(event))
                found[LOADED[event["event"]], event["partition"]].append(span)
        return {place: merged(spans) for place, spans in found.items()}

    @cached_property
    def _leaderships(self) -> dict[Place, list[_Leadership]]:
        """The leaders of each partition by time; a topic that was created again begins with leader epoch 0 again."""
        found: dict[Place, list[_Leadership]] = defaultdict(list)
        epochs: dict[Place, int] = {}
        ids: dict[Place, object] = {}
        for event in sorted(self.events, key=_time):
            if event["event"] not in (LEADER, ISR):
                continue
            place = event["topic"], event["partition"]
            epoch, isr = event["leader_epoch"], frozenset(event["isr"])
            is_leader = event["event"] == LEADER
            rows = found[place]
            is_new = is_leader and event.get("topic_id") != ids.get(place)
            if not is_new and (epoch < epochs.get(place, -1) or not (is_leader or rows)):
                continue
            if is_leader:
                ids[place] = event.get("topic_id")
            epochs[place] = epoch
            leader = event["leader"] if is_leader else rows[-1].leader
            rows.append(_Leadership(_time(event), leader, isr))
        return dict(found)


def _node(event: Event) -> int:
    return int(str(event["broker"]).removeprefix(BROKER_PREFIX))


def _time(event: Event) -> int:
    return int(event["t_ns"])
