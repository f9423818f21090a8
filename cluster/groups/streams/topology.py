"""A topology of Kafka Streams as its application describes it.

Owns: frozen values; two topologies are equal when their applications sent the same, in whatever order the
subtopologies are. Source: Kafka's StreamsTopology, StreamsGroupTopologyValue.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple


class TopicInfo(NamedTuple):
    """An internal topic; 0 leaves a number to the coordinator or to the broker's settings."""

    name: str
    partitions: int = 0
    replication_factor: int = 0
    configs: tuple[tuple[str, str], ...] = ()


class CopartitionGroup(NamedTuple):
    """Source topics that must have the same number of partitions: places in the lists of the subtopology."""

    source_topics: tuple[int, ...] = ()
    source_regexes: tuple[int, ...] = ()
    repartition_topics: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Subtopology:
    """One connected part of a topology."""

    subtopology_id: str
    source_topics: tuple[str, ...] = ()
    source_regexes: tuple[str, ...] = ()
    changelogs: tuple[TopicInfo, ...] = ()
    repartition_sinks: tuple[str, ...] = ()
    repartition_sources: tuple[TopicInfo, ...] = ()
    copartition_groups: tuple[CopartitionGroup, ...] = ()

    def inputs(self) -> Iterator[str]:
        """Every topic that it reads: sources, then repartition topics."""
        yield from self.source_topics
        yield from (topic.name for topic in self.repartition_sources)

    def topics(self) -> Iterator[str]:
        """Every topic that must exist."""
        yield from self.inputs()
        yield from (topic.name for topic in self.changelogs)

    def copartitioned(self, group: CopartitionGroup) -> frozenset[str]:
        """The names of a group's topics."""
        sources = (self.source_topics[place] for place in group.source_topics)
        return frozenset((*sources, *(self.repartition_sources[place].name for place in group.repartition_topics)))


@dataclass(frozen=True, slots=True, kw_only=True)
class Topology:
    """A topology; `subtopologies` in the order of their ids."""

    epoch: int
    subtopologies: tuple[Subtopology, ...]

    def required_topics(self) -> frozenset[str]:
        """Every topic that must exist."""
        return frozenset(topic for subtopology in self.subtopologies for topic in subtopology.topics())

    def source_of(self, topic: str) -> Subtopology | None:
        """The subtopology that reads a topic."""
        found = None
        for subtopology in self.subtopologies:
            if topic in subtopology.inputs():
                found = subtopology
        return found


def topology(epoch: int, subtopologies: Iterator[Subtopology] | list[Subtopology]) -> Topology:
    """A topology in its one order."""
    return Topology(epoch=epoch, subtopologies=tuple(sorted(subtopologies, key=lambda row: row.subtopology_id)))
