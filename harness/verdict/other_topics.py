"""Where records went that did not reach the topics of a verdict: other topics, and names that no topic has.

Owns: the error of a topic that does not exist, before anything is judged, and the sentence for a topic into which
nothing was written. Both name the topics that received records. The names for which clients asked in vain are in the
traces of Harrow's own brokers; other backends have none.

Nothing here fails because of the cluster: what it does not say is left out.
"""

from __future__ import annotations

import contextlib
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from harrow.cluster import broker_folder
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.brokers import UnknownTopicAsked
from harrow.cluster.events.partitions import PartitionLeader
from harrow.faults.errors import listed, nearest

from ..histories.trace_events import read_trace
from ..wording import counted

if TYPE_CHECKING:
    from ..running_cluster import RunningCluster

E = TypeVar("E", bound=TraceEvent)
NAMED_MOST = 10
INTERNAL = "__"


def offsets_of_topics(cluster: RunningCluster) -> dict[str, int]:
    """Return how many offsets each topic of the cluster has, over its partitions; internal topics are left out."""
    found: dict[str, int] = {}
    with contextlib.suppress(HarrowError):
        found = {name: 0 for name in cluster.describe().topics if not name.startswith(INTERNAL)}
        ends: dict[tuple[str, int], int] = {}
        for row in (row for rows in cluster.state().values() for row in rows):
            where = str(row["topic"]), int(row["partition"])
            ends[where] = max(ends.get(where, 0), int(row["leo"]))
        for (topic, _), end in ends.items():
            if topic in found:
                found[topic] += end
    return found


def check_existing(cluster: RunningCluster, topics: Sequence[str], created: Collection[str]) -> None:
    """Raise ConfigError for a topic that the cluster does not have and that this test did not create.

    `created`: topics of the test; one of them that is gone was deleted, which the verdict says. Nothing is checked
    while the cluster does not respond.
    """
    try:
        existing = cluster.describe().topics
    except HarrowError:
        return
    for topic in topics:
        if topic not in existing and topic not in created and not _was_there(cluster.folder, topic):
            offsets = offsets_of_topics(cluster)
            raise ConfigError(
                f"the cluster has no topic {topic!r}{nearest(topic, offsets)}; {_listed(offsets)}. Name one of them, "
                f"or the Topic that harrow.topic(…) returned{_asked(cluster.folder, [topic])}"
            )


def elsewhere(cluster: RunningCluster, topics: Sequence[str]) -> str:
    """Return a sentence for topics into which nothing was written, where something was written elsewhere."""
    offsets = offsets_of_topics(cluster)
    empty = [topic for topic in topics if offsets.get(topic) == 0]
    if not empty:
        return ""  # usual: the traces are not read
    others = {name: end for name, end in offsets.items() if end and name not in topics}
    asked = _asked(cluster.folder, [])
    if not (others or asked):
        return ""
    received = f"; {_listed(others)}" if others else ""
    hint = next((near for topic in empty if (near := nearest(topic, others))), "")
    return f"nothing was written to {', '.join(empty)}{received}{hint}{asked}"


def _listed(offsets: Mapping[str, int]) -> str:
    if not offsets:
        return "the cluster has no topic at all"
    rows = sorted(offsets.items(), key=lambda row: (-row[1], row[0]))
    written = [f"{name} ({counted(end, 'offset')})" for name, end in rows if end]
    empty = [name for name, end in rows if not end]
    parts = [f"records are in {listed(written)}"] if written else []
    parts += [f"empty are {listed(empty)}"] if empty else []
    return "; ".join(parts)


def _asked(cluster: Path, besides: Collection[str]) -> str:
    """Say which unknown names clients asked for, without `besides`; empty where there are none."""
    names: dict[str, str] = {}
    for event in _events(cluster, UnknownTopicAsked):
        names.setdefault(event.topic, event.client)
    shown = [f"{name!r} ({client})" for name, client in names.items() if name not in besides]
    if not shown:
        return ""
    return f"; clients asked for topics that do not exist: {', '.join(shown[:NAMED_MOST])}"


def _was_there(cluster: Path, topic: str) -> bool:
    """Whether a broker led a partition of the topic: it was deleted then."""
    return any(event.topic == topic for event in _events(cluster, PartitionLeader))


def _events(cluster: Path, kind: type[E]) -> list[E]:
    """Return the events of one kind from the brokers' traces."""
    found: list[E] = []
    for path in broker_folder.broker_files(cluster, broker_folder.TRACE):
        with contextlib.suppress(OSError):
            found += [traced.event for traced in read_trace(path, kinds=(kind,))]
    return found
