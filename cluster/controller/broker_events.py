"""Brokers that started, stopped or restarted (D4, D6), and settings that allow an unclean election.

Owns: `BrokerEvents`: the watch on `/brokers/ids`. Source: Kafka's KafkaController.processBrokerChange,
onBrokerStartup, onBrokerFailure; KIP-380 for restarts within one session timeout.
"""

from __future__ import annotations

from ..ids import NodeId
from ..registry.paths import BROKER_IDS
from .controller_context import brokers_of
from .controller_core import ControllerCore
from .log_dir_events import OfflineReplicas
from .reassignments import Reassignments
from .state_updates import StateUpdates
from .topic_deletion_events import TopicDeletionEvents


class BrokerEvents:
    """Handlers of broker changes."""

    def __init__(
        self,
        core: ControllerCore,
        updates: StateUpdates,
        offline: OfflineReplicas,
        deletions: TopicDeletionEvents,
        reassignments: Reassignments,
    ) -> None:
        self._core = core
        self._updates = updates
        self._offline = offline
        self._deletions = deletions
        self._reassignments = reassignments

    async def brokers_changed(self) -> None:
        """Registrations were created or deleted; a restarted broker has a registration with another epoch."""
        core, context = self._core, self._core.context
        tree = await core.watched_tree(BROKER_IDS, "brokers", self.brokers_changed)
        now, before = brokers_of(tree), context.brokers
        gone = before.keys() - now.keys()
        came = {node for node, broker in now.items() if node not in before or before[node].epoch != broker.epoch}
        if not gone and not came:
            return
        context.brokers = now
        context.shutting_down -= gone | came
        self._offline.registered(gone | came)
        core.channels.replace(now)
        core.host.trace.log("info", f"controller: brokers came {sorted(came)}, went {sorted(gone)}, live {sorted(now)}")
        await self._update_replicas(gone, came)

    async def _update_replicas(self, gone: set[NodeId], came: set[NodeId]) -> None:
        core, context = self._core, self._core.context
        if came:
            batch = core.new_batch()
            batch.metadata(())  # addresses first: followers need them to find their leaders
            batch.full_metadata(came)
            batch.flush()
            # A leader may have taken a broker into an ISR just before it restarted, and not have reported that yet: the
            # state that this controller knows would then say that nothing has to change.
            stored = [tp for tp in context.of_brokers(came) if tp in context.partitions]
            await core.writer.refresh(stored)
        affected = context.of_brokers(gone | came)
        changed = await self._updates.update_partition_states(affected)
        created = await self._updates.create_missing() if came else []
        batch = core.new_batch()
        batch.leader_and_isr(created, new=True)
        batch.leader_and_isr(changed)
        batch.leader_and_isr(affected, only=came)
        batch.metadata([*affected, *created])
        self._deletions.repeat(batch, came)
        self._reassignments.repeat_removals(batch, came)
        batch.flush()
        await self._reassignments.complete(affected)

    async def offline_changed(self) -> None:
        """Settings changed: partitions without a leader may be allowed an unclean election now."""
        context = self._core.context
        offline = [
            tp for tp, state in context.partitions.items() if not state.has_leader and tp.topic not in context.deleting
        ]
        changed = await self._updates.update_partition_states(offline)
        self._core.send_partition_changes(changed)
