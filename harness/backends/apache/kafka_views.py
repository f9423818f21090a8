"""The state of a Kafka cluster, asked by Kafka's own requests: Metadata, DescribeQuorum, ListOffsets.

Owns: `ClusterView` from the answer of one broker, and the offsets of replicas. A request with the replica id -2, which
Kafka has for debugging, gives a replica's log end offset on followers too. What may fail: ClusterError without a
response.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

from harrow.cluster.errors import ClusterError, ErrorCode
from harrow.cluster.ids import TopicPartition, by_topic
from harrow.cluster.listeners import Address
from harrow.cluster.view import ClusterView, PartitionView
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ...requests.raw import ask

METADATA_VERSION = 12
LIST_OFFSETS_VERSION = 7
DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION = 55, 1
METADATA_TOPIC = "__cluster_metadata"
CONSUMER, DEBUGGER = -1, -2
LATEST, EARLIEST = -1, -2
READ_UNCOMMITTED, READ_COMMITTED = 0, 1
TIMEOUT_S = 3.0
QUORUM_TIMEOUT_S = 1.5
"""Shorter, because a broker that reaches no controller does not answer."""


def live_brokers(address: Address) -> frozenset[int]:
    """Return the brokers that are not fenced, as one broker knows them."""
    return frozenset(int(row.node_id) for row in metadata(address, topics=()).brokers)


class KafkaView(NamedTuple):
    """A cluster as one broker knows it."""

    cluster: ClusterView
    topic_ids: Mapping[str, str]
    """The id of each topic."""


def described(addresses: Iterable[tuple[int, Address]], *, quorum: bool = True) -> Iterator[tuple[int, KafkaView]]:
    """Yield the cluster as each broker knows it that answers, with its node id; ClusterError when none answers.

    The controller is the leader of the KRaft quorum; without a `quorum` the broker that Metadata names, of epoch 0.
    """
    error: ClusterError | None = ClusterError("no broker runs that could be asked")
    for node, address in addresses:
        try:
            leader, epoch = _quorum_leader(address) if quorum else (None, 0)
            response = metadata(address, topics=None)
        except ClusterError as refused:
            error = error and refused
            continue
        error = None
        cluster = ClusterView(
            live=frozenset(int(row.node_id) for row in response.brokers),
            controller=leader if quorum else int(response.controller_id),
            controller_epoch=epoch,
            topics={str(row.name): _partition_views(row) for row in response.topics},
        )
        topic_ids = {str(row.name): str(row.topic_id) for row in response.topics}
        yield node, KafkaView(cluster, topic_ids)
    if error is not None:
        raise error


def _partition_views(topic: Any) -> dict[int, PartitionView]:
    """Return the partitions of a topic of a Metadata response."""
    return {
        int(row.partition_index): PartitionView(
            leader=int(row.leader_id),
            leader_epoch=int(row.leader_epoch),
            isr=tuple(map(int, row.isr_nodes)),
            replicas=tuple(map(int, row.replica_nodes)),
        )
        for row in topic.partitions
    }


def metadata(address: Address, *, topics: tuple[()] | None) -> Any:
    """Return the Metadata response of one broker; topics None: of all topics."""
    request = client_request(ApiKey.METADATA, METADATA_VERSION, topics=topics, allow_auto_topic_creation=False)
    return ask(address, request, timeout_s=TIMEOUT_S)


def _quorum_leader(address: Address) -> tuple[int | None, int]:
    """Return the leader of the KRaft quorum and its epoch, as one broker knows them."""
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
    request = client_request(DESCRIBE_QUORUM, DESCRIBE_QUORUM_VERSION, topics=topics)
    response = ask(address, request, timeout_s=QUORUM_TIMEOUT_S)
    if response.error_code is not ErrorCode.none:
        raise ClusterError(f"{address} does not describe the quorum: {response.error_code.name}")
    row = response.topics[0].partitions[0]
    return (int(row.leader_id) if row.leader_id >= 0 else None), int(row.leader_epoch)


def replica_states(node: int, address: Address, view: ClusterView) -> list[dict[str, Any]]:
    """Return a row for each replica of a broker: topic, partition, leader_epoch, is_leader, leo; hw, lso of leaders."""
    here = _replicas_of(node, view)
    led = {where: row for where, row in here.items() if row.leader == node}
    ends = offsets(address, here, DEBUGGER, LATEST)
    high_watermarks = offsets(address, led, CONSUMER, LATEST)
    stable = offsets(address, led, CONSUMER, LATEST, READ_COMMITTED)
    return [
        {
            "topic": where.topic,
            "partition": where.partition,
            "is_leader": where in led,
            "leader_epoch": row.leader_epoch,
            "leo": ends[where],
            "hw": high_watermarks.get(where),
            "lso": stable.get(where),
        }
        for where, row in here.items()
        if where in ends
    ]


def log_start_offsets(node: int, address: Address, view: ClusterView) -> dict[TopicPartition, int]:
    """Return the log start offset of each replica of a broker."""
    return offsets(address, _replicas_of(node, view), DEBUGGER, EARLIEST)


def log_end_offsets(node: int, address: Address, view: ClusterView) -> dict[TopicPartition, int]:
    """Return the log end offset of each replica of a broker."""
    return offsets(address, _replicas_of(node, view), DEBUGGER, LATEST)


def _replicas_of(node: int, view: ClusterView) -> dict[TopicPartition, PartitionView]:
    return {where: row for where, row in view.partitions() if node in row.replicas}


def offsets(
    address: Address,
    partitions: Iterable[TopicPartition],
    replica: int,
    timestamp: int,
    isolation: int = READ_UNCOMMITTED,
) -> dict[TopicPartition, int]:
    """Return the offset of each partition that this broker answers for, without those with an error.

    `replica`: CONSUMER, or DEBUGGER, which Kafka's brokers also answer for a follower; `timestamp`: LATEST or EARLIEST.
    """
    topics = [
        {"name": name, "partitions": [{"partition_index": where.partition, "timestamp": timestamp} for where in found]}
        for name, found in by_topic(partitions).items()
    ]
    if not topics:
        return {}
    request = client_request(
        ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, replica_id=replica, isolation_level=isolation, topics=topics
    )
    response = ask(address, request, timeout_s=TIMEOUT_S)
    return {
        TopicPartition(str(topic.name), int(row.partition_index)): int(row.offset)
        for topic in response.topics
        for row in topic.partitions
        if row.error_code is ErrorCode.none
    }
