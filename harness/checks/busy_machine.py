"""What a busy machine did to a healthy cluster: a broker left an ISR, or its session ended, while no fault was active.

Owns: `Departure` and how it is found in the traces of brokers and registry, the evidence for it, and the notes of a
verdict. The causes of anomalies use the same (`causes/busy_machine.py`).

    a departure is                                         it is traced as
    a leader removed a live broker from an ISR             `partition.isr` with cause `shrink`
    the registry ended the session of a live broker        `broker.session-expired`, by the broker itself

It is without a fault when no fault of the run was active then, nor in the AFTER_FAULT_NS before: a broker
that returns from a fault has to catch up. A broker that died (the registry ended a session, and the broker never said
so) is left out for the whole run, because a test may have ended it by its own means. So nothing is said in doubt.

The evidence is `process.stalled` (`harrow.cluster.host.real.stall_watch`) of any process of the cluster in the
BEFORE_NS until then. Without it, only what happened is said.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from harrow.cluster.broker_folder import REGISTRY
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.brokers import BrokerSessionExpired
from harrow.cluster.events.controllers import RegistrySessionExpired
from harrow.cluster.events.partitions import IsrChanged, PartitionLeader
from harrow.cluster.events.processes import ProcessStalled

from ..run_folder import RunTimes
from ..wording import counted

EVENTS = (IsrChanged, BrokerSessionExpired, RegistrySessionExpired, ProcessStalled, PartitionLeader)
"""What is read of the traces."""
AFTER_FAULT_NS = 10_000_000_000
BEFORE_NS = 30_000_000_000
"""As long as a follower may lag before it leaves the ISR, by default."""
NS_PER_MS = 1_000_000
PLACES_MOST = 3
Events = Iterable[TracedEvent[TraceEvent]]
Windows = Sequence[tuple[int, int]]
"""Start and end of each fault, in nanoseconds of the monotonic clock."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """One broker that left the ISR of a partition, or whose session ended (`topic` is empty)."""

    node: int
    t_ns: int
    leader: int
    topic: str = ""
    partition: int = -1

    @property
    def place(self) -> str:
        """The partition's name."""
        return f"{self.topic}-{self.partition}"


def departures(events: Events, windows: Windows) -> list[Departure]:
    """Return the departures without a fault, by time."""
    rows = sorted(events, key=_time)
    dead = _brokers_that_died(rows)
    isr_of: dict[tuple[str, int], tuple[int, ...]] = {}
    found: list[Departure] = []
    for row in rows:
        event, at_ns = row.event, row.t_ns
        if isinstance(event, BrokerSessionExpired):
            gone = [Departure(node=event.node_id, t_ns=at_ns, leader=-1)]
        elif isinstance(event, IsrChanged | PartitionLeader) and event.isr:
            place = event.topic, event.partition
            before, isr_of[place] = isr_of.get(place, ()), event.isr
            gone = [
                Departure(node=node, t_ns=at_ns, leader=row.node, topic=place[0], partition=place[1])
                for node in before
                if node not in event.isr and isinstance(event, IsrChanged) and event.cause == "shrink"
            ]
        else:
            continue
        if not any(start <= at_ns <= end + AFTER_FAULT_NS for start, end in windows):
            found += [departure for departure in gone if departure.node not in dead]
    return found


def _time(row: TracedEvent[TraceEvent]) -> int:
    return row.t_ns


def _brokers_that_died(rows: Events) -> set[int]:
    """Return the brokers for which the registry ended more sessions than they noticed themselves."""
    events = [row.event for row in rows]
    ended = Counter(event.node for event in events if isinstance(event, RegistrySessionExpired))
    noticed = Counter(event.node_id for event in events if isinstance(event, BrokerSessionExpired))
    return {node for node, count in ended.items() if count > noticed[node]}


def reason(events: Events, windows: Windows, at_ns: int) -> str:
    """Return why it happened, as far as it was measured: by the longest stall of a process before `at_ns`."""
    stalls = [
        (event.late_ms, event.cpu_ms, row)
        for row in events
        if isinstance(event := row.event, ProcessStalled)
        and at_ns - BEFORE_NS <= row.t_ns <= at_ns + event.late_ms * NS_PER_MS
        and not any(start <= row.t_ns <= end + AFTER_FAULT_NS for start, end in windows)
    ]
    if not stalls:
        return "it did not keep up; no process of the cluster is known to have been held up before"
    late_ms, cpu_ms, worst = max(stalls, key=lambda stall: stall[0])
    late_s, used_s = late_ms / 1000, cpu_ms / 1000
    process = "the registry" if worst.process == REGISTRY else f"broker {worst.node}"
    cause = "the machine was too busy"
    if used_s < late_s / 2:
        cause += ", or something other than Harrow stopped processes"
    measured = f"did not advance for {late_s:.1f} s, with {used_s:.1f} s of CPU time meanwhile"
    return f"{cause} (the process of {process} {measured})"


def machine_notes(events: Sequence[TracedEvent[TraceEvent]], windows: Windows, times: RunTimes) -> list[str]:
    """Return a note for each broker that left ISRs without a fault, and for each whose session ended so."""
    by_broker: dict[tuple[int, bool], list[Departure]] = defaultdict(list)
    for departure in departures(events, windows):
        by_broker[departure.node, bool(departure.topic)].append(departure)
    return [
        f"{sentence(found, times)}: {reason(events, windows, found[0].t_ns)}" for _, found in sorted(by_broker.items())
    ]


def sentence(found: Sequence[Departure], times: RunTimes) -> str:
    """Return what happened to one broker: "broker 2 left the ISR of orders-0 at 3.10 s although …"."""
    first, when = found[0], times.text(found[0].t_ns)
    if not first.topic:
        often = f" and {counted(len(found) - 1, 'time')} later" if len(found) > 1 else ""
        return f"the registry ended the session of broker {first.node} at {when}{often} although no fault was active"
    places = sorted(dict.fromkeys(departure.place for departure in found), key=_is_internal)
    named = ", ".join(places[:PLACES_MOST])
    if len(places) > PLACES_MOST:
        named += f" and {counted(len(places) - PLACES_MOST, 'other partition')}"
    return f"broker {first.node} left the ISR of {named} at {when} although no fault was active"


def _is_internal(place: str) -> bool:
    return place.startswith("__")
