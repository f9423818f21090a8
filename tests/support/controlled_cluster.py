"""Controllers over a real registry, with fake brokers that record the requests that they receive."""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.controller import Controller, register
from harrow.cluster.controller.state_node import LeaderAndIsr, parse_state
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.ids import BrokerEpoch, NodeId, TopicPartition
from harrow.cluster.listeners import parse_listeners
from harrow.cluster.registry import RegistryClient
from harrow.cluster.wire import messages
from harrow.cluster.wire.internal import (
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    StopReplicaPartitionError,
    StopReplicaRequest,
    StopReplicaResponse,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
)
from registry_in_process import RecordedEvents, RegistryFixture, created, run

TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAZA"


REGISTRY = ["embedded"]
"""The registry that the running test uses."""


def clustered(
    tmp_path: Path,
    test: Callable[[ControlledCluster], Coroutine[Any, Any, None]],
    config: dict[str, object] | None = None,
) -> None:
    """Run a test on a cluster without brokers, and stop what it has started."""

    async def with_registry(registry: RegistryFixture) -> None:
        cluster = ControlledCluster(registry, config)
        await test(cluster)
        await cluster.stop(*list(cluster.nodes))

    run(tmp_path, with_registry, REGISTRY[0])


def embedded_only(why: str) -> None:
    """Skip the test on ZooKeeper."""
    if REGISTRY[0] == "zookeeper":
        pytest.skip(why)


class ReceivedRequests(RecordedEvents):
    """The requests of controllers to one broker; refuses older controller and broker epochs."""

    def __init__(self) -> None:
        super().__init__()
        self.controller_epoch = -1
        self.broker_epoch = -1
        self.leaders: dict[TopicPartition, tuple[int, int, tuple[int, ...]]] = {}
        self.metadata: dict[TopicPartition, int] = {}
        self.live: set[int] = set()
        self.stopped: dict[TopicPartition, bool] = {}
        self.refused: list[ErrorCode] = []

    def receive(self, entity: Any) -> ErrorCode:
        if entity.controller_epoch < self.controller_epoch:
            self.refused.append(ErrorCode.stale_controller_epoch)
            self()
            return ErrorCode.stale_controller_epoch
        if entity.broker_epoch < self.broker_epoch:
            self.refused.append(ErrorCode.stale_broker_epoch)
            return ErrorCode.stale_broker_epoch
        self.controller_epoch = entity.controller_epoch
        for topic in entity.topic_states:
            for row in topic.partition_states:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                if isinstance(entity, LeaderAndIsrRequest):
                    self.leaders[tp] = (row.leader, row.leader_epoch, row.isr)
                    self.stopped.pop(tp, None)
                elif isinstance(entity, UpdateMetadataRequest):
                    self.metadata[tp] = row.leader
                else:
                    self.stopped[tp] = row.delete_partition
        if isinstance(entity, UpdateMetadataRequest):
            self.live = {row.id for row in entity.live_brokers}
        self(entity)
        return ErrorCode.none


class RecordingClient:
    """A fake `PeerClient`: encodes and decodes each request, records it, and responds at once."""

    def __init__(self, cluster: ControlledCluster, node_id: NodeId) -> None:
        self._cluster = cluster
        self._node_id = node_id

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float, /) -> Any:
        del timeout_ms
        if self._node_id in self._cluster.unreachable:
            raise ConnectionRefusedError("the broker is unreachable")
        body = messages.encode_request(api_key, version, entity)
        entity = messages.request_reader(api_key, version)(body, 0)[0]
        code = self._cluster.received[self._node_id].receive(entity)
        if isinstance(entity, StopReplicaRequest):
            rows = tuple(
                StopReplicaPartitionError(
                    topic_name=topic.topic_name, partition_index=row.partition_index, error_code=code
                )
                for topic in entity.topic_states
                for row in topic.partition_states
            )
            return StopReplicaResponse(error_code=code, partition_errors=rows)
        if isinstance(entity, LeaderAndIsrRequest):
            return LeaderAndIsrResponse(error_code=code)
        return UpdateMetadataResponse(error_code=code)

    def close(self) -> None: ...


class Cache:
    controller_id = NodeId(-1)

    def peer_endpoint(self, node_id: NodeId, /) -> tuple[str, int] | None:
        del node_id
        return None

    def leader(self, tp: TopicPartition, /) -> NodeId:
        del tp
        return NodeId(-1)

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float, /) -> bool:
        raise NotImplementedError

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        raise NotImplementedError


class Node:
    """A broker's registry session, registration and controller."""

    def __init__(self, host: RealHost, registry: RegistryClient, controller: Controller) -> None:
        self.host = host
        self.registry = registry
        self.controller = controller


class ControlledCluster:
    """Brokers that can be started, stopped and made unreachable."""

    def __init__(self, registry: RegistryFixture, config: dict[str, object] | None = None) -> None:
        self.registry = registry
        self.config = BrokerConfig.parse(config or {})
        self.received: dict[NodeId, ReceivedRequests] = {}
        self.unreachable: set[NodeId] = set()
        self.nodes: dict[int, Node] = {}
        self._starts = 0

    async def start(self, *nodes: int, timeout_ms: int = 5000) -> None:
        """Start brokers one after another, each when there is a controller: the first one of a new cluster."""
        for number in nodes:
            self._starts += 1
            host = await self.registry.host(f"broker-{number}-{self._starts}")
            client = await self.registry.client(f"broker {number}", timeout_ms=timeout_ms, host=host)
            node_id = NodeId(number)
            self.received[node_id] = ReceivedRequests()
            controller = Controller(
                host, node_id, self.config, client, lambda node, _host, _port: RecordingClient(self, node), Cache()
            )
            self.nodes[number] = Node(host, client, controller)
            await self.register(number)
            await controller.start()
            await created(client, "/controller")

    async def register(self, number: int) -> None:
        node, node_id = self.nodes[number], NodeId(number)
        settings = {"listeners": f"CLIENTS://127.0.0.1:{9000 + number},BROKERS://127.0.0.1:{9100 + number}"}
        listeners = parse_listeners(BrokerConfig.parse(settings))
        epoch = await register(node.registry, node_id, listeners)
        self.received[node_id].broker_epoch = epoch
        node.controller.broker_epoch = BrokerEpoch(epoch)

    async def stop(self, *nodes: int) -> None:
        """Stop brokers and end their sessions, as if those had expired."""
        for number in nodes:
            node = self.nodes.pop(number)
            await node.controller.stop()
            await node.registry.close()

    async def topic(self, name: str, *assignment: tuple[int, ...], config: str = "") -> None:
        data = {
            "version": 3,
            "topic_id": TOPIC_ID,
            "adding_replicas": {},
            "removing_replicas": {},
            "partitions": {str(number): list(replicas) for number, replicas in enumerate(assignment)},
        }
        client = self.any_client()
        if config:
            await client.create(f"/config/topics/{name}", config)
        await client.create(f"/brokers/topics/{name}", json.dumps(data))

    def any_client(self) -> RegistryClient:
        return self.nodes[max(self.nodes)].registry

    async def state(self, topic: str, partition: int = 0) -> LeaderAndIsr:
        path = f"/brokers/topics/{topic}/partitions/{partition}/state"
        return parse_state(*await self.any_client().get(path))

    @property
    def active(self) -> list[int]:
        return [number for number, node in self.nodes.items() if node.controller.is_active]

    async def leader_received(self, node: int, tp: TopicPartition, leader: int, epoch: int) -> None:
        received = self.received[NodeId(node)]
        await received.until(lambda: received.leaders.get(tp, (0, 0))[:2] == (leader, epoch))
