"""StreamsGroupHeartbeat and StreamsGroupDescribe, step by step; the errors are those of Apache Kafka 4.4 (G2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from consumer_group_requests import consumer_join
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.groups.streams.group_state import group_tombstones
from harrow.cluster.groups.streams.record_formats import encode_all
from harrow.cluster.wire.api_keys import ApiKey
from streams_group_requests import (
    BILLS,
    CHANGELOG,
    REPARTITION,
    ModelStreams,
    statuses,
    streams_described,
    streams_heartbeat,
    streams_join,
    subtopology,
    tasks_of,
    topic_info,
)

STALE, NO_SOURCE, WRONG_COUNT, NO_INTERNAL, SHUTDOWN, DELAYED, NO_TAGS = range(7)
TWICE = ({"subtopology_id": "0", "partition": 1, "offset": 5},) * 2
THREE = {"0": [0, 1, 2], "1": [0, 1, 2]}


@pytest.fixture
def bed() -> GroupTestBed:
    made = GroupTestBed(group_streams_initial_rebalance_delay_ms=0)
    made.lead(HOME)
    return made


def ready(bed: GroupTestBed, *members: str, **more: Any) -> list[Any]:
    """Join members whose internal topics exist."""
    bed.cache.change(**{REPARTITION: 3, CHANGELOG: 3})
    return [streams_join(bed, name, **more) for name in members]


def a_topology(*rows: dict[str, Any], epoch: int = 0) -> dict[str, Any]:
    return {"epoch": epoch, "subtopologies": rows}


@pytest.mark.parametrize(
    ("epoch", "fields", "error", "message"),
    [
        (5, {}, "group_id_not_found", "Streams group readers not found."),
        (-1, {}, "group_id_not_found", "Group readers not found."),
        (-3, {}, "invalid_request", "MemberEpoch is -3, but must be greater than or equal to -2."),
        (-2, {}, "invalid_request", "InstanceId can't be null."),
        (0, {"member_id": ""}, "invalid_request", "MemberId can't be empty."),
        (0, {"rack_id": " "}, "invalid_request", "RackId can't be empty."),
        (0, {"instance_id": " "}, "invalid_request", "InstanceId can't be empty."),
        (0, {"topology": None}, "invalid_request", "Topology must be non-null when (re-)joining."),
        (0, {"rebalance_timeout": timedelta(milliseconds=-1)}, "invalid_request", "RebalanceTimeoutMs must be"),
        (0, {"owned": {"0": [1]}}, "invalid_request", "ActiveTasks must be empty when (re-)joining."),
        (0, {"standby_tasks": None}, "invalid_request", "StandbyTasks must be empty when (re-)joining."),
        (0, {"task_offsets": TWICE}, "invalid_request", "Task offsets contain a duplicate entry for subtopology 0 and"),
        (5, {"topology": BILLS}, "invalid_request", "Topology can only be provided when (re-)joining."),
        (
            0,
            {"topology": a_topology(subtopology("0", "__consumer_offsets"))},
            "streams_invalid_topology",
            "Use of Kafka internal topics __consumer_offsets in a Kafka Streams topology is prohibited.",
        ),
        (
            0,
            {"topology": a_topology(subtopology("0", "a b"))},
            "streams_invalid_topology",
            "Topic names a b are not valid topic names.",
        ),
        (
            0,
            {"topology": a_topology(subtopology("0", "orders", state_changelog_topics=(topic_info("log", 2),)))},
            "streams_invalid_topology",
            "Changelog topic log must have an undefined partition count, but it is set to 2.",
        ),
        (
            0,
            {"topology": a_topology(subtopology("0", source_topic_regex=("o.*",)))},
            "invalid_request",
            "Regular expressions for source topics are not supported yet.",
        ),
        (
            0,
            {"topology": a_topology(*[subtopology("0", "orders")] * 2)},
            "unknown_server_error",
            "A name is there twice",
        ),
        (
            0,
            {"topology": a_topology(subtopology("0", "orders", state_changelog_topics=(topic_info("log"),) * 2))},
            "unknown_server_error",
            "A name is there twice in log, log.",
        ),
    ],
)
def test_invalid_heartbeat_is_refused_as_by_kafka(
    bed: GroupTestBed, epoch: int, fields: Any, error: str, message: str
) -> None:
    given: dict[str, Any] = {"member_id": "a", **fields}
    name = given.pop("member_id")
    response = streams_join(bed, name, **given) if epoch == 0 else streams_heartbeat(bed, name, epoch, **given)
    assert response.error_code.name == error
    assert message in response.error_message
    assert streams_described(bed).error_code is ErrorCode.group_id_not_found, "no group was created"


def test_missing_internal_topics_are_created_with_their_settings_and_then_tasks_are_assigned(bed: GroupTestBed) -> None:
    first = streams_join(bed, "a")
    assert (first.member_epoch, statuses(first), tasks_of(first.active_tasks)) == (2, [NO_INTERNAL], {})
    assert first.status[0].status_detail == f"Internal topics are missing: {REPARTITION}, {CHANGELOG}"
    assert streams_described(bed).group_state == "NotReady"
    bed.host.advance(1)
    created = {topic.name: topic for topic in bed.topics.created}
    assert {name: topic.partitions for name, topic in created.items()} == {REPARTITION: 3, CHANGELOG: 3}
    assert created[CHANGELOG].config == {"cleanup.policy": "compact"}
    assert created[CHANGELOG].replication_factor == -1
    second = streams_heartbeat(bed, "a", 2, owned={})
    assert (second.member_epoch, statuses(second), tasks_of(second.active_tasks)) == (3, [], THREE)
    assert streams_described(bed).group_state == "Stable"
    quiet = streams_heartbeat(bed, "a", 3)
    assert (quiet.active_tasks, quiet.standby_tasks, quiet.warmup_tasks) == (None, None, None)


def test_a_refused_internal_topic_is_named_and_not_tried_again_for_two_heartbeats(bed: GroupTestBed) -> None:
    bed.topics.refused[CHANGELOG] = KafkaError(ErrorCode.policy_violation, "no room")
    streams_join(bed, "a")
    bed.host.advance(1)
    again = streams_heartbeat(bed, "a", 2)
    assert again.status[0].status_detail.endswith(f"; Creation failed: {CHANGELOG} (no room).")
    del bed.topics.refused[CHANGELOG]
    bed.host.advance(9_000)
    streams_heartbeat(bed, "a", 3)
    assert CHANGELOG not in {topic.name for topic in bed.topics.created}
    bed.host.advance(2_000)
    streams_heartbeat(bed, "a", 3)
    bed.host.advance(1)
    assert CHANGELOG in {topic.name for topic in bed.topics.created}


def test_second_member_gets_tasks_only_after_the_first_has_revoked_them(bed: GroupTestBed) -> None:
    (first,) = ready(bed, "a")
    assert (first.member_epoch, tasks_of(first.active_tasks)) == (2, THREE)
    second = streams_join(bed, "b")
    assert (second.member_epoch, tasks_of(second.active_tasks)) == (3, {})
    assert streams_described(bed).group_state == "Reconciling"
    revoke = streams_heartbeat(bed, "a", 2, owned=THREE)
    kept = tasks_of(revoke.active_tasks)
    assert kept is not None
    assert (revoke.member_epoch, sum(map(len, kept.values()))) == (2, 3)
    acknowledged = streams_heartbeat(bed, "a", 2, owned=kept)
    assert (acknowledged.member_epoch, acknowledged.active_tasks) == (3, None)
    freed = tasks_of(streams_heartbeat(bed, "b", 3, owned={}).active_tasks)
    assert freed is not None
    assert {(name, n) for name, ns in (*kept.items(), *freed.items()) for n in ns} == {
        (name, n) for name, ns in THREE.items() for n in ns
    }
    assert streams_described(bed).group_state == "Stable"
    assert streams_heartbeat(bed, "a", 2, owned=kept).member_epoch == 3, "the response with epoch 3 may have been lost"
    fenced = streams_heartbeat(bed, "a", 2, owned=THREE)
    assert fenced.error_code is ErrorCode.fenced_member_epoch
    assert "smaller member epoch (2) than the one known by the group coordinator (3)" in fenced.error_message
    assert streams_heartbeat(bed, "a", 9).error_code is ErrorCode.fenced_member_epoch


def test_tasks_that_do_not_exist_are_refused(bed: GroupTestBed) -> None:
    ready(bed, "a")
    for owned, message in (({"7": [0]}, "Subtopology 7 does not exist"), ({"0": [3]}, "Task 3 for subtopology 0")):
        response = streams_heartbeat(bed, "a", 2, owned=owned)
        assert response.error_code is ErrorCode.invalid_request
        assert message in response.error_message


def test_another_topology_is_refused_and_an_older_one_is_stale(bed: GroupTestBed) -> None:
    ready(bed, "a", topology={**BILLS, "epoch": 1})
    other = streams_join(bed, "b", topology=a_topology(subtopology("0", "orders"), epoch=1))
    assert other.error_message == "Topology updates are not supported yet."
    older = streams_join(bed, "b")
    assert (older.error_code, statuses(older)) == (ErrorCode.none, [STALE])
    assert "topology epoch 0 is behind the group's topology epoch 1" in older.status[0].status_detail


def test_missing_sources_are_a_status(bed: GroupTestBed) -> None:
    absent = streams_join(bed, "a", topology=a_topology(subtopology("0", "gone", "absent")))
    assert statuses(absent) == [NO_SOURCE]
    assert absent.status[0].status_detail == "Source topics absent, gone are missing."
    bed.cache.change(gone=1, absent=2)
    given = streams_heartbeat(bed, "a", 2, owned={})
    assert (statuses(given), tasks_of(given.active_tasks)) == ([], {"0": [0, 1]})


def test_a_repartition_topic_with_another_number_of_partitions_is_a_status(bed: GroupTestBed) -> None:
    bed.cache.change(**{REPARTITION: 2})
    wrong = streams_join(bed, "a")
    assert statuses(wrong) == [WRONG_COUNT]
    expected = f"Existing topic {REPARTITION} has different number of partitions: expected 3, found 2"
    assert wrong.status[0].status_detail == expected


def test_the_application_ends_when_a_member_asks_for_it(bed: GroupTestBed) -> None:
    ready(bed, "a", "b")
    asked = streams_heartbeat(bed, "a", 2, shutdown_application=True)
    assert statuses(asked) == [SHUTDOWN]
    seen = streams_heartbeat(bed, "b", 3)
    assert statuses(seen) == [SHUTDOWN]
    assert "member a encountered a fatal error" in seen.status[0].status_detail
    for name in "ab":
        assert streams_heartbeat(bed, name, -1).member_epoch == -1
    assert statuses(streams_join(bed, "c")) == [], "an Empty group forgets it"


def test_first_assignment_waits_for_the_initial_rebalance_delay() -> None:
    bed = GroupTestBed()
    bed.lead(HOME)
    (first,) = ready(bed, "a")
    assert (first.member_epoch, statuses(first), tasks_of(first.active_tasks)) == (1, [DELAYED], {})
    second = streams_join(bed, "b")
    assert (second.member_epoch, statuses(second)) == (1, [DELAYED])
    bed.host.advance(3_000)
    assert streams_described(bed).assignment_epoch == streams_described(bed).group_epoch == 3
    given = [tasks_of(streams_heartbeat(bed, name, 1, owned={}).active_tasks) for name in "ab"]
    assert sorted(sum(map(len, (tasks or {}).values())) for tasks in given) == [3, 3]


def test_standbys_follow_the_setting_of_the_group_and_lie_on_other_processes(bed: GroupTestBed) -> None:
    bed.coordinator.service.config.groups[GROUP] = {"streams.num.standby.replicas": 1}
    ready(bed, "a", "b")
    for _ in range(4):
        for member in streams_described(bed).members:
            held = {row.subtopology_id: row.partitions for row in member.assignment.active_tasks}
            standby = tuple(
                {"subtopology_id": row.subtopology_id, "partitions": row.partitions}
                for row in member.assignment.standby_tasks
            )
            streams_heartbeat(bed, member.member_id, member.member_epoch, owned=held, standby_tasks=standby)
    members = streams_described(bed).members
    assert streams_described(bed).group_state == "Stable"
    for member in members:
        active = tasks_of(member.assignment.active_tasks) or {}
        standby_of = tasks_of(member.assignment.standby_tasks) or {}
        assert set(active.get("1", ())).isdisjoint(standby_of["1"])
        assert set(standby_of) == {"1"}, "only the subtopology with a store has standbys"
    assert sorted(n for member in members for n in (tasks_of(member.assignment.standby_tasks) or {})["1"]) == [0, 1, 2]


def test_a_change_of_the_standbys_makes_a_new_assignment(bed: GroupTestBed) -> None:
    ready(bed, "a")
    bed.coordinator.service.config.groups[GROUP] = {"streams.num.standby.replicas": 1}
    assert streams_heartbeat(bed, "a", 2).member_epoch == 3


def test_member_is_fenced_when_its_session_or_its_rebalance_timeout_ends(bed: GroupTestBed) -> None:
    ready(bed, "a", "b")
    streams_heartbeat(bed, "a", 2, owned=THREE)  # must revoke, within 20 s
    for _ in range(5):
        bed.host.advance(5_000)
        streams_heartbeat(bed, "a", 2)
        streams_heartbeat(bed, "b", 3)
    assert streams_heartbeat(bed, "a", 2).error_code is ErrorCode.unknown_member_id
    assert [row.member_id for row in streams_described(bed).members] == ["b"]
    bed.host.advance(46_000)
    assert streams_described(bed).group_state == "Empty"


def test_endpoints_have_the_partitions_of_tasks(bed: GroupTestBed) -> None:
    endpoint = {"host": "here", "port": 8080}
    (first,) = ready(bed, "a", user_endpoint=endpoint)
    assert first.endpoint_information_epoch == 0, "as in Kafka, the epoch of a new group is not kept"
    (row,) = first.partitions_by_user_endpoint
    assert (row.user_endpoint.host, row.user_endpoint.port) == ("here", 8080)
    parts = {part.topic: list(part.partitions) for part in row.active_partitions}
    assert parts == {"orders": [0, 1, 2], REPARTITION: [0, 1, 2]}
    assert streams_heartbeat(bed, "a", 2).partitions_by_user_endpoint is None
    second = streams_join(bed, "b", user_endpoint=endpoint)
    assert (second.endpoint_information_epoch, len(second.partitions_by_user_endpoint)) == (1, 2)
    assert streams_heartbeat(bed, "b", 3, endpoint_information_epoch=1).partitions_by_user_endpoint is None


def commit_of(bed: GroupTestBed, member: str, epoch: int, partition: int = 0) -> ErrorCode:
    """The error of a commit of `orders`."""
    response = commit(bed, 5, member, epoch, partition=partition).response
    code: ErrorCode = response.topics[0].partitions[0].error_code
    return code


def test_a_member_commits_with_an_older_epoch_only_for_tasks_that_it_has_had_since(bed: GroupTestBed) -> None:
    ready(bed, "a")
    assert commit_of(bed, "a", 2) is ErrorCode.none
    assert commit_of(bed, "x", 2) is ErrorCode.unknown_member_id
    assert commit_of(bed, "a", 3) is ErrorCode.stale_member_epoch
    streams_join(bed, "b")
    revoke = tasks_of(streams_heartbeat(bed, "a", 2, owned=THREE).active_tasks) or {}
    gone = next(number for number in range(3) if number not in revoke.get("0", []))
    assert commit_of(bed, "a", 2, gone) is ErrorCode.none, "it still revokes the task"
    streams_heartbeat(bed, "a", 2, owned=revoke)
    streams_heartbeat(bed, "b", 3, owned={})
    kept = revoke["0"][0]
    assert commit_of(bed, "a", 2, kept) is ErrorCode.none, "it has had the task since epoch 2"
    assert commit_of(bed, "a", 2, gone) is ErrorCode.stale_member_epoch
    assert commit_of(bed, "b", 2, gone) is ErrorCode.stale_member_epoch, "it has the task since epoch 3"
    assert commit_of(bed, "b", 3, gone) is ErrorCode.none


def test_a_client_that_lost_its_tasks_gets_them_again_when_it_joins(bed: GroupTestBed) -> None:
    """Kafka's rule: tasks are named when they change and at a join, not when a heartbeat is repeated."""
    streams_join(bed, "a")
    bed.cache.change(**{REPARTITION: 3, CHANGELOG: 3})
    bed.replicas.automatic = False
    streams_heartbeat(bed, "a", 2, owned={})
    bed.replicas.acknowledge(ErrorCode.request_timed_out)
    bed.replicas.automatic = True
    repeated = streams_heartbeat(bed, "a", 2, owned={})
    assert (repeated.error_code, repeated.member_epoch, repeated.active_tasks) == (ErrorCode.none, 3, None)
    assert streams_heartbeat(bed, "a", 2).error_code is ErrorCode.fenced_member_epoch, "it must say what it owns"
    joined = streams_join(bed, "a")
    assert (joined.member_epoch, tasks_of(joined.active_tasks)) == (3, THREE)


def beat_and_time_out(bed: GroupTestBed, client: ModelStreams) -> None:
    """A heartbeat whose records are in the log when its write times out."""
    bed.replicas.automatic = False
    client.beat(lose_response=True)
    assert bed.replicas.waiting, "the heartbeat writes"
    while bed.replicas.waiting:
        bed.replicas.acknowledge(ErrorCode.request_timed_out)
    bed.replicas.automatic = True


def test_a_group_is_ready_after_its_topics_were_created_and_a_write_timed_out(bed: GroupTestBed) -> None:
    """The record with the hash of the topics is in the log: what is known of the topics must not be older."""
    first, client = ModelStreams(bed, "a", "p"), ModelStreams(bed, "b", "q")
    beat_and_time_out(bed, first)
    assert client.beat() is ErrorCode.none, "the response has the internal topics created"
    beat_and_time_out(bed, client)
    bed.host.advance(5_000)
    assert client.beat() is ErrorCode.none
    assert streams_described(bed).group_state != "NotReady"


def test_a_member_that_missed_a_revocation_is_removed_and_can_no_longer_commit(bed: GroupTestBed) -> None:
    ready(bed, "a")
    streams_join(bed, "b")
    bed.replicas.automatic = False
    streams_heartbeat(bed, "a", 2, owned=THREE)
    bed.replicas.acknowledge(ErrorCode.request_timed_out)
    bed.replicas.automatic = True
    for _ in range(3):
        assert streams_heartbeat(bed, "a", 2, owned=THREE).active_tasks is None, "the response does not name it again"
        assert streams_heartbeat(bed, "b", 3, owned={}).active_tasks is None, "no other member gets its tasks"
        assert commit_of(bed, "a", 2) is ErrorCode.none
        bed.host.advance(5_000)
    bed.host.advance(5_000)
    given = streams_heartbeat(bed, "b", 3, owned={})
    assert (given.member_epoch, tasks_of(given.active_tasks)) == (4, THREE)
    assert commit_of(bed, "a", 2) is ErrorCode.unknown_member_id
    assert commit_of(bed, "b", 4) is ErrorCode.none
    assert streams_heartbeat(bed, "a", 2, owned=THREE).error_code is ErrorCode.unknown_member_id


def test_groups_of_other_protocols_are_kept_apart(bed: GroupTestBed) -> None:
    ready(bed, "a")
    refused = consumer_join(bed, "c")
    assert (refused.error_code, refused.error_message) == (
        ErrorCode.group_id_not_found,
        f"Group {GROUP} is not a consumer group.",
    )
    listed = bed.send(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=("streams",)).response.groups
    assert [(row.group_id, row.group_type, row.protocol_type, row.group_state) for row in listed] == [
        (GROUP, "streams", "streams", "Stable")
    ]
    deleted = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response.results[0]
    assert deleted.error_code is ErrorCode.non_empty_group
    streams_heartbeat(bed, "a", -1)
    deleted = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response.results[0]
    assert deleted.error_code is ErrorCode.none
    assert consumer_join(bed, "c").error_code is ErrorCode.none
    assert streams_join(bed, "a").error_message == f"Group {GROUP} is not a streams group."


def test_a_coordinator_that_takes_over_has_the_same_group_and_a_deleted_group_leaves_nothing(bed: GroupTestBed) -> None:
    ready(bed, "a", "b")
    commit_of(bed, "a", 2)
    before = streams_described(bed)
    bed.resign(HOME)
    bed.lead(HOME)
    after = streams_described(bed)
    assert after.members == before.members
    assert (after.group_epoch, after.assignment_epoch, after.group_state) == (3, 3, "Reconciling")
    assert committed_offsets(bed) != {}
    streams_heartbeat(bed, "a", -1)
    streams_heartbeat(bed, "b", -1)
    bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,))
    bed.resign(HOME)
    bed.lead(HOME)
    assert streams_described(bed).error_code is ErrorCode.group_id_not_found


def test_without_the_streams_protocol_its_requests_are_refused_as_by_kafka() -> None:
    bed = GroupTestBed(group_coordinator_rebalance_protocols="classic,consumer")
    bed.lead(HOME)
    assert streams_join(bed, "a").error_code is ErrorCode.unsupported_version
    assert streams_described(bed).error_code is ErrorCode.unsupported_version


def test_required_client_tags_that_a_member_lacks_are_a_status_from_version_1_on(bed: GroupTestBed) -> None:
    bed.coordinator.service.config.groups[GROUP] = {"streams.rack.aware.assignment.tags": "zone,rack"}
    ready(bed, "a")
    zone = ({"key": "zone", "value": "z"},)
    assert statuses(streams_heartbeat(bed, "a", 2, client_tags=zone, version=0)) == []
    (status,) = streams_heartbeat(bed, "a", 3, client_tags=zone, version=1).status
    assert status.status_code == NO_TAGS
    assert status.status_detail.startswith("Missing required client tags for rack-aware standby assignment: [rack].")


def test_descriptions_of_topologies_are_refused_and_never_asked_for(bed: GroupTestBed) -> None:
    ready(bed, "a")
    beat = streams_heartbeat(bed, "a", 2, version=1)
    assert (beat.topology_description_required, beat.acceptable_recovery_lag) == (False, 10_000)
    refused = bed.send(
        ApiKey.STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE,
        0,
        group_id=GROUP,
        member_id="a",
        topology_epoch=0,
        topology_description={"subtopologies": (), "global_stores": ()},
    ).response
    assert refused.error_code is ErrorCode.unsupported_version
    assert refused.error_message == "The broker has no streams group topology description plugin configured."
    for wants, status in ((False, 0), (True, 1)):
        fields = {"group_ids": (GROUP,), "include_topology_description": wants}
        (row,) = bed.send(ApiKey.STREAMS_GROUP_DESCRIBE, 1, **fields).response.groups
        assert (row.topology_description_status, row.topology_description) == (status, None)
        assert row.assignor_name == "sticky"


def test_offsets_of_tasks_are_described_until_the_member_leaves(bed: GroupTestBed) -> None:
    ready(bed, "a", "b")
    streams_heartbeat(bed, "a", 2, task_offsets=TWICE[:1])
    streams_heartbeat(bed, "a", 2, task_end_offsets=({**TWICE[0], "offset": 9},))

    def offsets() -> dict[str, list[int]]:
        members = streams_described(bed).members
        return {row.member_id: [part.offset for part in (*row.task_offsets, *row.task_end_offsets)] for row in members}

    assert offsets() == {"a": [5, 9], "b": []}
    streams_heartbeat(bed, "a", -1)
    streams_join(bed, "a")
    assert offsets() == {"a": [], "b": []}, "another member of the same id begins without them"


def test_a_full_group_refuses_a_member_that_joins(bed: GroupTestBed) -> None:
    full = GroupTestBed(group_streams_max_size=1, group_streams_initial_rebalance_delay_ms=0)
    full.lead(HOME)
    ready(full, "a")
    refused = streams_join(full, "b")
    assert refused.error_code is ErrorCode.group_max_size_reached
    assert "maximum capacity of 1 members" in refused.error_message


def test_a_static_member_that_stays_away_loses_its_tasks_with_its_session(bed: GroupTestBed) -> None:
    ready(bed, "a", instance_id="one", process_id="p")
    streams_join(bed, "b")
    assert streams_heartbeat(bed, "a", -2, instance_id="one").member_epoch == -2
    bed.host.advance(30_000)
    streams_heartbeat(bed, "b", 4, owned={})
    before = streams_described(bed).group_epoch
    bed.resign(HOME)
    bed.lead(HOME)
    back = streams_join(bed, "a2", instance_id="one", process_id="p")
    assert (back.error_code, back.member_epoch) == (ErrorCode.none, before), "the coordinator that follows knows it"
    streams_heartbeat(bed, "a2", -2, instance_id="one")
    for _ in range(2):
        bed.host.advance(30_000)
        streams_heartbeat(bed, "b", before, owned={})
    assert [row.member_id for row in streams_described(bed).members] == ["b"]


def test_tombstones_of_a_group_name_each_of_its_records(bed: GroupTestBed) -> None:
    ready(bed, "a")
    (shard,) = bed.coordinator.service.shards()
    hosted = shard.find(GROUP)
    assert hosted is not None
    assert hosted.streams is not None
    written = {key for key, value in bed.replicas.logs[HOME].records() if value is not None}
    removed = {key for key, _ in encode_all(GROUP, group_tombstones(hosted.streams.data))}
    assert written == removed
