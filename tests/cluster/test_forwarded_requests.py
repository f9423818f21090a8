"""Requests that brokers forward to the controller: faults and taps are those of the broker that was asked (A4, K2)."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from armed_requests import arm_request
from harrow import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.harness.histories.request_rows import count_requests, read_requests
from raw_kafka import RawKafka
from waiting import until


def test_a_forwarded_request_is_refused_and_recorded_once_where_the_client_sent_it(tmp_path: Path) -> None:
    with Cluster(brokers=2, folder=tmp_path / "cluster", config={"harrow.tap": True}) as cluster:
        controller = cluster.controller_id()
        assert controller is not None
        asked = 3 - controller
        rule = arm_request(
            partial(cluster.control, asked),
            action="refuse",
            api_key=ApiKey.CREATE_TOPICS,
            client="raw",
            error=ErrorCode.request_timed_out,
        )
        with RawKafka(cluster.brokers[asked].port) as client:
            refused = client.create_topic("orders", replication=2)
            assert refused.error_code is ErrorCode.request_timed_out
            assert "orders" not in cluster.describe().topics
            assert client.create_topic("orders", replication=2).error_code is ErrorCode.none
        assert rule.status().fired == 1
        until(lambda: len(cluster.describe().topics["orders"]) == 1, "the topic is there")
    rows = [(row.api, row.broker, row.error, row.hit) for row in read_requests(tmp_path).rows]
    assert rows == [("CreateTopics", asked, "REQUEST_TIMED_OUT", True), ("CreateTopics", asked, "", False)]
    counted = [(row.api, row.broker, row.error, row.count) for row in count_requests(tmp_path) if row.client == "raw"]
    assert counted == [("CreateTopics", asked, "REQUEST_TIMED_OUT", 1), ("CreateTopics", asked, "", 1)]


def test_a_topic_is_created_through_a_broker_while_the_controller_dies(tmp_path: Path) -> None:
    with Cluster(brokers=3, folder=tmp_path) as cluster:
        dead = cluster.controller_id()
        assert dead is not None
        asked = next(node for node in cluster.brokers if node != dead)
        cluster.brokers[dead].kill()
        with RawKafka(cluster.brokers[asked].port) as client:
            created = client.create_topic("orders", replication=2)
        assert created.error_code is ErrorCode.none
        assert cluster.controller_id() not in (None, dead)
