"""The metadata handlers of one broker over an in-memory registry, with a fake controller that acts at once.

The registry is the real tree without its server. The fake controller makes the first replica of each new topic its
leader and removes each topic that is marked for deletion.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from harrow.cluster.config import BrokerConfig
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from harrow.cluster.metadata import MetadataCache, MetadataHandlers, TopicAdmin
from harrow.cluster.registry import (
    Create,
    Created,
    Exists,
    Get,
    NodeExistsError,
    RegistryTree,
    RegistryUnavailableError,
    Set,
    Stat,
)
from harrow.cluster.registry.operations import Multi, Operation
from harrow.cluster.wire import internal, messages
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.request import Request
from harrow.cluster.wire.topic_ids import topic_id_of
from manual_host import ManualHost
from request_contexts import CLIENT_LISTENER, client_context

DELETED_LEADER = NodeId(-2)
"""The leader in an UpdateMetadata request for a partition that is deleted."""


def run_on_host(scenario: Callable[[ManualHost], Coroutine[Any, Any, None]]) -> None:
    """Run a scenario to its end on a host of its own."""
    host = ManualHost()
    host.run(scenario(host))


class TreeRegistry:
    """The registry's client without a network: it calls the tree."""

    def __init__(self) -> None:
        self.tree = RegistryTree()
        self.session: int = self.tree.open_session("test", 10_000, 0).result
        self.is_unavailable = False
        self.reconnects = False
        """Whether a wait for the link succeeds; otherwise the wait times out."""
        self.before: Callable[[Operation], None] | None = None
        self.after: Callable[[], None] = lambda: None

    def apply(self, operation: Operation) -> Any:
        return self.tree.apply(self.session, operation, 0).result

    async def until_connected(self) -> None:
        if not self.reconnects:
            raise TimeoutError
        self.is_unavailable = False

    async def _do(self, operation: Operation) -> Any:
        if self.is_unavailable:
            raise RegistryUnavailableError("the registry does not respond")
        if self.before is not None:
            call, self.before = self.before, None
            call(operation)
        found = self.apply(operation)
        self.after()
        return found

    async def create(
        self, path: str, data: str = "", *, sequential: bool = False, make_parents: bool = False
    ) -> Created:
        found: Created = await self._do(Create(path, data, sequential=sequential, make_parents=make_parents))
        return found

    async def ensure(self, path: str, data: str = "") -> None:
        try:
            await self.create(path, data, make_parents=True)
        except NodeExistsError:
            return

    async def get(self, path: str) -> tuple[str, Stat]:
        found: tuple[str, Stat] = await self._do(Get(path))
        return found

    async def exists(self, path: str) -> Stat | None:
        found: Stat | None = await self._do(Exists(path))
        return found

    async def set(self, path: str, data: str, version: int = -1) -> Stat:
        found: Stat = await self._do(Set(path, data, version))
        return found

    async def multi(self, operations: Sequence[Any]) -> list[Any]:
        found: list[Any] = await self._do(Multi(tuple(operations)))
        return found

    def dump(self) -> dict[str, str]:
        return self.tree.dump()


def partition(
    index: int, leader: int, replicas: Sequence[int], *, isr: Sequence[int] = (), epoch: int = 0
) -> internal.UpdateMetadataPartitionState:
    """One partition as the controller sends it."""
    return internal.UpdateMetadataPartitionState(
        partition_index=index,
        controller_epoch=ControllerEpoch(1),
        leader=NodeId(leader),
        leader_epoch=LeaderEpoch(epoch),
        isr=tuple(NodeId(n) for n in (isr or replicas)),
        zk_version=0,
        replicas=tuple(NodeId(n) for n in replicas),
    )


def topic(name: str, topic_id: str | None, *rows: Any) -> internal.UpdateMetadataTopicState:
    """One topic as the controller sends it."""
    return internal.UpdateMetadataTopicState(
        topic_name=name, topic_id=None if topic_id is None else topic_id_of(topic_id), partition_states=rows
    )


def update(
    *topics: Any,
    brokers: Sequence[int] = (1, 2, 3),
    controller: int = 1,
    epoch: int = 1,
    broker_epoch: int = -1,
    kind: int = 0,
    inside: Sequence[int] = (),
) -> internal.UpdateMetadataRequest:
    """An UpdateMetadata request; brokers in `inside` have a third listener, INSIDE."""
    return internal.UpdateMetadataRequest(
        controller_id=NodeId(controller),
        controller_epoch=ControllerEpoch(epoch),
        broker_epoch=BrokerEpoch(broker_epoch),
        type=kind,
        topic_states=topics,
        live_brokers=tuple(
            internal.UpdateMetadataBroker(
                id=NodeId(n),
                endpoints=(
                    internal.UpdateMetadataEndpoint(port=9000 + n, host="h", listener="CLIENTS"),
                    internal.UpdateMetadataEndpoint(port=8000 + n, host="h", listener="BROKERS"),
                    *(
                        internal.UpdateMetadataEndpoint(port=7000 + n, host="i", listener="INSIDE")
                        for node in inside
                        if node == n
                    ),
                ),
            )
            for n in brokers
        ),
    )


class MetadataTestBed:
    """Broker 1, the controller of three brokers."""

    def __init__(self, host: ManualHost | None = None, *, controller_acts: bool = True, **settings: object) -> None:
        self.host = host or ManualHost()
        self.registry = TreeRegistry()
        self.config = BrokerConfig.parse({name.replace("_", "."): v for name, v in settings.items()})
        self.listener = CLIENT_LISTENER
        self.cache = MetadataCache(self.host, NodeId(1), "BROKERS")
        self.admin = TopicAdmin(self.host, self.registry, self.cache, self.config)  # type: ignore[arg-type] # parts
        rows = MetadataHandlers(self.host, self.config, self.cache, self.admin).handlers()
        self.table = {row.api_key: row.handler for row in rows}
        self.cache.update(update())
        if controller_acts:
            self.registry.after = self.act_as_controller

    def act_as_controller(self) -> None:
        """Act as the controller on the registry's content: send UpdateMetadata for new and for marked topics."""
        nodes = self.registry.dump()
        marked = {p.rsplit("/", 1)[1] for p in nodes if p.startswith("/admin/delete_topics/")}
        topics: list[Any] = []
        for path, data in nodes.items():
            name = path.removeprefix("/brokers/topics/")
            if path.startswith("/brokers/topics/") and self.cache.topic(name) is None and name not in marked:
                node = json.loads(data)
                rows = [partition(int(p), r[0], r) for p, r in node["partitions"].items()]
                topics.append(topic(name, node["topic_id"], *rows))
        for name in marked:
            known = self.cache.topic(name)
            if known is not None:
                topics.append(topic(name, None, *(partition(p, DELETED_LEADER, ()) for p in known.partitions)))
        if topics:
            self.cache.update(update(*topics))

    async def request(self, api_key: int, version: int, **fields: Any) -> Any:
        """Send a request to the room's handler; return the decoded response. A KafkaError becomes an error response."""
        from harrow.cluster.errors import KafkaError

        body = client_request(api_key, version, **fields).body()
        answers: list[Any] = []
        request = Request(
            api_key,
            version,
            1,
            "test",
            body,
            0,
            client_context(listener=self.listener),
            0,
            lambda parts, _on_send: answers.append(parts),
        )
        try:
            running = self.table[api_key](request)
            if running is not None:
                await running
        except KafkaError as error:
            request.fail(error.code, error.message)
        (parts,) = answers
        return messages.decode_response(api_key, version, b"".join(parts))
