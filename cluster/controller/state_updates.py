"""Bringing partitions to the states that the live brokers require (D4): the writes behind broker and setting changes.

Owns: `StateUpdates`: which topics allow unclean elections, and the use of `partition_states.py` for existing partitions
and for new ones. What may fail: as `PartitionWriter`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence

from ..ids import TopicPartition
from ..registry import Tree
from ..registry.paths import TOPIC_CONFIGS, config_path
from . import partition_states as rules
from .controller_core import ControllerCore
from .log_dir_events import OfflineReplicas
from .state_node import LeaderAndIsr

UNCLEAN = "unclean.leader.election.enable"


class StateUpdates:
    """Decides and writes states; the caller sends them."""

    def __init__(self, core: ControllerCore, offline: OfflineReplicas) -> None:
        self._core = core
        self._offline = offline

    async def update_partition_states(self, partitions: Sequence[TopicPartition]) -> list[TopicPartition]:
        """Elect leaders and shrink ISRs where the live brokers require it; returns the changed partitions."""
        core, context = self._core, self._core.context
        live = {node: broker.epoch for node, broker in context.brokers.items()}
        default = core.config.flag(UNCLEAN)
        await self._refresh_unclean(partitions)

        def decide(tp: TopicPartition, state: LeaderAndIsr) -> LeaderAndIsr | None:
            return rules.state_after_broker_changes(
                context.assignments[tp],
                state,
                self._offline.live(tp, live),
                context.shutting_down,
                unclean=context.unclean.get(tp.topic, default),
            )

        return await core.writer.change(partitions, decide)

    async def create_missing(self, topics: Iterable[str] | None = None) -> list[TopicPartition]:
        """Write first states of partitions of `topics` (None: of all) that have none and a live replica."""
        context, epoch = self._core.context, self._core.won.epoch
        electable = context.electable()
        wanted = {
            tp: state
            for tp in context.without_state(topics)
            if (state := rules.initial_state(context.assignments[tp], electable, epoch))
        }
        return await self._core.writer.create(wanted)

    async def _refresh_unclean(self, partitions: Iterable[TopicPartition]) -> None:
        """Read the setting again where it matters: for partitions none of whose ISR is live."""
        context = self._core.context
        electable = context.electable()
        topics = {
            tp.topic for tp in partitions if (state := context.partitions.get(tp)) and electable.isdisjoint(state.isr)
        }
        await self.load_configs(sorted(topics))

    async def load_configs(self, topics: Sequence[str]) -> None:
        """Read the overrides of `topics`."""
        if topics:
            paths = [config_path(topic) for topic in topics]
            found = await self._core.registry.get_many(paths)
            self.read_configs({path: node for path, node in zip(paths, found, strict=True) if node})

    def read_configs(self, tree: Tree) -> None:
        """Store what the override nodes of a subtree say about unclean elections."""
        unclean = self._core.context.unclean
        for path, (data, _) in tree.items():
            if path != TOPIC_CONFIGS and data:
                raw: dict[str, str] = json.loads(data)["config"]
                value = raw.get(UNCLEAN)
                allowed = self._core.config.flag(UNCLEAN) if value is None else value == "true"
                unclean[path.rpartition("/")[2]] = allowed
