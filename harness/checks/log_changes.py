"""What Kafka may remove from a log legally, by the brokers' traces: compaction, retention, a topic created again (L6).

A record that such a change may have removed is not `lost-write`. Evidence is needed for each: a gap, or a log that
begins later than another replica's, is an anomaly where no trace has the event that explains it.

* `log.cleaning` precedes everything that compaction removes: below `first_uncleanable` records of a key may be gone;
* `log.segments-deleted` names the segments that a replica removed from its beginning (retention, DeleteRecords);
  by time it is legal only when a record can be as old as the topic keeps it (`removed_too_early`; simulations ask it);
* `partition.leader` has the topic's id: another id means that the topic was deleted and created again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.broker_folder import BROKER_PREFIX

REMOVAL_EVENTS = ("log.cleaning", "log.segments-deleted")
Event = Mapping[str, Any]
Place = tuple[str, int]


@dataclass(slots=True, kw_only=True)
class LogChanges:
    """The legal changes of one partition's log."""

    created_ns: int = 0
    """When the topic was created again; 0: it was created once."""
    cleaned_end: int = 0
    """Offsets below it may have been removed by compaction."""
    deleted_heads: dict[int, int] = field(default_factory=dict[int, int])
    """By broker, the largest base offset of a segment that was removed from the beginning of its log."""


def log_changes(events: Iterable[Event], topics: Iterable[str]) -> dict[Place, LogChanges]:
    """Return the changes of each partition that had any; `events` have the name of their broker under `broker`."""
    wanted = frozenset(topics)
    ordered = sorted(
        (event for event in events if event.get("topic") in wanted),
        key=lambda event: event.get("t_ns", 0),
    )
    changes: dict[Place, LogChanges] = {}
    topic_ids: dict[str, str] = {}
    created: dict[str, int] = {}
    for event in ordered:
        topic, place = event["topic"], (event["topic"], int(event.get("partition", -1)))
        if event["event"] == "partition.leader" and "topic_id" in event:
            known = topic_ids.setdefault(topic, event["topic_id"])
            if known != event["topic_id"]:
                topic_ids[topic], created[topic] = event["topic_id"], int(event["t_ns"])
                changes = {at: change for at, change in changes.items() if at[0] != topic}
            if topic in created:
                changes.setdefault(place, LogChanges(created_ns=created[topic]))
            continue
        change = changes.setdefault(place, LogChanges(created_ns=created.get(topic, 0)))
        if event["event"] == "log.cleaning":
            change.cleaned_end = max(change.cleaned_end, int(event["first_uncleanable"]))
        elif event["event"] == "log.segments-deleted" and event["base_offsets"]:
            node = int(str(event["broker"]).removeprefix(BROKER_PREFIX))
            last = max(map(int, event["base_offsets"]))
            change.deleted_heads[node] = max(change.deleted_heads.get(node, -1), last)
    return changes


def removed_too_early(
    events: Iterable[Event], topic: str, partition: int, begun_ns: int, keep_ms: int
) -> int | None:
    """Return the first offset that retention by time removed although no record was `keep_ms` old; None without one.

    `begun_ns`: the clock of the traces when no record was written yet; `keep_ms`: -1 for ever. For runs in which no
    fault has changed a broker's clock, and records have the time of their send.
    """
    removed = (
        event["base_offsets"]
        for event in events
        if (event["event"], event.get("topic"), event.get("partition")) == (REMOVAL_EVENTS[1], topic, partition)
        and event["reason"] == "retention.ms"
        and (keep_ms < 0 or event["t_ns"] - begun_ns <= keep_ms * 1_000_000)
    )  # fmt: skip
    return min((int(base) for bases in removed for base in bases), default=None)
