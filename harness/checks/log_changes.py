"""What Kafka may change in a log legally, by the brokers' traces: compaction, retention, elections, a new topic (L6).

A record that such a change may have removed is not `lost-write`. Evidence is needed for each: a gap, or a log that
begins later than another replica's, is an anomaly where no trace has the event that explains it.

* `log.cleaning` precedes everything that compaction removes: below `first_uncleanable` records of a key may be gone,
  if the key has a later record, and if the settings in the event let them go (`kernels/removals.py`);
* `log.segments-deleted` names the segments that a replica removed from its beginning (retention, DeleteRecords), with
  the settings that the broker applied: `kernels/early_removals.py` says which removals were too early, and
  `oracle_of_removals.py` for simulations;
* `partition.leader` has the topic's id: another id means that the topic was deleted and created again;
* `partition.leader` has where the leader's log ended, and `partition.unclean` precedes an unclean election
  (`kernels/leaders.py`).

`clock.set` says that a broker's clock was wrong: ages by the wall clock are not judged then.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from harrow.cluster.broker_folder import BROKER_PREFIX

REMOVAL_EVENTS = ("log.cleaning", "log.segments-deleted")
CLOCK_EVENT, LEADER_EVENT, UNCLEAN_EVENT = "clock.set", "partition.leader", "partition.unclean"
CHANGE_EVENTS = (*REMOVAL_EVENTS, CLOCK_EVENT, LEADER_EVENT, UNCLEAN_EVENT)
"""What `log_changes` reads."""
NOT_TRACED = -2
"""A setting that an event does not have, because the broker is not Harrow's."""
Event = Mapping[str, Any]
Place = tuple[str, int]


class Removal(NamedTuple):
    """One segment that a replica removed from the beginning of its log: offsets from `base` to before `end`."""

    node: int
    base: int
    end: int
    reason: str
    t_ns: int
    wall_ms: int
    keep_ms: int
    """`retention.ms`; this and the next: -1 for no limit, `NOT_TRACED` where it is not known."""
    keep_bytes: int
    bytes_left: int
    """Size of the log after the removal of all segments that were removed with this one."""


class CleaningBegun(NamedTuple):
    """One pass of a replica's log cleaner."""

    first_uncleanable: int
    t_ns: int
    wall_ms: int
    tombstone_ms: int
    """`delete.retention.ms`; this and the next: `NOT_TRACED` where it is not known."""
    lag_ms: int
    """`min.compaction.lag.ms`."""


class Leadership(NamedTuple):
    """A broker that became leader, and where its log ended."""

    leader_epoch: int
    leader: int
    log_end: int
    t_ns: int


@dataclass(slots=True, kw_only=True)
class LogChanges:
    """The legal changes of one partition's log."""

    created_ns: int = 0
    """When the topic was created again; 0: it was created once."""
    cleaned_end: int = 0
    """Offsets below it may have been removed by compaction."""
    deleted_heads: dict[int, int] = field(default_factory=dict[int, int])
    """By broker, the largest base offset of a segment that was removed from the beginning of its log."""
    removals: list[Removal] = field(default_factory=list[Removal])
    cleanings: list[CleaningBegun] = field(default_factory=list[CleaningBegun])
    leaderships: list[Leadership] = field(default_factory=list[Leadership])
    unclean_epochs: list[int] = field(default_factory=list[int])
    """Leader epochs that unclean elections began, or were about to begin."""
    wrong_clocks: bool = False
    """Whether a fault changed the clock of a broker, of any partition."""


def log_changes(events: Iterable[Event], topics: Iterable[str]) -> dict[Place, LogChanges]:
    """Return the changes of each partition that had any; `events` have the name of their broker under `broker`."""
    wanted = frozenset(topics)
    known = list(events)
    wrong_clocks = any(event.get("event") == CLOCK_EVENT for event in known)
    ordered = sorted((event for event in known if event.get("topic") in wanted), key=lambda event: event.get("t_ns", 0))
    changes: dict[Place, LogChanges] = {}
    topic_ids: dict[str, str] = {}
    created: dict[str, int] = {}
    for event in ordered:
        topic, place = event["topic"], (event["topic"], int(event.get("partition", -1)))
        if event["event"] == LEADER_EVENT and "topic_id" in event:
            topic_id = topic_ids.setdefault(topic, event["topic_id"])
            if topic_id != event["topic_id"]:
                topic_ids[topic], created[topic] = event["topic_id"], int(event["t_ns"])
                changes = {at: change for at, change in changes.items() if at[0] != topic}
        elif event["event"] not in (*REMOVAL_EVENTS, UNCLEAN_EVENT):
            continue
        change = changes.setdefault(place, LogChanges(created_ns=created.get(topic, 0), wrong_clocks=wrong_clocks))
        _take(change, event)
    return changes


def created_again(events: Iterable[Event], topics: Iterable[str]) -> dict[str, int]:
    """Return when topics were created again, for those that were deleted in the run."""
    found = log_changes(events, topics)
    created = {topic: change.created_ns for (topic, _), change in found.items()}
    return {topic: created_ns for topic, created_ns in created.items() if created_ns}


def _take(change: LogChanges, event: Event) -> None:
    """Add what one event says to the changes of its partition."""
    name = event["event"]
    if name == LEADER_EVENT and "leo" in event:
        change.leaderships.append(Leadership(event["leader_epoch"], event["leader"], event["leo"], int(event["t_ns"])))
    elif name == UNCLEAN_EVENT:
        change.unclean_epochs.append(int(event["leader_epoch"]))
    elif name == "log.cleaning":
        end = int(event["first_uncleanable"])
        change.cleaned_end = max(change.cleaned_end, end)
        tombstones, lag = (event.get(name, NOT_TRACED) for name in ("delete_retention_ms", "min_lag_ms"))
        change.cleanings.append(CleaningBegun(end, event.get("t_ns", 0), event.get("wall_ms", 0), tombstones, lag))
    elif name == "log.segments-deleted" and event["base_offsets"]:
        node = int(str(event["broker"]).removeprefix(BROKER_PREFIX))
        bases = sorted(map(int, event["base_offsets"]))
        change.deleted_heads[node] = max(change.deleted_heads.get(node, -1), bases[-1])
        if "end" in event:
            change.removals += _removals(event, node, bases)


def _removals(event: Event, node: int, bases: list[int]) -> list[Removal]:
    settings = (event["retention_ms"], event["retention_bytes"], event["bytes_left"])
    times = (int(event["t_ns"]), int(event.get("wall_ms", 0)))
    ends = [*bases[1:], int(event["end"])]
    return [Removal(node, base, end, event["reason"], *times, *settings) for base, end in zip(bases, ends, strict=True)]
