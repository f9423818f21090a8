"""Rows of members of groups and their partitions. Layout and meaning: `tap/layouts.py`.

Owns: the protocol types of groups, because only a consumer's assignment can be read, and the last assignment of each
member with the protocol of KIP-848, whose later responses do not repeat it. A member owns partitions from the
SyncGroup response (the heartbeat's response, with the protocol of KIP-848) that says so, until a response of a later
generation, or until it leaves.
"""

from __future__ import annotations

from ..coordinators import RecordFormatError
from ..groups.records import CONSUMER_PROTOCOL, decode_assignment
from ..host.seam import Tap
from ..ids import TopicPartition
from .pending import PendingRequest
from .tap_offsets import decode_request, decode_response
from .topic_names import TopicNames

GROUPS_MOST = MEMBERS_MOST = 100_000


class TappedMembers:
    """The requests of a group coordinator that concern members."""

    def __init__(self, tap: Tap, names: TopicNames) -> None:
        self._tap = tap
        self._names = names
        self._protocol_types: dict[str, str] = {}
        self._assigned: dict[tuple[str, str], list[TopicPartition]] = {}

    def joined(self, request: PendingRequest, _response: bytes, _body_at: int) -> None:
        """JoinGroup: says what kind of group it is."""
        body = decode_request(request)
        if len(self._protocol_types) < GROUPS_MOST:
            self._protocol_types[body.group_id] = body.protocol_type

    def synced(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """SyncGroup: the member has its assignment."""
        body, answer = decode_request(request), decode_response(request, response, body_at)
        if answer.error_code or self._protocol_types.get(body.group_id) != CONSUMER_PROTOCOL:
            return
        try:
            assigned = decode_assignment(answer.assignment) if answer.assignment else ()
        except RecordFormatError:
            return
        self._tap.member(
            body.group_id, body.member_id, request.client_id, generation=body.generation_id, partitions=assigned
        )

    def left(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """LeaveGroup: the members own nothing."""
        body, answer = decode_request(request), decode_response(request, response, body_at)
        if answer.error_code:
            return
        members = body.members if hasattr(body, "members") else (body,)
        for member in members:
            self._tap.member(body.group_id, member.member_id, request.client_id, generation=-1, partitions=())

    def heartbeat(self, request: PendingRequest, response: bytes, body_at: int) -> None:
        """ConsumerGroupHeartbeat: a new assignment, the same one in a new epoch, or the end of the membership."""
        body, answer = decode_request(request), decode_response(request, response, body_at)
        if answer.error_code:
            return
        member_id = answer.member_id or body.member_id
        key = body.group_id, member_id
        if body.member_epoch < 0:
            self._assigned.pop(key, None)
        elif answer.assignment is not None and len(self._assigned) < MEMBERS_MOST:
            self._assigned[key] = [
                TopicPartition(self._names.name(topic.topic_id), number)
                for topic in answer.assignment.topic_partitions
                for number in topic.partitions
            ]
        self._tap.member(
            body.group_id,
            member_id,
            request.client_id,
            generation=max(answer.member_epoch, 0),
            partitions=self._assigned.get(key, ()),
        )
