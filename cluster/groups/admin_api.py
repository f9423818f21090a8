"""ListGroups, DescribeGroups and DeleteGroups.

Owns: how groups are listed, described and deleted. The response to DeleteGroups follows once the tombstones of the
group's offsets and metadata are committed. May fail: KafkaError only, which becomes the error of its group.

Source: Kafka's GroupMetadataManager and GroupCoordinatorService.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from ..authorizer import CLUSTER, Operation, ResourceType
from ..coordinators import KeyValue
from ..errors import ErrorCode, KafkaError
from ..ids import Offset
from ..wire import messages
from .authorized_operations import authorized_operations
from .group_shard import GroupShard, metadata_tombstones
from .hosted_group import HostedGroup
from .records import CONSUMER_PROTOCOL, encode_offset_key
from .service import GroupService
from .share.initialization import delete_all
from .share.share_group import ShareGroup
from .share.share_records import StatePartitionsRecord
from .share.share_state import ShareDraft
from .share_hosting import Errors
from .states import GroupState

if TYPE_CHECKING:
    from ..wire.request import Request

CLASSIC_TYPE, CONSUMER_TYPE, SHARE_TYPE, STREAMS_TYPE = "classic", "consumer", "share", "streams"
"""Kafka's types of groups."""
UNKNOWN_GROUP_ERROR_FROM = 6


class GroupAdminApi:
    """Handlers of the administrative requests."""

    def __init__(self, service: GroupService) -> None:
        self._service = service

    def list_groups(self, request: Request) -> None:
        """ListGroups v0 to v5: the groups that this broker coordinates, filtered by state and type."""
        body = request.decode()
        s = messages.response(request)
        states = {name.lower().strip() for name in getattr(body, "states_filter", ())}
        types = {name.lower() for name in getattr(body, "types_filter", ())}
        found = [hosted for shard in self._service.shards() for hosted in shard]
        denied: frozenset[str] = frozenset()
        if not request.unrestricted and not request.allows(Operation.DESCRIBE, *CLUSTER):
            denied = request.denied(Operation.DESCRIBE, ResourceType.GROUP, (hosted.group_id for hosted in found))
        groups = (_listed(hosted) for hosted in found if hosted.group_id not in denied)
        rows = [
            s.ListedGroup(**row)
            for row in groups
            if (not types or row["group_type"] in types) and (not states or row["group_state"].lower() in states)
        ]
        loading = self._service.runtime.any_loading
        error = ErrorCode.coordinator_load_in_progress if loading else ErrorCode.none
        request.respond(s.ListGroupsResponse(error_code=error, groups=tuple(rows)))

    def describe_groups(self, request: Request) -> None:
        """DescribeGroups v0 to v6; an unknown group is Dead, from v6 on GROUP_ID_NOT_FOUND."""
        body = request.decode()
        s = messages.response(request)
        groups = tuple(self._describe(s, request, body, name) for name in body.groups)
        request.respond(s.DescribeGroupsResponse(groups=groups))

    def _describe(self, s: Any, request: Request, body: Any, group_id: str) -> Any:
        try:
            request.require(Operation.DESCRIBE, ResourceType.GROUP, group_id)
            _, hosted = self._service.find(group_id)
        except KafkaError as error:
            return s.DescribedGroup(error_code=error.code, group_id=group_id)
        if hosted is None or not hosted.is_classic:
            missing = request.version >= UNKNOWN_GROUP_ERROR_FROM
            code = ErrorCode.group_id_not_found if missing else ErrorCode.none
            reason = "not found" if hosted is None else "is not a classic group"
            return s.DescribedGroup(
                error_code=code,
                error_message=f"Group {group_id} {reason}." if missing else None,
                group_id=group_id,
                group_state=GroupState.DEAD.value,
                authorized_operations=authorized_operations(request, body, group_id, code),
            )
        group = hosted.group
        # Protocol and subscriptions belong to one generation only while the group is Stable.
        stable = group.state is GroupState.STABLE
        protocol = group.protocol_name if stable else None
        members = tuple(
            s.DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.group_instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata(protocol),
                member_assignment=member.assignment or b"",
            )
            for member in group.members
        )
        return s.DescribedGroup(
            error_code=ErrorCode.none,
            group_id=group_id,
            group_state=group.state.value,
            protocol_type=group.members.protocol_type or "",
            protocol_data=protocol or "",
            members=members,
            authorized_operations=authorized_operations(request, body, group_id, ErrorCode.none),
        )

    def delete_groups(self, request: Request) -> None:
        """DeleteGroups v0 to v3: Empty groups only. The response follows once every tombstone is committed."""
        body = request.decode()
        errors: dict[str, ErrorCode] = {}
        names: list[str] = list(dict.fromkeys(body.groups_names))

        def add_result(name: str, error: ErrorCode) -> None:
            errors[name] = error
            if len(errors) == len(names):
                _respond_to_delete(request, {name: errors[name] for name in names})

        for name in names:
            try:
                request.require(Operation.DELETE, ResourceType.GROUP, name)
                shard, hosted = self._deletable(name)
            except KafkaError as error:
                add_result(name, error.code)
            else:
                if hosted.share is None:
                    self._delete(shard, hosted, add_result)
                else:
                    self._delete_share(shard, hosted, hosted.share, add_result)
        if not names:
            _respond_to_delete(request, {})

    def _deletable(self, group_id: str) -> tuple[GroupShard, HostedGroup]:
        shard, hosted = self._service.find(group_id)
        if hosted is None or hosted.group.state is GroupState.DEAD:
            raise KafkaError(ErrorCode.group_id_not_found)
        if not hosted.is_empty:
            raise KafkaError(ErrorCode.non_empty_group)
        return shard, hosted

    def _delete_share(self, shard: GroupShard, hosted: HostedGroup, group: ShareGroup, add_result: Any) -> None:
        """The delivery states go first; a group whose states stay, stays."""
        view, name = self._service.share_rules.view, hosted.group_id

        def plan(draft: ShareDraft) -> Callable[[], None]:
            if draft.state.members:
                raise KafkaError(ErrorCode.non_empty_group)
            if draft.state.shares is None:
                return partial(states_deleted, {})
            state, partitions = delete_all(draft.state.shares, view)
            draft.add(StatePartitionsRecord(state))
            return partial(shard.share_hosting.delete, name, partitions, states_deleted)

        def states_deleted(errors: Errors) -> None:
            if errors:
                add_result(name, next(iter(errors.values())).code)
                return
            try:
                _, found = self._deletable(name)
            except KafkaError as error:
                add_result(name, error.code)
            else:
                self._delete(shard, found, add_result)

        group.submit(plan, lambda error: add_result(name, error.code))

    def _delete(self, shard: GroupShard, hosted: HostedGroup, add_result: Any) -> None:
        group_id = hosted.group.group_id
        tombstones: list[KeyValue] = [(encode_offset_key(group_id, tp), None) for tp in hosted.offsets.written()]
        tombstones.extend(metadata_tombstones(hosted))
        # Removed at once, so that no member joins and no offset is committed before the tombstones are.
        shard.remove(hosted)

        def on_result(error: ErrorCode, _offset: Offset) -> None:
            add_result(group_id, error)

        shard.write(tombstones, on_result)


def _listed(hosted: HostedGroup) -> dict[str, str]:
    consumer, group = hosted.consumer, hosted.group
    if hosted.share is not None:
        protocol_type, state, kind = SHARE_TYPE, hosted.share.state.value, SHARE_TYPE
    elif consumer is not None:
        protocol_type, state, kind = CONSUMER_PROTOCOL, consumer.state.value, CONSUMER_TYPE
    elif hosted.streams is not None:
        protocol_type, state, kind = STREAMS_TYPE, hosted.streams.state.value, STREAMS_TYPE
    else:
        protocol_type = group.members.protocol_type or ""
        state, kind = group.state.value, CLASSIC_TYPE
    return {"group_id": hosted.group_id, "protocol_type": protocol_type, "group_state": state, "group_type": kind}


def _respond_to_delete(request: Request, errors: dict[str, ErrorCode]) -> None:
    s = messages.response(request)
    results = tuple(s.DeletableGroupResult(group_id=name, error_code=error) for name, error in errors.items())
    request.respond(s.DeleteGroupsResponse(results=results))
