"""Requests of members of share groups to a coordinator without a cluster, and a client with its state."""

from __future__ import annotations

from typing import Any

from group_fakes import GroupTestBed
from group_requests import GROUP
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey


def share_heartbeat(bed: GroupTestBed, member_id: str, epoch: int, *topics: str, group_id: str = GROUP) -> Any:
    """The response to a ShareGroupHeartbeat; None while there is none."""
    return bed.send(
        ApiKey.SHARE_GROUP_HEARTBEAT,
        1,
        group_id=group_id,
        member_id=member_id,
        member_epoch=epoch,
        rack_id=None,
        subscribed_topic_names=topics or None,
    ).response


def share_state(bed: GroupTestBed, group_id: str = GROUP) -> Any:
    """Everything that the records of a share group add up to."""
    _, hosted = bed.coordinator.service.find(group_id)
    assert hosted is not None
    assert hosted.share is not None
    data = hosted.share.data
    return data.epoch, data.metadata_hash, data.target_epoch, data.members, data.targets, data.shares


class ModelShareMember:
    """A client of KIP-932: it joins again when its membership is gone."""

    def __init__(self, bed: GroupTestBed, member_id: str, *topics: str) -> None:
        self.bed = bed
        self.member_id = member_id
        self.topics = topics or ("orders",)
        self.epoch = 0
        self.assigned: set[tuple[str, int]] = set()

    def beat(self, *, lose_response: bool = False) -> ErrorCode:
        """One heartbeat; with `lose_response` the client does not see the response."""
        response = share_heartbeat(self.bed, self.member_id, self.epoch, *(self.topics if not self.epoch else ()))
        if response is None or lose_response:
            return ErrorCode.request_timed_out
        code: ErrorCode = response.error_code
        if code in (ErrorCode.fenced_member_epoch, ErrorCode.unknown_member_id, ErrorCode.group_id_not_found):
            self.epoch, self.assigned = 0, set()
        elif code is ErrorCode.none:
            assert response.member_epoch >= self.epoch, "the epoch of a member never decreases"
            self.epoch = response.member_epoch
            if response.assignment is not None:
                self.assigned = {
                    (self.bed.cache.topic_name(row.topic_id) or "deleted", number)
                    for row in response.assignment.topic_partitions
                    for number in row.partitions
                }
        return code

    def leave(self) -> None:
        """Leave the group."""
        share_heartbeat(self.bed, self.member_id, -1)
        self.epoch, self.assigned = 0, set()
