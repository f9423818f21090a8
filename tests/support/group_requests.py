"""Requests that the members of one group send to its coordinator."""

from __future__ import annotations

import struct
from typing import Any

from coordinator_fakes import Sent
from group_fakes import GroupTestBed
from harrow.cluster.errors import ErrorCode
from harrow.cluster.internal_topics import partition_for
from harrow.cluster.wire.api_keys import ApiKey

GROUP = "readers"
HOME = partition_for(GROUP, 50)


UNREADABLE = b"sub"
"""A subscription that the broker cannot read."""


def subscription(*topics: str) -> bytes:
    """ConsumerProtocolSubscription v0."""
    names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
    return struct.pack(">hi", 0, len(topics)) + names + struct.pack(">i", -1)


def join(
    bed: GroupTestBed,
    member_id: str = "",
    version: int = 5,
    *,
    metadata: bytes = UNREADABLE,
    protocol_type: str = "consumer",
    group_id: str = GROUP,
    **more: Any,
) -> Sent:
    protocol = {"name": "range", "metadata": metadata}
    return bed.send(
        ApiKey.JOIN_GROUP,
        version,
        group_id=group_id,
        session_timeout=10_000,
        rebalance_timeout=60_000,
        member_id=member_id,
        protocol_type=protocol_type,
        protocols=(protocol,),
        **more,
    )


def sync(bed: GroupTestBed, member_id: str, generation: int, give: bytes = b"mine") -> Sent:
    version = 4
    row = {"member_id": member_id, "assignment": give}
    return bed.send(
        ApiKey.SYNC_GROUP, version, group_id=GROUP, generation_id=generation, member_id=member_id, assignments=(row,)
    )


def joined(bed: GroupTestBed, **more: Any) -> tuple[str, int]:
    """A stable member's id and generation."""
    member_id = join(bed, **more).response.member_id
    generation = join(bed, member_id, **more).response.generation_id
    assert sync(bed, member_id, generation).response.error_code is ErrorCode.none
    return member_id, generation


def heartbeat(bed: GroupTestBed, member_id: str, generation: int) -> ErrorCode:
    sent = bed.send(ApiKey.HEARTBEAT, 4, group_id=GROUP, generation_id=generation, member_id=member_id)
    code: ErrorCode = sent.response.error_code
    return code


def commit(
    bed: GroupTestBed, offset: int, member_id: str = "", generation: int = -1, version: int = 9, **more: Any
) -> Sent:
    row = {
        "partition_index": more.pop("partition", 0),
        "committed_offset": offset,
        "committed_metadata": more.pop("metadata", "m"),
    }
    topic = {"name": more.pop("topic", "orders"), "partitions": (row,)}
    return bed.send(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(topic,),
        **more,
    )


def leave(bed: GroupTestBed, member_id: str) -> ErrorCode:
    sent = bed.send(ApiKey.LEAVE_GROUP, 2, group_id=GROUP, member_id=member_id)
    code: ErrorCode = sent.response.error_code
    return code


def committed_offsets(bed: GroupTestBed) -> dict[tuple[str, int], int]:
    """All committed offsets of the group, as OffsetFetch shows them."""
    response = bed.send(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=None).response
    return {
        (topic.name, row.partition_index): row.committed_offset for topic in response.topics for row in topic.partitions
    }
