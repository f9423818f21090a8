"""A broker without processor time or file descriptors, on real processes under real traffic (K5)."""

from __future__ import annotations

import resource

import pytest
from faults_under_traffic import run
from harrow import Harrow, exhaust_descriptors, leader, throttle_cpu


def test_a_broker_gets_a_share_of_the_processor_time(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, throttle_cpu(leader(topic, 0), share=0.3, seconds=1))
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["paused_in_periods"][str(node)] >= 3
    assert harrow.cluster.brokers[node].incarnations == 1


@pytest.mark.harrow(config={"log.segment.bytes": 20_000})
def test_a_broker_without_descriptors_is_restarted_with_its_former_limit(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    usual = {
        node: resource.prlimit(broker.pid or 0, resource.RLIMIT_NOFILE)
        for node, broker in harrow.cluster.brokers.items()
    }
    rows = run(harrow, topic, exhaust_descriptors(leader(topic, 0), seconds=0.5))
    [node] = rows["inject"]["targets"]
    found = rows["effect"]["evidence"]["brokers"][str(node)]
    assert found["fired"] == 1
    if found.get("state") != "dead":  # a broker that had to open a file at once has ended
        assert found["free"] == 0
        assert found["limit"] < usual[node][0]
    broker = harrow.cluster.brokers[node]
    assert broker.incarnations == 2
    assert resource.prlimit(broker.pid or 0, resource.RLIMIT_NOFILE) == usual[node]
