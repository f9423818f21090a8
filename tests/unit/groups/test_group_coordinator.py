"""The coordinator over a log in memory: requests of every version in, decoded responses out."""

from __future__ import annotations

from typing import Any

import pytest
from coordinator_fakes import FakeLog, Sent
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, heartbeat, join, joined, sync
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.records import (
    GroupKey,
    OffsetKey,
    decode_group_value,
    decode_key,
    decode_offset_value,
)
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import OFFSETS
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import build_batch

LATEST_JOIN = 9


def commit_error(sent: Sent) -> ErrorCode:
    code: ErrorCode = sent.answer.topics[0].partitions[0].error_code
    return code


def fetched(bed: GroupTestBed, version: int = 7) -> Any:
    """The answer's row of orders-0."""
    if version >= 8:
        topic = bed.nested(
            ApiKey.OFFSET_FETCH,
            version,
            "OffsetFetchRequestTopics",
            name="orders",
            partition_indexes=(0,),
        )
        group = bed.nested(
            ApiKey.OFFSET_FETCH,
            version,
            "OffsetFetchRequestGroup",
            group_id=GROUP,
            topics=(topic,),
        )
        answer = bed.send(ApiKey.OFFSET_FETCH, version, groups=(group,)).answer.groups[0]
    else:
        topic = bed.nested(
            ApiKey.OFFSET_FETCH,
            version,
            "OffsetFetchRequestTopic",
            name="orders",
            partition_indexes=(0,),
        )
        answer = bed.send(ApiKey.OFFSET_FETCH, version, group_id=GROUP, topics=(topic,)).answer
    if getattr(answer, "error_code", ErrorCode.none) is not ErrorCode.none:
        return answer
    return answer.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(10))
def test_every_join_version_gets_a_member_in(bed: GroupTestBed, version: int) -> None:
    answer = join(bed, version=version).answer
    if version >= 4:
        assert answer.error_code is ErrorCode.member_id_required
        answer = join(bed, answer.member_id, version=version).answer
    assert answer.error_code is ErrorCode.none
    assert answer.leader == answer.member_id
    assert answer.generation_id == 1
    assert [bytes(row.metadata) for row in answer.members] == [b"sub"]


def test_a_generation_is_logged_before_the_sync_is_answered(bed: GroupTestBed) -> None:
    bed.replicas.automatic = False
    member_id = join(bed).answer.member_id
    join(bed, member_id)
    sent = sync(bed, member_id, 1)
    assert not sent.answered
    bed.replicas.acknowledge()
    assert bytes(sent.answer.assignment) == b"mine"
    key, value = bed.replicas.logs[HOME].records()[-1]
    assert key is not None
    assert value is not None
    assert decode_key(key) == GroupKey(GROUP)
    stored = decode_group_value(value)
    assert (stored.generation, stored.leader, stored.protocol) == (1, member_id, "range")
    assert [row.assignment for row in stored.members] == [b"mine"]


def test_sessions_end_by_the_clock_and_live_by_heartbeats(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    for _ in range(3):
        bed.host.advance(9_000)
        assert heartbeat(bed, member_id, generation) is ErrorCode.none
    bed.host.advance(10_001)
    assert heartbeat(bed, member_id, generation) is ErrorCode.unknown_member_id


def test_leaving_one_by_one_and_in_batches(bed: GroupTestBed) -> None:
    member_id, _ = joined(bed)
    old = bed.send(ApiKey.LEAVE_GROUP, 1, group_id=GROUP, member_id="nobody")
    assert old.answer.error_code is ErrorCode.unknown_member_id
    rows = tuple(
        bed.nested(ApiKey.LEAVE_GROUP, 5, "MemberIdentity", member_id=name)
        for name in (member_id, "nobody")
    )
    answer = bed.send(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=rows).answer
    errors = [row.error_code for row in answer.members]
    assert errors == [ErrorCode.none, ErrorCode.unknown_member_id]


@pytest.mark.parametrize("version", range(2, 10))
def test_a_commit_is_answered_after_its_replicas_have_it_and_then_shown(
    bed: GroupTestBed, version: int
) -> None:
    bed.replicas.automatic = False
    sent = commit(bed, 41, version=version)
    assert not sent.answered
    assert fetched(bed).committed_offset == -1
    bed.replicas.acknowledge()
    assert commit_error(sent) is ErrorCode.none
    assert fetched(bed).committed_offset == 41
    key, value = bed.replicas.logs[HOME].records()[-1]
    assert key is not None
    assert value is not None
    assert decode_key(key) == OffsetKey(GROUP, TopicPartition("orders", 0))
    assert decode_offset_value(value).offset == 41


@pytest.mark.parametrize("version", range(1, 10))
def test_every_fetch_version_shows_the_committed_offset(bed: GroupTestBed, version: int) -> None:
    commit(bed, 41)
    row = fetched(bed, version)
    assert (row.committed_offset, row.metadata, row.error_code) == (41, "m", ErrorCode.none)


def test_fetching_all_topics_of_a_group(bed: GroupTestBed) -> None:
    commit(bed, 4, partition=2)
    commit(bed, 3, partition=1)
    answer = bed.send(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=None).answer
    rows = [(row.partition_index, row.committed_offset) for row in answer.topics[0].partitions]
    assert rows == [(1, 3), (2, 4)]


@pytest.mark.parametrize(
    ("log_error", "shown"),
    [
        (ErrorCode.not_enough_replicas, ErrorCode.coordinator_not_available),
        (ErrorCode.not_enough_replicas_after_append, ErrorCode.coordinator_not_available),
        (ErrorCode.request_timed_out, ErrorCode.coordinator_not_available),
        (ErrorCode.not_leader_or_follower, ErrorCode.not_coordinator),
        (ErrorCode.kafka_storage_error, ErrorCode.not_coordinator),
        (ErrorCode.message_too_large, ErrorCode.invalid_commit_offset_size),
    ],
)
def test_errors_of_the_log_are_translated(
    bed: GroupTestBed, log_error: ErrorCode, shown: ErrorCode
) -> None:
    bed.replicas.next_error = log_error
    assert commit_error(commit(bed, 41)) is shown
    assert fetched(bed).committed_offset == -1


def test_commits_that_are_refused_row_by_row(bed: GroupTestBed) -> None:
    assert commit_error(commit(bed, 1, topic="nowhere")) is ErrorCode.unknown_topic_or_partition
    assert commit_error(commit(bed, 1, partition=3)) is ErrorCode.unknown_topic_or_partition
    long = commit(bed, 1, metadata="x" * 5_000)
    assert commit_error(long) is ErrorCode.offset_metadata_too_large
    assert commit_error(commit(bed, 1, "m", 3)) is ErrorCode.unknown_member_id


def test_a_broker_that_does_not_lead_is_no_coordinator(bed: GroupTestBed) -> None:
    other = GroupTestBed()
    assert commit_error(commit(other, 1)) is ErrorCode.not_coordinator
    assert fetched(other, 1).error_code is ErrorCode.not_coordinator
    assert fetched(other, 5).error_code is ErrorCode.not_coordinator
    assert fetched(other, 9).error_code is ErrorCode.not_coordinator
    assert join(other).answer.error_code is ErrorCode.not_coordinator
    assert heartbeat(other, "m", 1) is ErrorCode.not_coordinator


def test_failover_keeps_generation_members_and_offsets(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    bed.resign(HOME)
    assert heartbeat(bed, member_id, generation) is ErrorCode.not_coordinator
    bed.lead(HOME)
    assert heartbeat(bed, member_id, generation) is ErrorCode.none
    assert fetched(bed).committed_offset == 41
    bed.host.advance(10_001)
    assert heartbeat(bed, member_id, generation) is ErrorCode.unknown_member_id


def test_a_join_that_waits_is_answered_when_the_partition_is_lost(bed: GroupTestBed) -> None:
    joined(bed)
    first = join(bed).answer.member_id
    waiting = join(bed, first)
    assert not waiting.answered
    bed.resign(HOME)
    assert waiting.answer.error_code is ErrorCode.not_coordinator


def test_loading_waits_for_the_high_watermark_to_reach_the_epochs_start(bed: GroupTestBed) -> None:
    commit(bed, 41)
    commit(bed, 42)
    bed.resign(HOME)
    partition = bed.lead(HOME, high_watermark=1)
    assert fetched(bed).error_code is ErrorCode.coordinator_load_in_progress
    assert commit_error(commit(bed, 1)) is ErrorCode.coordinator_load_in_progress
    listed = bed.send(ApiKey.LIST_GROUPS, 5).answer
    assert listed.error_code is ErrorCode.coordinator_load_in_progress
    partition.high_watermark = 2
    bed.replicas.produces.check_and_complete(partition.topic_partition)
    bed.host.run_due()
    assert fetched(bed).committed_offset == 42


def test_a_load_that_was_overtaken_leaves_no_trace(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.resign(HOME)
    stale = bed.lead(HOME, high_watermark=0)
    bed.resign(HOME)
    fresh = bed.lead(HOME)
    commit(bed, 50)
    stale.high_watermark = 99
    bed.replicas.produces.check_and_complete(stale.topic_partition)
    bed.host.advance(2_000)
    assert fresh.generation > stale.generation
    assert fetched(bed).committed_offset == 50


def test_an_unbroken_leadership_is_not_loaded_again(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    partition = bed.replicas.partitions[HOME]
    reads = partition.log.reads
    for hook in bed.replicas.on_leadership:
        hook([partition], [])
    bed.host.run_due()
    assert partition.log.reads == reads
    assert heartbeat(bed, member_id, generation) is ErrorCode.none


def test_records_that_nobody_understands_are_skipped_and_reported() -> None:
    bed = GroupTestBed()
    log = bed.replicas.logs[HOME] = FakeLog()
    log.append(build_batch([(b"\x00\x01", b"x", ()), (None, b"x", ())], timestamp_ms=0))
    log.append(build_batch([(b"\x00\x09", b"x", ())], timestamp_ms=0))
    bed.lead(HOME)
    assert fetched(bed).committed_offset == -1
    warnings = [fields for event, fields in bed.host.events if event == "log.warning"]
    assert len(warnings) == 2


def test_describe_list_and_delete(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    (described,) = bed.send(ApiKey.DESCRIBE_GROUPS, 5, groups=(GROUP,)).answer.groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [bytes(row.member_assignment) for row in described.members] == [b"mine"]
    (row,) = bed.send(ApiKey.LIST_GROUPS, 5, states_filter=("Stable",)).answer.groups
    assert (row.group_id, row.protocol_type, row.group_type) == (GROUP, "consumer", "classic")
    assert not bed.send(ApiKey.LIST_GROUPS, 5, states_filter=("Empty",)).answer.groups

    def delete() -> ErrorCode:
        (result,) = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).answer.results
        code: ErrorCode = result.error_code
        return code

    assert delete() is ErrorCode.non_empty_group
    bed.send(ApiKey.LEAVE_GROUP, 2, group_id=GROUP, member_id=member_id)
    assert delete() is ErrorCode.none
    assert delete() is ErrorCode.group_id_not_found
    tombstones = [key for key, value in bed.replicas.logs[HOME].records() if value is None]
    assert len(tombstones) == 2
    bed.resign(HOME)
    bed.lead(HOME)
    assert fetched(bed).committed_offset == -1
    (unknown,) = bed.send(ApiKey.DESCRIBE_GROUPS, 6, groups=(GROUP,)).answer.groups
    assert (unknown.error_code, unknown.group_state) == (ErrorCode.group_id_not_found, "Dead")


def test_deleting_offsets(bed: GroupTestBed) -> None:
    commit(bed, 41)
    row = bed.nested(ApiKey.OFFSET_DELETE, 0, "OffsetDeleteRequestPartition", partition_index=0)
    topic = bed.nested(
        ApiKey.OFFSET_DELETE, 0, "OffsetDeleteRequestTopic", name="orders", partitions=(row,)
    )
    answer = bed.send(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=(topic,)).answer
    assert answer.error_code is ErrorCode.none
    assert fetched(bed).committed_offset == -1


@pytest.mark.parametrize("version", range(7))
def test_finding_the_coordinator(bed: GroupTestBed, version: int) -> None:
    bed.cache.leaders[TopicPartition(OFFSETS.name, HOME)] = 2

    def find(**more: Any) -> Any:
        asked = {"key": GROUP} if version < 4 else {"coordinator_keys": (GROUP,)}
        answer = bed.send(ApiKey.FIND_COORDINATOR, version, **asked, **more).answer
        return answer if version < 4 else answer.coordinators[0]

    found = find()
    assert (found.node_id, found.host, found.port) == (2, "127.0.0.1", 9002)
    if version >= 1:
        assert find(key_type=1).error_code is ErrorCode.invalid_request
    del bed.cache.topics[OFFSETS.name]
    assert find().error_code is ErrorCode.coordinator_not_available
    assert [row[:3] for row in bed.admin.created] == [(OFFSETS.name, 50, 3)]
    assert find().error_code is ErrorCode.none


def test_session_timeouts_out_of_bounds_and_empty_group_names(bed: GroupTestBed) -> None:
    strict = GroupTestBed(group_min_session_timeout_ms=20_000)
    strict.lead(HOME)
    assert join(strict).answer.error_code is ErrorCode.invalid_session_timeout


def test_stopping_answers_who_waits(bed: GroupTestBed) -> None:
    joined(bed)
    waiting = join(bed, join(bed).answer.member_id)
    bed.coordinator.service.runtime.close()
    assert waiting.answer.error_code is ErrorCode.not_coordinator
