"""The partitions behind the endpoints of members, for interactive queries.

Owns: which topics' partitions the tasks of a member stand for: those of every source and repartition topic of the
subtopology. A topic with fewer partitions than a member has tasks gets that many of them, as in Kafka.

Source: Kafka's EndpointToPartitionsManager.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from .internal_topics import ConfiguredSubtopology, Counts
from .members import StreamsMember
from .requests import EndpointPartitions
from .tasks import TaskId, by_subtopology

Partitions = tuple[tuple[str, tuple[int, ...]], ...]


def endpoint_partitions(
    members: Iterable[StreamsMember], subtopologies: Mapping[str, ConfiguredSubtopology], existing: Counts
) -> tuple[EndpointPartitions, ...]:
    """A row for each member with an endpoint."""
    return tuple(
        EndpointPartitions(
            endpoint=member.metadata.endpoint,
            active=source_partitions(member.current.assigned.active, subtopologies, existing),
            standby=source_partitions(member.current.assigned.standby, subtopologies, existing),
        )
        for member in members
        if member.metadata.endpoint is not None
    )


def source_partitions(
    tasks: Iterable[TaskId], subtopologies: Mapping[str, ConfiguredSubtopology], existing: Counts
) -> Partitions:
    """The topics from which tasks read, each with its partitions; subtopologies that are not known have none."""
    found: list[tuple[str, tuple[int, ...]]] = []
    for name, partitions in by_subtopology(tasks):
        row = subtopologies.get(name)
        topics = () if row is None else dict.fromkeys(row.subtopology.inputs())
        found += [(topic, tuple(partitions[: existing(topic)])) for topic in topics]
    return tuple(found)
