"""The rules of StreamsGroupHeartbeat: what is refused, and which records follow.

Owns: functions on a `Draft`, and `Volatile`, what a coordinator has of a group besides its records. KafkaError is
what the client gets; a refused request leaves no record.

A heartbeat of member epoch 0 joins, -1 leaves, -2 leaves for the restart of a static member. The first group epoch is
2: a member that gets no task while the first rebalance is delayed has epoch 1.

Source: KIP-1071; Kafka's GroupMetadataManager.streamsGroupHeartbeat.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from ...config.group_table import (
    STREAMS_DELAY,
    STREAMS_HEARTBEAT,
    STREAMS_LAG,
    STREAMS_OFFSETS,
    STREAMS_SESSION,
    STREAMS_STANDBYS,
    STREAMS_TAGS,
)
from ...errors import ErrorCode, KafkaError
from ..consumer.subscriptions import TopicView, metadata_hash, partition_counts
from ..consumer.target_assignments import assignment_time
from ..known_members import check_size
from .endpoints import endpoint_partitions
from .group_records import (
    NOT_VALIDATED,
    CurrentRecord,
    GroupEpochRecord,
    GroupMetadata,
    TargetEpochRecord,
    TargetRecord,
    TopologyRecord,
)
from .group_state import Draft, StreamsData
from .internal_topics import ConfiguredSubtopology, ConfiguredTopology, Status, StatusCode, configure
from .members import JOIN_EPOCH, LEAVE_STATIC_EPOCH, StreamsMember
from .membership import leaving_member, member_of, update_metadata
from .reconciliation import reconcile
from .requests import NO_OFFSETS, HeartbeatRequest, HeartbeatResult, TaskOffsets, task_offsets
from .sticky_assignor import Assignee, TaskGroup, assign
from .tasks import NOTHING, NOTHING_HELD, TaskSets
from .topology import Topology

FIRST_EPOCH = 2
TAGS_FROM = 1
STANDBYS, TAGS = "num.standby.replicas", "rack.aware.assignment.tags"
"""The settings of the assignor, as the record of the group names them. No assignor looks at the tags, as in Kafka."""


@dataclass(frozen=True, slots=True)
class StreamsRules:
    """What the rules need of their broker."""

    view: TopicView
    max_size: int
    group_number: Callable[[str, str], int]
    """The value of a setting for one group: its own, else the broker's."""
    group_text: Callable[[str, str], str]
    """The same for a setting that is text."""
    assignment_interval_ms: Callable[[str], int]
    """At least so long after one target assignment of a group the next one is computed (KIP-1263)."""
    wall_ms: Callable[[], int]

    def session_timeout_ms(self, group_id: str) -> int:
        """How long a member may be silent."""
        return self.group_number(group_id, STREAMS_SESSION)

    def heartbeat_interval_ms(self, group_id: str) -> int:
        """How often a member sends heartbeats."""
        return self.group_number(group_id, STREAMS_HEARTBEAT)

    def initial_delay_ms(self, group_id: str) -> int:
        """How long a group without members waits for more of them before its first assignment."""
        return self.group_number(group_id, STREAMS_DELAY)

    def assignment_configs(self, group_id: str) -> tuple[tuple[str, str], ...]:
        """The settings of the assignor."""
        tags = self.group_text(group_id, STREAMS_TAGS)
        standbys = (STANDBYS, str(self.group_number(group_id, STREAMS_STANDBYS)))
        return (standbys, (TAGS, tags)) if tags else (standbys,)


@dataclass(slots=True)
class Volatile:
    """What a coordinator has of a group besides its records; lost when the group moves."""

    configured: ConfiguredTopology | None = None
    topics_version: int = -1
    """Version of the cluster's topics for which `configured` was made; -1: none."""
    endpoint_epoch: int = 0
    shutdown_by: str | None = None
    """The member that requested the end of the application."""
    offsets: Mapping[str, TaskOffsets] = field(default_factory=dict[str, TaskOffsets])
    """Of each member that sent some: how far its tasks are behind their changelogs."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """What holds while one heartbeat is served."""

    topics_version: int
    delays: Callable[[], bool]
    """Begins the delay of the first rebalance for a group without members; True while it lasts."""


def heartbeat(
    draft: Draft, request: HeartbeatRequest, rules: StreamsRules, known: Volatile, moment: Moment
) -> tuple[HeartbeatResult, Volatile]:
    """A heartbeat that is no leave: the result, and what the coordinator knows once the records are in the log."""
    before = draft.state
    if request.epoch == JOIN_EPOCH:
        check_size(
            "streams",
            before.members,
            rules.max_size,
            request.member_id,
            before.static_member(request.instance_id),
        )
    member = member_of(draft, request)
    bump = update_metadata(draft, member, request)
    topology = _update_topology(draft, request)
    statuses = _stale_status(before, draft.state.members[member.member_id])
    now = replace(known)
    required = _configure(before, topology, rules, now, moment.topics_version)
    configured = now.configured
    assert configured is not None, "a topology"
    _check_tasks(configured, request.owned)
    _note_offsets(now, member.member_id, request, draft.state)
    validated = topology.epoch if configured.is_ready else NOT_VALIDATED
    noted = GroupMetadata(before.epoch, required, validated, rules.assignment_configs(request.group_id))
    if bump or noted != before.metadata:
        epoch = before.epoch + 1 if before.epoch else FIRST_EPOCH
        draft.add(GroupEpochRecord(noted._replace(epoch=epoch)))
    delayed = moment.delays() if draft.state.epoch > draft.state.target_epoch else False
    waits_for = "initial rebalance delay" if delayed else ""
    if not delayed and not update_target(draft, now, rules, request.group_id):
        waits_for = "assignment interval"
    target, target_epoch = draft.state.target(member.member_id), draft.state.target_epoch
    if delayed:
        target, target_epoch = NOTHING, max(1, target_epoch)
    if waits_for:
        text = f"Assignment delayed due to the configured {waits_for}."
        statuses.append(Status(StatusCode.ASSIGNMENT_DELAYED, text))
    updated = _advance(draft, member.member_id, target, target_epoch, request.owned)
    if request.shutdown and now.shutdown_by is None:
        now.shutdown_by = member.member_id
    if configured.status is not None:
        statuses.append(configured.status)
    if now.shutdown_by is not None:
        statuses.append(_shutdown_status(now.shutdown_by))
    statuses += _missing_tags(noted, draft.state.members[member.member_id], request.version)
    result = _result(draft.state, request, rules, now, (member, updated), statuses)
    if before.epoch:
        return result, now
    # as in Kafka, what is not stored is lost with the operation that creates the group
    return replace(result, endpoint_epoch=0), Volatile()


def leave(draft: Draft, request: HeartbeatRequest) -> HeartbeatResult:
    """A member leaves; the next heartbeat of another one computes a new assignment.

    A static member that leaves for a restart keeps its tasks, as if it always had them, until its session ends.
    """
    member = leaving_member(draft.state, request)
    if request.epoch == LEAVE_STATIC_EPOCH and request.instance_id is not None:
        held = member.current.assigned
        kept = replace(held, active=dict.fromkeys(held.active, 0))
        left = replace(member.current, epoch=LEAVE_STATIC_EPOCH, assigned=kept, revoking=NOTHING_HELD)
        draft.add(CurrentRecord(member.member_id, left))
    else:
        draft.remove_member(member.member_id)
    return HeartbeatResult(member_id=member.member_id, epoch=request.epoch)


def delayed_target(draft: Draft, known: Volatile, rules: StreamsRules, group_id: str) -> None:
    """The delay of the first rebalance is over: compute the target of the members that there are."""
    if draft.state.members and known.configured is not None:
        update_target(draft, known, rules, group_id)


# ---- the topology --------------------------------------------------------------------------------


def _update_topology(draft: Draft, request: HeartbeatRequest) -> Topology:
    """The group's topology; the first one that a member sends stays."""
    stored, sent = draft.state.topology, request.topology
    if stored is None:
        if sent is None:
            raise KafkaError(ErrorCode.unknown_server_error, "The group has no topology.")
        draft.add(TopologyRecord(sent))
        return sent
    if sent is not None and stored.epoch <= sent.epoch and stored != sent:
        raise KafkaError(ErrorCode.invalid_request, "Topology updates are not supported yet.")
    return stored


def _stale_status(before: StreamsData, member: StreamsMember) -> list[Status]:
    if before.topology is None or member.metadata.topology_epoch >= before.topology.epoch:
        return []
    return [
        Status(
            StatusCode.STALE_TOPOLOGY,
            f"The member's topology epoch {member.metadata.topology_epoch} is behind the group's topology epoch "
            f"{before.topology.epoch}.",
        )
    ]


def _configure(before: StreamsData, topology: Topology, rules: StreamsRules, now: Volatile, version: int) -> int:
    """Put the topology on the topics as they are; returns the hash of those that it requires."""
    known = before.metadata.metadata_hash
    if before.topology is not None and now.configured is not None and now.topics_version == version:
        return known
    found = metadata_hash(partition_counts(topology.required_topics(), rules.view))
    if found != known or before.topology is None or now.configured is None:
        now.configured = configure(topology, rules.view.partition_count)
    now.topics_version = version
    return found


def _check_tasks(configured: ConfiguredTopology, owned: TaskSets | None) -> None:
    if not configured.is_ready or owned is None:
        return
    for task in sorted((*owned.active, *owned.standby, *owned.warmup)):
        row = (configured.subtopologies or {}).get(task.subtopology)
        if row is None:
            text = f"Subtopology {task.subtopology} does not exist in the topology."
            raise KafkaError(ErrorCode.invalid_request, text)
        if not 0 <= task.partition < row.tasks:
            raise KafkaError(
                ErrorCode.invalid_request,
                f"Task {task.partition} for subtopology {task.subtopology} is invalid. Number of tasks for this "
                f"subtopology: {row.tasks}",
            )


def _note_offsets(now: Volatile, member_id: str, request: HeartbeatRequest, state: StreamsData) -> None:
    """Keep the offsets that a member sent; those of members that are gone are forgotten."""
    if not request.has_offsets:
        return
    known = {name: row for name, row in now.offsets.items() if name in state.members}
    before = known.get(member_id, NO_OFFSETS)
    given = request.offsets
    current = before.current if given.current is None else task_offsets(given.current)
    ends = before.ends if given.ends is None else task_offsets(given.ends)
    now.offsets = {**known, member_id: TaskOffsets(current, ends)}


# ---- epochs and targets --------------------------------------------------------------------------


def update_target(draft: Draft, known: Volatile, rules: StreamsRules, group_id: str) -> bool:
    """Compute the target of the group epoch, unless there is one; False where the last one is too young for that."""
    state = draft.state
    if state.epoch <= state.target_epoch:
        return True
    computed_ms = assignment_time(state.computed_ms, rules.assignment_interval_ms(group_id), rules.wall_ms)
    if computed_ms is None:
        return False
    targets = dict.fromkeys(state.members, NOTHING)
    configured = known.configured
    if configured is not None and configured.is_ready:
        members = [
            Assignee(name, row.process_id, state.target(name), known.offsets.get(name, NO_OFFSETS).current or ())
            for name, row in state.members.items()
        ]
        groups = [
            TaskGroup(name, row.tasks, bool(row.changelogs)) for name, row in (configured.subtopologies or {}).items()
        ]
        standbys = int(dict(state.metadata.assignment_configs).get(STANDBYS, "0"))
        targets = assign(members, groups, standbys)
    for member_id, target in targets.items():
        if state.targets.get(member_id) != target:
            draft.add(TargetRecord(member_id, target))
    draft.add(TargetEpochRecord(state.epoch, computed_ms))
    return True


def _advance(
    draft: Draft, member_id: str, target: TaskSets, target_epoch: int, owned: TaskSets | None
) -> StreamsMember:
    """Move a member one step towards its target assignment."""
    state = draft.state
    member = state.members[member_id]
    current = reconcile(member, target, target_epoch, owned, state.members.values())
    if current != member.current:
        draft.add(CurrentRecord(member_id, current))
    return draft.state.members[member_id]


# ---- the response --------------------------------------------------------------------------------


def _shutdown_status(member_id: str) -> Status:
    return Status(
        StatusCode.SHUTDOWN_APPLICATION,
        f"Streams group member {member_id} encountered a fatal error and requested a shutdown for the entire "
        "application.",
    )


def _missing_tags(noted: GroupMetadata, member: StreamsMember, version: int) -> list[Status]:
    """MISSING_CLIENT_TAGS, which clients understand from version 1 on (KAFKA-20744)."""
    required = dict(noted.assignment_configs).get(TAGS, "").strip()
    if version < TAGS_FROM or not required:
        return []
    has = dict(member.metadata.client_tags)
    missing = [tag for tag in re.split(r"\s*,\s*", required) if tag not in has]
    if not missing:
        return []
    named = f"[{', '.join(missing)}]"
    text = (
        f"Missing required client tags for rack-aware standby assignment: {named}. Configure them via "
        "'client.tag.<tagKey>' in your Streams config."
    )
    return [Status(StatusCode.MISSING_CLIENT_TAGS, text)]


def _result(
    state: StreamsData,
    request: HeartbeatRequest,
    rules: StreamsRules,
    now: Volatile,
    steps: tuple[StreamsMember, StreamsMember],
    statuses: list[Status],
) -> HeartbeatResult:
    before, after = steps
    is_changed = before.current.assigned != after.current.assigned
    tells = request.epoch == JOIN_EPOCH or is_changed
    is_elsewhere = before.metadata.endpoint != after.metadata.endpoint
    if is_elsewhere or (is_changed and after.metadata.endpoint is not None):
        now.endpoint_epoch += 1
    endpoints = None
    configured = now.configured
    if now.endpoint_epoch != request.endpoint_epoch:
        rows: Mapping[str, ConfiguredSubtopology] = {}
        if configured is not None and configured.subtopologies is not None:
            rows = configured.subtopologies
        others = [member for name, member in state.members.items() if name != after.member_id]
        endpoints = endpoint_partitions((*others, after), rows, rules.view.partition_count)
    return HeartbeatResult(
        member_id=after.member_id,
        epoch=after.epoch,
        interval_ms=rules.heartbeat_interval_ms(request.group_id),
        offsets_ms=rules.group_number(request.group_id, STREAMS_OFFSETS),
        acceptable_lag=rules.group_number(request.group_id, STREAMS_LAG),
        assigned=after.current.assigned if tells else None,
        endpoint_epoch=now.endpoint_epoch,
        endpoints=endpoints,
        statuses=tuple(statuses),
        missing=() if configured is None else configured.missing,
    )
