"""The proxy in front of real brokers: addresses, dead brokers, faults of links and requests, its end (J2, J6, K2)."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from armed_requests import arm_request
from confluent_kafka import Producer
from harrow.cluster import Cluster
from harrow.cluster.broker_folder import LOG, TRACE, broker_name
from harrow.cluster.errors import ClusterError, ConfigError
from harrow.cluster.host.seam import Peer
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.tap.layouts import FLAG_LOST, PRODUCED
from harrow.cluster.wire.api_keys import ApiKey
from harrow.faults.controls import PeerKind
from harrow.harness.backends.knobs import HostLinks
from harrow.harness.backends.local import gone
from proxied_cluster import batch_rows, proxied_cluster, where
from raw_kafka import RawKafka, produce_request
from waiting import until

NOT_ENOUGH_REPLICAS = 19
CLOSED = (ConnectionError, TimeoutError)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Cluster, Proxy]]:
    with proxied_cluster(tmp_path_factory.mktemp("proxied")) as (cluster, proxy):
        yield cluster, proxy


@pytest.fixture
def proxy(both: tuple[Cluster, Proxy]) -> Iterator[Proxy]:
    """The proxy; without rules at the end."""
    yield both[1]
    for node in both[1].upstreams:
        both[1].control(node, "links.heal", mode="deliver")
        both[1].control(node, "rules.remove", kind="request")
        both[1].control(node, "rules.remove", kind="response")


def create(proxy: Proxy, node: int = 1) -> str:
    """Creates a topic with one partition on a broker, which then leads it."""
    name = f"t-{uuid4().hex[:8]}"
    with raw(proxy, client_id="creates") as client:
        controller = client.metadata().controller_id
    with raw(proxy, controller, "creates") as client:
        assert not client.create_topic(name, assignment=[[node]]).error_code
    with raw(proxy, node, "creates") as client:
        until(lambda: not client.list_offset(name, 0, -1).error_code, f"{name} on broker {node}")
    return name


def raw(proxy: Proxy, node: int = 1, client_id: str = "raw") -> RawKafka:
    return RawKafka(proxy.addresses[node].port, client_id=client_id)


# -------------------------------------------------------------------------------- addresses


def test_clients_get_the_addresses_of_the_proxy_in_every_response(proxy: Proxy) -> None:
    expected = {node: tuple(address) for node, address in proxy.addresses.items()}
    with raw(proxy, 2) as client:
        for version in range(9, 14):
            brokers = client.metadata(version=version).brokers
            assert {row.node_id: (row.host, row.port) for row in brokers} == expected
        found = client.ask(ApiKey.FIND_COORDINATOR, 4, key_type=0, coordinator_keys=("a", "b"))
        for row in found.coordinators:
            assert row.error_code or (row.host, row.port) == expected[row.node_id]
        answer = client.ask(ApiKey.DESCRIBE_CLUSTER, 0, include_cluster_authorized_operations=False)
        assert {row.broker_id: (row.host, row.port) for row in answer.brokers} == expected


def test_a_broker_that_was_not_named_gets_a_port_when_a_response_names_it(
    both: tuple[Cluster, Proxy], tmp_path: Path
) -> None:
    cluster, _ = both
    with Proxy(tmp_path, {1: cluster.brokers[1].address}, tap=False) as proxy:
        assert set(proxy.addresses) == {1}
        with raw(proxy) as client:
            rows = client.metadata().brokers
        assert {row.node_id: row.port for row in rows} == {
            node: address.port for node, address in proxy.addresses.items()
        }
        assert set(proxy.addresses) == {1, 2, 3}
        for node in (2, 3):
            until(partial(_serves, proxy, node), f"broker {node} behind the proxy", amid=(OSError,))
        assert proxy.control(3, "links")["rules"] == []


def _serves(proxy: Proxy, node: int) -> bool:
    with raw(proxy, node) as client:
        return bool(client.metadata().brokers)


# ----------------------------------------------------------------------------- dead brokers


def test_a_dead_brokers_port_refuses_connections_until_the_broker_lives_again(
    both: tuple[Cluster, Proxy], proxy: Proxy
) -> None:
    cluster, _ = both
    port = proxy.addresses[3].port
    with raw(proxy, 3) as client:
        assert client.metadata().brokers
        cluster.brokers[3].kill()
        with pytest.raises(CLOSED):
            client.metadata()
    until(partial(_refuses, port), "the port refuses connections")
    assert proxy.brokers()[2]["open"] is False
    cluster.brokers[3].start()
    until(partial(_serves, proxy, 3), "the broker behind the proxy", amid=(OSError,))
    events = (proxy.folder / broker_name(3) / TRACE).read_text()
    assert events.count('"proxy.open"') == events.count('"proxy.closed"') + 1


def _refuses(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    except ConnectionResetError:  # it was in the backlog of the port that closed
        return False
    return False


def test_kill_9_of_the_supervising_process_ends_the_proxy(tmp_path: Path) -> None:
    code = (
        "import sys; from harrow.cluster.proxy_supervisor import Proxy\n"
        f"proxy = Proxy({str(tmp_path)!r}, {{1: ('127.0.0.1', 9)}}); proxy.start()\n"
        "print(proxy.process.pid, proxy.bootstrap_servers, flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as owner:
        assert owner.stdout is not None
        pid, servers = owner.stdout.readline().split()
        assert _refuses(int(servers.rpartition(":")[2])), "no broker listens at port 9"
        os.kill(owner.pid, signal.SIGKILL)
    until(partial(gone, int(pid)), "the end of the proxy")


def test_arguments_that_cannot_be_used_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="at least one broker"):
        Proxy(tmp_path, {})
    with pytest.raises(ConfigError, match="0 or more"):
        Proxy(tmp_path, {-1: ("127.0.0.1", 9092)})
    with pytest.raises(ClusterError, match="not started"):
        _ = Proxy(tmp_path, {1: ("127.0.0.1", 9092)}).bootstrap_servers


# ----------------------------------------------------------------------------------- faults


def test_link_faults_of_hosts_work_on_the_links_of_clients(proxy: Proxy) -> None:
    links = HostLinks(partial(proxy.control, 1), frozenset({PeerKind.CLIENT}))
    with raw(proxy, client_id="held") as held, raw(proxy, client_id="free") as free:
        assert held.metadata().brokers
        assert free.metadata().brokers
        links.block(["client held"], "both")
        held.send(ApiKey.METADATA, 9, topics=None)
        assert free.metadata().brokers
        until(lambda: links.status().held, "the request is held back")
        assert not held.ready()
        links.heal("deliver")
        assert held.take()[1].brokers
        links.slow(["client held"], 200)
        assert held.metadata().brokers
        assert links.status().delayed
        links.heal("deliver")
        assert links.reset(["client held"]) == 1
        with pytest.raises(ConnectionError):
            held.metadata()
        assert free.metadata().brokers, "the link of another client stays"


def test_a_lost_response_leaves_the_record_and_a_row_that_says_so(proxy: Proxy) -> None:
    topic = create(proxy)
    rule = arm_request(partial(proxy.control, 1), action="lose_response", api_key=0, nth=2, client="loses-*")
    with raw(proxy, client_id="loses-one") as client:
        assert client.produce(topic, 0, ["a"]).base_offset == 0
        with pytest.raises(ConnectionError):
            client.produce(topic, 0, ["b"])
    assert rule.status().fired == 1
    rows = where(batch_rows(proxy.folder), kind=PRODUCED, topic=topic)
    assert {(dict(row)["base_offset"], dict(row)["flags"]) for row in rows} == {(0, 0), (1, FLAG_LOST)}


def test_a_refused_request_is_not_forwarded_and_its_response_keeps_its_turn(proxy: Proxy) -> None:
    topic = create(proxy)
    rule = arm_request(partial(proxy.control, 1), action="refuse", api_key=0, error=NOT_ENOUGH_REPLICAS, nth=2)
    with raw(proxy) as client:
        request = partial(produce_request, topic, 0, acks=-1, timeout_ms=1000, version=9)
        asked = [client.send(ApiKey.PRODUCE, 9, request(values=[value])) for value in ("a", "b", "c")]
        answers = [client.take() for _ in asked]
        assert [correlation for correlation, _ in answers] == asked
        rows = [answer.responses[0].partition_responses[0] for _, answer in answers]
        assert [int(row.error_code) for row in rows] == [0, NOT_ENOUGH_REPLICAS, 0]
        assert [row.base_offset for row in rows] == [0, -1, 1]
        assert client.list_offset(topic, 0, -1).offset == 2
    assert rule.status().fired == 1
    refused = where(batch_rows(proxy.folder), topic=topic, error=NOT_ENOUGH_REPLICAS)
    assert [(dict(row)["base_offset"], dict(row)["count"]) for row in refused] == [(-1, 1)]


@pytest.mark.parametrize(
    ("action", "fields", "reason"),
    [
        ("delay", {"api_key": 0, "delay_ms": 0}, "delay_ms=0"),
        ("lose", {}, "api_key"),
        ("refuse", {"api_key": 0, "error": 9999}, "error=9999"),
        ("duplicate", {"api_key": 0, "nth": 0}, "nth=0"),
        ("loose", {"api_key": 0}, "action='loose' of a request: expected one of refuse, lose"),
    ],
)
def test_a_fault_that_cannot_be_used_is_refused(proxy: Proxy, action: str, fields: dict[str, Any], reason: str) -> None:
    with pytest.raises(ClusterError, match=reason):
        proxy.control(1, "rules.add", kind="request", action=action, **fields)


def test_the_peer_of_a_link_is_the_client_as_at_a_broker(proxy: Proxy) -> None:
    with raw(proxy, client_id="orders-7") as client:
        assert client.metadata().brokers
        peers = {row["peer"] for row in proxy.control(1, "links")["links"]}
    assert {str(Peer("client", "orders-7")), "upstream 1"} <= peers


def test_a_producer_without_acknowledgements_is_forwarded(proxy: Proxy) -> None:
    topic = create(proxy)
    producer = Producer({"bootstrap.servers": proxy.bootstrap_servers, "acks": 0, "linger.ms": 0})
    for number in range(20):
        producer.produce(topic, f"{number}")
    assert producer.flush(30) == 0
    with raw(proxy) as client:
        until(lambda: client.list_offset(topic, 0, -1).offset == 20, "all records")
    assert not where(batch_rows(proxy.folder), kind=PRODUCED, topic=topic), "their offsets are not known"
    log = proxy.folder / broker_name(1) / LOG
    assert not log.exists() or "failed" not in log.read_text()
