"""The share coordinator: the delivery state of share-partitions, in `__share_group_state` (KIP-932).

A share-partition is one topic-partition as one share group consumes it. Which of its records are delivered, and how
often each was, is state that must survive the leader of the topic-partition. The leader (`share_partitions/`) and the
group coordinator (`groups/share/`) keep it through a `Persister`, which asks the share coordinator: the leader of the
partition of `__share_group_state` that the share-partition hashes to.

    values         share-partitions and their state as values; no I/O
    persister      `Persister`, the interface, and the one that sends requests to share coordinators
    records        formats of `__share_group_state`
    merging        batches of states that overlap, as one list
    stored_shares  the states of one partition, as its log says; no I/O
    shard          the same, hosted by the coordinator runtime; the order of operations, and the periodic work
    service        requests 83 to 87 as operations
    state_api      requests 83 to 87 as messages
    coordinator    wiring of the room

Invariants: a write of an older state epoch or leader epoch is refused (FENCED_STATE_EPOCH, FENCED_LEADER_EPOCH);
a state is answered only from records that all in-sync replicas have; an update is always preceded by a snapshot in the
part of the log that is kept.

Source: Kafka's ShareCoordinatorShard, ShareCoordinatorService, PersisterStateManager, DefaultStatePersister.
"""

from .coordinator import ShareCoordinator
from .persister import Persister

__all__ = ["Persister", "ShareCoordinator"]
