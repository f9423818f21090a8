"""Committed offsets expire (G4, KIP-211, `offsets.retention.minutes`) and end with their topic; on virtual time."""

from __future__ import annotations

import pytest
from coordinator_fakes import FakeLog
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets, heartbeat, join, joined, leave, subscription
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
def bed() -> GroupTestBed:
    """Offsets are kept for a minute, and expired ones are looked for every second."""
    made = GroupTestBed(offsets_retention_minutes=1, offsets_retention_check_interval_ms=CHECK_MS)
    made.cache.topics["parcels"] = 3
    made.lead(HOME)
    return made


def tombstones(bed: GroupTestBed) -> list[object]:
    records = bed.replicas.logs[HOME].records()
    return [decode_key(key) for key, value in records if key is not None and value is None]


def group_state(bed: GroupTestBed) -> str:
    (described,) = bed.send(ApiKey.DESCRIBE_GROUPS, 5, groups=(GROUP,)).response.groups
    state: str = described.group_state
    return state


def keep_alive(bed: GroupTestBed, member_id: str, generation: int, for_ms: int) -> None:
    for _ in range(for_ms // SESSION_MS + 1):
        bed.host.advance(SESSION_MS)
        assert heartbeat(bed, member_id, generation) is ErrorCode.none


def reload(bed: GroupTestBed) -> None:
    bed.resign(HOME)
    bed.lead(HOME)


def test_offset_of_a_group_without_members_expires_after_its_commit(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.host.advance(30_000)
    commit(bed, 7, topic="parcels")
    bed.host.advance(MINUTE_MS - 30_000 - 1)
    assert len(committed_offsets(bed)) == 2
    bed.host.advance(CHECK_MS)
    assert committed_offsets(bed) == {("parcels", 0): 7}
    bed.host.advance(30_000)
    assert committed_offsets(bed) == {}
    assert group_state(bed) == "Dead"
    parcels = TopicPartition("parcels", 0)
    assert tombstones(bed) == [OffsetKey(GROUP, ORDERS), OffsetKey(GROUP, parcels), GroupKey(GROUP)]
    reload(bed)
    assert committed_offsets(bed) == {}
    assert group_state(bed) == "Dead"


def test_offset_expires_after_the_group_became_empty_not_after_its_commit(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    keep_alive(bed, member_id, generation, 3 * MINUTE_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}
    assert leave(bed, member_id) is ErrorCode.none
    bed.host.advance(MINUTE_MS - 1)
    assert committed_offsets(bed) == {("orders", 0): 41}
    bed.host.advance(CHECK_MS)
    assert committed_offsets(bed) == {}
    assert group_state(bed) == "Dead"


def test_time_at_which_a_group_became_empty_survives_a_failover(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    leave(bed, member_id)
    bed.host.advance(MINUTE_MS // 2)
    reload(bed)
    bed.host.advance(MINUTE_MS // 2 - CHECK_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}
    bed.host.advance(2 * CHECK_MS)
    assert committed_offsets(bed) == {}


def test_commit_time_counts_where_the_stored_group_does_not_say_since_when_it_is_empty(bed: GroupTestBed) -> None:
    now_ms = bed.host.clock.wall_ms()
    value = GroupValue(protocol_type="consumer", generation=3, protocol=None, leader=None, since_ms=-1)
    offset = OffsetValue(offset=Offset(41), timestamp_ms=now_ms - MINUTE_MS // 2)
    bed.resign(HOME)
    log = bed.replicas.logs[HOME] = FakeLog()
    records = [
        (encode_group_key(GROUP), encode_group_value(value), ()),
        (encode_offset_key(GROUP, ORDERS), encode_offset_value(offset), ()),
    ]
    log.append(build_batch(records, timestamp_ms=now_ms))
    bed.lead(HOME)
    bed.host.advance(MINUTE_MS // 2 - CHECK_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}
    bed.host.advance(2 * CHECK_MS)
    assert committed_offsets(bed) == {}


def test_offset_of_a_topic_that_no_member_subscribes_to_expires_in_a_live_group(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed, metadata=subscription("orders"))
    commit(bed, 41, member_id, generation)
    commit(bed, 7, member_id, generation, topic="parcels")
    keep_alive(bed, member_id, generation, MINUTE_MS - 2 * SESSION_MS)
    assert len(committed_offsets(bed)) == 2
    keep_alive(bed, member_id, generation, 2 * SESSION_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}
    assert tombstones(bed) == [OffsetKey(GROUP, TopicPartition("parcels", 0))]
    assert group_state(bed) == "Stable"


@pytest.mark.parametrize("more", [{}, {"protocol_type": "connect"}], ids=["unreadable", "connect"])
def test_nothing_expires_in_a_live_group_whose_subscriptions_are_unknown(
    bed: GroupTestBed, more: dict[str, str]
) -> None:
    member_id, generation = joined(bed, **more)
    commit(bed, 41, member_id, generation)
    keep_alive(bed, member_id, generation, 3 * MINUTE_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}


def test_nothing_expires_while_a_group_rebalances(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed, metadata=subscription("parcels"))
    commit(bed, 41, member_id, generation)
    keep_alive(bed, member_id, generation, MINUTE_MS - 2 * SESSION_MS)
    newcomer = join(bed, metadata=subscription("parcels")).response.member_id
    join(bed, newcomer, metadata=subscription("parcels"))
    for _ in range(3):
        bed.host.advance(SESSION_MS)
        assert heartbeat(bed, member_id, generation) is ErrorCode.rebalance_in_progress
    assert group_state(bed) == "PreparingRebalance"
    assert committed_offsets(bed) == {("orders", 0): 41}


def test_offset_whose_next_commit_is_in_progress_does_not_expire(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.host.advance(MINUTE_MS - 1)
    bed.replicas.automatic = False
    sent = commit(bed, 42)
    bed.host.advance(CHECK_MS)
    assert tombstones(bed) == []
    bed.replicas.acknowledge()
    assert sent.has_response
    assert committed_offsets(bed) == {("orders", 0): 42}


def test_commit_that_follows_the_tombstone_in_the_log_stays(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.replicas.automatic = False
    bed.host.advance(MINUTE_MS + CHECK_MS)
    assert tombstones(bed)[:2] == [OffsetKey(GROUP, ORDERS), GroupKey(GROUP)]
    commit(bed, 42)
    bed.replicas.acknowledge()
    assert committed_offsets(bed) == {("orders", 0): 42}
    reload(bed)
    assert committed_offsets(bed) == {("orders", 0): 42}


def test_group_that_a_member_joins_while_its_tombstone_is_in_progress_stays(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    leave(bed, member_id)
    bed.replicas.automatic = False
    bed.host.advance(MINUTE_MS + CHECK_MS)
    newcomer = join(bed).response.member_id
    assert join(bed, newcomer).response.generation_id > generation
    bed.replicas.acknowledge()
    assert group_state(bed) == "CompletingRebalance"
    assert committed_offsets(bed) == {}


def test_refused_tombstones_are_written_again_at_the_next_check(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.host.advance(MINUTE_MS - CHECK_MS)
    bed.replicas.next_error = ErrorCode.not_enough_replicas
    bed.host.advance(CHECK_MS)
    assert committed_offsets(bed) == {("orders", 0): 41}
    bed.host.advance(CHECK_MS)
    assert committed_offsets(bed) == {}


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize("retention_ms", [MINUTE_MS // 2, 2 * MINUTE_MS])
def test_retention_time_of_an_old_commit_request_replaces_the_brokers(
    bed: GroupTestBed, version: int, retention_ms: int
) -> None:
    commit(bed, 41, version=version, retention_time=retention_ms)
    reload(bed)
    bed.host.advance(retention_ms - 1)
    assert committed_offsets(bed) == {("orders", 0): 41}
    bed.host.advance(CHECK_MS)
    assert committed_offsets(bed) == {}


def test_empty_group_without_offsets_is_removed_by_a_tombstone_at_the_next_check(bed: GroupTestBed) -> None:
    member_id, _ = joined(bed)
    leave(bed, member_id)
    assert group_state(bed) == "Empty"
    bed.host.advance(CHECK_MS)
    assert group_state(bed) == "Dead"
    assert tombstones(bed) == [GroupKey(GROUP)]
    bed.host.advance(CHECK_MS)
    assert tombstones(bed) == [GroupKey(GROUP)]


def test_empty_group_that_gave_out_a_member_id_is_kept_until_the_member_joins(bed: GroupTestBed) -> None:
    member_id = join(bed).response.member_id
    bed.host.advance(2 * CHECK_MS)
    assert join(bed, member_id).response.error_code is ErrorCode.none
    assert tombstones(bed) == []


def test_shard_that_is_unloaded_writes_no_tombstone(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.resign(HOME)
    bed.host.advance(2 * MINUTE_MS)
    assert tombstones(bed) == []


def test_offsets_of_a_deleted_topic_are_removed_and_others_stay(bed: GroupTestBed) -> None:
    commit(bed, 41)
    commit(bed, 7, topic="parcels")
    bed.cache.change(parcels=0)
    assert committed_offsets(bed) == {("orders", 0): 41}
    assert tombstones(bed) == [OffsetKey(GROUP, TopicPartition("parcels", 0))]
    bed.cache.change(parcels=3)
    reload(bed)
    assert committed_offsets(bed) == {("orders", 0): 41}


def test_offsets_of_a_deleted_topic_are_removed_from_a_group_with_members(bed: GroupTestBed) -> None:
    commit(bed, 41, *joined(bed))
    bed.cache.change(orders=0)
    assert committed_offsets(bed) == {}
    assert group_state(bed) == "Stable"
