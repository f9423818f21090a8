"""Checks on the brokers' traces: at most one leader for each leader epoch, one controller for each controller epoch.

These cross partitions and are few (one row an election), so they are judged where the verdict is merged.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from harrow.cluster.planting import PLANTED_EVENT

from ..run_folder import trace_files

LEADERSHIP_EVENTS = ("partition.leader", "controller.elected")

TRACE_HEAD_BYTES = 65_536
PLANTED_MARK = f'"{PLANTED_EVENT}"'.encode()


def _events(folder: Path) -> list[dict[str, Any]]:
    """Events of interest of every broker; a torn last line is passed over."""
    found: list[dict[str, Any]] = []
    for path in trace_files(folder):
        with path.open("rb") as file:
            for line in file:
                if b'"partition.leader"' in line or b'"controller.elected"' in line:
                    try:
                        event = json.loads(line)
                    except ValueError:
                        continue
                    found.append({**event, "broker": path.parent.name})
    return found


def planted_bugs(folder: Path) -> tuple[str, ...]:
    """Bugs that were planted in any broker of the run, as `module: title`, sorted; empty when there are none.

    A broker emits `broker.planted` as the first event of each life, so the head of a trace tells it.
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


def leadership(folder: Path, topics: set[str]) -> list[dict[str, Any]]:
    """Anomalies of the brokers' traces in a run's folder."""
    return leadership_claims(_events(folder), topics)


def leadership_claims(events: Iterable[dict[str, Any]], topics: set[str]) -> list[dict[str, Any]]:
    """Anomalies `two-leaders` and `two-controllers`, shaped as a kernel's; each event with its `broker`."""
    claims: dict[tuple[Any, ...], dict[Any, dict[str, Any]]] = defaultdict(dict)
    for event in events:
        if event.get("event") == "controller.elected":
            claims["two-controllers", "", -1, event.get("epoch")].setdefault(event["broker"], event)
        elif event.get("event") == "partition.leader" and event.get("topic") in topics:
            place = ("two-leaders", event["topic"], event["partition"], event.get("leader_epoch"))
            claims[place].setdefault(event.get("leader", event["broker"]), event)
    return [
        {
            "name": name, "topic": topic, "partition": partition, "offsets": [], "operations": list(who.values()),
            "explanation": f"{len(who)} brokers claimed epoch {epoch}",
        }
        for (name, topic, partition, epoch), who in claims.items()
        if len(who) > 1
    ]  # fmt: skip
