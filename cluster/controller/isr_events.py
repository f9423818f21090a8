"""ISR changes that leaders wrote (C4): the active controller reads them and sends them to all brokers.

Owns: `IsrEvents`: the watch on `/isr_change_notification`, whose nodes `isr_store.py` writes.
Source: Kafka's KafkaController.processIsrChangeNotification.
"""

from __future__ import annotations

import json

from ..ids import TopicPartition
from ..registry import DeleteTree, Tree
from ..registry.paths import ISR_CHANGES
from .controller_core import ControllerCore
from .reassignments import Reassignments


class IsrEvents:
    """Handler of ISR change notifications."""

    def __init__(self, core: ControllerCore, reassignments: Reassignments) -> None:
        self._core = core
        self._reassignments = reassignments

    async def isr_changed(self) -> None:
        """Read the changed states, send them to all brokers, delete the notifications."""
        core, context = self._core, self._core.context
        tree = await core.watched_tree(ISR_CHANGES, "isr", self.isr_changed)
        known = [tp for tp in _partitions_of(tree) if tp in context.partitions]
        if known:
            await core.writer.refresh(known)
            batch = core.new_batch()
            batch.metadata(tp for tp in known if tp.topic not in context.deleting)
            batch.flush()
            await self._reassignments.complete(known)
        await self.delete_notifications(tree)

    async def delete_notifications(self, tree: Tree) -> None:
        """Delete the notifications that were read."""
        notifications = [DeleteTree(path) for path in tree if path != ISR_CHANGES]
        if notifications:
            await self._core.writer.remove(notifications)


def _partitions_of(tree: Tree) -> list[TopicPartition]:
    partitions: dict[TopicPartition, None] = {}
    for path, (data, _) in tree.items():
        if path != ISR_CHANGES:
            for row in json.loads(data)["partitions"]:
                partitions[TopicPartition(row["topic"], row["partition"])] = None
    return list(partitions)
