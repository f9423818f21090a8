"""The work of the elected controller, from its election to its resignation.

Owns: `ActiveController`, which makes the parts, loads the context, and handles ISR changes and controlled shutdowns
itself. The controller runs one of its handlers at a time. Each handler reads what changed, decides by the pure rules of
`partition_states.py`, writes conditionally, and sends the result to the brokers. After `close` it writes nothing (each
write checks the controller epoch) and sends nothing (its channels are closed).

What may fail: `ControllerMovedError` (resign), `SessionExpiredError` (resign), `RegistryUnavailableError` (load again
when the registry is back: loading brings every partition to the right state, so an event that was interrupted needs
no record).

Source: Kafka's KafkaController (`processIsrChangeNotification`, `doControlledShutdown`).
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from ..config import BrokerConfig
from ..errors import ErrorCode, KafkaError
from ..host.seam import Host
from ..ids import BrokerEpoch, NodeId, TopicPartition
from ..listeners import inter_broker_listener_name
from ..registry import DeleteTree, ReadTree, RegistryClient, Tree
from ..registry.client import results_or_errors, value_of
from ..registry.paths import BROKER_IDS, BROKERS, DELETIONS, ISR_CHANGES, LOG_DIR_EVENTS, TOPIC_CONFIGS, TOPICS
from ..wire.api_keys import ApiKey
from . import partition_states as rules
from .broker_events import BrokerEvents
from .channels import Channels, ClientFactory
from .controller_context import ControllerContext, brokers_of
from .controller_core import ControllerCore, Enqueue
from .controller_election import WonElection
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
            core.watch(ISR_CHANGES, "isr", self.isr_changed),
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
        await self._delete_isr_notifications(isr_changes)
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

    async def isr_changed(self) -> None:
        """Leaders changed ISRs (C4): read the states, send them to all brokers, delete the notifications."""
        core, context = self.core, self.core.context
        tree = await core.watched_tree(ISR_CHANGES, "isr", self.isr_changed)
        known = [tp for tp in _partitions_of(tree) if tp in context.partitions]
        if known:
            await core.writer.refresh(known)
            batch = core.new_batch()
            batch.metadata(tp for tp in known if tp.topic not in context.deleting)
            batch.flush()
            await self.reassignments.complete(known)
        await self._delete_isr_notifications(tree)

    async def _delete_isr_notifications(self, tree: Tree) -> None:
        notifications = [DeleteTree(path) for path in tree if path != ISR_CHANGES]
        if notifications:
            await self.core.writer.remove(notifications)

    async def _replicas_went_offline(self) -> None:
        changed = await self._updates.update_partition_states(self._offline.take_newly_offline())
        self.core.send_partition_changes(changed)

    async def shut_down(self, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
        """Move leaderships away from a broker that is to stop (D4); returns the partitions that it still leads.

        KafkaError: BROKER_NOT_AVAILABLE for a broker without registration, STALE_BROKER_EPOCH for an earlier one.
        """
        core, context = self.core, self.core.context
        broker = context.brokers.get(node_id)
        if broker is None:
            raise KafkaError(ErrorCode.broker_not_available, f"broker {node_id} is not registered")
        if epoch not in (-1, broker.epoch):
            raise KafkaError(ErrorCode.stale_broker_epoch, f"broker {node_id} has epoch {broker.epoch}, not {epoch}")
        context.shutting_down.add(node_id)
        electable = context.electable()

        def leads(tp: TopicPartition) -> bool:
            state = context.partitions.get(tp)
            return state is not None and state.leader == node_id

        replicated = [tp for tp in context.of_brokers((node_id,)) if len(context.assignments[tp]) > 1]
        followed = {tp: None for tp in replicated if not leads(tp)}
        changed = await core.writer.change(
            replicated, lambda tp, state: rules.state_after_shutdown(context.assignments[tp], state, node_id, electable)
        )
        batch = core.new_batch()
        # a follower that continued to fetch would enter the ISR again
        batch.stop(followed, only=(node_id,), delete=False)
        batch.leader_and_isr(tp for tp in changed if tp not in followed)
        batch.leader_and_isr([tp for tp in changed if tp in followed], only=electable)
        batch.metadata(changed)
        batch.flush()
        return [tp for tp in replicated if leads(tp)]


def _partitions_of(tree: Tree) -> list[TopicPartition]:
    """Return the partitions that notifications name; `registry_isr_store.py` writes these."""
    partitions: dict[TopicPartition, None] = {}
    for path, (data, _) in tree.items():
        if path != ISR_CHANGES:
            for row in json.loads(data)["partitions"]:
                partitions[TopicPartition(row["topic"], row["partition"])] = None
    return list(partitions)
