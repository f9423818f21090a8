"""What a simulated run reached, as abstract features of its trace; and the moments at which a fault may strike.

A feature has no offset, time, node id or partition number: brokers appear by their role and by the fault that holds
them, counts and gaps by their magnitude. So the number of features saturates, and two runs of the same behaviour have
the same set. The idea is Mallory's (Meng et al., "Greybox fuzzing of distributed systems", CCS 2023): what was observed
in which order is the coverage, and not which lines of code ran.

    features of        example              meaning
    a partition        b|Li2x>!S1x          of the output: a broker of the ISR of two was elected after the leader had
                                            died; soon after that the ISR shrank to one, because of a dead broker
    the controller     c|p>                 a controller that no fault holds came after a paused one
    a session          x|Lp                 the session of a paused leader expired
    transactions       t|Ongoing>PrepareAbort|em      with a raised epoch, at another coordinator
    groups             g|Stable2>PreparingRebalance2|m     likewise
    a fault            f|kill:C             it hit the controller
                       f|kill:l:sLi2x!      it hit the leader of a partition in this state
    two faults         o|xL|cC!             soon after the death of a leader, and during it, the controller was cut off;
                                            `=`: both hit one broker; `h`: the first fault had just been healed

The first letter of a partition's feature is its topic: source (`s`), output (`b`), internal (`k`). `!`: within
`SOON_MS`. Letters of `LETTERS` say what holds a broker.
Pure functions of the trace: nothing here may fail, and the same trace gives the same coverage.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.brokers import BrokerReady
from harrow.cluster.events.controllers import ControllerElected, RegistrySessionExpired
from harrow.cluster.events.coordinators import GroupChanged, GroupsLoaded, TransactionChanged, TransactionsLoaded
from harrow.cluster.events.logs import LogRecovered
from harrow.cluster.events.partitions import (
    IsrChanged,
    PartitionEvent,
    PartitionFollower,
    PartitionLeader,
    PartitionTruncated,
    ReassignmentStep,
)
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS
from harrow.faults.failpoint_faults import Failpoint
from harrow.faults.fault_kinds import recorded_kind
from harrow.faults.request_faults import RequestFault
from harrow.faults.runs import SINK, TOPIC
from harrow.faults.schedule import Schedule, ScheduledFault
from harrow.faults.spec import Hold

from .events import FaultHealed, FaultInjected, FaultTookEffect

TOPIC_LETTERS: Final[Mapping[str, str]] = {TOPIC: "s", SINK: "b", OFFSETS.name: "k", TRANSACTIONS.name: "k"}
LETTERS: Final[Mapping[Hold, str]] = {Hold.DEAD: "x", Hold.PAUSED: "p", Hold.ISOLATED: "c", Hold.SLOW: "s"}
"""What a fault does to its brokers, by `Fault.holds`."""
REPLICAS = 3
NS_PER_MS = 1_000_000
JUST_MS = 600
"""How long after its healing a fault still counts as met by another one."""
LONG_AGO_MS = -1_000_000
SOON_MS = 250
"""About a fetch session's wait and the time of an election: both events belong to one change."""


@dataclass(frozen=True, slots=True)
class Moment:
    """A moment of a run at which a fault may strike."""

    at_ms: int
    """After the first traffic, as the times of a schedule."""
    label: str
    """The abstract event."""
    node: int | None = None
    """The broker whose event it is."""
    topic: str | None = None
    partition: int | None = None


@dataclass(frozen=True, slots=True)
class Coverage:
    """What one run reached."""

    features: frozenset[str] = frozenset()
    moments: tuple[Moment, ...] = ()
    """In order of time; none where no fault fired."""


def coverage_of(events: Iterable[TracedEvent[TraceEvent]], schedule: Schedule) -> Coverage:
    """Read the trace of a run; `schedule` is the resolved one."""
    reader = TraceReader({step.id: step for step in schedule.steps})
    handlers = HANDLERS
    for row in events:
        handler = handlers.get(type(row.event))
        if handler is not None:
            handler(reader, row.t_ns // NS_PER_MS, node_of(row.process), row.event)
    return Coverage(frozenset(reader.features), reader.moments())


def node_of(host: str) -> int:
    """Return the node id of a broker's host; 0 for other hosts."""
    return int(host[7:]) if host.startswith("broker-") else 0


def magnitude(number: int) -> str:
    """Return 0, 1 or 2 (more)."""
    return "0" if number <= 0 else "1" if number == 1 else "2"


def soon(ms: int) -> str:
    """Return a mark for two events that belong to one change."""
    return "!" if ms <= SOON_MS else ""


def kind_of(kind: str, step: ScheduledFault | None) -> str:
    """Return the kind of a fault, with the API or the place in the code that it hits."""
    fault = None if step is None else step.fault
    if isinstance(fault, RequestFault):
        return f"{kind}/{fault.api}"
    return f"{kind}/{fault.point}" if isinstance(fault, Failpoint) else kind


def letter_of(kind: str) -> str:
    """Return what a kind of fault does to its brokers; the kind itself, where it does not hold them."""
    holds = recorded_kind(kind).holds
    return kind if holds is None else LETTERS[holds]


@dataclass(slots=True)
class PartitionSeen:
    """What the trace has said of one partition so far."""

    letter: str
    leader: int = 0
    epoch: int = -1
    end: int = 0
    """The leader's log end offset when it was elected."""
    isr: frozenset[int] = frozenset()
    replicas: frozenset[int] = frozenset()
    """The last brokers that were leader or in the ISR."""
    label: str = ""
    """The last event."""
    at_ms: int = LONG_AGO_MS


@dataclass(slots=True)
class StateSeen:
    """The last states of a transactional id or a group."""

    name: str = ""
    epoch: int = -1
    node: int = 0


@dataclass(slots=True)
class FaultSeen:
    """One fault of the run."""

    kind: str
    letter: str
    """What it does to its brokers (`LETTERS`); the kind, where it does not hold them."""
    role: str
    nodes: frozenset[int]
    at_ms: int
    healed_ms: int | None = None


@dataclass(slots=True)
class TraceReader:
    """Collects features while the events of a trace pass by."""

    _steps: Mapping[str, ScheduledFault]
    features: set[str] = field(default_factory=set[str])
    _partitions: dict[tuple[str, int], PartitionSeen] = field(default_factory=dict[Any, Any])
    _states: dict[str, StateSeen] = field(default_factory=dict[Any, Any])
    _faults: dict[str, FaultSeen] = field(default_factory=dict[Any, Any])
    _held: dict[int, str] = field(default_factory=dict[Any, Any])
    """What holds each broker: one of `LETTERS`."""
    _controller: int = 0
    _expired_ms: int = LONG_AGO_MS
    _traffic_ms: int | None = None
    _moments: list[tuple[int, str, int, str | None, int | None]] = field(default_factory=list[Any])

    def moments(self) -> tuple[Moment, ...]:
        """Return the moments; none where the first traffic is not known."""
        if self._traffic_ms is None:
            return ()
        zero = self._traffic_ms
        assert all(a[0] <= b[0] for a, b in pairwise(self._moments)), "moments of a run are not in order of time"
        return tuple(
            Moment(at_ms - zero, label, node or None, topic, partition)
            for at_ms, label, node, topic, partition in self._moments
            if at_ms >= zero
        )

    # --------------------------------------------------------------------------------- partitions

    def on_leader(self, at_ms: int, node: int, event: PartitionLeader) -> None:
        """A broker became leader, or leader of a further epoch."""
        seen = self._partition(event)
        isr = frozenset(event.isr)
        known = "s" if seen.leader == node else "i" if node in seen.isr else "o"
        how = known if seen.leader else "n"
        delta = event.leader_epoch - seen.epoch
        held = self._held.get(seen.leader, "")
        unclear = "?" if (event.leo or 0) > (event.hw or 0) else ""
        label = f"L{how}{len(isr)}{held}{'+' if delta > 1 else ''}{unclear}"
        seen.leader, seen.epoch, seen.end = node, event.leader_epoch, event.leo or 0
        self._note_isr(seen, isr)
        self._note(seen, at_ms, node, event, label)

    def on_isr(self, at_ms: int, node: int, event: IsrChanged) -> None:
        """A leader changed the ISR."""
        seen = self._partition(event)
        isr = frozenset(event.isr)
        changed = seen.isr ^ isr
        held = min((self._held.get(other, "") for other in changed), default="")
        label = f"{'E' if len(isr) > len(seen.isr) else 'S'}{len(isr)}{held}"
        self._note_isr(seen, isr)
        self._note(seen, at_ms, node, event, label)

    def on_follower(self, at_ms: int, node: int, event: PartitionFollower) -> None:
        """A broker became follower; of interest where its log is longer than the leader's was, or it was the leader."""
        seen = self._partition(event)
        longer = (event.leo or 0) > seen.end and event.leader_epoch >= seen.epoch
        if longer or node == seen.leader:
            label = f"F{'l' if node == seen.leader else ''}{'d' if longer else ''}"
            self._note(seen, at_ms, node, event, label)

    def on_truncated(self, at_ms: int, node: int, event: PartitionTruncated) -> None:
        """A replica removed records."""
        seen = self._partition(event)
        role = "i" if node in seen.isr else "o"
        label = f"T{role}"
        self._note(seen, at_ms, node, event, label)

    def on_recovered(self, at_ms: int, node: int, event: LogRecovered) -> None:
        """A log was recovered after a crash."""
        seen = self._partition(event)
        role = "l" if node == seen.leader else "i" if node in seen.isr else "o"
        self._note(seen, at_ms, node, event, f"R{role}{'t' if event.truncated_bytes else ''}")

    def on_reassignment(self, at_ms: int, node: int, event: ReassignmentStep) -> None:
        """A reassignment went on."""
        self._note(self._partition(event), at_ms, node, event, f"A{event.step}")

    def _partition(self, event: PartitionEvent) -> PartitionSeen:
        key = event.topic, event.partition
        seen = self._partitions.get(key)
        if seen is None:
            seen = self._partitions[key] = PartitionSeen(TOPIC_LETTERS.get(key[0], "?"))
        return seen

    def _note_isr(self, seen: PartitionSeen, isr: frozenset[int]) -> None:
        known = seen.replicas | isr
        seen.isr = isr
        seen.replicas = known if len(known) <= REPLICAS else isr

    def _note(self, seen: PartitionSeen, at_ms: int, node: int, event: PartitionEvent, label: str) -> None:
        letter = seen.letter
        self.features.add(f"{letter}|{seen.label}>{soon(at_ms - seen.at_ms)}{label}")
        seen.label, seen.at_ms = label, at_ms
        self._moments.append((at_ms, f"{letter}{label}", node, event.topic, event.partition))

    # ---------------------------------------------------------------- controller, sessions, brokers

    def on_controller(self, at_ms: int, node: int, event: ControllerElected) -> None:
        """A controller was elected."""
        del event
        held, now = self._held.get(self._controller, ""), self._held.get(node, "")
        how = "=" if node == self._controller else ">"
        self._controller = node
        self.features.add(f"c|{held}{how}{now}")
        self._moments.append((at_ms, f"c{held}{how}{now}", node, None, None))

    def on_expired(self, at_ms: int, node: int, event: RegistrySessionExpired) -> None:
        """The registry ended a session."""
        del node
        owner = int(event.name[7:]) if event.name.startswith("broker ") else 0
        also = "+" if at_ms - self._expired_ms < JUST_MS else ""
        self._expired_ms = at_ms
        label = f"{self._role(owner)}{self._held.get(owner, '')}{also}"
        self.features.add(f"x|{label}")
        self._moments.append((at_ms, f"x{label}", owner, None, None))

    def on_ready(self, at_ms: int, node: int, event: BrokerReady) -> None:
        """A broker serves after its start."""
        del event
        self._moments.append((at_ms, f"r{self._role(node)}", node, None, None))

    def on_loaded(self, at_ms: int, node: int, event: GroupsLoaded | TransactionsLoaded) -> None:
        """A coordinator loaded a partition."""
        count = magnitude(event.groups if isinstance(event, GroupsLoaded) else event.transactions)
        self.features.add(f"l|{count}{self._held.get(node, '')}")
        self._moments.append((at_ms, f"l{count}", node, None, None))

    # ----------------------------------------------------------------------- transactions and groups

    def on_transaction(self, at_ms: int, node: int, event: TransactionChanged) -> None:
        """The state of a transactional id changed."""
        self._change(at_ms, node, f"t/{event.transactional_id}", event.state, event.epoch)

    def on_group(self, at_ms: int, node: int, event: GroupChanged) -> None:
        """The state of a group changed."""
        state = f"{event.state}{magnitude(event.members)}"
        self._change(at_ms, node, f"g/{event.group}", state, event.generation)

    def _change(self, at_ms: int, node: int, name: str, state: str, epoch: int) -> None:
        seen = self._states.setdefault(name, StateSeen())
        raised = "" if epoch == seen.epoch else "e" if epoch > seen.epoch else "E"
        moved = "" if node == seen.node else "m"
        letter = name[0]
        self.features.add(f"{letter}|{seen.name}>{state}|{raised}{moved}")
        if self._held:
            self.features.add(f"{letter}|{state}|{self._held.get(node, '-')}")
        seen.name, seen.epoch, seen.node = state, epoch, node
        self._moments.append((at_ms, f"{letter}{state}{moved}", node, None, None))

    # ------------------------------------------------------------------------------------- faults

    def on_inject(self, at_ms: int, node: int, event: FaultInjected) -> None:
        """A fault began."""
        del node
        step_id, nodes = event.id, frozenset(event.targets)
        step = self._steps.get(step_id)
        if self._traffic_ms is None and step is not None and step.fired_ms is not None:
            self._traffic_ms = at_ms - step.fired_ms
        kind = kind_of(event.fault, step)
        role = "all" if len(nodes) > 1 else self._role(min(nodes, default=0))
        fault = FaultSeen(kind, letter_of(event.fault), role, nodes, at_ms)
        add = self.features.add
        add(f"f|{kind}:{role}")
        if len(nodes) <= 1:
            for seen in self._partitions.values():
                if nodes & seen.replicas or seen.leader in nodes:
                    part = "l" if seen.leader in nodes else "f"
                    add(f"f|{fault.letter}:{part}:{seen.letter}{seen.label}{soon(at_ms - seen.at_ms)}")
        for state in sorted({seen.name for key, seen in self._states.items() if key[0] == "t"}):
            add(f"f|{kind}:{state}")
        for other in self._faults.values():
            self._meet(fault, other)
        self._faults[step_id] = fault
        self._hold(fault)

    def on_effect(self, at_ms: int, node: int, event: FaultTookEffect) -> None:
        """A fault took effect."""
        del node
        seen = self._faults.get(event.id)
        if seen is not None:
            target = min(seen.nodes, default=0)
            self._moments.append((at_ms, f"+{seen.kind}:{seen.role}", target, None, None))

    def on_healed(self, at_ms: int, node: int, event: FaultHealed) -> None:
        """A fault is over."""
        del node
        seen = self._faults.get(event.id)
        if seen is None:
            return
        seen.healed_ms = at_ms
        for hit in seen.nodes:
            self._held.pop(hit, None)
        for other in self._faults.values():
            if other.healed_ms is None:
                self._hold(other)
        target = min(seen.nodes, default=0)
        self._moments.append((at_ms, f"-{seen.kind}:{seen.role}", target, None, None))

    def _meet(self, fault: FaultSeen, other: FaultSeen) -> None:
        if other.healed_ms is not None and fault.at_ms - other.healed_ms > JUST_MS:
            return
        how = "o" if other.healed_ms is None else "h"
        same = "=" if fault.nodes & other.nodes else "|"
        pair = f"{other.letter}{other.role}{same}{fault.letter}{fault.role}"
        self.features.add(f"{how}|{pair}{soon(fault.at_ms - other.at_ms)}")

    def _hold(self, fault: FaultSeen) -> None:
        if len(fault.letter) == 1:
            for node in fault.nodes:
                self._held[node] = fault.letter

    def _role(self, node: int) -> str:
        """Return the controller, a leader, a member of an ISR, another replica, or none of them."""
        if node == self._controller:
            return "C"
        best = "-"
        for seen in self._partitions.values():
            if seen.leader == node:
                return "L"
            if node in seen.isr:
                best = "I"
            elif node in seen.replicas and best == "-":
                best = "O"
        return best


HANDLERS: Final[Mapping[type[TraceEvent], Callable[[TraceReader, int, int, Any], None]]] = {
    PartitionLeader: TraceReader.on_leader,
    IsrChanged: TraceReader.on_isr,
    PartitionFollower: TraceReader.on_follower,
    PartitionTruncated: TraceReader.on_truncated,
    ReassignmentStep: TraceReader.on_reassignment,
    LogRecovered: TraceReader.on_recovered,
    ControllerElected: TraceReader.on_controller,
    RegistrySessionExpired: TraceReader.on_expired,
    BrokerReady: TraceReader.on_ready,
    GroupsLoaded: TraceReader.on_loaded,
    TransactionsLoaded: TraceReader.on_loaded,
    TransactionChanged: TraceReader.on_transaction,
    GroupChanged: TraceReader.on_group,
    FaultInjected: TraceReader.on_inject,
    FaultTookEffect: TraceReader.on_effect,
    FaultHealed: TraceReader.on_healed,
}
