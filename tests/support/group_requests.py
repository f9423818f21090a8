"""What members of one group ask of its coordinator."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from coordinator_fakes import Sent
from group_fakes import World
from harrow.cluster.errors import ErrorCode
from harrow.cluster.internal_topics import partition_for
from harrow.cluster.wire.api_keys import ApiKey

GROUP = "readers"
HOME = partition_for(GROUP, 50)


def join(world: World, member_id: str = "", version: int = 5, **more: Any) -> Sent:
    protocol = world.nested(
        ApiKey.JOIN_GROUP, version, "JoinGroupRequestProtocol", name="range", metadata=b"sub"
    )
    return world.send(
        ApiKey.JOIN_GROUP,
        version,
        group_id=GROUP,
        session_timeout=timedelta(milliseconds=10_000),
        rebalance_timeout=timedelta(milliseconds=60_000),
        member_id=member_id,
        protocol_type="consumer",
        protocols=(protocol,),
        **more,
    )


def sync(world: World, member_id: str, generation: int, give: bytes = b"mine") -> Sent:
    version = 5
    row = world.nested(
        ApiKey.SYNC_GROUP,
        version,
        "SyncGroupRequestAssignment",
        member_id=member_id,
        assignment=give,
    )
    return world.send(
        ApiKey.SYNC_GROUP,
        version,
        group_id=GROUP,
        generation_id=generation,
        member_id=member_id,
        assignments=(row,),
    )


def joined(world: World) -> tuple[str, int]:
    """A stable member's id and generation."""
    member_id = join(world).answer.member_id
    generation = join(world, member_id).answer.generation_id
    assert sync(world, member_id, generation).answer.error_code is ErrorCode.none
    return member_id, generation


def heartbeat(world: World, member_id: str, generation: int) -> ErrorCode:
    sent = world.send(
        ApiKey.HEARTBEAT, 4, group_id=GROUP, generation_id=generation, member_id=member_id
    )
    code: ErrorCode = sent.answer.error_code
    return code


def commit(
    world: World,
    offset: int,
    member_id: str = "",
    generation: int = -1,
    version: int = 9,
    **more: Any,
) -> Sent:
    row = world.nested(
        ApiKey.OFFSET_COMMIT,
        version,
        "OffsetCommitRequestPartition",
        partition_index=more.pop("partition", 0),
        committed_offset=offset,
        committed_metadata=more.pop("metadata", "m"),
    )
    topic = world.nested(
        ApiKey.OFFSET_COMMIT,
        version,
        "OffsetCommitRequestTopic",
        name=more.pop("topic", "orders"),
        partitions=(row,),
    )
    return world.send(
        ApiKey.OFFSET_COMMIT,
        version,
        group_id=GROUP,
        generation_id_or_member_epoch=generation,
        member_id=member_id,
        topics=(topic,),
    )
