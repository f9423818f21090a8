"""A target assignment is computed when the last one is old enough, as in Kafka 4.4 (KIP-1263).

`conformance/test_assignment_intervals_as_kafka.py` sends such requests to Apache Kafka.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from consumer_group_requests import assigned, consumer_heartbeat, consumer_join, described
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.config import BrokerConfig
from harrow.cluster.config.group_table import INTERVAL, group_interval_ms, validate_group_settings
from harrow.cluster.errors import ConfigError, ErrorCode, KafkaError
from harrow.cluster.groups.consumer.limits import consumer_limits
from harrow.cluster.groups.consumer.subscriptions import TopicView
from harrow.cluster.groups.share.limits import share_rules
from harrow.cluster.groups.streams.limits import streams_rules
from harrow.cluster.metadata.broker_settings import check_broker_settings
from share_requests import share_heartbeat
from streams_group_requests import statuses, streams_described, streams_heartbeat, streams_join, tasks_of

MS = 2_000
DELAYED = 5
BROKER = {f"group.{kind}.assignment.interval.ms": MS for kind in ("consumer", "share", "streams")}


@pytest.fixture
def bed() -> GroupTestBed:
    """A coordinator that computes an assignment when the last one is two seconds old."""
    made = GroupTestBed(**{name.replace(".", "_"): value for name, value in BROKER.items()})
    made.lead(HOME)
    return made


def test_members_that_join_within_the_interval_wait_and_get_one_assignment(bed: GroupTestBed) -> None:
    first = consumer_join(bed, "a")
    assert (first.member_epoch, assigned(first, bed)) == (2, {"orders": [0, 1, 2]}), "a new group does not wait"
    for name in ("b", "c"):
        joined = consumer_join(bed, name)
        assert (joined.member_epoch, assigned(joined, bed)) == (2, {})
    group = described(bed)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Assigning", 4, 2)
    bed.host.advance(MS - 1)
    assert assigned(consumer_heartbeat(bed, "a", 2), bed) is None
    bed.host.advance(1)
    beat = consumer_heartbeat(bed, "a", 2)
    assert (beat.member_epoch, assigned(beat, bed)) == (2, {"orders": [0]}), "the others wait for what it revokes"
    group = described(bed)
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Reconciling", 4, 4)


def test_another_coordinator_goes_on_with_the_interval(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    consumer_join(bed, "b")
    bed.resign(HOME)
    bed.lead(HOME)
    assert consumer_heartbeat(bed, "a", 2).assignment is None
    assert described(bed).assignment_epoch == 2
    bed.host.advance(MS)
    assert consumer_heartbeat(bed, "b", 2).member_epoch == 3


def test_a_group_that_was_empty_does_not_wait(bed: GroupTestBed) -> None:
    consumer_join(bed, "a")
    consumer_heartbeat(bed, "a", -1)
    joined = consumer_join(bed, "b")
    assert assigned(joined, bed) == {"orders": [0, 1, 2]}


def test_a_member_gives_up_a_topic_that_it_left_before_the_next_assignment(bed: GroupTestBed) -> None:
    bed.cache.change(bills=1)
    assert assigned(consumer_join(bed, "a", "bills", "orders"), bed) == {"bills": [0], "orders": [0, 1, 2]}
    everything = {"bills": [0], "orders": [0, 1, 2]}
    left = consumer_heartbeat(bed, "a", 2, owned=everything, subscribed_topic_names=("orders",))
    assert (left.member_epoch, assigned(left, bed)) == (2, {"orders": [0, 1, 2]})
    group = described(bed)
    assert (group.group_epoch, group.assignment_epoch) == (3, 2)
    more = consumer_heartbeat(bed, "a", 2, owned=everything, subscribed_topic_names=())
    assert (more.member_epoch, assigned(more, bed)) == (2, {}), "it must revoke both topics"
    done = consumer_heartbeat(bed, "a", 2, owned={})
    assert (done.error_code, done.member_epoch) == (ErrorCode.none, 2)
    bed.host.advance(MS)
    assert consumer_heartbeat(bed, "a", 2, owned={}).member_epoch == 4


def test_a_member_that_reports_nothing_of_a_topic_that_it_left_has_revoked_it(bed: GroupTestBed) -> None:
    bed.cache.change(bills=1)
    consumer_join(bed, "a", "bills", "orders")
    left = consumer_heartbeat(bed, "a", 2, owned={"orders": [0, 1, 2]}, subscribed_topic_names=("orders",))
    assert (left.member_epoch, assigned(left, bed)) == (2, {"orders": [0, 1, 2]})
    (member,) = described(bed).members
    assert [row.topic_name for row in member.assignment.topic_partitions] == ["orders"]


def test_a_share_group_waits_too(bed: GroupTestBed) -> None:
    def epochs() -> tuple[int, int]:
        _, hosted = bed.coordinator.service.find(GROUP)
        assert hosted is not None
        assert hosted.share is not None
        return hosted.share.data.epoch, hosted.share.data.target_epoch

    share_heartbeat(bed, "a", 0, "orders")
    bed.host.run_due()  # the partitions are initialized
    bed.host.advance(MS)
    beat = share_heartbeat(bed, "a", 2)
    assert assigned(beat, bed) == {"orders": [0, 1, 2]}
    before, _ = epochs()
    joined = share_heartbeat(bed, "b", 0, "orders")
    assert (joined.member_epoch, assigned(joined, bed)) == (before, {})
    share_heartbeat(bed, "a", beat.member_epoch)
    assert epochs() == (before + 1, before), "a group that waits gets no new epoch"
    bed.host.advance(MS)
    assert assigned(share_heartbeat(bed, "b", before), bed) is not None
    assert epochs() == (before + 1, before + 1)


def test_a_streams_group_tells_its_members_that_the_assignment_is_delayed() -> None:
    settings = {**BROKER, "group.streams.initial.rebalance.delay.ms": 0}
    bed = GroupTestBed(**{name.replace(".", "_"): value for name, value in settings.items()})
    bed.lead(HOME)
    streams_join(bed, "a")
    bed.host.advance(MS)
    first = streams_heartbeat(bed, "a", 2)
    assert DELAYED not in statuses(first)
    epoch = first.member_epoch
    joined = streams_join(bed, "b")
    assert (joined.member_epoch, tasks_of(joined.active_tasks)) == (epoch, {})
    (status,) = [row for row in joined.status if row.status_code == DELAYED]
    assert status.status_detail == "Assignment delayed due to the configured assignment interval."
    assert streams_described(bed).assignment_epoch == epoch
    bed.host.advance(MS)
    later = streams_heartbeat(bed, "b", epoch)
    assert DELAYED not in statuses(later)
    assert later.member_epoch == epoch + 1


# ---- settings ------------------------------------------------------------------------------------


def test_a_group_has_an_interval_of_its_own_within_the_bounds_of_the_broker() -> None:
    config = BrokerConfig.parse({"group.consumer.max.assignment.interval.ms": 5_000})
    assert group_interval_ms(config, INTERVAL, "g") == 1_000
    validate_group_settings({INTERVAL: "0"}, config)
    for value in ("5001", "-1"):
        with pytest.raises(ConfigError, match=INTERVAL):
            validate_group_settings({INTERVAL: value}, config)
    config.groups["g"] = {INTERVAL: 9_000}  # from a time with other bounds
    assert group_interval_ms(config, INTERVAL, "g") == 5_000


@pytest.mark.parametrize("kind", ["consumer", "share", "streams"])
@pytest.mark.parametrize("value", [0, 20_000])
def test_the_interval_of_a_broker_is_within_its_bounds(kind: str, value: int) -> None:
    name = f"group.{kind}.assignment.interval.ms"
    config = BrokerConfig.parse({f"group.{kind}.min.assignment.interval.ms": 1, name: value})
    view: Any = TopicView
    readers: dict[str, Callable[[], object]] = {
        "consumer": lambda: consumer_limits(config),
        "share": lambda: share_rules(config, view, lambda: 0),
        "streams": lambda: streams_rules(config, view, lambda: 0),
    }
    with pytest.raises(ConfigError, match=name):
        readers[kind]()
    running = BrokerConfig.parse({f"group.{kind}.min.assignment.interval.ms": 1})
    check_broker_settings({name: "2000"}, running, "")
    with pytest.raises(KafkaError, match=name):
        check_broker_settings({name: str(value)}, running, "")
