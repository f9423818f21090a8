"""What all parts of an active controller share: the context, conditional writes, watches, requests to brokers.

Owns: `ControllerCore`. The parts (broker_events.py, topic_events.py, log_dir_events.py,
leader_elections.py, reassignments.py) depend on it and not on each other's owner;
active_controller.py makes them.

Invariants: after `close` no watch enqueues an event and no request leaves; every write checks the controller epoch.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..config import BrokerConfig
from ..host.seam import Host
from ..ids import NodeId, TopicPartition
from ..registry import Children, Delete, DeleteTree, Event, NodeError, ReadTree, RegistryClient, Tree
from ..registry.client import results_or_errors, value_of
from .channels import Channels
from .controller_context import ControllerContext
from .controller_election import WonElection
from .partition_writer import PartitionWriter
from .requests import RequestBatch

Handler = Callable[[], Coroutine[Any, Any, None]]
Enqueue = Callable[[str, Handler], None]
"""`enqueue(name, handler)`: run the handler after the events before it; a waiting event of that name is enough."""


class ControllerCore:
    """State and services of one active controller."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        registry: RegistryClient,
        won: WonElection,
        channels: Channels,
        enqueue: Enqueue,
    ) -> None:
        self.host = host
        self.config = config
        self.registry = registry
        self.won = won
        self.channels = channels
        self._node_id = node_id
        self._enqueue = enqueue
        self.closed = False
        self.context = ControllerContext()
        self.writer = PartitionWriter(registry, won, self.context)

    def replace_context(self, context: ControllerContext) -> None:
        """Use a context that was loaded from the registry."""
        self.context = context
        self.writer = PartitionWriter(self.registry, self.won, context)

    def close(self) -> None:
        """Send nothing more and handle no more events."""
        self.closed = True
        self.channels.end()

    def enqueue(self, name: str, handler: Handler) -> None:
        """Handle an event after those before it; nothing once this controller is closed."""
        if not self.closed:
            self._enqueue(name, handler)

    # -------------------------------------------------------------- registry

    def watch(self, path: str, name: str, handler: Handler) -> Any:
        """Submit a read of a node's children that enqueues `handler` when they change; a promise of their names."""

        def changed(_event: Event) -> None:
            self.enqueue(name, handler)

        return self.registry.submit(Children(path, watch=True), changed)

    async def watched_children(self, path: str, name: str, handler: Handler) -> list[str]:
        """The names of a node's children; `handler` runs when they change."""
        names: list[str] = value_of((await results_or_errors(self.watch(path, name, handler)))[0])
        return names

    async def watched_tree(self, path: str, name: str, handler: Handler) -> Tree:
        """A subtree; `handler` runs when the children of its root change."""
        names, tree = await results_or_errors(self.watch(path, name, handler), self.registry.submit(ReadTree(path)))
        value_of(names)
        found: Tree = value_of(tree)
        return found

    async def remove_if_present(self, operations: Sequence[Delete | DeleteTree]) -> None:
        """Delete nodes; if one was deleted already, all are left as they are."""
        try:
            await self.writer.remove(operations)
        except NodeError as error:
            self.host.trace.log("info", f"controller: already removed: {error}")

    # -------------------------------------------------------------- requests

    def new_batch(self) -> RequestBatch:
        """An empty collection of requests to brokers."""
        return RequestBatch(
            self.context, self._node_id, self.won.epoch, self.channels.send, self.channels.inter_broker_listener
        )

    def send_partition_changes(self, changed: Sequence[TopicPartition]) -> None:
        """Send changed states to the replicas (LeaderAndIsr), then to all brokers (UpdateMetadata)."""
        if changed:
            batch = self.new_batch()
            batch.leader_and_isr(changed)
            batch.metadata(changed)
            batch.flush()
