"""Which brokers hold a new topic's replicas: round robin with a growing shift (C9).

Owns: `assign_replicas`. Pure: the caller draws `start` and `shift` (Kafka draws both at random).

The first replica of partition 0 lies on `brokers[start]`, of partition 1 on the next broker, and so on; the
other replicas follow the first one at a distance that begins with `shift` and grows by one each time the
round robin has gone round, so that the followers of one broker's leaders spread over all the others.
Worked example, 5 brokers, 10 partitions, 3 replicas, start 0, shift 0:

    broker-0   broker-1   broker-2   broker-3   broker-4
    p0         p1         p2         p3         p4         (1st replica)
    p5         p6         p7         p8         p9         (1st replica)
    p4         p0         p1         p2         p3         (2nd replica)
    p8         p9         p5         p6         p7         (2nd replica)
    p3         p4         p0         p1         p2         (3rd replica)
    p7         p8         p9         p5         p6         (3rd replica)

May fail: KafkaError INVALID_REPLICATION_FACTOR or INVALID_PARTITIONS. Source: Kafka's
AdminUtils.assignReplicasToBrokersRackUnaware.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import ErrorCode, KafkaError
from ..ids import NodeId


def assign_replicas(
    brokers: Sequence[NodeId], partitions: int, replication_factor: int, *, start: int, shift: int
) -> dict[int, list[NodeId]]:
    """Replicas of each partition, the preferred leader first.

    `start` and `shift` may be any non-negative numbers; they are taken modulo the number of brokers.
    """
    if partitions <= 0:
        raise KafkaError(
            ErrorCode.invalid_partitions, f"{partitions} partitions: at least 1 is needed"
        )
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replication_factor}: at least 1 is needed",
        )
    count = len(brokers)
    if replication_factor > count:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replication_factor} larger than available brokers: {count}",
        )
    ordered = sorted(brokers)
    assignment: dict[int, list[NodeId]] = {}
    for partition in range(partitions):
        if partition > 0 and partition % count == 0:
            shift += 1
        first = (partition + start) % count
        replicas = [ordered[first]]
        for replica in range(replication_factor - 1):
            distance = 1 + (shift + replica) % (count - 1)
            replicas.append(ordered[(first + distance) % count])
        assignment[partition] = replicas
    return assignment
