"""The brokers' traces: one leader and one controller an epoch, no fenced broker in an ISR, no missed wake-up.

A trace has an event for each election, for each broker that a leader proposes to add to an ISR, and for each delayed
operation that was not woken. The events are few and concern all brokers, so `judge` checks them itself, when it merges
the results of the partitions. `log_changes.py` reads from the same events what Kafka removed legally.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harrow.cluster.planting import PLANTED_EVENT

from ..run_folder import registry_trace, trace_files
from .busy_machine import EVENTS as MACHINE_EVENTS
from .log_changes import CHANGE_EVENTS
from .unanswered import EVENT as UNANSWERED_EVENT

LEADERSHIP_EVENTS = ("partition.leader", "controller.elected")
EXPANSION_EVENT = "partition.isr-expansion"
MISSED_EVENT = "purgatory.missed"
JUDGED_EVENTS = (*LEADERSHIP_EVENTS, EXPANSION_EVENT, MISSED_EVENT, UNANSWERED_EVENT)
"""What `claims_of_brokers` and `unanswered.py` read."""
OF_BROKERS = ("broker.ready", "broker.stopping", "partition.isr")
OF_COORDINATORS = ("group.loaded", "transactions.loaded", "group.member-expired")
PROGRESS_EVENTS = (*OF_BROKERS, *OF_COORDINATORS)
"""What `progress/` reads besides elections."""
WANTED_EVENTS = (*JUDGED_EVENTS, *CHANGE_EVENTS, *MACHINE_EVENTS, *PROGRESS_EVENTS)
EVENT_MARK = re.compile(f'"event": ?"(?:{"|".join(map(re.escape, WANTED_EVENTS))})"'.encode())

TRACE_HEAD_BYTES = 65_536
PLANTED_MARK = f'"{PLANTED_EVENT}"'.encode()


def judged_events(folder: Path) -> list[dict[str, Any]]:
    """Return every broker's events that a verdict reads: elections, ISRs, stalls, and what was removed from logs.

    The registry's are among them, with "registry" as `broker`.

    Lines that are not JSON, such as a torn last line, are skipped.
    """
    found: list[dict[str, Any]] = []
    registry = registry_trace(folder)
    for path in [*trace_files(folder), *([registry] if registry.exists() else [])]:
        with path.open("rb") as file:
            for line in file:
                if EVENT_MARK.search(line):
                    try:
                        event = json.loads(line)
                    except ValueError:
                        continue
                    found.append({**event, "broker": path.parent.name})
    return found


def planted_bugs(folder: Path) -> tuple[str, ...]:
    """Return the bugs that were planted in any broker of the run, as `module: title`, sorted.

    A broker emits `broker.planted` as the first event of each incarnation, so reading the head of its trace suffices.
    """
    found: set[str] = set()
    for path in trace_files(folder):
        with path.open("rb") as file:
            lines = file.read(TRACE_HEAD_BYTES).splitlines()
        for line in lines:
            if PLANTED_MARK in line:
                try:
                    plants = json.loads(line)["plants"]
                except ValueError:  # the last line of the head may be cut
                    continue
                found.update(f"{plant['module']}: {plant['title']}" for plant in plants)
    return tuple(sorted(found))


def claims_of_brokers(events: Sequence[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """Return what `leadership_claims`, `fenced_in_isr` and `missed_wake_ups` find."""
    return [*leadership_claims(events, topics), *fenced_in_isr(events, topics), *missed_wake_ups(events, topics)]


def leadership_claims(events: Iterable[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """Return the anomalies `two-leaders` and `two-controllers`, in the form of a kernel's anomalies.

    Each event has the name of its broker under `broker`. Epochs of a topic that was created again begin again.
    """
    claims: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event.get("event") == "controller.elected":
            claims["two-controllers", ("", None), -1, event.get("epoch")].setdefault(event["broker"], event)
        elif event.get("event") == "partition.leader" and event.get("topic") in topics:
            incarnation = event["topic"], event.get("topic_id")
            place = ("two-leaders", incarnation, event["partition"], event.get("leader_epoch"))
            claims[place].setdefault(event.get("leader", event["broker"]), event)
    return [
        {
            "name": name,
            "topic": topic,
            "partition": partition,
            "offsets": [],
            "operations": list(events.values()),
            "explanation": _explain(name, epoch, events),
        }
        for (name, (topic, _), partition, epoch), events in claims.items()
        if len(events) > 1
    ]


def _explain(name: str, epoch: object, events: Mapping[object, object]) -> str:
    role = "leader in leader epoch" if name == "two-leaders" else "controller in controller epoch"
    brokers = ", ".join(sorted(str(broker).removeprefix("broker-") for broker in events))
    return f"brokers {brokers} were all {role} {epoch}, expected at most one broker"


def fenced_in_isr(events: Iterable[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """Return the anomaly `fenced-in-isr`, once for each broker that was added under a leader epoch.

    A leader is judged by what it knew itself: its event has the replicas that its metadata listed as live when it made
    the proposal. So a broker that has just lost its session, or has just registered again, is no anomaly.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        if event.get("event") != EXPANSION_EVENT or event.get("topic") not in topics:
            continue
        added, epoch = event["added"], event["leader_epoch"]
        if added in event["live"]:
            continue
        text = (
            f"broker {event['leader']}, leader in leader epoch {epoch}, proposed the ISR {event['isr']} with broker "
            f"{added}, although its metadata listed only {event['live']} of the replicas as live"
        )
        found.setdefault(
            (event["topic"], event["partition"], epoch, event["leader"], added),
            {
                "name": "fenced-in-isr",
                "topic": event["topic"],
                "partition": event["partition"],
                "offsets": [],
                "operations": [event],
                "explanation": text,
            },
        )
    return list(found.values())


def missed_wake_ups(events: Iterable[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """Return the anomaly `missed-wake-up`, once for each broker, partition and kind of operation.

    The broker asked the operation at its deadline, and it could have completed.
    """
    found: dict[tuple[Any, ...], dict[str, Any]] = {}
    for event in events:
        if event.get("event") != MISSED_EVENT or event.get("topic") not in topics:
            continue
        node = str(event["broker"]).removeprefix("broker-")
        text = (
            f"an operation in the purgatory {event['purgatory']} of broker {node} waited until its deadline, although "
            "what it waited for had happened: the broker did not wake it"
        )
        found.setdefault(
            (event["broker"], event["topic"], event["partition"], event["purgatory"]),
            {
                "name": "missed-wake-up",
                "topic": event["topic"],
                "partition": event["partition"],
                "offsets": [],
                "operations": [event],
                "explanation": text,
            },
        )
    return list(found.values())
