"""What a client may not do on a listener for clients: act as the controller, or as a follower (A7; real brokers)."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from brokers_by_hand import PlacedTopic, ReplicaView, place
from harrow import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from harrow.cluster.wire import internal
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey
from harrow.cluster.wire.client_requests import SIZE, client_request
from harrow.cluster.wire.topic_ids import topic_id_of
from raw_kafka import RawKafka

LATER_EPOCH = 1_000
"""A controller and a leader epoch above those of any short run: a broker that listened would obey."""


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    settings = {"replica.lag.time.max.ms": 120_000, "zookeeper.session.timeout.ms": 120_000, "min.insync.replicas": 1}
    with Cluster(brokers=2, config=settings) as running:
        yield running


def broker_port(cluster: Cluster, node: int) -> int:
    return cluster.brokers[node].listeners["BROKERS"].bind.port


def orders(running: Cluster, placed: PlacedTopic) -> dict[int, tuple[int, Any]]:
    """`(version, entity)` of each inter-broker request, as a false controller would send it to broker 1."""
    topic_id = json.loads(running.registry_control("tree")["tree"][f"/brokers/topics/{placed.topic}"])["topic_id"]
    top: dict[str, Any] = {
        "controller_id": NodeId(2),
        "controller_epoch": ControllerEpoch(LATER_EPOCH),
        "broker_epoch": BrokerEpoch(2**40),
    }
    follower = internal.LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=ControllerEpoch(LATER_EPOCH),
        leader=NodeId(2),
        leader_epoch=LeaderEpoch(LATER_EPOCH),
        isr=(NodeId(2),),
        partition_epoch=LATER_EPOCH,
        replicas=(NodeId(1), NodeId(2)),
        adding_replicas=(),
        removing_replicas=(),
        is_new=False,
    )
    led = internal.LeaderAndIsrTopicState(
        topic_name=placed.topic, topic_id=topic_id_of(topic_id), partition_states=(follower,)
    )
    stopped = internal.StopReplicaTopicState(
        topic_name=placed.topic,
        partition_states=(
            internal.StopReplicaPartitionState(
                partition_index=0, leader_epoch=LeaderEpoch(LATER_EPOCH), delete_partition=True
            ),
        ),
    )
    return {
        ApiKey.LEADER_AND_ISR: (
            7,
            internal.LeaderAndIsrRequest(type=internal.INCREMENTAL, topic_states=(led,), live_leaders=(), **top),
        ),
        ApiKey.STOP_REPLICA: (4, internal.StopReplicaRequest(topic_states=(stopped,), **top)),
        ApiKey.UPDATE_METADATA: (
            8,
            internal.UpdateMetadataRequest(type=internal.FULL, topic_states=(), live_brokers=(), **top),
        ),
        ApiKey.CONTROLLED_SHUTDOWN: (
            3,
            internal.ControlledShutdownRequest(broker_id=NodeId(1), broker_epoch=BrokerEpoch(2**40)),
        ),
        ApiKey.ENVELOPE: (0, deletion_in_envelope(placed.topic)),
    }


def deletion_in_envelope(topic: str) -> Any:
    """An Envelope with a DeleteTopics of a principal that the sender chose."""
    frame = client_request(ApiKey.DELETE_TOPICS, 5, topic_names=[topic], timeout=10_000).frame(1, "admin")
    return client_request(
        ApiKey.ENVELOPE, 0, request_data=frame[SIZE.size :], request_principal=b"Broker:2", client_host_address=b""
    ).entity


def sight(placed: PlacedTopic) -> tuple[ReplicaView, ReplicaView, Any, int]:
    """The replicas by their own brokers, the registry's state, and how many brokers broker 1 names to clients."""
    state = placed.cluster.describe().partition(placed.topic, 0)
    with placed.raw(1) as raw:
        brokers = len(raw.metadata().brokers)
    return placed.seen(1), placed.seen(2), state, brokers


@pytest.mark.parametrize("api_key", sorted(INTER_BROKER_APIS))
def test_an_inter_broker_request_on_a_client_listener_closes_the_connection_and_changes_nothing(
    cluster: Cluster, api_key: ApiKey
) -> None:
    placed = place(cluster, f"ordered-{int(api_key)}", 1, 2)
    placed.produce(1, "kept")
    placed.await_ends(leo={1: 1, 2: 1}, hw={1: 1, 2: 1})
    before = sight(placed)
    version, entity = orders(cluster, placed)[api_key]
    with placed.raw(1, client_id="broker-2") as raw:
        raw.send(api_key, version, entity)
        with pytest.raises(ConnectionResetError):
            raw.take()
    assert sight(placed) == before


@pytest.mark.parametrize("api_key", sorted(INTER_BROKER_APIS))
def test_an_inter_broker_request_of_a_client_on_the_inter_broker_listener_is_not_authorized(
    cluster: Cluster, api_key: ApiKey
) -> None:
    placed = place(cluster, f"unauthorized-{int(api_key)}", 1, 2)
    before = sight(placed)
    version, entity = orders(cluster, placed)[api_key]
    with RawKafka(broker_port(cluster, 1), client_id="app") as raw:
        answer = raw.ask(api_key, version, entity)
    assert answer.error_code is ErrorCode.cluster_authorization_failed
    assert sight(placed) == before


def test_only_the_inter_broker_listener_advertises_the_inter_broker_apis(cluster: Cluster) -> None:
    def advertised(port: int) -> set[int]:
        with RawKafka(port) as raw:
            answer = raw.ask(ApiKey.API_VERSIONS, 3, client_software_name="t", client_software_version="1")
            return {row.api_key for row in answer.api_keys}

    of_clients, of_brokers = (advertised(cluster.brokers[1].port), advertised(broker_port(cluster, 1)))
    assert of_brokers - of_clients == INTER_BROKER_APIS
    assert of_clients < of_brokers


def follower_fetch(version: int, topic: str, offset: int, epoch: int) -> Any:
    """A fetch of follower 2 whose log ends at `offset`: v14 and older name the replica at the top, v15 in a tag.

    Only v15 carries the broker epoch. A leader that knows the epoch refuses a fetch without it.
    """
    row = {
        "partition": 0,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "last_fetched_epoch": -1,
        "log_start_offset": 0,
        "partition_max_bytes": 1 << 20,
    }
    return client_request(
        ApiKey.FETCH,
        version,
        replica_id=2,
        replica_state={"replica_id": 2, "replica_epoch": epoch},
        min_bytes=1,
        max_bytes=1 << 20,
        session_epoch=-1,
        topics=[{"topic": topic, "topic_id": topic, "partitions": [row]}],
    ).entity


@pytest.mark.parametrize("version", [4, 12, 15])
def test_a_client_that_fetches_as_a_follower_moves_no_high_watermark(cluster: Cluster, version: int) -> None:
    placed = place(cluster, f"posed-{version}", 1, 2)
    with placed.raw(1) as raw:
        topic: Any = raw.metadata(placed.topic, version=12).topics[0].topic_id
    epoch: int = cluster.control(2, "state")["broker_epoch"]
    cluster.brokers[2].pause()
    try:
        assert placed.produce(1, "not replicated", acks=1).error_code is ErrorCode.none
        fetch = follower_fetch(version, topic if version >= 13 else placed.topic, 1, epoch)
        before = placed.seen(1)
        assert (before.leo, before.hw, set(before.isr)) == (1, 0, {1, 2})
        for port, client_id in ((cluster.brokers[1].port, "broker-2"), (broker_port(cluster, 1), "app")):
            with RawKafka(port, client_id=client_id) as raw:
                answer = raw.ask(ApiKey.FETCH, version, fetch)
            assert answer.responses[0].partitions[0].error_code is (ErrorCode.topic_authorization_failed)
            assert not answer.responses[0].partitions[0].records
            assert placed.seen(1) == before
        if version >= 15:
            with RawKafka(broker_port(cluster, 1), client_id="broker-2") as raw:
                raw.ask(ApiKey.FETCH, version, fetch)
            assert placed.seen(1).hw == 1, "the same fetch of a broker does move it"
    finally:
        cluster.brokers[2].resume()


def test_responses_name_the_listener_that_the_client_uses() -> None:
    names = ("OUTSIDE", "BROKERS", "INSIDE")
    settings = {
        "listeners": ",".join(f"{name}://127.0.0.1:0" for name in names),
        "listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names),
    }
    with Cluster(brokers=2, config=settings) as cluster:
        assert cluster.bootstrap_servers.split(",") == [
            str(broker.listeners["OUTSIDE"].bind) for broker in cluster.brokers.values()
        ]
        for name in names:
            ports = {node: b.listeners[name].bind.port for node, b in cluster.brokers.items()}
            with RawKafka(ports[1]) as raw:
                assert {row.node_id: row.port for row in raw.metadata().brokers} == ports
        tree = cluster.registry_control("tree")["tree"]
        registration = json.loads(tree["/brokers/ids/1"])
    listeners = cluster.brokers[1].listeners
    assert registration["endpoints"] == [f"{n}://{listeners[n].bind}" for n in names]
    assert registration["listener_security_protocol_map"] == dict.fromkeys(names, "PLAINTEXT")
    assert registration["port"] == listeners["OUTSIDE"].bind.port


def test_a_single_listener_serves_clients_and_brokers() -> None:
    settings = {
        "listeners": "PLAINTEXT://localhost:0",
        "inter.broker.listener.name": "PLAINTEXT",
        "max.connections": 100,
        "queued.max.requests": 1,
    }
    with Cluster(brokers=2, config=settings) as cluster:
        placed = place(cluster, "replicated", 1, 2)
        placed.produce(1, "v")
        placed.await_ends(leo={1: 1, 2: 1}, hw={1: 1, 2: 1})
        with placed.raw(1) as raw:
            assert {row.host for row in raw.metadata().brokers} == {"localhost"}
