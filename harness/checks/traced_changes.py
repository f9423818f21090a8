"""What Kafka changed in a log legally, by the brokers' traces: compaction, retention, elections, a new topic (L6).

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

from collections.abc import Iterable

from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.logs import LogCleaning, SegmentsDeleted
from harrow.cluster.events.partitions import PartitionLeader, UncleanElection
from harrow.cluster.events.processes import ClockSet

from .log_changes import NOT_TRACED, CleaningBegun, Leadership, LogChanges, Place, Removal

CHANGE_EVENTS = (LogCleaning, SegmentsDeleted, ClockSet, PartitionLeader, UncleanElection)
"""What `log_changes` reads."""
Events = Iterable[TracedEvent[TraceEvent]]
LogChange = PartitionLeader | UncleanElection | LogCleaning | SegmentsDeleted


def log_changes(events: Events, topics: Iterable[str]) -> dict[Place, LogChanges]:
    """Return the changes of each partition that had any."""
    wanted = frozenset(topics)
    known = list(events)
    wrong_clocks = any(isinstance(traced.event, ClockSet) for traced in known)
    ordered = sorted(known, key=lambda traced: traced.t_ns)
    changes: dict[Place, LogChanges] = {}
    topic_ids: dict[str, str] = {}
    created: dict[str, int] = {}
    for traced in ordered:
        event = traced.event
        if not isinstance(event, LogChange) or event.topic not in wanted:
            continue
        topic, place = event.topic, (event.topic, event.partition)
        if isinstance(event, PartitionLeader):
            if event.topic_id is None:
                continue
            topic_id = topic_ids.setdefault(topic, event.topic_id)
            if topic_id != event.topic_id:
                topic_ids[topic], created[topic] = event.topic_id, traced.t_ns
                changes = {at: change for at, change in changes.items() if at[0] != topic}
        change = changes.setdefault(place, LogChanges(created_ns=created.get(topic, 0), wrong_clocks=wrong_clocks))
        _take(change, event, traced)
    return changes


def created_again(events: Events, topics: Iterable[str]) -> dict[str, int]:
    """Return when topics were created again, for those that were deleted in the run."""
    found = log_changes(events, topics)
    created = {topic: change.created_ns for (topic, _), change in found.items()}
    return {topic: created_ns for topic, created_ns in created.items() if created_ns}


def _take(change: LogChanges, event: LogChange, traced: TracedEvent[TraceEvent]) -> None:
    """Add what one event says to the changes of its partition."""
    match event:
        case PartitionLeader(leo=int(log_end)):
            change.leaderships.append(Leadership(event.leader_epoch, event.leader, log_end, traced.t_ns))
        case UncleanElection():
            change.unclean_epochs.append(event.leader_epoch)
        case LogCleaning(first_uncleanable=end):
            change.cleaned_end = max(change.cleaned_end, end)
            settings = _traced(event.delete_retention_ms), _traced(event.min_lag_ms)
            change.cleanings.append(CleaningBegun(end, traced.t_ns, traced.wall_ms or 0, *settings))
        case SegmentsDeleted(base_offsets=bases) if bases:
            head = max(change.deleted_heads.get(traced.node, -1), *bases)
            change.deleted_heads[traced.node] = head
            if event.end is not None:
                change.removals += _removals(event, event.end, traced)
        case _:
            pass


def _removals(event: SegmentsDeleted, end: int, traced: TracedEvent[TraceEvent]) -> list[Removal]:
    settings = _traced(event.retention_ms), _traced(event.retention_bytes), _traced(event.bytes_left)
    times = traced.t_ns, traced.wall_ms or 0
    bases = sorted(event.base_offsets)
    return [
        Removal(traced.node, base, until, event.reason or "", *times, *settings)
        for base, until in zip(bases, [*bases[1:], end], strict=True)
    ]


def _traced(setting: int | None) -> int:
    return NOT_TRACED if setting is None else setting
