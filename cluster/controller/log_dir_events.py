"""A broker's data folder went offline: how the controller learns of it (B13, KIP-112).

Owns: the nodes `/log_dir_event_notification/log_dir_event_…` with Kafka's JSON. A broker that has another folder
left writes one; the controller reads them, asks those brokers about all their replicas (LeaderAndIsr), and counts
the ones that answer KAFKA_STORAGE_ERROR as dead until their broker registers again: they lead nothing, and leave
the ISR as a dead broker's do.

Source: Kafka's `LogDirEventNotificationZNode`, `KafkaController.processLogDirEventNotification`.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode
from ..ids import BrokerEpoch, NodeId, TopicPartition
from ..registry import (
    DeleteTree,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
    Tree,
)
from ..registry.paths import LOG_DIR_EVENT, LOG_DIR_EVENTS

if TYPE_CHECKING:
    from .term import Term

_VERSION = 1
_LOG_DIR_FAILURE = 1


def event_json(node_id: NodeId) -> str:
    """What a broker writes."""
    value = {"version": _VERSION, "broker": node_id, "event": _LOG_DIR_FAILURE}
    return json.dumps(value, separators=(",", ":"))


def broker_of(data: str) -> NodeId | None:
    """Whom an event is about; None for what is none."""
    try:
        value: Any = json.loads(data)
        return NodeId(int(value["broker"]))
    except (ValueError, KeyError, TypeError):
        return None


async def tell_log_dir_failure(registry: RegistryClient, node_id: NodeId) -> None:
    """Write an event; waits for the registry, for nobody else will tell."""
    while True:
        await registry.until_connected()
        try:
            await registry.create(
                LOG_DIR_EVENT, event_json(node_id), sequential=True, make_parents=True
            )
        except (RegistryUnavailableError, SessionExpiredError):
            continue
        return


class OfflineReplicas:
    """The replicas of one term's picture that lie in offline folders of live brokers."""

    def __init__(self, term: Term) -> None:
        self._term = term
        self._offline: dict[TopicPartition, set[NodeId]] = {}
        self._news: dict[TopicPartition, None] = {}

    def live(
        self, tp: TopicPartition, live: Mapping[NodeId, BrokerEpoch]
    ) -> Mapping[NodeId, BrokerEpoch]:
        """`live` without the brokers whose replica of `tp` is offline."""
        offline = self._offline.get(tp)
        if not offline:
            return live
        return {node: epoch for node, epoch in live.items() if node not in offline}

    def registered(self, nodes: Iterable[NodeId]) -> None:
        """Brokers began anew, or are gone: what was offline there may be sound now, and will be told again."""
        again = set(nodes)
        for tp, offline in list(self._offline.items()):
            offline.difference_update(again)
            if not offline:
                del self._offline[tp]

    async def told(self, tree: Tree) -> None:
        """Events: ask their brokers about all their replicas, then clear the notes."""
        notes = [path for path in tree if path != LOG_DIR_EVENTS]
        nodes = {broker_of(tree[path][0]) for path in notes} & self._term.state.brokers.keys()
        batch = self._term.batch()
        for node in sorted(node for node in nodes if node is not None):
            batch.leader_and_isr(self._term.state.of_brokers((node,)), only=(node,))
        batch.flush()
        if notes:
            await self._term.writer.remove([DeleteTree(path) for path in notes])

    def answered(self, node_id: NodeId, response: Any) -> bool:
        """Take in a LeaderAndIsr answer; True when it tells of replicas that were not known to be offline."""
        names = {topic_id: name for name, topic_id in self._term.state.topics.items()}
        fresh = False
        for topic in response.topics:
            name = names.get(topic.topic_id)
            if name is None:
                continue  # deleted meanwhile
            for row in topic.partition_errors:
                if row.error_code is ErrorCode.kafka_storage_error:
                    tp = TopicPartition(name, row.partition_index)
                    nodes = self._offline.setdefault(tp, set())
                    if node_id not in nodes:
                        nodes.add(node_id)
                        self._news[tp] = None
                        fresh = True
        return fresh

    def take_news(self) -> list[TopicPartition]:
        """Partitions with a replica that went offline since the last call."""
        news, self._news = self._news, {}
        return [tp for tp in news if tp in self._term.state.assignments]
