"""Share groups of KIP-932: membership, target assignment, and which share-partitions have a delivery state.

A member sends ShareGroupHeartbeat and nothing else. Members share partitions, so an assignment is never waited for:
in its own heartbeat a member goes to the target assignment at once.

    group epoch        rises when a member, a subscription, a subscribed topic or the initialized partitions change
    assignment epoch   the group epoch for which the target assignment was computed
    member epoch       the assignment epoch that the member has reached

Only partitions whose delivery state is initialized at the share coordinator are assigned:

    subscribed ──heartbeat──► initializing ──Persister.initialize──► initialized ──admin request──► deleting ──► (none)

The modules:

    members          one member, share-partitions of a group by their state
    share_records    the records of a group as values; record_formats has their bytes
    share_state      the state that the records add up to: a pure function of the log
    simple_assignor  Kafka's assignor `simple`
    initialization   which share-partitions are to be initialized, and what follows
    heartbeats       the rules of a heartbeat: what is refused, what is changed
    share_group      one group on its coordinator: operations in turn, sessions
    limits           the settings of share groups

`share_hosting`, `share_api` and `share_offsets_api` beside this room connect it to the shards, the persister and the
requests.

Invariants (a property test checks them over random runs):

* when every member sends heartbeats, each has its target assignment at last, and every initialized partition of a
  subscribed topic has a member;
* group epoch, assignment epoch and the epoch of a member never decrease;
* the state is what a replay of the log gives: it changes only by records.

Source: KIP-932; Kafka's ShareGroup, GroupMetadataManager, SimpleAssignor.
"""
