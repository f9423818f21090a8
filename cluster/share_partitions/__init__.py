"""Share-partitions on the leaders of their topic-partitions: locks and delivery counts of records (KIP-932).

    share_partition   the state machine of one share-partition: available, acquired, acknowledged, archived; no I/O
    sessions          share sessions of connections: epochs, which partitions a ShareFetch asks for
    locks             acquisition locks on the timing wheel
    fetching          ShareFetch: acquire, read the log, wait in the purgatory
    acknowledging     ShareAcknowledge, and the acknowledgements that a ShareFetch carries
    directory         which share-partitions are here; loaded through the persister, gone with the leadership
    tapped_shares     what the tap gets
    share_api         requests 78 and 79

Invariants: a record is acquired by at most one member; it is delivered again only after its lock was released or has
expired; a record that was accepted is never delivered again once the acknowledgement was answered without an error;
no record is delivered more often than `group.share.delivery.count.limit`; the start offset only rises in one state
epoch; a response that says an acknowledgement succeeded leaves after the persister has it.

Source: Kafka's SharePartition, SharePartitionManager, DelayedShareFetch, ShareSessionCache.
"""
