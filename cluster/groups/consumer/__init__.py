"""Consumer groups of KIP-848 (`group.protocol=consumer`): the coordinator assigns partitions (G2).

A member sends ConsumerGroupHeartbeat and nothing else. The coordinator computes a *target assignment* for the group,
and moves each member towards it in its own heartbeats.

    group epoch        rises when a member, a subscription or a subscribed topic changes
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached

    Empty ──join──► Assigning ──target computed──► Reconciling ──every member is at the assignment epoch──► Stable

The modules:

    members          one member and its states; partitions by topic id
    group_records    the records of a group as values; record_formats has their bytes
    group_state      the state that the records add up to: a pure function of the log
    assignors        uniform and range
    subscriptions    subscribed topics, regular expressions, the hash of their metadata
    reconciliation   the next step of one member towards the target assignment
    heartbeats       the rules of a heartbeat: what is refused, what is changed
    classic_members  members of the classic protocol in a consumer group
    conversions      a classic group becomes a consumer group, and back
    consumer_group   one group on its coordinator: operations in turn, timeouts
    membership_of_classic   the operations of classic members

`consumer_hosting` and `consumer_api` beside this room connect it to the shards and to the requests.

Invariants (a property test checks them over random runs):

* at no time two members have one partition, assigned or to be revoked;
* when every member sends heartbeats, every subscribed partition is assigned at last;
* group epoch, assignment epoch and the epoch of a member never decrease, except that a static member which left for a
  restart has epoch -2;
* the state is what a replay of the log gives: it changes only by records.

Source: KIP-848, KIP-1082; Kafka's ConsumerGroup, GroupMetadataManager, TargetAssignmentBuilder.
"""
