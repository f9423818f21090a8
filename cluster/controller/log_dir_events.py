"""Data folders that went offline, as the controller learns of them (B13, KIP-112).

Owns: the nodes `/log_dir_event_notification/log_dir_event_…` with Kafka's JSON. A broker one of whose data folders
failed writes such a node, if it has another folder left. The controller sends that broker LeaderAndIsr for all its
replicas. A replica whose response is KAFKA_STORAGE_ERROR counts as dead until its broker registers again: it leads
nothing and leaves the ISR, as the replicas of a dead broker do.

Source: Kafka's `LogDirEventNotificationZNode`, `KafkaController.processLogDirEventNotification`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from ..errors import ErrorCode
from ..ids import BrokerEpoch, NodeId, TopicPartition
from ..registry import DeleteTree, RegistryClient, RegistryUnavailableError, SessionExpiredError, Tree
from ..registry.paths import LOG_DIR_EVENT, LOG_DIR_EVENTS
from .controller_core import ControllerCore

_VERSION = 1
_LOG_DIR_FAILURE = 1


def event_json(node_id: NodeId) -> str:
    """The data of a notification."""
    value = {"version": _VERSION, "broker": node_id, "event": _LOG_DIR_FAILURE}
    return json.dumps(value, separators=(",", ":"))


def broker_of(data: str) -> NodeId | None:
    """The broker that a notification is about; None for malformed data."""
    try:
        value: Any = json.loads(data)
        return NodeId(int(value["broker"]))
    except (ValueError, KeyError, TypeError):
        return None


async def report_log_dir_failure(registry: RegistryClient, node_id: NodeId) -> None:
    """Write a notification; waits until the registry is reachable, because no other component reports it."""
    while True:
        await registry.until_connected()
        try:
            await registry.create(LOG_DIR_EVENT, event_json(node_id), sequential=True, make_parents=True)
        except (RegistryUnavailableError, SessionExpiredError):
            continue
        return


class OfflineReplicas:
    """Replicas in offline data folders of live brokers, as one active controller knows them."""

    def __init__(self, core: ControllerCore) -> None:
        self._core = core
        self._offline: dict[TopicPartition, set[NodeId]] = {}
        self._newly_offline: dict[TopicPartition, None] = {}

    def clear(self) -> None:
        """Forget everything: the context is loaded again, and brokers report their offline replicas again."""
        self._offline.clear()
        self._newly_offline.clear()

    def live(self, tp: TopicPartition, live: Mapping[NodeId, BrokerEpoch]) -> Mapping[NodeId, BrokerEpoch]:
        """`live` without the brokers whose replica of `tp` is offline."""
        offline = self._offline.get(tp)
        if not offline:
            return live
        return {node: epoch for node, epoch in live.items() if node not in offline}

    def registered(self, nodes: Iterable[NodeId]) -> None:
        """Brokers restarted or stopped: their replicas may be valid again; offline replicas are reported again."""
        again = set(nodes)
        for tp, offline in list(self._offline.items()):
            offline.difference_update(again)
            if not offline:
                del self._offline[tp]

    async def query_brokers(self, tree: Tree) -> None:
        """Send LeaderAndIsr for all replicas to the brokers that wrote notifications, then delete these."""
        core, context = self._core, self._core.context
        notifications = [path for path in tree if path != LOG_DIR_EVENTS]
        nodes = {broker_of(tree[path][0]) for path in notifications} & context.brokers.keys()
        batch = core.new_batch()
        for node in sorted(node for node in nodes if node is not None):
            batch.leader_and_isr(context.of_brokers((node,)), only=(node,))
        batch.flush()
        if notifications:
            await core.writer.remove([DeleteTree(path) for path in notifications])

    def leader_and_isr_response(self, node_id: NodeId, response: Any) -> bool:
        """Process a LeaderAndIsr response; True when it reports replicas that were not known to be offline."""
        failed = [
            (topic.topic_id, row.partition_index)
            for topic in response.topics
            for row in topic.partition_errors
            if row.error_code is ErrorCode.kafka_storage_error
        ]
        if not failed:
            return False
        names = {topic_id: name for name, topic_id in self._core.context.topics.items()}
        found_new = False
        for topic_id, number in failed:
            name = names.get(topic_id)
            if name is None:
                continue  # deleted in the meantime
            tp = TopicPartition(name, number)
            nodes = self._offline.setdefault(tp, set())
            if node_id not in nodes:
                nodes.add(node_id)
                self._newly_offline[tp] = None
                found_new = True
        return found_new

    def take_newly_offline(self) -> list[TopicPartition]:
        """Partitions with a replica that went offline since the last call."""
        newly, self._newly_offline = self._newly_offline, {}
        return [tp for tp in newly if tp in self._core.context.assignments]
