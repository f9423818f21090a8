"""Names that the cluster does not have, and the cap of a block with named targets (K)."""

from __future__ import annotations

from dataclasses import replace

import pytest
from harrow.cluster.errors import ConfigError
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults import (
    Fault,
    all_brokers,
    broker,
    follower,
    group_coordinator,
    kill,
    leader,
    lose_response,
    majority,
    minority,
    next_leader,
    one,
    pause,
)
from harrow.faults.target_checks import cap_for, check_targets, missing_groups

PARTITION = PartitionView(leader=1, leader_epoch=0, isr=(1,), replicas=(1,))
VIEW = ClusterView(topics={"orders": {0: PARTITION, 1: PARTITION}, "__consumer_offsets": {0: PARTITION}})
NODES = (1, 2, 3)


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        (kill(leader("ordres")), r"no topic 'ordres'; did you mean 'orders'\?; it has orders. Create"),
        (kill(leader("x")), r"no topic 'x'; it has orders\. Create .*harrow\.topic\('x'\)"),
        (kill(leader("orders", 2)), "topic 'orders' has no partition 2; it has 0 to 1"),
        (
            kill(follower("orders")),
            r"'orders' has replication factor 1, so its .* replication_factor=2\).* or target leader\('orders'\)",
        ),
        (pause(next_leader("orders", 1)), "has replication factor 1"),
        (pause(broker(4)), r"pause\(broker\(4\)\): the cluster has no broker 4; it has 1, 2, 3"),
    ],
)
def test_a_target_that_does_not_exist_is_refused_with_the_nearest_name(fault: Fault, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        check_targets([kill(leader("orders")), fault], VIEW, NODES)


def test_a_follower_that_one_partition_has_is_accepted() -> None:
    topics = {"orders": {0: PARTITION, 1: replace(PARTITION, replicas=(1, 2))}}
    view = ClusterView(topics=topics)
    check_targets([kill(follower("orders")), kill(follower("orders", 1))], view, NODES)
    with pytest.raises(ConfigError, match="has no follower"):
        check_targets([kill(follower("orders", 0))], view, NODES)


def test_targets_that_exist_are_accepted() -> None:
    faults = [kill(leader("orders", 1)), kill(one), pause(3), kill(group_coordinator("later"))]
    check_targets(faults, VIEW, NODES)


def test_a_group_that_does_not_exist_after_the_run_is_named() -> None:
    (line,) = missing_groups(
        [kill(group_coordinator("biling")), kill(group_coordinator("billing")), kill(one)], ["billing", "stock"]
    )
    assert "no consumer group 'biling'; did you mean 'billing'?; it has billing, stock" in line


@pytest.mark.parametrize(
    ("fault", "brokers", "cap"),
    [
        (kill(one), 3, 1),
        (kill(majority), 3, 2),
        (kill(minority), 5, 2),
        (kill(all_brokers), 3, 3),
        (lose_response("Produce"), 3, 1),
    ],
    ids=str,
)
def test_a_named_target_raises_the_default_cap(fault: Fault, brokers: int, cap: int) -> None:
    assert cap_for([fault], brokers, None, 1) == cap
    assert cap_for([fault], brokers, None, 4) == 4
    assert cap_for([fault], brokers, cap, 1) == cap


def test_a_cap_of_the_caller_below_a_named_target_is_refused_with_the_remedy() -> None:
    with pytest.raises(ConfigError, match=r"kill\(majority\) disturbs 2 of 3 .* give cap=2, or leave"):
        cap_for([kill(one), kill(majority)], 3, 1, 1)
