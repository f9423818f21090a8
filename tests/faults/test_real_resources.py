"""A broker without processor time or file descriptors, on real processes under real traffic (K5)."""

from __future__ import annotations

import json
import os
import random
import resource
import socket
from contextlib import ExitStack
from typing import Any

import pytest
from faults_under_traffic import run
from harrow import Harrow, exhaust_connections, exhaust_descriptors, leader, limit_memory, throttle_cpu
from harrow.cluster import Cluster
from harrow.faults.rule_kinds import DescriptorRule
from harrow.faults.system import take_snapshot
from harrow.harness.backends.local import LocalSystem
from harrow.harness.backends.strangers import is_served
from waiting import until


def test_a_broker_gets_a_share_of_the_processor_time(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, throttle_cpu(leader(topic, 0), share=0.3, seconds=1))
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["paused_in_periods"][str(node)] >= 3
    assert harrow.cluster.brokers[node].incarnations == 1


@pytest.mark.harrow(config={"internal.segment.bytes": 20_000})
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


def test_descriptors_that_are_free_below_the_limit_are_taken_by_strangers() -> None:
    with Cluster(brokers=1) as cluster, ExitStack() as later:
        cluster.await_full_isr()
        broker, [address] = (LocalSystem(cluster).broker(1), [b.address for b in cluster.brokers.values()])
        earlier = [socket.create_connection(address) for _ in range(6)]
        for _ in range(3):
            later.enter_context(socket.create_connection(address))
        until(lambda: len(os.listdir(f"/proc/{cluster.brokers[1].pid}/fd")) > 9, "it accepts them")
        for connection in earlier:
            connection.close()
        limit = broker.rules.arm(DescriptorRule())
        until(lambda: limit.status().fired, lambda: f"no descriptor is free: {limit.status()}")
        limit.disarm()
        until(lambda: is_served(address), "it serves new connections")


def test_a_broker_without_memory_ends_at_once_and_loses_nothing(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    # small records fit into memory that the broker has already
    rows = run(harrow, topic, limit_memory(leader(topic, 0), seconds=0.3), record_bytes=300_000)
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["brokers"][str(node)]["state"] == "dead"
    broker = harrow.cluster.brokers[node]
    assert broker.incarnations == 2
    events = [json.loads(row) for row in (broker.folder / "trace.jsonl").read_text().splitlines()]
    assert [row["event"] for row in events if row["event"] == "task.failed"] == []
    usual = resource.prlimit(harrow.cluster.registry.pid or 0, resource.RLIMIT_DATA)
    assert resource.prlimit(broker.pid or 0, resource.RLIMIT_DATA) == usual


@pytest.mark.parametrize("setting", ["max.connections", "max.connections.per.ip"])
def test_a_broker_whose_connections_are_exhausted_serves_no_new_client(setting: str) -> None:
    with Cluster(brokers=1, config={setting: 20}) as cluster:
        system = LocalSystem(cluster)
        fault = exhaust_connections(1)
        injection = fault.resolve(take_snapshot(system), random.Random(1))
        fault.inject(system, injection)
        until(lambda: fault.probe(system, injection).proved, "a full broker")
        facts = fault.probe(system, injection).facts["brokers"]["1"]
        assert 15 <= facts["open"] <= 20
        assert not is_served(cluster.brokers[1].address)
        fault.heal(system, injection)
        until(lambda: fault.probe_healed(system, injection).proved, "a new connection")
        assert is_served(cluster.brokers[1].address)


def test_a_broker_without_a_bound_on_connections_proves_no_effect() -> None:
    with Cluster(brokers=1) as cluster:
        system = LocalSystem(cluster)
        fault = exhaust_connections(1, most=10)
        injection = fault.resolve(take_snapshot(system), random.Random(1))
        fault.inject(system, injection)

        def rows() -> dict[str, Any]:
            found: dict[str, Any] = fault.probe(system, injection).facts["brokers"]["1"]
            return found

        until(lambda: rows()["open"] == 10, "ten connections")
        assert rows()["fired"] == 0
        assert "set max.connections below `most`" in rows()["error"]
        fault.heal(system, injection)
        assert fault.probe_healed(system, injection).proved


@pytest.mark.harrow(config={"max.connections": 40})
def test_connected_clients_go_on_while_connections_are_exhausted(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=1)
    rows = run(harrow, topic, exhaust_connections(leader(topic, 0), seconds=0.5))
    [node] = rows["inject"]["targets"]
    assert rows["effect"]["evidence"]["brokers"][str(node)]["open"] > 20
