"""Committed offsets expire as KIP-211 says (`offsets.retention.minutes`), on virtual time."""

from __future__ import annotations

from datetime import timedelta

import pytest
from coordinator_fakes import FakeLog
from group_fakes import World
from group_requests import (
    GROUP,
    HOME,
    commit,
    committed_offsets,
    heartbeat,
    join,
    joined,
    leave,
    subscription,
)
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.records import (
    GroupKey,
    GroupValue,
    OffsetKey,
    OffsetValue,
    decode_key,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
)
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import build_batch

MINUTE_MS = 60_000
CHECK_MS = 1_000
ORDERS = TopicPartition("orders", 0)
SESSION_MS = 9_000


@pytest.fixture
def world() -> World:
    """Offsets are kept for a minute, and expired ones are looked for every second."""
    made = World(offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS)
    made.cache.topics["parcels"] = 3
    made.lead(HOME)
    return made


def tombstones(world: World) -> list[object]:
    records = world.replicas.logs[HOME].records()
    return [decode_key(key) for key, value in records if key is not None and value is None]


def group_state(world: World) -> str:
    (described,) = world.send(ApiKey.DESCRIBE_GROUPS, 5, groups=(GROUP,)).answer.groups
    state: str = described.group_state
    return state


def keep_alive(world: World, member_id: str, generation: int, for_ms: int) -> None:
    for _ in range(for_ms // SESSION_MS + 1):
        world.host.advance(SESSION_MS)
        assert heartbeat(world, member_id, generation) is ErrorCode.none


def reload(world: World) -> None:
    world.resign(HOME)
    world.lead(HOME)


def test_offset_of_a_group_without_members_expires_after_its_commit(world: World) -> None:
    commit(world, 41)
    world.host.advance(30_000)
    commit(world, 7, topic="parcels")
    world.host.advance(MINUTE_MS - 30_000 - 1)
    assert len(committed_offsets(world)) == 2
    world.host.advance(CHECK_MS)
    assert committed_offsets(world) == {("parcels", 0): 7}
    world.host.advance(30_000)
    assert committed_offsets(world) == {}
    assert group_state(world) == "Dead"
    parcels = TopicPartition("parcels", 0)
    assert tombstones(world) == [
        OffsetKey(GROUP, ORDERS),
        OffsetKey(GROUP, parcels),
        GroupKey(GROUP),
    ]
    reload(world)
    assert committed_offsets(world) == {}
    assert group_state(world) == "Dead"


def test_offset_expires_after_the_group_became_empty_not_after_its_commit(world: World) -> None:
    member_id, generation = joined(world)
    commit(world, 41, member_id, generation)
    keep_alive(world, member_id, generation, 3 * MINUTE_MS)
    assert committed_offsets(world) == {("orders", 0): 41}
    assert leave(world, member_id) is ErrorCode.none
    world.host.advance(MINUTE_MS - 1)
    assert committed_offsets(world) == {("orders", 0): 41}
    world.host.advance(CHECK_MS)
    assert committed_offsets(world) == {}
    assert group_state(world) == "Dead"


def test_time_at_which_a_group_became_empty_survives_a_failover(world: World) -> None:
    member_id, generation = joined(world)
    commit(world, 41, member_id, generation)
    leave(world, member_id)
    world.host.advance(MINUTE_MS // 2)
    reload(world)
    world.host.advance(MINUTE_MS // 2 - CHECK_MS)
    assert committed_offsets(world) == {("orders", 0): 41}
    world.host.advance(2 * CHECK_MS)
    assert committed_offsets(world) == {}


def test_commit_time_counts_where_the_stored_group_does_not_say_since_when_it_is_empty(
    world: World,
) -> None:
    now_ms = world.host.wall_ms()
    value = GroupValue(
        protocol_type="consumer", generation=3, protocol=None, leader=None, since_ms=-1
    )
    offset = OffsetValue(offset=Offset(41), timestamp_ms=now_ms - MINUTE_MS // 2)
    world.resign(HOME)
    log = world.replicas.logs[HOME] = FakeLog()
    records = [
        (encode_group_key(GROUP), encode_group_value(value), ()),
        (encode_offset_key(GROUP, ORDERS), encode_offset_value(offset), ()),
    ]
    log.append(build_batch(records, timestamp_ms=now_ms))
    world.lead(HOME)
    world.host.advance(MINUTE_MS // 2 - CHECK_MS)
    assert committed_offsets(world) == {("orders", 0): 41}
    world.host.advance(2 * CHECK_MS)
    assert committed_offsets(world) == {}


def test_offset_of_a_topic_that_no_member_subscribes_to_expires_in_a_live_group(
    world: World,
) -> None:
    member_id, generation = joined(world, metadata=subscription("orders"))
    commit(world, 41, member_id, generation)
    commit(world, 7, member_id, generation, topic="parcels")
    keep_alive(world, member_id, generation, MINUTE_MS - 2 * SESSION_MS)
    assert len(committed_offsets(world)) == 2
    keep_alive(world, member_id, generation, 2 * SESSION_MS)
    assert committed_offsets(world) == {("orders", 0): 41}
    assert tombstones(world) == [OffsetKey(GROUP, TopicPartition("parcels", 0))]
    assert group_state(world) == "Stable"


@pytest.mark.parametrize("more", [{}, {"protocol_type": "connect"}], ids=["unreadable", "connect"])
def test_nothing_expires_in_a_live_group_whose_subscriptions_are_unknown(
    world: World, more: dict[str, str]
) -> None:
    member_id, generation = joined(world, **more)
    commit(world, 41, member_id, generation)
    keep_alive(world, member_id, generation, 3 * MINUTE_MS)
    assert committed_offsets(world) == {("orders", 0): 41}


def test_nothing_expires_while_a_group_rebalances(world: World) -> None:
    member_id, generation = joined(world, metadata=subscription("parcels"))
    commit(world, 41, member_id, generation)
    keep_alive(world, member_id, generation, MINUTE_MS - 2 * SESSION_MS)
    newcomer = join(world, metadata=subscription("parcels")).answer.member_id
    join(world, newcomer, metadata=subscription("parcels"))
    for _ in range(3):
        world.host.advance(SESSION_MS)
        assert heartbeat(world, member_id, generation) is ErrorCode.rebalance_in_progress
    assert group_state(world) == "PreparingRebalance"
    assert committed_offsets(world) == {("orders", 0): 41}


def test_offset_whose_next_commit_is_in_progress_does_not_expire(world: World) -> None:
    commit(world, 41)
    world.host.advance(MINUTE_MS - 1)
    world.replicas.automatic = False
    sent = commit(world, 42)
    world.host.advance(CHECK_MS)
    assert tombstones(world) == []
    world.replicas.acknowledge()
    assert sent.answered
    assert committed_offsets(world) == {("orders", 0): 42}


def test_commit_that_follows_the_tombstone_in_the_log_stays(world: World) -> None:
    commit(world, 41)
    world.replicas.automatic = False
    world.host.advance(MINUTE_MS + CHECK_MS)
    assert tombstones(world)[:2] == [OffsetKey(GROUP, ORDERS), GroupKey(GROUP)]
    commit(world, 42)
    world.replicas.acknowledge()
    assert committed_offsets(world) == {("orders", 0): 42}
    reload(world)
    assert committed_offsets(world) == {("orders", 0): 42}


def test_group_that_a_member_joins_while_its_tombstone_is_in_progress_stays(world: World) -> None:
    member_id, generation = joined(world)
    commit(world, 41, member_id, generation)
    leave(world, member_id)
    world.replicas.automatic = False
    world.host.advance(MINUTE_MS + CHECK_MS)
    newcomer = join(world).answer.member_id
    assert join(world, newcomer).answer.generation_id > generation
    world.replicas.acknowledge()
    assert group_state(world) == "CompletingRebalance"
    assert committed_offsets(world) == {}


def test_refused_tombstones_are_written_again_at_the_next_check(world: World) -> None:
    commit(world, 41)
    world.host.advance(MINUTE_MS - CHECK_MS)
    world.replicas.next_error = ErrorCode.not_enough_replicas
    world.host.advance(CHECK_MS)
    assert committed_offsets(world) == {("orders", 0): 41}
    world.host.advance(CHECK_MS)
    assert committed_offsets(world) == {}


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [MINUTE_MS // 2, 2 * MINUTE_MS])
def test_retention_time_of_an_old_commit_request_replaces_the_brokers(
    world: World, version: int, retention_ms: int
) -> None:
    commit(world, 41, version=version, retention_time=timedelta(milliseconds=retention_ms))
    reload(world)
    world.host.advance(retention_ms - 1)
    assert committed_offsets(world) == {("orders", 0): 41}
    world.host.advance(CHECK_MS)
    assert committed_offsets(world) == {}


def test_empty_group_without_offsets_is_removed_by_a_tombstone_at_the_next_check(
    world: World,
) -> None:
    member_id, _ = joined(world)
    leave(world, member_id)
    assert group_state(world) == "Empty"
    world.host.advance(CHECK_MS)
    assert group_state(world) == "Dead"
    assert tombstones(world) == [GroupKey(GROUP)]
    world.host.advance(CHECK_MS)
    assert tombstones(world) == [GroupKey(GROUP)]


def test_empty_group_that_gave_out_a_member_id_is_kept_until_the_member_joins(world: World) -> None:
    member_id = join(world).answer.member_id
    world.host.advance(2 * CHECK_MS)
    assert join(world, member_id).answer.error_code is ErrorCode.none
    assert tombstones(world) == []


def test_shard_that_is_unloaded_writes_no_tombstone(world: World) -> None:
    commit(world, 41)
    world.resign(HOME)
    world.host.advance(2 * MINUTE_MS)
    assert tombstones(world) == []
