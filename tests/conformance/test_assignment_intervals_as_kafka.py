"""Groups compute a target assignment when the last one is old enough, as in Apache Kafka 4.4 (G2, KIP-1263).

The interval of each group is its longest, 15 s, until the test ends it.
"""

from __future__ import annotations

from typing import Any
from uuid import uuid4

import pytest
from group_scripts import create_topic
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from raw_streams_groups import RawStreamsGroup
from waiting import until

GROUP, BROKER = 32, 4
SET, DELETE = 0, 1
LONGEST = "15000"
DELAYED = [5, "Assignment delayed due to the configured assignment interval."]


def group_of(kafka: Any, kind: str, **others: str) -> RawStreamsGroup:
    """A new group with the longest interval and other settings, which its coordinator knows."""
    group = RawStreamsGroup(kafka.raw, f"{kind}-{uuid4().hex[:8]}", min(kafka.ports))
    group.await_loaded()
    group.source = create_topic(kafka, "intervals", 3)
    group.configure(f"{kind}.assignment.interval.ms", LONGEST, **others)
    return group


def partitions(answer: Any) -> list[int] | None:
    """The partitions of the only topic; None: not changed."""
    assert answer.error_code is ErrorCode.none, answer
    return answer.assignment and sorted(n for row in answer.assignment.topic_partitions for n in row.partitions)


def consumer(
    group: RawStreamsGroup, member: str, epoch: int, topics: tuple[str, ...] | None = None, **more: Any
) -> Any:
    rows = more.get("owned")
    return group.ask(
        ApiKey.CONSUMER_GROUP_HEARTBEAT,
        1,
        group_id=group.name,
        member_id=member,
        member_epoch=epoch,
        rebalance_timeout=60_000 if not epoch else -1,
        subscribed_topic_names=(group.source,) if not epoch else topics,
        topic_partitions=() if not epoch else rows,
    )


def test_a_consumer_group_has_one_assignment_for_all_that_joined_within_the_interval(kafka: Any) -> None:
    group = group_of(kafka, "consumer")

    def epochs() -> tuple[str, int, int]:
        fields = {"group_ids": (group.name,), "include_authorized_operations": False}
        (found,) = group.ask(ApiKey.CONSUMER_GROUP_DESCRIBE, 1, **fields).groups
        return found.group_state, found.group_epoch, found.assignment_epoch

    first = consumer(group, "a", 0)
    assert (first.member_epoch, partitions(first)) == (2, [0, 1, 2])
    for name in ("b", "c"):
        joined = consumer(group, name, 0)
        assert (joined.member_epoch, partitions(joined)) == (2, [])
    assert epochs() == ("Assigning", 4, 2)
    left = consumer(group, "a", 2, topics=())
    assert (left.member_epoch, partitions(left)) == (2, []), "it must revoke what it left, at its old epoch"
    assert epochs() == ("Assigning", 5, 2)
    revoked = consumer(group, "a", 2, owned=())
    assert (revoked.member_epoch, partitions(revoked)) == (2, None)
    assert kafka.raw().change_settings(GROUP, group.name, ("consumer.assignment.interval.ms", SET, "0")).error_code == 0
    until(lambda: consumer(group, "a", 2, owned=()).member_epoch == 5, "the interval has ended")
    assert epochs()[1:] == (5, 5)
    shares = [partitions(consumer(group, name, 2, owned=())) for name in ("b", "c")]
    assert sorted(map(len, filter(None, shares))) == [1, 2]


def test_a_group_that_becomes_empty_does_not_wait(kafka: Any) -> None:
    group = group_of(kafka, "consumer")
    assert partitions(consumer(group, "a", 0)) == [0, 1, 2]
    assert consumer(group, "a", -1).error_code is ErrorCode.none
    assert partitions(consumer(group, "b", 0)) == [0, 1, 2]


def test_a_share_group_that_waits_gets_no_new_epoch(kafka: Any) -> None:
    group = group_of(kafka, "share")

    def beat(member: str, epoch: int) -> Any:
        topics = None if epoch else (group.source,)
        fields = {"group_id": group.name, "member_id": member, "member_epoch": epoch, "rack_id": None}
        return group.ask(ApiKey.SHARE_GROUP_HEARTBEAT, 1, **fields, subscribed_topic_names=topics)

    def epochs() -> tuple[int, int]:
        fields = {"group_ids": (group.name,), "include_authorized_operations": False}
        (found,) = group.ask(ApiKey.SHARE_GROUP_DESCRIBE, 1, **fields).groups
        return found.group_epoch, found.assignment_epoch

    joined = beat("a", 0)
    assert (joined.member_epoch, partitions(joined)) == (2, [])
    until(lambda: beat("a", 2).error_code is ErrorCode.none and epochs()[0] == 3, "the partitions are initialized")
    for _ in range(3):
        assert partitions(beat("a", 2)) is None
    assert epochs() == (3, 2)
    assert (beat("b", 0).member_epoch, epochs()) == (2, (4, 2))
    assert kafka.raw().change_settings(GROUP, group.name, ("share.assignment.interval.ms", SET, "0")).error_code == 0
    until(lambda: beat("a", 2).member_epoch == 4, "the interval has ended")
    assert epochs() == (4, 4)
    assert beat("b", -1).error_code is ErrorCode.none
    assert epochs() == (5, 4)
    assert (beat("a", 4).member_epoch, epochs()) == (5, (5, 5)), "one new epoch for the member that left"


def test_members_of_a_streams_group_learn_that_their_assignment_is_delayed(kafka: Any) -> None:
    group = group_of(kafka, "streams", streams_initial_rebalance_delay_ms="0")
    no_stores = group.topology(state_changelog_topics=())
    assert group.enter("a", topology=no_stores)[:5] == (ErrorCode.none, None, 2, [], {"0": [0, 1, 2]})
    assert group.enter("b", topology=no_stores)[:5] == (ErrorCode.none, None, 2, [DELAYED], {})
    assert group.beat("a", 2)[:5] == (ErrorCode.none, None, 2, [DELAYED], None)
    changed = ("streams.assignment.interval.ms", SET, "0")
    assert kafka.raw().change_settings(GROUP, group.name, changed).error_code == 0
    until(lambda: group.beat("b", 2)[2:4] == (3, []), "the interval has ended")


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
def test_intervals_out_of_bounds_are_refused(kafka: Any, kind: str) -> None:
    name, group = f"{kind}.assignment.interval.ms", f"{kind}-{uuid4().hex[:8]}"
    for value, code in (("0", 0), (LONGEST, 0), ("15001", 40), ("-1", 40), ("x", 40)):
        assert kafka.raw().change_settings(GROUP, group, (name, SET, value)).error_code == code, value
    raw = kafka.raw(min(kafka.ports))
    for node in ("", "1"):
        for value, code in (("15000", 0), ("15001", 42), ("-1", 42)):
            assert raw.change_settings(BROKER, node, (f"group.{name}", SET, value)).error_code == code, (node, value)
        assert raw.change_settings(BROKER, node, (f"group.{name}", DELETE, None)).error_code == 0
    for bound in ("min", "max"):
        setting = f"group.{kind}.{bound}.assignment.interval.ms"
        assert raw.change_settings(BROKER, "1", (setting, SET, "0")).error_code == 42, setting
