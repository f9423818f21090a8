"""The brokers' traces: one leader and one controller an epoch, no fenced broker in an ISR, no missed wake-up.

A trace has an event for each election, for each broker that a leader proposes to add to an ISR, and for each delayed
operation that was not woken. The events are few and concern all brokers, so `judge` checks them itself, when it merges
the results of the partitions. `traced_changes.py` reads from the same events what Kafka removed legally.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

from harrow.cluster.events import TracedEvent, TraceEvent, traced_line
from harrow.cluster.events.brokers import BrokerPlanted, BrokerReady, BrokerStopping
from harrow.cluster.events.controllers import ControllerElected
from harrow.cluster.events.coordinators import GroupsLoaded, MemberExpired, TransactionsLoaded
from harrow.cluster.events.partitions import (
    IsrChanged,
    IsrExpansionProposed,
    PartitionEvent,
    PartitionLeader,
    WakeUpMissed,
)
from harrow.cluster.events.requests import RequestUnanswered

from ..histories.trace_events import events_of_cluster
from ..run_folder import trace_files
from .busy_machine import EVENTS as MACHINE_EVENTS
from .rows import AnomalyRow, OperationRow
from .traced_changes import CHANGE_EVENTS

Events = Iterable[TracedEvent[TraceEvent]]
JUDGED_EVENTS = (PartitionLeader, ControllerElected, IsrExpansionProposed, WakeUpMissed, RequestUnanswered)
"""What `claims_of_brokers` and `unanswered.py` read."""
OF_BROKERS = (BrokerReady, BrokerStopping, IsrChanged)
OF_COORDINATORS = (GroupsLoaded, TransactionsLoaded, MemberExpired)
PROGRESS_EVENTS = (*OF_BROKERS, *OF_COORDINATORS)
"""What `progress/` reads besides elections."""
WANTED_EVENTS: tuple[type[TraceEvent], ...] = (*JUDGED_EVENTS, *CHANGE_EVENTS, *MACHINE_EVENTS, *PROGRESS_EVENTS)

TRACE_HEAD_BYTES = 65_536
PLANTED_MARK = f'"{BrokerPlanted.EVENT}"'.encode()


def judged_events(folder: Path) -> list[TracedEvent[TraceEvent]]:
    """Return the events of brokers and registry that a verdict reads: elections, ISRs, stalls, and removals."""
    return events_of_cluster(folder, WANTED_EVENTS)


def planted_bugs(folder: Path) -> tuple[str, ...]:
    """Return the bugs that were planted in any broker of the run, as `module: title`, sorted.

    A broker emits `broker.planted` as the first event of each incarnation, so reading the head of its trace suffices.
    """
    found: set[str] = set()
    for path in trace_files(folder):
        with path.open("rb") as file:
            lines = file.read(TRACE_HEAD_BYTES).splitlines()
        for line in lines:
            traced = traced_line(line, path.parent.name) if PLANTED_MARK in line else None
            if traced is not None and isinstance(traced.event, BrokerPlanted):
                found.update(f"{plant['module']}: {plant['title']}" for plant in traced.event.plants)
    return tuple(sorted(found))


def claims_of_brokers(events: Sequence[TracedEvent[TraceEvent]], topics: set[str]) -> list[AnomalyRow]:
    """Return what `leadership_claims`, `fenced_in_isr` and `missed_wake_ups` find."""
    return [*leadership_claims(events, topics), *fenced_in_isr(events, topics), *missed_wake_ups(events, topics)]


def leadership_claims(events: Events, topics: set[str]) -> list[AnomalyRow]:
    """Return the anomalies `two-leaders` and `two-controllers`, as rows.

    Epochs of a topic that was created again begin again.
    """
    claims: dict[tuple[Any, ...], dict[str | int, TracedEvent[TraceEvent]]] = defaultdict(dict)
    for traced in events:
        event = traced.event
        if isinstance(event, ControllerElected):
            claims["two-controllers", ("", None), -1, event.epoch].setdefault(traced.process, traced)
        elif isinstance(event, PartitionLeader) and event.topic in topics:
            place = ("two-leaders", (event.topic, event.topic_id), event.partition, event.leader_epoch)
            claims[place].setdefault(event.leader, traced)
    return [
        AnomalyRow(
            name=name,
            topic=topic,
            partition=partition,
            operations=[_shown(traced) for traced in claimed.values()],
            explanation=_explain(name, epoch, claimed),
        )
        for (name, (topic, _), partition, epoch), claimed in claims.items()
        if len(claimed) > 1
    ]


def _claim(name: str, event: PartitionEvent, traced: TracedEvent[TraceEvent], text: str) -> AnomalyRow:
    """Return the anomaly that one event shows."""
    return AnomalyRow(
        name=name, topic=event.topic, partition=event.partition, operations=[_shown(traced)], explanation=text
    )


def _shown(traced: TracedEvent[TraceEvent]) -> OperationRow:
    return cast("OperationRow", traced.row())


def _explain(name: str, epoch: object, claimed: Mapping[str | int, object]) -> str:
    role = "leader in leader epoch" if name == "two-leaders" else "controller in controller epoch"
    brokers = ", ".join(sorted(str(broker).removeprefix("broker-") for broker in claimed))
    return f"brokers {brokers} were all {role} {epoch}, expected at most one broker"


def fenced_in_isr(events: Events, topics: set[str]) -> list[AnomalyRow]:
    """Return the anomaly `fenced-in-isr`, once for each broker that was added under a leader epoch.

    A leader is judged by what it knew itself: its event has the replicas that its metadata listed as live when it made
    the proposal. So a broker that has just lost its session, or has just registered again, is no anomaly.
    """
    found: dict[tuple[Any, ...], AnomalyRow] = {}
    for traced in events:
        event = traced.event
        if not isinstance(event, IsrExpansionProposed) or event.topic not in topics or event.added in event.live:
            continue
        text = (
            f"broker {event.leader}, leader in leader epoch {event.leader_epoch}, proposed the ISR {list(event.isr)} "
            f"with broker {event.added}, although its metadata listed only {list(event.live)} of the replicas as live"
        )
        found.setdefault(
            (event.topic, event.partition, event.leader_epoch, event.leader, event.added),
            _claim("fenced-in-isr", event, traced, text),
        )
    return list(found.values())


def missed_wake_ups(events: Events, topics: set[str]) -> list[AnomalyRow]:
    """Return the anomaly `missed-wake-up`, once for each broker, partition and kind of operation.

    The broker asked the operation at its deadline, and it could have completed.
    """
    found: dict[tuple[Any, ...], AnomalyRow] = {}
    for traced in events:
        event = traced.event
        if not isinstance(event, WakeUpMissed) or event.topic not in topics:
            continue
        text = (
            f"an operation in the purgatory {event.purgatory} of broker {traced.node} waited until its deadline, "
            "although what it waited for had happened: the broker did not wake it"
        )
        found.setdefault(
            (traced.process, event.topic, event.partition, event.purgatory),
            _claim("missed-wake-up", event, traced, text),
        )
    return list(found.values())
