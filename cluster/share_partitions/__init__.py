"""Share-partitions on the leaders of their topic-partitions: locks and delivery counts of records (KIP-932).

    acknowledgements  what members say of records: types, and the batches of a request
    share_partition   the state machine of one share-partition: available, acquired, done; no I/O
    in_flight_records its records as values, changes of them
    dead_letters      the dead-letter queues: records that no member gets any more, copied to a topic (KIP-1191)
    sessions          share sessions: epochs, and which partitions a ShareFetch asks for; no I/O
    resets            where a group begins without a stored state
    directory         which share-partitions are here: loaded and stored through the persister; their locks' ends
    fetching          what a ShareFetch reads and acquires, and how long it waits in the purgatory
    tapped_shares     what the tap gets
    share_api         requests 78 and 79
    leader            the wiring of the room

Invariants: a record is acquired by at most one member; it is delivered again only after its lock was released or has
expired; a record that was accepted is never delivered again once the acknowledgement was answered without an error;
no record is delivered more often than `group.share.delivery.count.limit`; the start offset only rises in one state
epoch; a response that says an acknowledgement succeeded leaves after the persister has it.

Source: Kafka's SharePartition, SharePartitionManager, DelayedShareFetch, ShareSessionCache.
"""

from .leader import SharePartitions

__all__ = ["SharePartitions"]
