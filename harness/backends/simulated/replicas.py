"""The replicas of a simulated cluster, from the objects of its brokers: leaders, equal replicas, their logs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

from harrow.cluster.host.simulated.link import joined
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.replication.partition import Partition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire.batch_header import headers

READ_BYTES = 1 << 20


def log_bytes(log: Any) -> bytes:
    """Every byte of a replica's log."""
    at, end = log.log_start_offset, log.log_end_offset
    found: list[bytes] = []
    while at < end:
        data = log.read(Offset(at), READ_BYTES, Offset(end), at_least_one=True)
        chunk = joined(data.parts)
        assert chunk, f"{log.topic_partition} has nothing at {at} below {end}"
        found.append(chunk)
        for _, _, header in headers(chunk):
            at = header.last_offset + 1
    return b"".join(found)


def current_leader(rows: Iterable[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the leader with the highest epoch among the states of a partition's replicas.

    A broker that was away when a reassignment removed it may not know that, and still lead under an old epoch.
    """
    leading = [row for row in rows if row["is_leader"]]
    return max(leading, key=lambda row: int(row["leader_epoch"]), default=None)


class ReplicaLog(NamedTuple):
    """The log of one replica at the end of a run."""

    node: int
    is_leader: bool
    low: int
    high: int
    data: bytes
    log: Any
    """The replica's `Log`."""


def hosted_replicas(cluster: SimulatedCluster, tp: TopicPartition) -> dict[int, Partition]:
    """Return the replicas of `tp` on the brokers that are ready."""
    return {
        node: partition
        for node, process in cluster.brokers.items()
        if process.ready and (partition := cluster.broker(node).replicas.partition(tp)) is not None
    }


def leading_replica(hosted: Mapping[int, Partition]) -> Partition | None:
    """Return the leader with the highest epoch; `current_leader` says why there may be more than one."""
    leading = [partition for partition in hosted.values() if partition.is_leader]
    return max(leading, key=lambda partition: partition.leader_epoch, default=None)


def leader_of_equal_replicas(cluster: SimulatedCluster, tp: TopicPartition) -> Partition | None:
    """Return the leader where all replicas of `tp` are at its log end, with a full ISR; else None.

    A run asks this every 5 ms of virtual time until it is true, so it reads no more of the brokers than it needs.
    """
    hosted = hosted_replicas(cluster, tp)
    leader = leading_replica(hosted)
    if leader is None:
        return None
    replicas, end = set(leader.replicas), leader.log.log_end_offset
    if set(leader.isr) != replicas:
        return None
    held = [partition for node, partition in hosted.items() if node in replicas]
    if len(held) != len(replicas) or sum(partition.is_leader for partition in held) != 1:
        return None
    equal = all(p.log.log_end_offset == end == p.high_watermark for p in held)
    return leader if equal else None


def replicas_of(cluster: SimulatedCluster, tp: TopicPartition) -> list[ReplicaLog]:
    """Return the logs of the replicas that run.

    The leader says which brokers are replicas: a broker that was away when a reassignment removed it may still have a
    log and not know that.
    """
    hosted = hosted_replicas(cluster, tp)
    leader = leading_replica(hosted)
    return [
        ReplicaLog(
            node,
            partition.is_leader,
            partition.log.log_start_offset,
            partition.log.log_end_offset,
            log_bytes(partition.log),
            partition.log,
        )
        for node, partition in hosted.items()
        if node in (partition if leader is None else leader).replicas
    ]
