"""A topology on the topics of the cluster: how many tasks there are, and which internal topics are missing.

Owns: `configure`, a pure function. In turn: every source topic exists; repartition topics without a number of
partitions get the greatest one of the topics from which their subtopology reads; topics of a copartition group get the
same number; changelogs get that of their subtopology's greatest input. A status says what is wrong:

| status                          | when                                                                       |
| ------------------------------- | -------------------------------------------------------------------------- |
| MISSING_SOURCE_TOPICS           | a source topic does not exist                                                |
| INCORRECTLY_PARTITIONED_TOPICS  | numbers of a copartition group differ, an internal topic has another number  |
| MISSING_INTERNAL_TOPICS         | an internal topic does not exist: the broker creates it                      |

May fail: KafkaError(streams_invalid_topology) for a topology whose numbers cannot be computed.

Source: Kafka's InternalTopicManager, RepartitionTopics, CopartitionedTopicsEnforcer, ChangelogTopics.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from ...errors import ErrorCode, KafkaError
from .topology import Subtopology, TopicInfo, Topology

NAMED_MOST = 3
"""Topics that an error message names."""

Counts = Callable[[str], int]
"""Topic -> number of partitions; 0 where it does not exist."""


class StatusCode(IntEnum):
    """Codes of the statuses in StreamsGroupHeartbeat."""

    STALE_TOPOLOGY = 0
    MISSING_SOURCE_TOPICS = 1
    INCORRECTLY_PARTITIONED_TOPICS = 2
    MISSING_INTERNAL_TOPICS = 3
    SHUTDOWN_APPLICATION = 4
    ASSIGNMENT_DELAYED = 5
    MISSING_CLIENT_TAGS = 6


class Status(NamedTuple):
    """Something that a member must know."""

    code: StatusCode
    detail: str


class _TopicsError(Exception):
    """The topics do not fit the topology."""

    def __init__(self, code: StatusCode, detail: str) -> None:
        super().__init__(detail)
        self.status = Status(code, detail)


@dataclass(frozen=True, slots=True)
class ConfiguredSubtopology:
    """A subtopology whose numbers are known."""

    subtopology: Subtopology
    tasks: int
    repartition_sources: tuple[TopicInfo, ...]
    changelogs: tuple[TopicInfo, ...]
    """With their numbers of partitions."""


@dataclass(frozen=True, slots=True)
class ConfiguredTopology:
    """A topology on the topics of the cluster."""

    epoch: int
    subtopologies: Mapping[str, ConfiguredSubtopology] | None
    """By id, in order; None while sources are missing or have wrong numbers of partitions."""
    missing: tuple[TopicInfo, ...] = ()
    """Internal topics to be created."""
    status: Status | None = None

    @property
    def is_ready(self) -> bool:
        """True when every topic is there."""
        return self.status is None


def configure(topology: Topology, existing: Counts) -> ConfiguredTopology:
    """The topology on the topics that exist; KafkaError(streams_invalid_topology)."""
    try:
        _check_sources(topology, existing)
        decided = _decide(topology, existing)
        found = {row.subtopology_id: _configured(row, existing, decided) for row in topology.subtopologies}
        missing = _missing(topology, found.values(), existing)
    except _TopicsError as error:
        return ConfiguredTopology(topology.epoch, None, status=error.status)
    status = None
    if missing:
        text = f"Internal topics are missing: {_named([topic.name for topic in missing])}"
        status = Status(StatusCode.MISSING_INTERNAL_TOPICS, text)
    return ConfiguredTopology(topology.epoch, found, missing, status)


def _check_sources(topology: Topology, existing: Counts) -> None:
    absent = sorted({topic for row in topology.subtopologies for topic in row.source_topics if not existing(topic)})
    if absent:
        raise _TopicsError(StatusCode.MISSING_SOURCE_TOPICS, f"Source topics {_named(absent)} are missing.")


def _decide(topology: Topology, existing: Counts) -> Mapping[str, int]:
    decided = _repartition_counts(topology, existing)

    def count(topic: str) -> int:
        return existing(topic) or decided.get(topic, 0)

    fixed = {topic.name for row in topology.subtopologies for topic in row.repartition_sources if topic.partitions}
    flexible = {
        topic.name for row in topology.subtopologies for topic in row.repartition_sources if not topic.partitions
    }
    for row in topology.subtopologies:
        for group in row.copartition_groups:
            decided.update(_copartition(row.copartitioned(group), fixed, flexible, count))
    for row in topology.subtopologies:
        greatest = max((count(topic) for topic in row.inputs()), default=0)
        if not greatest:
            raise _invalid(f"No source topics found for subtopology {row.subtopology_id}")
        decided.update((topic.name, greatest) for topic in row.changelogs)
    return decided


def _repartition_counts(topology: Topology, existing: Counts) -> dict[str, int]:
    rows = topology.subtopologies
    counts = {topic.name: topic.partitions for row in rows for topic in row.repartition_sources if topic.partitions}
    sinks = [(row, topic) for row in rows for topic in row.repartition_sinks]
    open_sinks = [(row, topic) for row, topic in sinks if topic not in counts]
    while open_sinks:
        for row, topic in open_sinks:
            inputs = [counts.get(source.name, 0) for source in row.repartition_sources]
            greatest = max((*inputs, *(existing(source) for source in row.source_topics)), default=0)
            if greatest and topic not in counts:
                counts[topic] = greatest
        left = [(row, topic) for row, topic in open_sinks if topic not in counts]
        if len(left) == len(open_sinks):
            raise _invalid(
                "Failed to compute number of partitions for all repartition topics. There may be loops in the "
                "topology that cannot be resolved."
            )
        open_sinks = left
    if any(topic.name not in counts for row in rows for topic in row.repartition_sources):
        raise _invalid(
            "Failed to compute number of partitions for all repartition topics, because a repartition source topic "
            "is never used as a sink topic."
        )
    return counts


def _copartition(
    group: Collection[str], fixed: Collection[str], flexible: Collection[str], count: Counts
) -> Mapping[str, int]:
    """The numbers of the repartition topics of one group."""
    ordered = sorted(group)
    internal = [topic for topic in ordered if topic in fixed or topic in flexible]
    external = [topic for topic in ordered if topic not in fixed and topic not in flexible]
    if not ordered:
        return {}
    if external:
        number = _same_number(external, count)
    elif fixed:
        number = _same_number(sorted(fixed), count, internal)
    else:
        number = max(count(topic) for topic in internal)
    for topic in internal:
        if topic in fixed and count(topic) != number:
            raise _TopicsError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Number of partitions [{count(topic)}] of repartition topic [{topic}] doesn't match number of "
                f"partitions [{number}] of the source topic.",
            )
    return dict.fromkeys(internal, number)


def _same_number(topics: Collection[str], count: Counts, named: Collection[str] | None = None) -> int:
    numbers = {count(topic) for topic in topics}
    if len(numbers) > 1:
        rows = ", ".join(f"{topic}={count(topic)}" for topic in (topics if named is None else named))
        raise _TopicsError(
            StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
            f"Following topics do not have the same number of partitions: [{{{rows}}}]",
        )
    return numbers.pop()


def _configured(row: Subtopology, existing: Counts, decided: Mapping[str, int]) -> ConfiguredSubtopology:
    def with_count(topic: TopicInfo) -> TopicInfo:
        return topic._replace(partitions=topic.partitions or decided[topic.name])

    return ConfiguredSubtopology(
        row,
        max(existing(topic) or decided.get(topic, 0) for topic in row.inputs()),
        tuple(with_count(topic) for topic in row.repartition_sources),
        tuple(with_count(topic) for topic in row.changelogs),
    )


def _missing(
    topology: Topology, configured: Iterable[ConfiguredSubtopology], existing: Counts
) -> tuple[TopicInfo, ...]:
    wanted = {topic.name: topic for row in configured for topic in (*row.repartition_sources, *row.changelogs)}
    for name in sorted(topology.required_topics()):
        found = existing(name)
        expected = wanted.pop(name, None) if found else None
        if expected is not None and expected.partitions != found:
            raise _TopicsError(
                StatusCode.INCORRECTLY_PARTITIONED_TOPICS,
                f"Existing topic {name} has different number of partitions: expected {expected.partitions}, "
                f"found {found}",
            )
    return tuple(wanted[name] for name in sorted(wanted))


def _named(topics: Collection[str]) -> str:
    more = len(topics) - NAMED_MOST
    rest = f" and {more} additional topics" if more > 0 else ""
    return ", ".join(list(topics)[:NAMED_MOST]) + rest


def _invalid(text: str) -> KafkaError:
    return KafkaError(ErrorCode.streams_invalid_topology, text)
