"""One broker: the rooms wired together on a host, in the order in which they may start and stop.

Owns: the life of a broker and nothing of its logic. Start: recover the logs, open a registry session,
listen (brokers, then clients), register (which gives the broker epoch), elect or watch the controller.
A session that expired is begun anew: the old registration is gone, so the broker registers again with
a new epoch and its old leaderships are void until the controller says so (D6).

What may fail: a data folder that cannot be used, a registry that cannot be reached in time (both end
the process with a message); a task that lets an exception out (traced as `task.failed`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .config import BrokerConfig
from .controller import Controller, register
from .controller.isr_store import RegistryIsrStore
from .errors import HarrowError, StorageError
from .groups import GroupCoordinator
from .host.real import RealHost
from .ids import BrokerEpoch, NodeId
from .metadata import MetadataCache, MetadataHandlers, TopicAdmin
from .network.peers import PeerClient
from .network.server import RequestServer
from .registry import RegistryClient
from .replication import ReplicaManager
from .storage import LogManager
from .transactions import ProducerIds
from .wire.api import ApiTable

LOOPBACK = "127.0.0.1"
FAREWELL_MS = 50
FLUSH_CHECK_MS = 1_000
"""How often logs are asked whether `flush.ms` is due; Kafka asks at its scheduler's pace."""


def preload() -> None:
    """Import what handlers import late (schemas by version), so that forked brokers share it."""
    from .wire import messages

    messages.preload()


class Broker:
    """A broker built from its process options (ARCHITECTURE.md, "Process interface of a broker")."""

    def __init__(self, host: RealHost, options: Mapping[str, Any]) -> None:
        self._host = host
        self.node_id = NodeId(options["node_id"])
        self.config = BrokerConfig.parse(options["config"])
        self._ports: Mapping[str, int] = options["listeners"]
        self._expect = int(options.get("expect", 1))
        self._failure = host.tasks.promise()
        registry_host, registry_port = options["registry"]
        self.registry = RegistryClient(
            host,
            (registry_host, registry_port),
            name=f"broker {self.node_id}",
            session_timeout_ms=self.config.number("zookeeper.session.timeout.ms"),
        )
        self.logs = LogManager(host, f"{options['folder']}/data", self.config)
        self.cache = MetadataCache(host, self.node_id)
        self.isr_store = RegistryIsrStore(host, self.registry)
        self._peers: dict[NodeId, PeerClient] = {}
        self.replicas = ReplicaManager(
            host, self.node_id, self.config, self.logs, self.isr_store, self.peer
        )
        self.topic_admin = TopicAdmin(host, self.registry, self.cache, self.config)
        self.replicas.alive = self.cache.is_alive
        self.replicas.in_metadata = lambda tp: self.cache.partition(tp) is not None
        self.replicas.topic_config = self.topic_admin.topic_config
        self.replicas.on_log_failure.append(self._log_failed)
        self.controller = Controller(
            host, self.node_id, self.config, self.registry, self.channel, self.cache
        )
        self.groups = GroupCoordinator(
            host, self.config, self.replicas, self.cache, self.topic_admin
        )
        self.producer_ids = ProducerIds(host, self.registry, self.node_id)
        self.metadata = MetadataHandlers(host, self.config, self.cache, self.topic_admin)
        self.table = ApiTable()
        self._servers: Sequence[RequestServer] = ()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Recover, listen, register, and wait until the cluster knows this broker."""
        self._host.control.register("state", lambda _fields: self.state())
        await self._host.tasks.run_blocking(self.logs.load)
        self._fill_table()
        await self.registry.start()
        self.registry.on_expired.append(self._session_expired)
        self._servers = [
            RequestServer(self._host, self.table, name) for name in ("brokers", "clients")
        ]
        limit = self.config.number("socket.request.max.bytes")
        for server in self._servers:
            await server.start(max_frame_bytes=limit)
        self.replicas.start()
        await self._register()
        await self.controller.start()
        await self.topic_admin.load_cluster_id()
        self._tend_logs()
        await self.cache.await_brokers(self._expect)
        self._host.trace.emit("broker.ready", node_id=self.node_id)

    async def stop(self) -> None:
        """Controlled shutdown: give leaders away, end the session, close the logs cleanly."""
        self._host.trace.emit("broker.stopping", node_id=self.node_id)
        if self.config.flag("controlled.shutdown.enable"):
            await self._give_leaders_away()
        await self.controller.stop()
        for server in self._servers:
            server.close()
        await self.groups.stop()
        await self.replicas.stop()
        await self.registry.close()
        for peer in self._peers.values():
            peer.close()
        await self._host.tasks.run_blocking(lambda: self.logs.close(clean=True))

    async def failed(self) -> None:
        """Wait for a failure that must end this process."""
        await self._failure

    def _log_failed(self, _partition: object, error: BaseException) -> None:
        """The only data folder is offline: end, as Kafka does, so that leaders move to sound disks (B11)."""
        if not self._failure.done():
            self._host.trace.emit("broker.log-failed", error=str(error))
            text = f"the data folder failed and this broker has no other: {error}"
            # the answers that say so leave first
            self._host.tasks.call_later(FAREWELL_MS, self._fail, StorageError(text))

    def _fail(self, error: StorageError) -> None:
        if not self._failure.done():
            self._host.trace.log("error", str(error))
            self._failure.set_exception(error)

    def _fill_table(self) -> None:
        for room in (self.metadata, self.replicas, self.groups, self.producer_ids, self.controller):
            for row in room.handlers():
                self.table.add(row.api_key, row.low, row.high, row.handler)

    def _tend_logs(self) -> None:
        """Kafka's LogManager schedule: recovery points, flushes that are due, retention."""
        logs, number = self.logs, self.config.number
        every = number("log.flush.offset.checkpoint.interval.ms")
        self._periodically("recovery-points", every, logs.checkpoint_recovery_points)
        self._periodically("log-flush", FLUSH_CHECK_MS, logs.flush_overdue)
        # retention rolls and discards on the loop: only the deletion of files is off it
        retention_ms = number("log.retention.check.interval.ms")
        self._host.tasks.call_later(retention_ms, self._retain, retention_ms)

    def _periodically(self, name: str, period_ms: int, blocks: Callable[[], object]) -> None:
        async def run() -> None:
            while True:
                await self._host.tasks.sleep(max(1, period_ms))
                try:
                    await self._host.tasks.run_blocking(blocks)
                except StorageError as error:
                    self._host.trace.log("error", f"{name}: {error}")

        self._host.tasks.spawn(run(), name=name)

    def _retain(self, period_ms: int) -> None:
        try:
            self.logs.clean_up()
        except StorageError as error:
            self._host.trace.log("error", f"retention: {error}")
        self._host.tasks.call_later(period_ms, self._retain, period_ms)

    # ---------------------------------------------------------- registration

    async def _register(self) -> None:
        epoch = await register(self.registry, self.node_id, LOOPBACK, self._ports)
        for room in (self.replicas, self.controller, self.cache, self.logs):
            room.broker_epoch = BrokerEpoch(epoch)
        self._host.trace.emit("broker.registered", node_id=self.node_id, epoch=epoch)

    def _session_expired(self) -> None:
        self._host.tasks.spawn(self._begin_again(), name="session-expired")

    async def _begin_again(self) -> None:
        self._host.trace.emit("broker.session-expired", node_id=self.node_id)
        await self.controller.session_expired()
        await self._register()
        await self.controller.start()

    async def _give_leaders_away(self) -> None:
        try:
            await self._host.tasks.wait(self.controller.controlled_shutdown(), 5_000)
        except (HarrowError, OSError, TimeoutError) as error:
            self._host.trace.log("warning", f"controlled shutdown: {error}; going without it")

    # ----------------------------------------------------------------- peers

    def peer(self, node_id: NodeId) -> PeerClient | None:
        """A client of another broker's `brokers` listener for the fetchers; None while it is unknown."""
        endpoint = self.cache.peer_endpoint(node_id)
        if endpoint is None:
            return None
        return self.channel(node_id, *endpoint)

    def channel(self, node_id: NodeId, host: str, port: int) -> PeerClient:
        """A connection of its own to a broker (controller channels, fetchers)."""
        return PeerClient(self._host, self.node_id, node_id, host, port)

    # ----------------------------------------------------------------- state

    def state(self) -> dict[str, Any]:
        """What the control socket's `state` answers."""
        return {
            "node_id": self.node_id,
            "controller": self.controller.is_active,
            "broker_epoch": self.replicas.broker_epoch,
            "partitions": self.replicas.state(),
        }
