"""What the coordinator says of a consumer group: its protocol, its generation or epoch, its members' subscriptions.

DescribeGroups describes classic groups. A group of KIP-848 is Dead to it, and ConsumerGroupDescribe describes it.
A member of a classic group describes itself in the consumer protocol (ConsumerProtocolSubscription,
ConsumerProtocolAssignment).
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harrow.cluster.coordinators import RecordFormatError
from harrow.cluster.errors import ClusterError, ErrorCode, KafkaError, WireError
from harrow.cluster.groups.records import CONSUMER_PROTOCOL, RecordReader, decode_subscription
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.faults.errors import nearest

from ..requests.coordinator import Coordinator, own_error
from ..requests.final_groups import list_groups

DESCRIBE_VERSION, CONSUMER_DESCRIBE_VERSION = 4, 0
CONSUMER_PATIENCE_MS = 2_000
AWAIT_MEMBERS_MS, POLL_MS = 10_000, 100
STABLE = "Stable"
Partitions = Mapping[str, Sequence[int]]
"""Topic -> partitions."""


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupView:
    """A group at one moment."""

    classic: bool
    state: str
    protocol_type: str = CONSUMER_PROTOCOL
    protocol: str = ""
    """Of a classic group that is stable: the assignor's name."""
    epoch: int = 0
    """Of a group of KIP-848."""
    members: Mapping[str, Partitions] = field(default_factory=dict[str, Partitions])
    """What each member is assigned."""
    topics: frozenset[str] = frozenset()
    """What the members subscribe to."""


async def describe_group(coordinator: Coordinator) -> GroupView | None:
    """Return the group; None where there is none. ClusterError when its coordinator does not serve."""
    request = client_request(ApiKey.DESCRIBE_GROUPS, DESCRIBE_VERSION, groups=[coordinator.key])
    with contextlib.suppress(KafkaError):
        response = await coordinator.ask(request, error_of=_group_error)
        row = response.groups[0]
        if row.group_state != "Dead":
            return _classic_view(row)
    return await _consumer_view(coordinator)


def _group_error(response: Any) -> ErrorCode:
    return own_error(response.groups[0])


def _classic_view(row: Any) -> GroupView:
    readable = row.protocol_type == CONSUMER_PROTOCOL and row.group_state == STABLE
    metadata = [bytes(member.member_metadata) for member in row.members] if readable else []
    return GroupView(
        classic=True,
        state=row.group_state,
        protocol_type=row.protocol_type,
        protocol=row.protocol_data,
        members={
            member.member_id: assigned_in(bytes(member.member_assignment)) if readable else {} for member in row.members
        },
        topics=frozenset(topic for data in metadata for topic in topics_in(data)),
    )


async def _consumer_view(coordinator: Coordinator) -> GroupView | None:
    request = client_request(ApiKey.CONSUMER_GROUP_DESCRIBE, CONSUMER_DESCRIBE_VERSION, group_ids=[coordinator.key])
    try:
        response = await coordinator.ask(request, error_of=_group_error, patience_ms=CONSUMER_PATIENCE_MS)
    except (ClusterError, KafkaError):  # a broker without the API closes the connection
        return None
    row = response.groups[0]
    members = {
        member.member_id: {topic.topic_name: tuple(topic.partitions) for topic in member.assignment.topic_partitions}
        for member in row.members
    }
    named = {topic for member in row.members for topic in member.subscribed_topic_names or ()}
    held = {topic for rows in members.values() for topic in rows}  # of a regular expression
    return GroupView(
        classic=False, state=row.group_state, epoch=row.group_epoch, members=members, topics=frozenset(named | held)
    )


async def await_members(coordinator: Coordinator, servers: str) -> GroupView:
    """Return the group once it has members and is stable; ClusterError for a group that does not come into being."""
    view: GroupView | None = None
    for _ in range(round(AWAIT_MEMBERS_MS / POLL_MS)):
        view = await describe_group(coordinator)
        if view is not None and view.members and view.state == STABLE:
            if view.protocol_type != CONSUMER_PROTOCOL:
                raise ClusterError(f"group {coordinator.key!r} is a group of {view.protocol_type!r}, not of consumers")
            return view
        await coordinator.transport.sleep(POLL_MS)
    if view is not None:
        raise ClusterError(
            f"group {coordinator.key!r} was not stable with members within {AWAIT_MEMBERS_MS / 1000:g} s: "
            f"it is {view.state} with {len(view.members)} members"
        )
    known = sorted(list_groups(servers).states)
    hint, listed = nearest(coordinator.key, known), ", ".join(map(repr, known)) or "none"
    raise ClusterError(f"the cluster has no consumer group {coordinator.key!r}{hint}; it has {listed}")


# ---------------------------------------------------------------------- the consumer protocol of classic groups


def topics_in(data: bytes) -> list[str]:
    """Return the topics of a ConsumerProtocolSubscription of any version."""
    with _whole("a subscription"):
        return decode_subscription(data)


def assigned_in(data: bytes) -> dict[str, tuple[int, ...]]:
    """Return the partitions of a ConsumerProtocolAssignment of any version; nothing for no bytes."""
    if not data:
        return {}
    with _whole("an assignment"):
        reader = RecordReader(data)
        reader.i16()  # the version
        return {reader.string(): tuple(reader.i32() for _ in range(reader.i32())) for _ in range(reader.i32())}


@contextlib.contextmanager
def _whole(what: str) -> Generator[None]:
    try:
        yield
    except RecordFormatError:
        raise WireError(f"{what} of a group's member ends too early") from None
