"""One broker: the list of its rooms, wired together on a host, and the order in which they start and stop.

Owns: the life of a broker, and no logic of a room. Order of start: recover the logs, open a registry session, serve the
inter-broker listener, register (which gives the broker epoch), elect or watch the controller, tend the logs, serve
the other listeners. `stop` is a controlled shutdown and goes the other way.

A registry session that expires is replaced: the old registration is gone, so the broker registers again with a
new epoch, and its leaderships are void until the controller confirms them (D6).

What may fail: a data folder that cannot be used, listeners that cannot be served, a registry that cannot be reached in
time (each ends the process with a message); a task that lets an exception out (traced as `task.failed`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from .config import BrokerConfig
from .controller import Controller, register
from .controller.log_dir_events import report_log_dir_failure
from .controller.registry_isr_store import RegistryIsrStore
from .coordinators import CoordinatorType, FindCoordinator
from .credentials.acl_api import AclApi
from .credentials.acl_store import AclStore
from .credentials.scram_api import ScramApi
from .credentials.tokens import TokenStore
from .credentials.tokens_api import TokensApi
from .credentials.users import ScramUsers, make_users
from .errors import ConfigError, HarrowError, StorageError
from .events.brokers import (
    BrokerLogFailed,
    BrokerMetrics,
    BrokerReady,
    BrokerRegistered,
    BrokerSessionExpired,
    BrokerStarting,
    BrokerStopping,
)
from .events.controllers import session_name
from .groups import GroupCoordinator
from .host.seam import Host, ProcessHost
from .host.seam.failpoints import (
    AFTER_LEADERS_MOVED,
    AFTER_REGISTRATION,
    BEFORE_CLEAN_SHUTDOWN,
    BEFORE_REGISTRATION,
    passes,
)
from .ids import BrokerEpoch, LeaderEpoch, NodeId, TopicPartition
from .internal_topics import OFFSETS, SHARE_STATE, TRANSACTIONS
from .listeners import Listener, inter_broker_listener, inter_broker_listener_name, parse_listeners
from .log_schedule import LogSchedule
from .metadata import ConfigChanges, MetadataCache, MetadataHandlers, TopicAdmin
from .metrics import Metrics, broker_metrics
from .metrics.text import CONTENT_TYPE, prometheus_text
from .network.forwarding import Forwarding
from .network.http import PageServer
from .network.kazoo_link import KazooLink
from .network.peers import PeerClient
from .network.socket_server import SocketServer
from .purgatory import Purgatory
from .registry import RegistryClient, RegistryUnavailableError, ZooKeeperClient
from .replication import ReplicaManager
from .security.sasl.mechanisms import PeerLogin, peer_login
from .security.standard_authorizer import authorizer_of
from .share_coordinator import ShareCoordinator
from .share_partitions import SharePartitions
from .storage import LogManager
from .storage.log_folder import log_folders
from .transactions import TransactionCoordinator
from .wire.api_table import Identity

LAST_RESPONSES_MS = 50
"""How long a broker without a data folder goes on, so that the responses which say so leave first."""
SHUTDOWN_TIMEOUT_MS = 5_000
"""How long a broker tries to give its leaderships away before it stops."""


def preload() -> None:
    """Import the schemas that handlers import late, so that forked brokers share them."""
    from .wire import messages

    messages.preload()


class BrokerMetadata:
    """The metadata cache and the topic admin, as replication uses them (`ClusterMetadata`)."""

    def __init__(self, cache: MetadataCache, topic_admin: TopicAdmin) -> None:
        self.is_alive = cache.is_alive
        self.topic_config = topic_admin.configs.await_topic_config
        self.address = cache.address
        self.topic_name = cache.topic_name
        self._cache = cache

    def rack(self, node_id: NodeId, listener: str, /) -> str | None:
        """The rack of a live broker that has this listener."""
        found = self._cache.broker(node_id)
        return None if found is None or listener not in found.addresses else found.rack

    def has_partition(self, tp: TopicPartition, /) -> bool:
        """True when the cluster has this partition."""
        return self._cache.partition(tp) is not None

    def leader(self, tp: TopicPartition, /) -> tuple[NodeId, LeaderEpoch] | None:
        """The leader of a partition and its epoch; None for an unknown partition."""
        found = self._cache.partition(tp)
        return None if found is None else (found.leader, found.leader_epoch)


class BrokerScope:
    """What the broker knows beside a request that a fault may choose (`RequestScope`)."""

    def __init__(self, cache: MetadataCache, replicas: ReplicaManager) -> None:
        self.topic_name = cache.topic_name
        self.session_partitions = replicas.session_partitions


COORDINATED = {
    CoordinatorType.GROUP: OFFSETS,
    CoordinatorType.TRANSACTION: TRANSACTIONS,
    CoordinatorType.SHARE: SHARE_STATE,
}
"""The internal topic of each kind of coordinator."""


class Broker:
    """A broker built from its process options (head of `process.py`)."""

    def __init__(self, host: ProcessHost, options: Mapping[str, Any]) -> None:
        self._host = host
        self.node_id = NodeId(options["node_id"])
        self.config = config = BrokerConfig.parse(options["config"])
        self.listeners = served_listeners(config)
        self._login = self._peer_login()
        self._expected_brokers = int(options.get("expect", 1))
        self._failure = host.tasks.promise()
        self.registry = registry_session(host, self.node_id, config, tuple(options["registry"]))
        self.logs = LogManager(host, log_folders(config, options["folder"]), config)
        self._log_schedule = LogSchedule(host, config, self.logs)
        self.cache = MetadataCache(host, self.node_id, inter_broker_listener_name(config))
        self.isr_store = RegistryIsrStore(host, self.registry)
        self.topic_admin = TopicAdmin(host, self.registry, self.cache, config)
        metadata = BrokerMetadata(self.cache, self.topic_admin)
        self.replicas = ReplicaManager(host, self.node_id, config, self.logs, self.isr_store, self.peer, metadata)
        self.controller = Controller(host, self.node_id, config, self.registry, self.channel, self.cache)
        self.shares = ShareCoordinator(host, config, self.replicas, self.cache, self.topic_admin, self.peer)
        self.groups = GroupCoordinator(
            host, config, self.replicas, self.cache, self.topic_admin, self.shares.persister, connect=self.peer
        )
        self.find_coordinator = FindCoordinator(host, config, self.cache, self.topic_admin, COORDINATED)
        self.share_partitions = SharePartitions(
            host, config, self.replicas, self.cache, metadata, self.shares, self.topic_admin
        )
        self.tokens = TokenStore(host, self.registry, config, lambda: self.controller.is_active)
        self.users = ScramUsers(self.tokens)
        self.settings = ConfigChanges(host, self.registry, self.node_id, config, self.logs.logs)
        self.transactions = TransactionCoordinator(
            host, config, self.registry, self.replicas, self.cache, self.groups, self.peer
        )
        self.metadata = MetadataHandlers(host, config, self.cache, self.topic_admin)
        authorizer = authorizer_of(config, host.network.access.denied)
        self.acls: AclStore | None = None
        if authorizer is not None:
            self.acls = AclStore(host, self.registry, authorizer, config.number("request.timeout.ms"))
        self._connect_rooms()
        rooms = (
            self.metadata,
            self.replicas,
            self.groups,
            self.find_coordinator,
            self.transactions,
            self.shares,
            self.share_partitions,
            self.controller,
            AclApi(self.acls),
            ScramApi(self.topic_admin, config),
            TokensApi(host, self.tokens, config),
        )
        self.forwarding = Forwarding(host, self.cache, self.peer, lambda: self.controller.is_active)
        rows = self.forwarding.rows(row for room in rooms for row in room.handlers())
        scope = BrokerScope(self.cache, self.replicas)
        self.sockets = SocketServer(
            host,
            config,
            self.listeners,
            rows,
            scope=scope,
            authorizer=authorizer,
            credentials=self.users,
            identity=self._identity,
        )
        for changed in (self.sockets.settings_changed, self.logs.cleaner.settings_changed):
            self.settings.on_change.append(changed)
        self.metrics = self._metrics()
        self._page = PageServer("/metrics", CONTENT_TYPE, lambda: prometheus_text(self.metrics))
        self._page_port = -1

    def _metrics(self) -> Metrics:
        return broker_metrics(
            replicas=self.replicas,
            controller=self.controller,
            registry=self.registry,
            connections=self.sockets.connections,
            logins=self.sockets.logins,
            times=self.sockets.times,
            purgatories=self.purgatories,
        )

    def _identity(self) -> Identity:
        return Identity(self.cache.cluster_id, self.node_id)

    def _connect_rooms(self) -> None:
        """Give each room what it calls in another room."""
        self.replicas.on_leadership.append(self.settings.hosted)
        self.cache.on_update.append(self.replicas.metadata_updated)
        self.cache.on_assigned_elsewhere.append(self.replicas.assigned_elsewhere)
        self.replicas.transaction_checks.queries = self.transactions.queries
        self.logs.on_folder_failed.append(self._folder_failed)
        self.settings.on_change.append(self.controller.settings_changed)
        if any(listener.has_sasl for listener in self.listeners):
            self.settings.on_user.append(self.users.changed)

    def _peer_login(self) -> PeerLogin | None:
        """How this broker logs in to the others; None where the inter-broker listener has no SASL."""
        listener = inter_broker_listener(self.listeners)
        if not listener.has_sasl:
            return None
        return peer_login(self.config, listener, self._host.random, self._host.clock.wall_ms)

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Recover, serve brokers, register, serve clients; return when the cluster knows this broker."""
        self._host.trace.emit(BrokerStarting(node_id=self.node_id))
        self.controller.features = self.sockets.features
        self._register_control_operations()
        await self.logs.start()
        await self.registry.start()
        await make_users(self._host, self.registry, self.config.text("harrow.scram.users"))
        # before the log schedule: a topic may keep its records longer than the default retention
        await self.settings.start()
        if self.acls is not None:
            await self.acls.start()
        await self.tokens.start()
        self.registry.on_expired.append(self._session_expired)
        await self._serve_metrics_page()
        await self.sockets.start_inter_broker()
        self.replicas.start()
        await self._register()
        await self.controller.start()
        cluster_id = await self.topic_admin.load_cluster_id()
        if cluster_id is not None:
            await self._host.tasks.run_blocking(self.logs.claim, cluster_id, self.node_id)
        self._log_schedule.start()
        # before clients connect: some take the metadata of a cluster without brokers or topics for the truth
        await self.cache.await_brokers(1)
        await self.sockets.start_others()
        await self.cache.await_brokers(self._expected_brokers)
        self._host.trace.emit(BrokerReady(node_id=self.node_id))

    async def stop(self) -> None:
        """Controlled shutdown: give leaderships away, end the session, close the logs cleanly."""
        self._host.trace.emit(BrokerStopping(node_id=self.node_id))
        if self.config.flag("controlled.shutdown.enable"):
            await self._give_leaders_away()
        passes(self._host.failpoints, self._host.trace, AFTER_LEADERS_MOVED)
        await self.controller.stop()
        self.sockets.close()
        self._page.close()
        self.forwarding.close()
        await self.transactions.stop()
        await self.share_partitions.stop()
        await self.shares.stop()
        await self.groups.stop()
        await self.replicas.stop()
        await self.registry.close()
        await self._log_schedule.stop()
        passes(self._host.failpoints, self._host.trace, BEFORE_CLEAN_SHUTDOWN)
        await self._host.tasks.run_blocking(lambda: self.logs.close(clean=True))

    async def failed(self) -> None:
        """Wait for a failure that must end this process."""
        await self._failure

    def _folder_failed(self, _folder: object, _logs: object, error: StorageError) -> None:
        """A data folder is offline: the controller moves its leaderships (B13). After the last folder, end (B11)."""
        if self.logs.online:
            self._host.tasks.spawn(report_log_dir_failure(self.registry, self.node_id), name="log-dir-event")
        elif not self._failure.done():
            self._host.trace.emit(BrokerLogFailed(error=str(error)))
            text = f"the data folder failed and this broker has no other: {error}"
            self._host.tasks.call_later(LAST_RESPONSES_MS, self._fail, StorageError(text))

    def _fail(self, error: StorageError) -> None:
        if not self._failure.done():
            self._host.trace.log("error", str(error))
            self._failure.set_exception(error)

    # ---------------------------------------------------------- registration

    async def _register(self) -> None:
        rack = self.config.text("broker.rack") or None
        passes(self._host.failpoints, self._host.trace, BEFORE_REGISTRATION)
        epoch = await register(self.registry, self.node_id, self.listeners, rack=rack)
        passes(self._host.failpoints, self._host.trace, AFTER_REGISTRATION)
        for room in (self.replicas, self.controller, self.cache, self.logs, self.isr_store):
            room.broker_epoch = BrokerEpoch(epoch)
        self._host.trace.emit(BrokerRegistered(node_id=self.node_id, epoch=epoch))

    def _session_expired(self) -> None:
        self._host.tasks.spawn(self._register_again(), name="session-expired")

    async def _register_again(self) -> None:
        self._host.trace.emit(BrokerSessionExpired(node_id=self.node_id))
        self.settings.session_expired()
        if self.acls is not None:
            self.acls.session_expired()
        self.tokens.session_expired()
        await self.controller.session_expired()
        try:
            await self._register()
        except RegistryUnavailableError:
            return  # the client is closed, because this broker ends
        await self.controller.start()

    async def _give_leaders_away(self) -> None:
        try:
            await self._host.tasks.wait(self.controller.controlled_shutdown(), SHUTDOWN_TIMEOUT_MS)
        except (HarrowError, OSError, TimeoutError) as error:
            self._host.trace.log("warning", f"controlled shutdown: {error}; the broker stops with its leaderships")

    # ----------------------------------------------------------------- peers

    def peer(self, node_id: NodeId) -> PeerClient | None:
        """A client of another broker's inter-broker listener, for the fetchers; None while its address is unknown."""
        endpoint = self.cache.peer_endpoint(node_id)
        if endpoint is None:
            return None
        return self.channel(node_id, *endpoint)

    def channel(self, node_id: NodeId, host: str, port: int) -> PeerClient:
        """A new connection to a broker (controller channels, fetchers)."""
        tls = self.sockets.inter_broker_tls
        return PeerClient(self._host, self.node_id, node_id, host, port, login=self._login, tls=tls)

    # --------------------------------------------------------------- metrics

    def purgatories(self) -> Sequence[Purgatory]:
        """Every purgatory of the broker, for the metrics."""
        return (*self.replicas.purgatories(), self.cache.topic_purgatory, *self.groups.purgatories())

    async def _serve_metrics_page(self) -> None:
        wanted = self.config.number("harrow.metrics.port")
        if wanted >= 0:
            self._page_port = await self._page.start(wanted)
            self._host.trace.emit(BrokerMetrics(port=self._page_port))

    # ---------------------------------------------------- control operations

    def _register_control_operations(self) -> None:
        register_operation = self._host.control.register
        register_operation("state", lambda _fields: self.state())
        register_operation("tree", self._tree)
        register_operation("connections.close", self._close_connections)
        register_operation("credentials", self._fingerprints)
        register_operation("share-locks.end", self._end_share_locks)
        register_operation("metrics", lambda _fields: {"metrics": self.metrics.values(), "port": self._page_port})

    async def _tree(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        """The registry's tree, read through this broker's session: the supervisor has none of a ZooKeeper."""
        tree = await self.registry.read_tree("/")
        return {"tree": {path: data for path, (data, _) in tree.items()}}

    def _close_connections(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"closed": self.sockets.close_connections(fields.get("user"))}

    def _end_share_locks(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"records": self.share_partitions.end_locks(str(fields["group"]), str(fields.get("member") or ""))}

    def _fingerprints(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        user = str(fields.get("user", ""))
        return {"scram": self.users.fingerprints(user), **self.sockets.fingerprints()}

    def state(self) -> dict[str, Any]:
        """The answer to the control operation `state`."""
        return {
            "node_id": self.node_id,
            "controller": self.controller.is_active,
            "broker_epoch": self.replicas.broker_epoch,
            "partitions": self.replicas.state(),
        }


def served_listeners(config: BrokerConfig) -> tuple[Listener, ...]:
    """The listeners of a broker process; ConfigError for what cannot be used, port 0 among it."""
    listeners = parse_listeners(config)
    for listener in listeners:
        if listener.bind.port == 0:
            raise ConfigError(f"listeners: {listener} needs a port; only `Cluster` resolves port 0")
    return listeners


def registry_session(host: Host, node_id: NodeId, config: BrokerConfig, address: tuple[str, int]) -> RegistryClient:
    """Return the client of broker `node_id`, whose `start` opens its session; `address` is that of Harrow's registry.

    With `zookeeper.connect` it is a client of that ensemble; RegistryError where kazoo is not installed.
    """
    name = session_name(node_id)
    session_ms = config.number("zookeeper.session.timeout.ms")
    connection_ms = config.number("zookeeper.connection.timeout.ms")
    connect = config.text("zookeeper.connect")
    if connect:
        link = KazooLink(connect, session_ms)
        return ZooKeeperClient(host, link, name, session_ms, connection_timeout_ms=connection_ms)
    return RegistryClient(host, address, name, session_ms, connection_timeout_ms=connection_ms)
