"""A StreamsGroupHeartbeat as a value, and what no group accepts.

Owns: `HeartbeatRequest`, `HeartbeatResult`, `check_request`. KafkaError is what the client gets.

Source: Kafka's KafkaApis.handleStreamsGroupHeartbeat, GroupCoordinatorService.throwIfStreamsGroupHeartbeatRequest….
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from ...errors import ErrorCode, KafkaError
from ...internal_topics import INTERNAL_TOPICS
from ...topic_names import is_valid_topic_name
from .internal_topics import Status
from .members import JOIN_EPOCH, LEAVE_STATIC_EPOCH, Endpoint, MemberMetadata
from .tasks import NOTHING, HeldTasks, TaskSets
from .topology import TopicInfo, Topology

KINDS = 3
"""Active, standby and warm-up tasks."""


class TaskOffsets(NamedTuple):
    """Offsets in changelogs: of tasks, and the ends; rows of subtopology, partition, offset. None: not said."""

    current: tuple[tuple[str, int, int], ...] | None = None
    ends: tuple[tuple[str, int, int], ...] | None = None


NO_OFFSETS = TaskOffsets()


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatRequest:
    """A StreamsGroupHeartbeat; None: not changed since the last one."""

    group_id: str
    member_id: str
    epoch: int
    endpoint_epoch: int = 0
    """The endpoint information epoch that the member knows."""
    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    """-1: not changed."""
    topology: Topology | None = None
    owned: TaskSets | None = None
    null_kinds: tuple[str, ...] = ()
    """The kinds of tasks that are null, by the names of their fields."""
    process_id: str | None = None
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] | None = None
    offsets: TaskOffsets = NO_OFFSETS
    shutdown: bool = False
    """Whether every instance of the application must end."""
    version: int = 1
    """Of the request: a member of version 0 does not know every status."""

    @property
    def has_offsets(self) -> bool:
        """Whether it says how far tasks are."""
        return self.offsets != NO_OFFSETS

    def applied_to(self, before: MemberMetadata) -> MemberMetadata:
        """What the member says about itself now."""
        return MemberMetadata(
            instance_id=before.instance_id if self.instance_id is None else self.instance_id,
            rack_id=before.rack_id if self.rack_id is None else self.rack_id,
            client_id=self.client_id,
            client_host=self.client_host,
            rebalance_timeout_ms=(
                before.rebalance_timeout_ms if self.rebalance_timeout_ms == -1 else self.rebalance_timeout_ms
            ),
            topology_epoch=before.topology_epoch if self.topology is None else self.topology.epoch,
            process_id=before.process_id if self.process_id is None else self.process_id,
            endpoint=before.endpoint if self.endpoint is None and self.epoch != JOIN_EPOCH else self.endpoint,
            client_tags=before.client_tags if self.client_tags is None else self.client_tags,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointPartitions:
    """The partitions behind the endpoint of one member: topic -> partitions."""

    endpoint: Endpoint
    active: tuple[tuple[str, tuple[int, ...]], ...]
    standby: tuple[tuple[str, tuple[int, ...]], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatResult:
    """The response to a heartbeat that was accepted; None: not changed."""

    member_id: str
    epoch: int
    interval_ms: int = 0
    offsets_ms: int = 0
    """How often the member sends offsets of tasks."""
    acceptable_lag: int = -1
    """-1: the response is that to a leave."""
    assigned: HeldTasks | None = None
    endpoint_epoch: int = 0
    endpoints: tuple[EndpointPartitions, ...] | None = None
    statuses: tuple[Status, ...] = ()
    missing: tuple[TopicInfo, ...] = ()
    """Internal topics that the broker must create."""


def check_topics(topology: Topology | None) -> tuple[str, ...]:
    """Refuse topics that no topology may have; returns the topics that the sender must be allowed to describe."""
    named = [
        topic
        for row in (() if topology is None else topology.subtopologies)
        for topic in (
            *row.source_topics,
            *row.repartition_sinks,
            *(topic.name for topic in row.repartition_sources),
            *(topic.name for topic in row.changelogs),
        )
    ]
    topics = tuple(dict.fromkeys(named))
    internal = [topic for topic in topics if topic in INTERNAL_TOPICS]
    if internal:
        raise _invalid_topology(
            f"Use of Kafka internal topics {','.join(internal)} in a Kafka Streams topology is prohibited."
        )
    invalid = [topic for topic in topics if not is_valid_topic_name(topic)]
    if invalid:
        raise _invalid_topology(f"Topic names {','.join(invalid)} are not valid topic names.")
    return topics


def check_request(request: HeartbeatRequest) -> None:
    """Refuse what no group accepts."""
    rows = () if request.topology is None else request.topology.subtopologies
    regexes = any(row.source_regexes for row in rows)
    _require(not regexes, "Regular expressions for source topics are not supported yet.")
    _require(request.member_id.strip() != "", "MemberId can't be empty.")
    _require(request.group_id.strip() != "", "GroupId can't be empty.")
    _require(request.instance_id is None or request.instance_id.strip() != "", "InstanceId can't be empty.")
    _require(request.rack_id is None or request.rack_id.strip() != "", "RackId can't be empty.")
    if request.epoch == JOIN_EPOCH:
        _check_join(request)
    is_static = request.instance_id is not None
    _require(request.epoch != LEAVE_STATIC_EPOCH or is_static, "InstanceId can't be null.")
    least = f"MemberEpoch is {request.epoch}, but must be greater than or equal to -2."
    _require(request.epoch >= LEAVE_STATIC_EPOCH, least)
    some_null = 0 < len(request.null_kinds) < KINDS
    _require(not some_null, "If one task-type is non-null, all must be non-null.")
    if request.epoch != JOIN_EPOCH:
        _require(request.topology is None, "Topology can only be provided when (re-)joining.")
    for names in _unique_names(request):
        if len(names) > len(set(names)):  # Kafka's map of them fails
            raise KafkaError(ErrorCode.unknown_server_error, f"A name is there twice in {', '.join(names)}.")


def _unique_names(request: HeartbeatRequest) -> Iterator[list[str]]:
    """Lists in which no name may be there twice."""
    yield [key for key, _ in request.client_tags or ()]
    rows = () if request.topology is None else request.topology.subtopologies
    yield [row.subtopology_id for row in rows]
    for row in rows:
        for topics in (row.changelogs, row.repartition_sources):
            yield names_of(topics)
            yield from ([key for key, _ in topic.configs] for topic in topics)


def _check_join(request: HeartbeatRequest) -> None:
    _require(request.rebalance_timeout_ms != -1, "RebalanceTimeoutMs must be provided in first request.")
    owned = request.owned or NOTHING
    for kind, tasks in (("ActiveTasks", owned.active), ("StandbyTasks", owned.standby), ("WarmupTasks", owned.warmup)):
        is_empty = kind not in request.null_kinds and not tasks
        _require(is_empty, f"{kind} must be empty when (re-)joining.")
    _require(request.topology is not None, "Topology must be non-null when (re-)joining.")
    for row in () if request.topology is None else request.topology.subtopologies:
        numbered = next((topic for topic in row.changelogs if topic.partitions), None)
        if numbered is not None:
            raise _invalid_topology(
                f"Changelog topic {numbered.name} must have an undefined partition count, but it is set to "
                f"{numbered.partitions}."
            )


def task_offsets(rows: Collection[tuple[str, int, int]]) -> tuple[tuple[str, int, int], ...]:
    """Rows of task offsets, sorted; INVALID_REQUEST where a task is named twice."""
    tasks: set[tuple[str, int]] = set()
    for subtopology, partition, _ in rows:
        _require(
            (subtopology, partition) not in tasks,
            f"Task offsets contain a duplicate entry for subtopology {subtopology} and partition {partition}.",
        )
        tasks.add((subtopology, partition))
    return tuple(sorted(rows))


def names_of(topics: Collection[TopicInfo]) -> list[str]:
    """Names of topics."""
    return [topic.name for topic in topics]


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise KafkaError(ErrorCode.invalid_request, message)


def _invalid_topology(text: str) -> KafkaError:
    return KafkaError(ErrorCode.streams_invalid_topology, text)
