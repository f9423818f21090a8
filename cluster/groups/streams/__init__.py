"""Streams groups of KIP-1071 (`group.protocol=streams`): the coordinator assigns the tasks of Kafka Streams.

A member sends StreamsGroupHeartbeat. Its first one has the topology of the application. The coordinator checks the
topology against the topics of the cluster, asks for the internal topics that are missing, computes a *target
assignment* of tasks, and moves each member towards it in its own heartbeats. A task is one partition of a subtopology.

    topology epoch            the version of the topology; the validated one has all its topics
    group epoch               rises when a member, a required topic or a setting of the assignment changes
    assignment epoch          the group epoch for which the target assignment was computed
    member epoch              the assignment epoch that the member has reached
    endpoint information epoch   changes when the tasks of a member with an endpoint change; not stored

    Empty ──join──► NotReady ──topics are there──► Assigning ──target──► Reconciling ──all at its epoch──► Stable

The modules:

    tasks            sets of tasks; topology has the values of a topology
    internal_topics  how many partitions and tasks there are, and which topics are missing
    members          one member; group_records the records of a group, record_formats their bytes
    group_state      the state that the records add up to: a pure function of the log
    sticky_assignor  which member should have which task
    reconciliation   the next step of one member towards its target
    heartbeats       the rules of a heartbeat; request_checks has what no group accepts
    endpoints        the partitions behind the endpoints of members, for interactive queries
    member_checks    which offsets a member may commit and fetch
    streams_group    one group on its coordinator: operations in turn, timeouts

`streams_hosting`, `streams_api`, `streams_topics` beside this room connect it to the shards, requests and topics.

Invariants (a property test checks them over random runs):

* at no time two members have one task as active, assigned or to be revoked;
* no process has one task twice, whatever its kinds;
* when every member sends heartbeats and every topic is there, every task is active at one member at last;
* the state is what a replay of the log gives: it changes only by records.

Source: KIP-1071; Kafka's StreamsGroup, GroupMetadataManager.streamsGroupHeartbeat.
"""
