"""The requests that the controller sends after a change: one request for each broker and kind, not for each partition.

LeaderAndIsr is split where many partitions change, so that no broker creates thousands of logs in one turn of its loop.

Owns: `RequestBatch`, which collects partitions and builds LeaderAndIsr, UpdateMetadata and StopReplica for each
broker, with the controller epoch and the receiver's broker epoch (D2, D6). In one batch a broker receives
LeaderAndIsr first, then UpdateMetadata, then StopReplica, as from Kafka's ControllerBrokerRequestBatch: a leader
should know that it leads before clients send requests to it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from itertools import islice
from typing import Any

from ..ids import ControllerEpoch, LeaderEpoch, NodeId, TopicPartition, by_topic
from ..wire.api_keys import ApiKey
from ..wire.internal import (
    FULL,
    INCREMENTAL,
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
    StopReplicaPartitionState,
    StopReplicaRequest,
    StopReplicaTopicState,
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from .controller_context import ControllerContext
from .registration import BrokerInfo
from .state_node import LeaderAndIsr

LEADER_AND_ISR_MOST = 50
"""How many partitions a LeaderAndIsr names: a broker applies it in one turn of its loop, and creates their logs."""
LEADER_DURING_DELETE = NodeId(-2)
EPOCH_DURING_DELETE = LeaderEpoch(-2)

Send = Callable[[NodeId, int, int, Any], None]
"""`send(broker, api key, version, entity)`"""


class RequestBatch:
    """Collects the changes of one event; `flush` sends them."""

    def __init__(
        self,
        context: ControllerContext,
        node_id: NodeId,
        epoch: ControllerEpoch,
        send: Send,
        inter_broker_listener: str,
    ) -> None:
        self._context = context
        self._inter_broker_listener = inter_broker_listener
        self._node_id = node_id
        self._epoch = epoch
        self._send = send
        self._leader_and_isr: dict[NodeId, dict[TopicPartition, bool]] = {}
        self._metadata: dict[TopicPartition, None] = {}
        self._metadata_to: set[NodeId] = set()
        self._full_to: set[NodeId] = set()
        self._stop: dict[NodeId, dict[TopicPartition, bool]] = {}

    def leader_and_isr(
        self, partitions: Iterable[TopicPartition], only: Iterable[NodeId] | None = None, *, new: bool = False
    ) -> None:
        """Send the states of `partitions` to their live replicas (`only`: to these brokers among them)."""
        allowed = self._context.brokers.keys() & (self._context.brokers.keys() if only is None else set(only))
        for tp in partitions:
            if tp not in self._context.partitions:
                continue
            for node in self._context.assignments[tp]:
                if node in allowed:
                    collected = self._leader_and_isr.setdefault(node, {})
                    collected[tp] = collected.get(tp, False) or new

    def metadata(self, partitions: Iterable[TopicPartition]) -> None:
        """Send `partitions` and the live brokers to every live broker."""
        self._metadata.update((tp, None) for tp in partitions)
        self._metadata_to |= self._context.brokers.keys()

    def full_metadata(self, nodes: Iterable[NodeId]) -> None:
        """Send all partitions and the live brokers to `nodes`."""
        self._full_to |= self._context.brokers.keys() & set(nodes)

    def stop(self, partitions: Collection[TopicPartition], only: Iterable[NodeId], *, delete: bool) -> None:
        """Ask the live brokers of `only` to stop being replicas of `partitions`."""
        for node in sorted(self._context.brokers.keys() & set(only)):
            self._stop.setdefault(node, {}).update((tp, delete) for tp in partitions)

    def flush(self) -> None:
        """Queue the requests on the brokers' channels."""
        for node, partitions in self._leader_and_isr.items():
            rows = iter(partitions.items())
            while part := dict(islice(rows, LEADER_AND_ISR_MOST)):
                decided = self._leader_and_isr_request(self._context.brokers[node], part)
                self._send(node, ApiKey.LEADER_AND_ISR, 7, decided)
        self._flush_metadata()
        for node, stopped in self._stop.items():
            if stopped:
                stop = self._stop_request(self._context.brokers[node], stopped)
                self._send(node, ApiKey.STOP_REPLICA, 4, stop)

    # -------------------------------------------------------------- entities

    def _leader_and_isr_request(
        self, broker: BrokerInfo, partitions: dict[TopicPartition, bool]
    ) -> LeaderAndIsrRequest:
        states = self._context.partitions
        topics = by_topic(partitions)
        leaders = {states[tp].leader for tp in partitions}
        return LeaderAndIsrRequest(
            controller_id=self._node_id,
            controller_epoch=self._epoch,
            broker_epoch=broker.epoch,
            type=INCREMENTAL,
            topic_states=tuple(
                LeaderAndIsrTopicState(
                    topic_name=topic,
                    topic_id=self._context.topics.get(topic),
                    partition_states=tuple(
                        self._leader_and_isr_state(tp, states[tp], new=partitions[tp]) for tp in parts
                    ),
                )
                for topic, parts in topics.items()
            ),
            live_leaders=tuple(
                LeaderAndIsrLiveLeader(broker_id=node, host_name=where.host, port=where.port)
                for node in sorted(leaders & self._context.brokers.keys())
                for where in (self._context.brokers[node].endpoint(self._inter_broker_listener),)
            ),
        )

    def _leader_and_isr_state(
        self, tp: TopicPartition, state: LeaderAndIsr, *, new: bool
    ) -> LeaderAndIsrPartitionState:
        assignment = self._context.assignment(tp)
        return LeaderAndIsrPartitionState(
            partition_index=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            partition_epoch=state.version,
            replicas=assignment.replicas,
            adding_replicas=assignment.adding,
            removing_replicas=assignment.removing,
            is_new=new,
        )

    def _flush_metadata(self) -> None:
        live = self._live_brokers()
        receivers = self._metadata_to | self._full_to
        some = self._metadata_states(self._metadata) if self._metadata_to - self._full_to else ()
        full = self._metadata_states(self._context.kept()) if self._full_to else ()
        for node in sorted(receivers):
            whole = node in self._full_to
            entity = UpdateMetadataRequest(
                controller_id=self._node_id,
                type=FULL if whole else INCREMENTAL,
                controller_epoch=self._epoch,
                broker_epoch=self._context.brokers[node].epoch,
                topic_states=full if whole else some,
                live_brokers=live,
            )
            self._send(node, ApiKey.UPDATE_METADATA, 8, entity)

    def _live_brokers(self) -> tuple[UpdateMetadataBroker, ...]:
        return tuple(
            UpdateMetadataBroker(
                id=broker.node_id,
                endpoints=tuple(
                    UpdateMetadataEndpoint(
                        port=endpoint.port,
                        host=endpoint.host,
                        listener=endpoint.listener,
                        security_protocol=endpoint.security_protocol,
                    )
                    for endpoint in broker.endpoints
                ),
                rack=broker.rack,
            )
            for _, broker in sorted(self._context.brokers.items())
        )

    def _metadata_states(self, partitions: Iterable[TopicPartition]) -> tuple[UpdateMetadataTopicState, ...]:
        known = (tp for tp in partitions if tp in self._context.partitions)
        return tuple(
            UpdateMetadataTopicState(
                topic_name=topic,
                topic_id=self._context.topics.get(topic),
                partition_states=tuple(self._metadata_state(tp) for tp in parts),
            )
            for topic, parts in by_topic(known).items()
        )

    def _metadata_state(self, tp: TopicPartition) -> UpdateMetadataPartitionState:
        state = self._context.partitions[tp]
        replicas = self._context.assignments[tp]
        deleting = tp.topic in self._context.deleting
        return UpdateMetadataPartitionState(
            partition_index=tp.partition,
            controller_epoch=state.controller_epoch,
            leader=LEADER_DURING_DELETE if deleting else state.leader,
            leader_epoch=state.leader_epoch,
            isr=state.isr,
            zk_version=state.version,
            replicas=replicas,
            offline_replicas=tuple(node for node in replicas if node not in self._context.brokers),
        )

    def _stop_request(self, broker: BrokerInfo, partitions: dict[TopicPartition, bool]) -> StopReplicaRequest:
        return StopReplicaRequest(
            controller_id=self._node_id,
            controller_epoch=self._epoch,
            broker_epoch=broker.epoch,
            topic_states=tuple(
                StopReplicaTopicState(
                    topic_name=topic,
                    partition_states=tuple(
                        StopReplicaPartitionState(
                            partition_index=tp.partition,
                            leader_epoch=self._stop_epoch(tp),
                            delete_partition=partitions[tp],
                        )
                        for tp in parts
                    ),
                )
                for topic, parts in by_topic(partitions).items()
            ),
        )

    def _stop_epoch(self, tp: TopicPartition) -> LeaderEpoch:
        state = self._context.partitions.get(tp)
        if state is None or tp.topic in self._context.deleting:
            return EPOCH_DURING_DELETE
        return state.leader_epoch
