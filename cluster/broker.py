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
from .controller.log_dir_events import tell_log_dir_failure
from .coordinators import CoordinatorType, FindCoordinator
from .errors import HarrowError, StorageError
from .groups import GroupCoordinator
from .host.seam import ProcessHost
from .ids import BrokerEpoch, NodeId, TopicPartition
from .internal_topics import OFFSETS
from .metadata import ConfigChanges, MetadataCache, MetadataHandlers, TopicAdmin
from .metrics import RequestTimes, broker_metrics
from .metrics.text import CONTENT_TYPE, prometheus_text
from .network.http import PageServer
from .network.kazoo_link import KazooLink
from .network.peers import PeerClient
from .network.server import RequestServer
from .purgatory import Purgatory
from .registry import RegistryClient, RegistryUnavailableError, ZooKeeperClient
from .replication import ReplicaManager
from .storage import LogManager
from .storage.log_folder import log_folders
from .transactions import ProducerIds
from .wire.api import ApiTable

LOOPBACK = "127.0.0.1"
LISTENERS = ("brokers", "clients")
FAREWELL_MS = 50


def preload() -> None:
    """Import what handlers import late (schemas by version), so that forked brokers share it."""
    from .wire import messages

    messages.preload()


class BrokerMetadata:
    """The metadata cache and the topic admin, as replication uses them (`ClusterMetadata`)."""

    def __init__(self, cache: MetadataCache, topic_admin: TopicAdmin) -> None:
        self.is_alive = cache.is_alive
        self.topic_config = topic_admin.await_topic_config
        self._cache = cache

    def has_partition(self, tp: TopicPartition, /) -> bool:
        """True when the cluster has this partition."""
        return self._cache.partition(tp) is not None


class Broker:
    """A broker built from its process options (ARCHITECTURE.md, "Process interface of a broker")."""

    def __init__(self, host: ProcessHost, options: Mapping[str, Any]) -> None:
        self._host = host
        self.node_id = NodeId(options["node_id"])
        self.config = BrokerConfig.parse(options["config"])
        self._ports: Mapping[str, int] = options["listeners"]
        self._expect = int(options.get("expect", 1))
        self._failure = host.tasks.promise()
        self.registry = self._make_registry(options)
        self.logs = LogManager(host, log_folders(self.config, options["folder"]), self.config)
        self.cache = MetadataCache(host, self.node_id)
        self.isr_store = RegistryIsrStore(host, self.registry)
        self._peers: dict[NodeId, PeerClient] = {}
        self.topic_admin = TopicAdmin(host, self.registry, self.cache, self.config)
        metadata = BrokerMetadata(self.cache, self.topic_admin)
        self.replicas = ReplicaManager(
            host, self.node_id, self.config, self.logs, self.isr_store, self.peer, metadata
        )
        self.logs.on_folder_failed.append(self._folder_failed)
        self.controller = Controller(
            host, self.node_id, self.config, self.registry, self.channel, self.cache
        )
        self.groups = GroupCoordinator(host, self.config, self.replicas, self.cache)
        self.find_coordinator = FindCoordinator(
            host, self.config, self.cache, self.topic_admin, {CoordinatorType.GROUP: OFFSETS}
        )
        self.settings = ConfigChanges(
            host, self.registry, self.node_id, self.config, self.logs.logs
        )
        self.settings.on_change.append(self.controller.settings_changed)
        self.replicas.on_leadership.append(self.settings.hosted)
        self.producer_ids = ProducerIds(host, self.registry, self.node_id)
        self.metadata = MetadataHandlers(host, self.config, self.cache, self.topic_admin)
        self.table = ApiTable()
        self._times = RequestTimes()
        self.metrics = broker_metrics(
            replicas=self.replicas,
            controller=self.controller,
            registry=self.registry,
            servers=lambda: zip(LISTENERS, self._servers, strict=False),
            times=self._times,
            purgatories=self.purgatories,
        )
        self._page = PageServer("/metrics", CONTENT_TYPE, lambda: prometheus_text(self.metrics))
        self._page_port = -1
        self._servers: Sequence[RequestServer] = ()

    def _make_registry(self, options: Mapping[str, Any]) -> RegistryClient:
        name, number = f"broker {self.node_id}", self.config.number
        session_ms = number("zookeeper.session.timeout.ms")
        patience_ms = number("zookeeper.connection.timeout.ms")
        connect = self.config.text("zookeeper.connect")
        if connect:
            link = KazooLink(connect, session_ms)
            return ZooKeeperClient(
                self._host, link, name, session_ms, connection_timeout_ms=patience_ms
            )
        registry_host, registry_port = options["registry"]
        return RegistryClient(
            self._host,
            (registry_host, registry_port),
            name,
            session_ms,
            connection_timeout_ms=patience_ms,
        )

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Recover, listen, register, and wait until the cluster knows this broker."""
        self._host.control.register("state", lambda _fields: self.state())
        self._host.control.register("tree", self._tree)
        await self._host.tasks.run_blocking(self.logs.load)
        self._fill_table()
        await self.registry.start()
        # before logs are tended: a topic may keep longer than the default
        await self.settings.start()
        self.registry.on_expired.append(self._session_expired)
        self._servers = [RequestServer(self._host, self.table, name) for name in LISTENERS]
        await self._serve_metrics()
        limit = self.config.number("socket.request.max.bytes")
        brokers, clients = self._servers
        brokers.times = clients.times = self._times
        await brokers.start(max_frame_bytes=limit)
        self.replicas.start()
        await self._register()
        await self.controller.start()
        cluster_id = await self.topic_admin.load_cluster_id()
        if cluster_id is not None:
            await self._host.tasks.run_blocking(self.logs.claim, cluster_id, self.node_id)
        self._tend_logs()
        # no client is told of a cluster without brokers or topics, which some take for the truth
        await self.cache.await_brokers(1)
        await clients.start(max_frame_bytes=limit)
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
        self._page.close()
        await self.groups.stop()
        await self.replicas.stop()
        await self.registry.close()
        for peer in self._peers.values():
            peer.close()
        await self.logs.cleaner.stop()
        await self._host.tasks.run_blocking(lambda: self.logs.close(clean=True))

    async def failed(self) -> None:
        """Wait for a failure that must end this process."""
        await self._failure

    def _folder_failed(self, _folder: object, _logs: object, error: StorageError) -> None:
        """A data folder is offline: the controller moves its leaders (B13). After the last one, end (B11)."""
        if self.logs.online:
            self._host.tasks.spawn(
                tell_log_dir_failure(self.registry, self.node_id), name="log-dir-event"
            )
        elif not self._failure.done():
            self._host.trace.emit("broker.log-failed", error=str(error))
            text = f"the data folder failed and this broker has no other: {error}"
            # the answers that say so leave first
            self._host.tasks.call_later(FAREWELL_MS, self._fail, StorageError(text))

    def _fail(self, error: StorageError) -> None:
        if not self._failure.done():
            self._host.trace.log("error", str(error))
            self._failure.set_exception(error)

    def _fill_table(self) -> None:
        rooms = (
            self.metadata,
            self.replicas,
            self.groups,
            self.find_coordinator,
            self.producer_ids,
            self.controller,
        )
        for room in rooms:
            for row in room.handlers():
                self.table.add(row.api_key, row.low, row.high, row.handler)

    def _tend_logs(self) -> None:
        """Kafka's LogManager schedule: recovery points, flushes that are due, retention."""
        logs, number = self.logs, self.config.number
        every = number("log.flush.offset.checkpoint.interval.ms")
        self._periodically("recovery-points", every, logs.checkpoint_recovery_points)
        self._periodically(
            "log-flush", number("log.flush.scheduler.interval.ms"), logs.flush_overdue
        )
        # retention rolls and discards on the loop: only the deletion of files is off it
        retention_ms = number("log.retention.check.interval.ms")
        self._host.tasks.call_later(retention_ms, self._retain, retention_ms)
        logs.cleaner.start()

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
        rack = self.config.text("broker.rack") or None
        epoch = await register(self.registry, self.node_id, LOOPBACK, self._ports, rack=rack)
        for room in (self.replicas, self.controller, self.cache, self.logs):
            room.broker_epoch = BrokerEpoch(epoch)
        self._host.trace.emit("broker.registered", node_id=self.node_id, epoch=epoch)

    def _session_expired(self) -> None:
        self._host.tasks.spawn(self._begin_again(), name="session-expired")

    async def _begin_again(self) -> None:
        self._host.trace.emit("broker.session-expired", node_id=self.node_id)
        self.settings.session_expired()
        await self.controller.session_expired()
        try:
            await self._register()
        except RegistryUnavailableError:
            return  # the client is closed: this broker ends
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

    # --------------------------------------------------------------- metrics

    def purgatories(self) -> Sequence[Purgatory]:
        """Where operations wait."""
        return (
            *self.replicas.purgatories(),
            self.cache.topic_purgatory,
            *self.groups.purgatories(),
        )

    async def _serve_metrics(self) -> None:
        self._host.control.register(
            "metrics", lambda _fields: {"metrics": self.metrics.values(), "port": self._page_port}
        )
        wanted = self.config.number("harrow.metrics.port")
        if wanted >= 0:
            self._page_port = await self._page.start(wanted)
            self._host.trace.emit("broker.metrics", port=self._page_port)

    # ----------------------------------------------------------------- state

    async def _tree(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        """What the registry says, through this broker's session: for clusters on a ZooKeeper."""
        tree = await self.registry.read_tree("/")
        return {"tree": {path: data for path, (data, _) in tree.items()}}

    def state(self) -> dict[str, Any]:
        """What the control socket's `state` answers."""
        return {
            "node_id": self.node_id,
            "controller": self.controller.is_active,
            "broker_epoch": self.replicas.broker_epoch,
            "partitions": self.replicas.state(),
        }
