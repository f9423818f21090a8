"""The coordinator over a log in memory: requests of every version in, decoded responses out."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from coordinator_fakes import FakeLog, Sent
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets, heartbeat, join, joined, sync
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.records import GroupKey, OffsetKey, decode_group_value, decode_key, decode_offset_value
from harrow.cluster.ids import TopicPartition
from harrow.cluster.tap.layouts import COMMIT_DTYPE
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import build_batch

LATEST_JOIN = 9


def commit_error(sent: Sent) -> ErrorCode:
    code: ErrorCode = sent.response.topics[0].partitions[0].error_code
    return code


def fetched(bed: GroupTestBed, version: int = 7) -> Any:
    """The response's row of orders-0."""
    if version >= 8:
        topic = {"name": "orders", "partition_indexes": (0,)}
        group = {"group_id": GROUP, "topics": (topic,)}
        response = bed.send(ApiKey.OFFSET_FETCH, version, groups=(group,)).response.groups[0]
    else:
        topic = {"name": "orders", "partition_indexes": (0,)}
        response = bed.send(ApiKey.OFFSET_FETCH, version, group_id=GROUP, topics=(topic,)).response
    if getattr(response, "error_code", ErrorCode.none) is not ErrorCode.none:
        return response
    return response.topics[0].partitions[0]


@pytest.mark.parametrize("version", range(10))
def test_join_of_every_version_adds_the_member(bed: GroupTestBed, version: int) -> None:
    response = join(bed, version=version).response
    if version >= 4:
        assert response.error_code is ErrorCode.member_id_required
        response = join(bed, response.member_id, version=version).response
    assert response.error_code is ErrorCode.none
    assert response.leader == response.member_id
    assert response.generation_id == 1
    assert [bytes(row.metadata) for row in response.members] == [b"sub"]


def test_sync_response_follows_the_commit_of_the_generation(bed: GroupTestBed) -> None:
    bed.replicas.automatic = False
    member_id = join(bed).response.member_id
    join(bed, member_id)
    sent = sync(bed, member_id, 1)
    assert not sent.has_response
    bed.replicas.acknowledge()
    assert bytes(sent.response.assignment) == b"mine"
    key, value = bed.replicas.logs[HOME].records()[-1]
    assert key is not None
    assert value is not None
    assert decode_key(key) == GroupKey(GROUP)
    stored = decode_group_value(value)
    assert (stored.generation, stored.leader, stored.protocol) == (1, member_id, "range")
    assert [row.assignment for row in stored.members] == [b"mine"]


def test_session_times_out_without_heartbeats_and_continues_with_them(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    for _ in range(3):
        bed.host.advance(9_000)
        assert heartbeat(bed, member_id, generation) is ErrorCode.none
    bed.host.advance(10_001)
    assert heartbeat(bed, member_id, generation) is ErrorCode.unknown_member_id


def test_leave_of_one_or_several_members_reports_an_error_for_each(bed: GroupTestBed) -> None:
    member_id, _ = joined(bed)
    old = bed.send(ApiKey.LEAVE_GROUP, 1, group_id=GROUP, member_id="nobody")
    assert old.response.error_code is ErrorCode.unknown_member_id
    rows = tuple({"member_id": name} for name in (member_id, "nobody"))
    response = bed.send(ApiKey.LEAVE_GROUP, 5, group_id=GROUP, members=rows).response
    errors = [row.error_code for row in response.members]
    assert errors == [ErrorCode.none, ErrorCode.unknown_member_id]


@pytest.mark.parametrize("version", range(2, 10))
def test_offset_commit_response_follows_the_replication_and_then_fetch_returns_it(
    bed: GroupTestBed, version: int
) -> None:
    bed.replicas.automatic = False
    sent = commit(bed, 41, version=version)
    assert not sent.has_response
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
def test_offset_fetch_of_every_version_returns_the_committed_offset(bed: GroupTestBed, version: int) -> None:
    commit(bed, 41)
    row = fetched(bed, version)
    assert (row.committed_offset, row.metadata, row.error_code) == (41, "m", ErrorCode.none)


def test_offset_fetch_of_all_topics_returns_every_committed_offset(bed: GroupTestBed) -> None:
    commit(bed, 4, partition=2)
    commit(bed, 3, partition=1)
    response = bed.send(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=None).response
    rows = [(row.partition_index, row.committed_offset) for row in response.topics[0].partitions]
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
def test_refused_append_of_a_commit_returns_the_translated_error(
    bed: GroupTestBed, log_error: ErrorCode, shown: ErrorCode
) -> None:
    bed.replicas.next_error = log_error
    assert commit_error(commit(bed, 41)) is shown
    assert fetched(bed).committed_offset == -1


def test_tap_has_each_written_commit_and_no_refused_one(bed: GroupTestBed, tmp_path: Path) -> None:
    tap = FileTap(str(tmp_path), bed.host.clock)
    bed.host.tap = tap
    bed.replicas.automatic = False
    waiting = commit(bed, 41)
    assert (tmp_path / "tap.commits").stat().st_size == 0
    bed.replicas.automatic = True
    bed.replicas.acknowledge()
    assert commit_error(waiting) is ErrorCode.none
    bed.replicas.next_error = ErrorCode.request_timed_out
    commit(bed, 42)
    commit(bed, 43, topic="nowhere")
    tap.close()
    rows: Any = np.frombuffer((tmp_path / "tap.commits").read_bytes(), dtype=COMMIT_DTYPE)
    assert rows["offset"].tolist() == [41, 42]
    assert rows["error"].tolist() == [0, ErrorCode.coordinator_not_available]
    lines = (tmp_path / "tap.names").read_text().splitlines()
    assert {GROUP, "orders"} <= {line.split("\t")[1] for line in lines}


def test_invalid_offset_commit_is_refused_for_its_partition(bed: GroupTestBed) -> None:
    assert commit_error(commit(bed, 1, topic="nowhere")) is ErrorCode.unknown_topic_or_partition
    assert commit_error(commit(bed, 1, partition=3)) is ErrorCode.unknown_topic_or_partition
    long = commit(bed, 1, metadata="x" * 5_000)
    assert commit_error(long) is ErrorCode.offset_metadata_too_large
    assert commit_error(commit(bed, 1, "m", 3)) is ErrorCode.unknown_member_id


def test_request_to_a_broker_that_does_not_lead_returns_not_coordinator(bed: GroupTestBed) -> None:
    other = GroupTestBed()
    assert commit_error(commit(other, 1)) is ErrorCode.not_coordinator
    assert fetched(other, 1).error_code is ErrorCode.not_coordinator
    assert fetched(other, 5).error_code is ErrorCode.not_coordinator
    assert fetched(other, 9).error_code is ErrorCode.not_coordinator
    assert join(other).response.error_code is ErrorCode.not_coordinator
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


def test_lost_partition_responds_not_coordinator_to_a_waiting_join(bed: GroupTestBed) -> None:
    joined(bed)
    first = join(bed).response.member_id
    waiting = join(bed, first)
    assert not waiting.has_response
    bed.resign(HOME)
    assert waiting.response.error_code is ErrorCode.not_coordinator


def test_load_waits_until_the_high_watermark_reaches_the_epoch_start(bed: GroupTestBed) -> None:
    commit(bed, 41)
    commit(bed, 42)
    bed.resign(HOME)
    partition = bed.lead(HOME, high_watermark=1)
    assert fetched(bed).error_code is ErrorCode.coordinator_load_in_progress
    assert commit_error(commit(bed, 1)) is ErrorCode.coordinator_load_in_progress
    listed = bed.send(ApiKey.LIST_GROUPS, 5).response
    assert listed.error_code is ErrorCode.coordinator_load_in_progress
    partition.high_watermark = 2
    bed.replicas.produces.check_and_complete(partition.topic_partition)
    bed.host.run_due()
    assert fetched(bed).committed_offset == 42


def test_load_of_an_older_generation_changes_nothing(bed: GroupTestBed) -> None:
    commit(bed, 41)
    bed.resign(HOME)
    stale = bed.lead(HOME, high_watermark=0)
    bed.resign(HOME)
    fresh = bed.lead(HOME)
    commit(bed, 50)
    stale.high_watermark = 99
    bed.replicas.produces.check_and_complete(stale.topic_partition)
    bed.host.advance(2_000)
    assert fresh.leadership_generation > stale.leadership_generation
    assert fetched(bed).committed_offset == 50


def test_new_leader_epoch_of_one_generation_is_not_loaded_again(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    partition = bed.replicas.partitions[HOME]
    reads = partition.log.reads
    for hook in bed.replicas.on_leadership:
        hook([partition], [])
    bed.host.run_due()
    assert partition.log.reads == reads
    assert heartbeat(bed, member_id, generation) is ErrorCode.none


def test_unknown_records_are_skipped_and_reported() -> None:
    bed = GroupTestBed()
    log = bed.replicas.logs[HOME] = FakeLog()
    log.append(build_batch([(b"\x00\x01", b"x", ()), (None, b"x", ())], timestamp_ms=0))
    log.append(build_batch([(b"\x00\x09", b"x", ())], timestamp_ms=0))
    bed.lead(HOME)
    assert fetched(bed).committed_offset == -1
    warnings = [fields for event, fields in bed.host.events if event == "log.warning"]
    assert len(warnings) == 2


def test_stable_group_is_described_and_listed_and_an_empty_group_is_deleted(bed: GroupTestBed) -> None:
    member_id, generation = joined(bed)
    commit(bed, 41, member_id, generation)
    (described,) = bed.send(ApiKey.DESCRIBE_GROUPS, 5, groups=(GROUP,)).response.groups
    assert (described.group_state, described.protocol_data) == ("Stable", "range")
    assert [bytes(row.member_assignment) for row in described.members] == [b"mine"]
    (row,) = bed.send(ApiKey.LIST_GROUPS, 5, states_filter=("Stable",)).response.groups
    assert (row.group_id, row.protocol_type, row.group_type) == (GROUP, "consumer", "classic")
    assert not bed.send(ApiKey.LIST_GROUPS, 5, states_filter=("Empty",)).response.groups

    def delete() -> ErrorCode:
        (result,) = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response.results
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
    (unknown,) = bed.send(ApiKey.DESCRIBE_GROUPS, 6, groups=(GROUP,)).response.groups
    assert (unknown.error_code, unknown.group_state) == (ErrorCode.group_id_not_found, "Dead")


def test_deletion_of_a_group_covers_a_commit_in_progress(bed: GroupTestBed) -> None:
    """The record of the commit lies before the tombstones: without one of its own it would come back at a load."""
    commit(bed, 41)
    bed.replicas.automatic = False
    committing = commit(bed, 7, partition=1)
    deleting = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,))
    bed.replicas.acknowledge()
    assert [row.error_code for row in deleting.response.results] == [ErrorCode.none]
    assert committing.response.topics[0].partitions[0].error_code is ErrorCode.none
    bed.replicas.automatic = True
    bed.resign(HOME)
    bed.lead(HOME)
    assert committed_offsets(bed) == {}


def test_deleted_offset_is_not_returned_by_offset_fetch(bed: GroupTestBed) -> None:
    commit(bed, 41)
    row = {"partition_index": 0}
    topic = {"name": "orders", "partitions": (row,)}
    response = bed.send(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=(topic,)).response
    assert response.error_code is ErrorCode.none
    assert fetched(bed).committed_offset == -1


def test_join_with_a_session_timeout_out_of_bounds_or_an_empty_group_id_is_refused(bed: GroupTestBed) -> None:
    strict = GroupTestBed(group_min_session_timeout_ms=20_000)
    strict.lead(HOME)
    assert join(strict).response.error_code is ErrorCode.invalid_session_timeout
    assert join(bed, group_id="").response.error_code is ErrorCode.invalid_group_id


def test_stop_responds_not_coordinator_to_waiting_requests(bed: GroupTestBed) -> None:
    joined(bed)
    waiting = join(bed, join(bed).response.member_id)
    bed.coordinator.service.runtime.close()
    assert waiting.response.error_code is ErrorCode.not_coordinator
