"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, step by step; the errors are those of Apache Kafka 4.2 (G2)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest
from consumer_group_requests import ModelConsumer, assigned, consumer_heartbeat, consumer_join, described
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

TIMEOUT = {"rebalance_timeout": timedelta(seconds=5)}
NAMES = {"subscribed_topic_names": ("orders",)}
FULL: dict[str, Any] = {**TIMEOUT, **NAMES, "owned": {}}


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "error", "message"),
    [
        ("a", 5, {}, "group_id_not_found", "Consumer group readers not found."),
        ("a", -1, {}, "group_id_not_found", "Consumer group readers not found."),
        ("a", -3, {}, "invalid_request", "MemberEpoch is invalid."),
        ("a", -2, {}, "invalid_request", "InstanceId can't be null."),
        ("", 0, FULL, "invalid_request", "MemberId can't be empty."),
        ("a", 0, {**NAMES, "owned": {}}, "invalid_request", "RebalanceTimeoutMs must be provided"),
        ("a", 0, {**TIMEOUT, **NAMES}, "invalid_request", "TopicPartitions must be empty"),
        ("a", 0, {**TIMEOUT, "owned": {}}, "invalid_request", "Either SubscribedTopicNames or"),
        ("a", 0, {**FULL, "instance_id": ""}, "invalid_request", "InstanceId can't be empty."),
        ("a", 0, {**FULL, "rack_id": " "}, "invalid_request", "RackId can't be empty."),
        ("a", 0, {**FULL, "server_assignor": "x"}, "unsupported_assignor", "uniform, range"),
        ("a", 0, {**FULL, "subscribed_topic_regex": "("}, "invalid_regular_expression", "`(`"),
        ("a", 0, {**FULL, "subscribed_topic_regex": "(?=a)b"}, "invalid_regular_expression", "perl"),
    ],
)
def test_invalid_heartbeat_is_refused_as_by_kafka(
    bed: GroupTestBed, member_id: str, epoch: int, fields: Any, error: str, message: str
) -> None:
    response = consumer_heartbeat(bed, member_id, epoch, **fields)
    assert response.error_code.name == error
    assert message in response.error_message
    assert described(bed).error_code is ErrorCode.group_id_not_found, "no group was created"


def test_second_member_gets_partitions_only_after_the_first_has_revoked_them(bed: GroupTestBed) -> None:
    """The steps and epochs are those of the same requests to Apache Kafka."""
    first = consumer_join(bed, "a")
    assert (first.member_epoch, assigned(first, bed)) == (2, {"orders": [0, 1, 2]})
    assert first.heartbeat_interval == timedelta(seconds=5)
    assert assigned(consumer_heartbeat(bed, "a", 2), bed) is None, "nothing changed"
    second = consumer_join(bed, "b")
    assert (second.member_epoch, assigned(second, bed)) == (3, {})
    assert described(bed).group_state == "Reconciling"
    assert assigned(consumer_heartbeat(bed, "b", 3), bed) is None
    revoke = consumer_heartbeat(bed, "a", 2)
    assert revoke.member_epoch == 2
    kept = assigned(revoke, bed)
    assert kept is not None
    assert len(kept["orders"]) == 2
    assert consumer_heartbeat(bed, "a", 3).error_code is ErrorCode.fenced_member_epoch
    acknowledged = consumer_heartbeat(bed, "a", 2, owned=kept)
    assert (acknowledged.member_epoch, assigned(acknowledged, bed)) == (3, None)
    freed = assigned(consumer_heartbeat(bed, "b", 3), bed)
    assert freed is not None
    assert sorted(kept["orders"] + freed["orders"]) == [0, 1, 2]
    assert described(bed).group_state == "Stable"
    repeated = consumer_heartbeat(bed, "a", 2, owned=kept)
    assert repeated.member_epoch == 3, "the response with epoch 3 may have been lost"
    assert consumer_heartbeat(bed, "a", 2).error_code is ErrorCode.fenced_member_epoch
    assert assigned(consumer_join(bed, "a"), bed) == kept, "a member may join again"


def test_unknown_member_and_member_that_left_get_unknown_member_id(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    assert consumer_heartbeat(bed, "b", 1).error_code is ErrorCode.unknown_member_id
    assert consumer_heartbeat(bed, "a", -1).member_epoch == -1
    assert consumer_heartbeat(bed, "a", 1).error_code is ErrorCode.unknown_member_id
    assert described(bed).group_state == "Empty"


def test_static_member_keeps_its_partitions_over_a_restart(bed: GroupTestBed) -> None:
    first = consumer_join(bed, "a", instance_id="i")
    taken = consumer_join(bed, "b", instance_id="i")
    assert taken.error_code is ErrorCode.unreleased_instance_id
    fenced = consumer_heartbeat(bed, "b", 1, instance_id="i")
    assert fenced.error_code is ErrorCode.fenced_instance_id
    unknown = consumer_heartbeat(bed, "a", 1, instance_id="j")
    assert unknown.error_code is ErrorCode.unknown_member_id
    assert consumer_heartbeat(bed, "a", -2, instance_id="i").member_epoch == -2
    again = consumer_join(bed, "b", instance_id="i")
    assert again.member_epoch == first.member_epoch, "no rebalance"
    assert assigned(again, bed) == {"orders": [0, 1, 2]}
    old = consumer_heartbeat(bed, "a", 1, instance_id="i")
    assert old.error_code is ErrorCode.fenced_instance_id


def test_regular_expression_follows_the_topics(bed: GroupTestBed) -> None:
    joined = consumer_join(bed, "a", regex="orders.*")
    assert assigned(joined, bed) == {"orders": [0, 1, 2]}
    bed.cache.change(orders2=2, other=1)
    more = consumer_heartbeat(bed, "a", joined.member_epoch, owned={"orders": [0, 1, 2]})
    assert assigned(more, bed) == {"orders": [0, 1, 2], "orders2": [0, 1]}
    assert more.member_epoch == joined.member_epoch + 1
    group = described(bed)
    assert group.members[0].subscribed_topic_regex == "orders.*"
    bed.cache.change(orders2=0)
    less = consumer_heartbeat(bed, "a", more.member_epoch, owned={"orders": [0, 1, 2]})
    assert assigned(less, bed) == {"orders": [0, 1, 2]}


def test_an_expression_gives_a_new_epoch_only_where_it_changes_the_topics(bed: GroupTestBed) -> None:
    def subscribed(regex: str) -> int:
        epoch: int = consumer_heartbeat(
            bed,
            "a",
            0,
            owned={},
            rebalance_timeout=timedelta(seconds=3),
            subscribed_topic_names=("orders",),
            subscribed_topic_regex=regex,
        ).member_epoch
        return epoch

    assert consumer_join(bed, "a").member_epoch == 2
    assert subscribed("matches-nothing") == 2
    assert described(bed).members[0].subscribed_topic_regex == "matches-nothing"
    assert subscribed("orders") == 2, "a topic that it subscribes to by name"
    bed.cache.change(other=1)
    assert subscribed("oth.*") == 3
    assert subscribed("") == 4


@pytest.mark.parametrize("regex", [r"[[:alpha:]]+", r"\pL+", r"\Qorders\E", r"(?i)ORDERS\z", r"o(.)+"])
def test_regular_expressions_have_the_syntax_of_re2(bed: GroupTestBed, regex: str) -> None:
    joined = consumer_join(bed, "a", regex=regex)
    assert assigned(joined, bed) == {"orders": [0, 1, 2]}


def test_an_expression_that_repeats_repetitions_takes_linear_time(bed: GroupTestBed) -> None:
    bed.cache.change(**{"o" * 200: 1})
    assert assigned(consumer_join(bed, "a", regex="(o+)+(o+)+x"), bed) == {}


def test_new_partitions_raise_the_group_epoch_and_an_unrelated_topic_does_not(bed: GroupTestBed) -> None:
    joined = consumer_join(bed, "a")
    bed.cache.change(unrelated=4)
    assert consumer_heartbeat(bed, "a", 2).member_epoch == 2
    bed.cache.change(orders=5)
    grown = consumer_heartbeat(bed, "a", joined.member_epoch)
    assert (grown.member_epoch, assigned(grown, bed)) == (3, {"orders": [0, 1, 2, 3, 4]})


def test_member_without_heartbeats_is_fenced_after_its_session(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    survivor = ModelConsumer(bed, "b")
    survivor.beat()
    for _ in range(10):
        bed.host.advance(5_000)
        survivor.beat()
    assert survivor.partitions() == {("orders", 0), ("orders", 1), ("orders", 2)}
    assert consumer_heartbeat(bed, "a", 1).error_code is ErrorCode.unknown_member_id


def test_member_that_does_not_revoke_is_fenced_after_the_rebalance_timeout(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    other = ModelConsumer(bed, "b")
    other.beat()
    kept = assigned(consumer_heartbeat(bed, "a", 2), bed)
    for _ in range(3):
        stubborn = consumer_heartbeat(bed, "a", 2, owned={"orders": [0, 1, 2]})
        assert stubborn.error_code is ErrorCode.none
        other.beat()
        assert not other.partitions(), f"a has {kept} and more"
        bed.host.advance(5_000)
    bed.host.advance(5_001)
    assert consumer_heartbeat(bed, "a", 2).error_code is ErrorCode.unknown_member_id
    other.beat()
    assert len(other.partitions()) == 3


def test_group_max_size_refuses_a_member_too_many() -> None:
    bed = GroupTestBed(group_consumer_max_size=1)
    bed.lead(HOME)
    assert consumer_join(bed, "a").error_code is ErrorCode.none
    assert consumer_join(bed, "b").error_code is ErrorCode.group_max_size_reached
    assert consumer_join(bed, "a").error_code is ErrorCode.none


def test_version_0_makes_the_member_id(bed: GroupTestBed) -> None:
    joined = consumer_join(bed, "", version=0)
    assert joined.error_code is ErrorCode.none
    assert consumer_heartbeat(bed, joined.member_id, 2, version=0).member_epoch == 2


@pytest.mark.parametrize("most", [1, 2])
def test_assignor_that_most_members_name_is_used(bed: GroupTestBed, most: int) -> None:
    bed.cache.change(orders=4)
    for number in range(3):
        name = "range" if number < most else "uniform"
        consumer_join(bed, f"m{number}", server_assignor=name)
    assert described(bed).assignor_name == ("uniform" if most == 1 else "range")


def test_another_assignor_that_most_members_name_gives_a_new_epoch(bed: GroupTestBed) -> None:
    """As in Kafka 4.4; the default counts as named where no member names any."""
    bed.cache.change(orders=4)
    epoch = consumer_join(bed, "m").member_epoch
    for name, raised in (("uniform", 0), ("range", 1), ("range", 0), ("", 0)):
        answer = consumer_heartbeat(bed, "m", epoch, server_assignor=name or None)
        assert answer.error_code is ErrorCode.none
        assert answer.member_epoch == epoch + raised, name
        epoch = answer.member_epoch


# ---- offsets -------------------------------------------------------------------------------------


def test_commit_needs_the_present_member_epoch_or_a_partition_that_the_member_has_had_since(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    consumer_join(bed, "b")
    consumer_heartbeat(bed, "a", 2)
    consumer_heartbeat(bed, "a", 2, owned={})

    def code(*arguments: Any, **more: Any) -> ErrorCode:
        found: ErrorCode = commit(bed, *arguments, **more).response.topics[0].partitions[0].error_code
        return found

    assert code(7, "a", 3) is ErrorCode.none
    row = next(member for member in described(bed).members if member.member_id == "a")
    (kept,) = (set(part.partitions) for part in row.assignment.topic_partitions)
    assert 0 < len(kept) < 3
    for number in range(3):
        expected = ErrorCode.none if number in kept else ErrorCode.stale_member_epoch
        assert code(7, "a", 2, partition=number) is expected, (number, kept)
        assert code(7, "a", 0, partition=number) is ErrorCode.stale_member_epoch
        assert code(7, "b", 2, partition=number) is ErrorCode.stale_member_epoch, "it has none of them since then"
    assert code(8, "a", 3, 8) is ErrorCode.unsupported_version
    assert code(8, "z", 3) is ErrorCode.unknown_member_id
    assert code(8) is ErrorCode.unknown_member_id, "an administrator, while the group has members"
    for name in "ab":
        consumer_heartbeat(bed, name, -1)
    assert code(9) is ErrorCode.none
    assert committed_offsets(bed)["orders", 0] == 9


@pytest.mark.parametrize(
    ("member_id", "epoch", "error"),
    [
        ("a", 2, "none"),
        ("a", 0, "stale_member_epoch"),
        ("z", 1, "unknown_member_id"),
        (None, -1, "none"),
        ("", -1, "unknown_member_id"),
    ],
)
def test_fetch_of_offsets_checks_the_member(bed: GroupTestBed, member_id: str | None, epoch: int, error: str) -> None:
    consumer_join(bed, "a")
    group = {"group_id": GROUP, "member_id": member_id, "member_epoch": epoch, "topics": None}
    response = bed.send(ApiKey.OFFSET_FETCH, 9, groups=(group,)).response
    assert response.groups[0].error_code.name == error


def test_offsets_by_topic_id(bed: GroupTestBed) -> None:
    """OffsetCommit and OffsetFetch v10; an id that is not known gets UNKNOWN_TOPIC_ID."""
    known, strange = bed.cache.topic_id("orders"), bed.host.random.getrandbits
    assert known is not None
    unknown = type(known)(int=strange(128))

    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topics = [{"topic_id": topic_id, "partitions": [row]} for topic_id in (known, unknown)]
    done = bed.send(8, 10, group_id=GROUP, member_id="", topics=topics).response
    assert [(t.topic_id, t.partitions[0].error_code.name) for t in done.topics] == [
        (unknown, "unknown_topic_id"),
        (known, "none"),
    ]
    for requested in (True, False):
        asked = [{"topic_id": topic_id, "partition_indexes": [0]} for topic_id in (known, unknown)]
        group = {"group_id": GROUP, "topics": asked if requested else None}
        found = bed.send(9, 10, groups=(group,)).response.groups[0]
        rows = [(t.topic_id, t.partitions[0].committed_offset) for t in found.topics]
        assert rows == ([(known, 5), (unknown, -1)] if requested else [(known, 5)])


# ---- the group as administrators see it ------------------------------------------------------------


def test_consumer_group_is_listed_with_its_type_and_is_dead_as_a_classic_group(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    rows = bed.send(ApiKey.LIST_GROUPS, 5, types_filter=("consumer",)).response.groups
    assert [(row.group_id, row.group_state, row.group_type) for row in rows] == [(GROUP, "Stable", "consumer")]
    assert not bed.send(ApiKey.LIST_GROUPS, 5, types_filter=("classic",)).response.groups
    classic = bed.send(ApiKey.DESCRIBE_GROUPS, 6, groups=(GROUP,)).response.groups[0]
    assert (classic.error_code.name, classic.group_state) == ("group_id_not_found", "Dead")
    assert classic.error_message == f"Group {GROUP} is not a classic group."


def test_group_with_members_is_not_deleted_and_an_empty_group_leaves_only_tombstones(bed: GroupTestBed) -> None:
    def delete() -> str:
        response = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response
        return str(response.results[0].error_code.name)

    consumer_join(bed, "a", regex="orders")
    assert delete() == "non_empty_group"
    consumer_heartbeat(bed, "a", -1)
    assert delete() == "none"
    newest = dict(bed.replicas.logs[HOME].records())
    assert newest
    assert set(newest.values()) == {None}


# ---- the log -------------------------------------------------------------------------------------


def test_another_coordinator_continues_in_the_middle_of_a_rebalance(bed: GroupTestBed) -> None:
    first, second = ModelConsumer(bed, "a"), ModelConsumer(bed, "b")
    first.beat()
    second.beat()
    first.beat()
    before = described(bed)
    assert before.group_state == "Reconciling"
    bed.resign(HOME)
    assert first.beat() is ErrorCode.not_coordinator
    bed.lead(HOME)
    assert described(bed) == before
    for _ in range(3):
        first.beat()
        second.beat()
        assert not first.partitions() & second.partitions()
    assert len(first.partitions() | second.partitions()) == 3
    assert described(bed).group_state == "Stable"


@pytest.mark.parametrize(
    ("error", "code", "is_in_log"),
    [
        ("not_enough_replicas", "coordinator_not_available", False),
        ("not_leader_or_follower", "not_coordinator", False),
        ("request_timed_out", "coordinator_not_available", True),
        ("message_too_large", "unknown_server_error", False),
    ],
)
def test_failed_write_changes_the_state_only_if_the_batch_is_in_the_log(
    bed: GroupTestBed, error: str, code: str, *, is_in_log: bool
) -> None:
    consumer_join(bed, "a")
    bed.replicas.automatic = False
    if is_in_log:
        assert consumer_join(bed, "b") is None
        bed.replicas.acknowledge(ErrorCode[error])
    else:
        bed.replicas.next_error = ErrorCode[error]
        assert consumer_join(bed, "b").error_code.name == code
    bed.replicas.automatic = True
    assert len(described(bed).members) == 1 + is_in_log
    before = described(bed)
    bed.resign(HOME)
    bed.lead(HOME)
    assert described(bed) == before, "the log says the same"


def test_member_whose_join_timed_out_in_the_log_has_a_session(bed: GroupTestBed) -> None:
    bed.replicas.automatic = False
    assert consumer_join(bed, "a") is None
    bed.replicas.acknowledge(ErrorCode.request_timed_out)
    bed.replicas.automatic = True
    assert len(described(bed).members) == 1
    for _ in range(10):
        bed.host.advance(5_000)
    assert not described(bed).members, "its client never comes back"


def test_requests_wait_for_the_write_before_them(bed: GroupTestBed) -> None:
    bed.replicas.automatic = False
    assert consumer_join(bed, "a") is None
    assert consumer_join(bed, "b") is None
    assert len(bed.replicas.waiting) == 1, "one write at a time"
    bed.replicas.acknowledge()
    bed.replicas.acknowledge()
    assert len(described(bed).members) == 2
    bed.replicas.automatic = True
    bed.replicas.acknowledge()
    assert described(bed).group_epoch == 3
