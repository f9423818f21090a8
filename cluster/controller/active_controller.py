"""The work of the elected controller, from its election to its resignation.

Owns: `ActiveController`, which makes the parts and loads the context. The controller runs one of its handlers at a
time. Each handler reads what changed, decides by the pure rules of `partition_states.py`, writes conditionally, and
sends the result to the brokers. After `close` it writes nothing (each write checks the controller epoch) and sends
nothing (its channels are closed).

What may fail: `ControllerMovedError` (resign), `SessionExpiredError` (resign), `RegistryUnavailableError` (load again
when the registry is back: loading brings every partition to the right state, so an event that was interrupted needs
no record).

Source: Kafka's KafkaController.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ..config import BrokerConfig
from ..host.seam import Host
from ..ids import BrokerEpoch, NodeId, TopicPartition
from ..listeners import inter_broker_listener_name
from ..registry import ReadTree, RegistryClient
from ..registry.client import results_or_errors, value_of
from ..registry.paths import BROKER_IDS, BROKERS, DELETIONS, ISR_CHANGES, LOG_DIR_EVENTS, TOPIC_CONFIGS, TOPICS
from ..wire.api_keys import ApiKey
from .broker_events import BrokerEvents
from .channels import Channels, ClientFactory
from .controlled_shutdown import shut_down
from .controller_context import ControllerContext, brokers_of
from .controller_core import ControllerCore, Enqueue
from .controller_election import WonElection
from .isr_events import IsrEvents
from .leader_elections import LeaderElections
from .log_dir_events import OfflineReplicas
from .reassignments import Reassignments
from .state_updates import StateUpdates
from .topic_deletion import TopicDeletions
from .topic_deletion_events import TopicDeletionEvents
from .topic_events import TopicEvents

ACTIVE_CONTROLLER_EVENTS = frozenset(
    (
        "brokers",
        "topics",
        "deletions",
        "isr",
        "deleted",
        "preferred",
        "load",
        "moved",
        "offline",
        "log-dirs",
        "offline-replicas",
    )
)
"""Names of the events that belong to one active controller: they are dropped when it resigns."""


class ActiveController:
    """What an elected controller does."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        registry: RegistryClient,
        factory: ClientFactory,
        won: WonElection,
        enqueue: Enqueue,
        on_moved: Callable[[], None],
    ) -> None:
        timeout_ms = config.number("controller.socket.timeout.ms")
        listener = inter_broker_listener_name(config)
        channels = Channels(host, factory, timeout_ms, listener, self._response, on_moved)
        self.core = core = ControllerCore(host, node_id, config, registry, won, channels, enqueue)
        self._confirmations = TopicDeletions()
        self._offline = OfflineReplicas(core)
        self._updates = StateUpdates(core, self._offline)
        self.topics = TopicEvents(core, self._updates, self._confirmations)
        self._deletions = TopicDeletionEvents(core, self.topics, self._confirmations)
        self.elections = LeaderElections(core)
        self.reassignments = Reassignments(core)
        self._isr = IsrEvents(core, self.reassignments)
        self._brokers = BrokerEvents(core, self._updates, self._offline, self._deletions, self.reassignments)

    @property
    def won(self) -> WonElection:
        """The election that made this broker the controller."""
        return self.core.won

    @property
    def context(self) -> ControllerContext:
        """The cluster as this controller knows it."""
        return self.core.context

    def close(self) -> None:
        """Resign: send nothing more and handle no more events."""
        self.core.close()
        self.elections.stop()

    # --------------------------------------------------------------- loading

    async def load(self) -> None:
        """Read everything, update every partition, send everything. After the election, and after an outage."""
        core = self.core
        results = await results_or_errors(
            core.watch(BROKER_IDS, "brokers", self._brokers.brokers_changed),
            core.watch(TOPICS, "topics", self.topics.topics_changed),
            core.watch(DELETIONS, "deletions", self._deletions.deletions_changed),
            core.watch(ISR_CHANGES, "isr", self._isr.isr_changed),
            core.watch(LOG_DIR_EVENTS, "log-dirs", self.log_dirs_changed),
            # before the states: each notification that is read here is about a state that is read below
            core.registry.submit(ReadTree(ISR_CHANGES)),
            core.registry.submit(ReadTree(BROKERS)),
            core.registry.submit(ReadTree(TOPIC_CONFIGS)),
        )
        _, _, deletions, _, _, isr_changes, brokers, configs = (value_of(result) for result in results)
        context = ControllerContext(brokers=brokers_of(brokers))
        context.shutting_down = core.context.still_shutting_down(context.brokers)
        context.read_topics(brokers)
        core.replace_context(context)
        self._confirmations.clear()
        self._offline.clear()
        core.channels.replace(context.brokers)
        self._updates.read_configs(configs)
        context.deleting = set(deletions) & context.topics.keys()
        await self._send_everything()
        await self._isr.delete_notifications(isr_changes)
        await self._deletions.begin(set(deletions))
        await self.reassignments.complete(list(context.reassigned))
        self.elections.schedule()

    async def _send_everything(self) -> None:
        core, context = self.core, self.core.context
        everyone = list(context.brokers)
        batch = core.new_batch()
        batch.metadata(())  # addresses first: followers need them to find their leaders
        batch.flush()
        await self._updates.update_partition_states(list(context.kept()))
        created = await self._updates.create_missing()
        batch = core.new_batch()
        batch.leader_and_isr(created, new=True)
        batch.leader_and_isr(context.kept())
        batch.full_metadata(everyone)
        self.reassignments.repeat_removals(batch, everyone)
        batch.flush()

    # ---------------------------------------------------------------- events

    def _response(self, node_id: NodeId, api_key: int, response: Any) -> None:
        if api_key == ApiKey.LEADER_AND_ISR and self._offline.leader_and_isr_response(node_id, response):
            self.core.enqueue("offline-replicas", self._replicas_went_offline)
        if api_key == ApiKey.STOP_REPLICA and not self.core.closed:
            self.reassignments.removals.confirmed(node_id, response)
            self._deletions.stop_replica_response(node_id, response)

    async def offline_changed(self) -> None:
        """Settings changed: partitions without a leader may be allowed an unclean election now."""
        await self._brokers.offline_changed()

    async def log_dirs_changed(self) -> None:
        """Data folders of live brokers went offline (B13)."""
        tree = await self.core.watched_tree(LOG_DIR_EVENTS, "log-dirs", self.log_dirs_changed)
        await self._offline.query_brokers(tree)

    async def _replicas_went_offline(self) -> None:
        changed = await self._updates.update_partition_states(self._offline.take_newly_offline())
        self.core.send_partition_changes(changed)

    async def shut_down(self, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
        """Controlled shutdown of a broker; returns the partitions that it still leads."""
        return await shut_down(self.core, node_id, epoch)
