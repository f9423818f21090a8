"""Which brokers hold a new partition's replicas: round robin with a growing shift, across racks (C9).

Owns: `assign_replicas`. Pure: the caller draws `start` and `shift` (Kafka draws both at random; for partitions
added to a topic both are the index of partition 0's first replica, so that the round robin continues).

The first replica of partition 0 is placed on `brokers[start]`, that of partition 1 on the next broker, and so on. The
other replicas follow the first at a distance that begins with `shift` and grows by 1 after each full turn of the
round robin, so that the followers of one broker's leaders spread over all other brokers.
Worked example, 5 brokers, 10 partitions, 3 replicas, start 0, shift 0:

    broker-0   broker-1   broker-2   broker-3   broker-4
    p0         p1         p2         p3         p4         (1st replica)
    p5         p6         p7         p8         p9         (1st replica)
    p4         p0         p1         p2         p3         (2nd replica)
    p8         p9         p5         p6         p7         (2nd replica)
    p3         p4         p0         p1         p2         (3rd replica)
    p7         p8         p9         p5         p6         (3rd replica)

With racks the brokers are first ordered so that the racks alternate (KIP-36). A rack gets a second replica of a
partition only when every rack has one, and each rack gets as many leaders as its share of the brokers.

May fail: KafkaError INVALID_REPLICATION_FACTOR or INVALID_PARTITIONS; UNKNOWN_SERVER_ERROR when only some of
the brokers have a rack (Kafka's code for AdminOperationException).
Source: Kafka's AdminUtils.assignReplicasToBrokersRackUnaware, assignReplicasToBrokersRackAware.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from ..errors import ErrorCode, KafkaError
from ..ids import NodeId

Racks = Mapping[NodeId, str | None]


def assign_replicas(
    brokers: Sequence[NodeId],
    partitions: int,
    replication_factor: int,
    *,
    start: int,
    shift: int,
    first_partition: int = 0,
    racks: Racks | None = None,
) -> dict[int, list[NodeId]]:
    """Replicas of `partitions` partitions, from number `first_partition` on; the preferred leader first.

    `start` and `shift` may be any non-negative numbers; they are taken modulo the number of brokers.
    """
    _check(len(brokers), partitions, replication_factor)
    rack_of = _rack_of(brokers, racks or {})
    ordered = sorted(brokers) if rack_of is None else alternated(rack_of)
    assignment: dict[int, list[NodeId]] = {}
    for partition in range(first_partition, first_partition + partitions):
        if partition > 0 and partition % len(ordered) == 0:
            shift += 1
        first = (partition + start) % len(ordered)
        if rack_of is None:
            chosen = [_at(ordered, first, shift, k) for k in range(replication_factor - 1)]
            assignment[partition] = [ordered[first], *chosen]
        else:
            assignment[partition] = _across_racks(ordered, rack_of, first, shift, replication_factor)
    return assignment


def start_of_added(brokers: Sequence[NodeId], first_replica: NodeId, racks: Racks) -> int:
    """`start` and `shift` for partitions added to a topic whose partition 0 begins on `first_replica`."""
    rack_of = _rack_of(brokers, racks)
    ordered = sorted(brokers) if rack_of is None else alternated(rack_of)
    return next((at for at, node in enumerate(ordered) if node >= first_replica), 0)


def alternated(rack_of: Mapping[NodeId, str]) -> list[NodeId]:
    """Brokers in an order in which their racks alternate: of racks a (0, 1, 2), b (3, 4), c (5): 0, 3, 5, 1, 4, 2."""
    waiting: dict[str, list[NodeId]] = {}
    for node in sorted(rack_of):
        waiting.setdefault(rack_of[node], []).append(node)
    found: list[NodeId] = []
    while len(found) < len(rack_of):
        found += [waiting[rack].pop(0) for rack in sorted(waiting) if waiting[rack]]
    return found


def _check(brokers: int, partitions: int, replication_factor: int) -> None:
    if partitions <= 0:
        raise KafkaError(ErrorCode.invalid_partitions, f"{partitions} partitions: at least 1 is needed")
    if replication_factor <= 0:
        raise KafkaError(
            ErrorCode.invalid_replication_factor, f"replication factor {replication_factor}: at least 1 is needed"
        )
    if replication_factor > brokers:
        raise KafkaError(
            ErrorCode.invalid_replication_factor,
            f"replication factor {replication_factor} larger than available brokers: {brokers}",
        )


def _rack_of(brokers: Sequence[NodeId], racks: Racks) -> dict[NodeId, str] | None:
    found = {node: rack for node in brokers if (rack := racks.get(node)) is not None}
    if not found:
        return None
    if len(found) < len(brokers):
        raise KafkaError(
            ErrorCode.unknown_server_error, "Not all brokers have rack information for replica rack aware assignment."
        )
    return found


def _at(ordered: Sequence[NodeId], first: int, shift: int, replica: int) -> NodeId:
    distance = 1 + (shift + replica) % (len(ordered) - 1)
    return ordered[(first + distance) % len(ordered)]


def _across_racks(
    ordered: Sequence[NodeId], rack_of: Mapping[NodeId, str], first: int, shift: int, factor: int
) -> list[NodeId]:
    count = len(set(rack_of.values()))
    replicas = [ordered[first]]
    used = {rack_of[replicas[0]]}
    tried = 0
    while len(replicas) < factor:
        node = _at(ordered, first, shift * count, tried)
        tried += 1
        if node not in replicas and (rack_of[node] not in used or len(used) == count):
            replicas.append(node)
            used.add(rack_of[node])
    return replicas
