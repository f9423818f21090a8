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
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harrow.cluster.broker_folder import BROKER_PREFIX, REGISTRY, broker_name

from ..run_folder import RunTimes
from ..wording import counted

SHRUNK, EXPIRED, ENDED, STALLED, LED = (
    "partition.isr",
    "broker.session-expired",
    "registry.expired",
    "process.stalled",
    "partition.leader",
)
EVENTS = (SHRUNK, EXPIRED, ENDED, STALLED, LED)
"""What is read of the traces."""
AFTER_FAULT_NS = 10_000_000_000
BEFORE_NS = 30_000_000_000
"""As long as a follower may lag before it leaves the ISR, by default."""
NS_PER_MS = 1_000_000
PLACES_MOST = 3
Event = Mapping[str, Any]
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


def departures(events: Iterable[Event], windows: Windows) -> list[Departure]:
    """Return the departures without a fault, by time; each event has its process under `broker`, a name or an id."""
    rows = sorted((row for row in events if "t_ns" in row), key=_time)
    dead = _brokers_that_died(rows)
    isr_of: dict[tuple[Any, Any], list[int]] = {}
    found: list[Departure] = []
    for row in rows:
        at_ns, kind = _time(row), row.get("event")
        if kind == EXPIRED:
            gone = [Departure(node=int(row["node_id"]), t_ns=at_ns, leader=-1)]
        elif kind in (SHRUNK, LED) and row.get("isr"):
            place = row["topic"], row["partition"]
            before, isr_of[place] = isr_of.get(place, []), list(row["isr"])
            gone = [
                Departure(node=node, t_ns=at_ns, leader=_node(row), topic=place[0], partition=place[1])
                for node in before
                if node not in row["isr"] and kind == SHRUNK and row.get("cause") == "shrink"
            ]
        else:
            continue
        if not any(start <= at_ns <= end + AFTER_FAULT_NS for start, end in windows):
            found += [departure for departure in gone if departure.node not in dead]
    return found


def _time(row: Event) -> int:
    return int(row["t_ns"])


def _node(row: Event) -> int:
    return int(str(row["broker"]).removeprefix(BROKER_PREFIX))


def _brokers_that_died(rows: Sequence[Event]) -> set[int]:
    """Return the brokers for which the registry ended more sessions than they noticed themselves."""
    ended = Counter(str(row.get("name")) for row in rows if row.get("event") == ENDED)
    noticed = Counter(broker_name(row["node_id"]) for row in rows if row.get("event") == EXPIRED)
    names = [name for name, count in ended.items() if count > noticed[name]]
    return {int(name.removeprefix(BROKER_PREFIX)) for name in names if name.startswith(BROKER_PREFIX)}


def reason(events: Iterable[Event], windows: Windows, at_ns: int) -> str:
    """Return why it happened, as far as it was measured: by the longest stall of a process before `at_ns`."""
    stalls = [
        row
        for row in events
        if row.get("event") == STALLED
        and "t_ns" in row
        and at_ns - BEFORE_NS <= _time(row) <= at_ns + _late_ns(row)
        and not any(start <= _time(row) <= end + AFTER_FAULT_NS for start, end in windows)
    ]
    if not stalls:
        return "it did not keep up; no process of the cluster is known to have been held up before"
    worst = max(stalls, key=_late_ns)
    late_s, used_s = worst["late_ms"] / 1000, worst["cpu_ms"] / 1000
    process = "the registry" if str(worst["broker"]) == REGISTRY else f"broker {_node(worst)}"
    cause = "the machine was too busy"
    if used_s < late_s / 2:
        cause += ", or something other than Harrow stopped processes"
    measured = f"did not advance for {late_s:.1f} s, with {used_s:.1f} s of CPU time meanwhile"
    return f"{cause} (the process of {process} {measured})"


def _late_ns(row: Event) -> int:
    return int(row["late_ms"]) * NS_PER_MS


def machine_notes(events: Sequence[Event], windows: Windows, times: RunTimes) -> list[str]:
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
