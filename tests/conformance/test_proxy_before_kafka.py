"""The proxy in front of Apache Kafka: clients get its addresses only, and its tap has what they saw (J2, J6)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from apache_kafka import MISSING, ApacheKafka, apache_kafka
from confluent_kafka import Consumer, TopicPartition
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_SENT, PREPARE_ABORT, PREPARE_COMMIT, TRANSACTION_ONGOING
from harrow.cluster.proxy.apis import passing_versions
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.tap.layouts import FETCHED, FLAG_FILTERED, PRODUCED
from harrow.cluster.wire.api_keys import ApiKey
from proxied_cluster import batch_rows, offset_rows, transaction_rows, where
from raw_kafka import RawKafka
from transactional_clients import TIMEOUT_S, read_both, send, transactional_producer
from waiting import until

pytestmark = pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")


@pytest.fixture(scope="module")
def kafka() -> Iterator[ApacheKafka]:
    with apache_kafka() as running:
        yield running


@pytest.fixture(scope="module")
def proxy(kafka: ApacheKafka, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    upstreams = {node: ("127.0.0.1", port) for node, port in kafka.ports.items()}
    with Proxy(tmp_path_factory.mktemp("proxy"), upstreams) as running:
        yield running


def api_versions(client: RawKafka) -> dict[int, range]:
    rows = client.ask(ApiKey.API_VERSIONS, 3, client_software_name="raw", client_software_version="1").api_keys
    return {row.api_key: range(row.min_version, row.max_version + 1) for row in rows}


def test_every_version_that_kafka_serves_passes_except_what_is_left_out(kafka: ApacheKafka, proxy: Proxy) -> None:
    with RawKafka(kafka.ports[1]) as direct, RawKafka(proxy.addresses[1].port) as behind:
        theirs, ours = api_versions(direct), api_versions(behind)
    cut = {key: versions for key, versions in theirs.items() if ours.get(key) != versions}
    sasl_handshake, describe_quorum, of_controllers = 17, 55, 94
    assert cut.keys() <= {sasl_handshake, describe_quorum, of_controllers}, cut
    assert ours[describe_quorum] == range(2)
    assert ours[sasl_handshake] == range(1, 2)


def test_responses_have_the_addresses_of_the_proxy_at_every_version(proxy: Proxy) -> None:
    expected = {node: tuple(address) for node, address in proxy.addresses.items()}
    with RawKafka(proxy.addresses[2].port) as client:
        for version in passing_versions(ApiKey.METADATA):
            rows = client.ask(ApiKey.METADATA, version, topics=()).brokers
            assert {row.node_id: (row.host, row.port) for row in rows} == expected, version
        for version in passing_versions(ApiKey.DESCRIBE_CLUSTER):
            found = client.ask(ApiKey.DESCRIBE_CLUSTER, version, endpoint_type=1)
            assert {row.broker_id: (row.host, row.port) for row in found.brokers} == expected, version
        for version in passing_versions(ApiKey.FIND_COORDINATOR):
            until(partial(_finds, client, version, expected), f"a coordinator, v{version}")


def _finds(client: RawKafka, version: int, expected: dict[int, Any]) -> bool:
    found = client.ask(ApiKey.FIND_COORDINATOR, version, key="g", coordinator_keys=("g",), key_type=0)
    row = found.coordinators[0] if hasattr(found, "coordinators") else found
    if row.error_code:
        return False
    assert (row.host, row.port) == expected[row.node_id], version
    return True


def test_the_tap_has_what_transactions_and_readers_saw(proxy: Proxy) -> None:
    servers, topic, name = (proxy.bootstrap_servers, f"tapped-{uuid4().hex[:8]}", f"shop-{uuid4().hex[:8]}")
    group = f"group-{uuid4().hex[:8]}"
    with RawKafka(proxy.addresses[1].port) as client:
        assert not client.create_topic(topic, partitions=1, replication=3).error_code
    producer = transactional_producer(servers, name, client_id=name)
    producer.init_transactions(TIMEOUT_S)
    settings = {"bootstrap.servers": servers, "group.id": group, "client.id": "source"}
    source = Consumer(settings)
    for number in range(4):
        producer.begin_transaction()
        send(producer, topic, f"{number}")
        position = [TopicPartition(topic, 0, number + 1)]
        producer.send_offsets_to_transaction(position, source.consumer_group_metadata(), TIMEOUT_S)
        if number % 2:
            producer.abort_transaction(TIMEOUT_S)
        else:
            producer.commit_transaction(TIMEOUT_S)
    source.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)
    source.close()
    committed, everything = read_both(servers, topic)
    assert (committed, everything) == (["0", "2"], ["0", "1", "2", "3"])

    batches = where(batch_rows(proxy.folder), topic=topic)
    produced = [dict(row) for row in where(batches, kind=PRODUCED)]
    assert sorted(row["base_offset"] for row in produced) == [0, 2, 4, 6], "markers are between them"
    assert {(row["error"], row["acks"], row["count"], row["client"]) for row in produced} == {(0, -1, 1, name)}
    fetched = [dict(row) for row in where(batches, kind=FETCHED)]
    assert sorted(row["base_offset"] for row in fetched) == [0, 0, 2, 2, 4, 4, 6, 6]
    filtered = [row["base_offset"] for row in fetched if row["flags"] & FLAG_FILTERED]
    assert sorted(filtered) == [2, 6]

    transactions = where(transaction_rows(proxy.folder), transactional_id=name, topic=topic)
    states = {
        state: sum(where(transactions, state=state).values())
        for state in (TRANSACTION_ONGOING, PREPARE_COMMIT, PREPARE_ABORT)
    }
    assert states == {TRANSACTION_ONGOING: 4, PREPARE_COMMIT: 2, PREPARE_ABORT: 2}
    offsets = where(offset_rows(proxy.folder), group=group, error=0)
    assert sorted(dict(row)["offset"] for row in where(offsets, kind=OFFSET_SENT)) == [1, 2, 3, 4]
    assert [dict(row)["offset"] for row in where(offsets, kind=OFFSET_COMMITTED)] == [1]


def test_a_dead_nodes_port_refuses_connections_until_the_node_lives_again(kafka: ApacheKafka, proxy: Proxy) -> None:
    kafka.kill(3)
    try:
        until(lambda: _refuses(proxy), "the port refuses connections")
    finally:
        kafka.start(3)
    until(lambda: not _refuses(proxy), "the port accepts connections")


def _refuses(proxy: Proxy) -> bool:
    try:
        socket.create_connection(proxy.addresses[3], 10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_the_proxys_folder_has_a_folder_for_each_node(proxy: Proxy) -> None:
    assert {path.name for path in Path(proxy.folder).iterdir()} == {"proxy", "broker-1", "broker-2", "broker-3"}
