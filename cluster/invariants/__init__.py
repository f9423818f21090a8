"""Cluster-wide invariants of a simulated cluster, checked after every event of the virtual loop.

Owns: `ClusterInvariants`, which a `SimulatedCluster` calls after each event, and `InvariantViolation`, which it
raises out of `run_for` and `run_until`. An event is one call on the loop, so all state is whole between two events.

    name                      what holds between any two events [source]
    ------------------------  ----------------------------------------------------------------------------------------
    log-bounds                In a replica whose log has not failed: 0 <= log start <= high watermark <= log end,
                              recovery point <= log end, and the acknowledgeable end <= log end. [UnifiedLog]
    replica-order             While a process hosts a replica, its leader epoch does not go back, and its partition
                              version does not go back within one leader epoch. [KIP-497, Partition]
    high-watermark-order      The high watermark does not go back while a replica leads without interruption (one
                              leadership generation). A new leader may begin below its predecessor's. [KIP-207]
    one-leader-per-epoch      For one topic id, partition and leader epoch, one process at most ever leads. Leaders of
                              different epochs may coexist: the older one does not know yet that it was replaced.
                              [KIP-101, KIP-380]
    committed-isr             A replica that knows partition version V has the leader epoch and the ISR that the
                              registry holds, or held, as version V. [KIP-497]
    proposal-by-leader        An ISR proposal exists only in a replica that leads, under its leader epoch and
                              partition version; it contains the leader and names assigned replicas only. [KIP-497]
    isr-admission             In the event in which a leader proposes to add a broker, its metadata lists that broker
                              as live, and the broker has fetched under this leader epoch to the high watermark and
                              the epoch's start. [KIP-903]
    in-sync-prefix            A member of a leader's ISR that follows under the same leader epoch has a log end >= the
                              high watermark of this leader and of every earlier one. A new leader's own high
                              watermark may be lower: members are admitted from its epoch's start on, which is not.
                              [Partition.maybeIncrementLeaderHW, KIP-207]
    epoch-agreement           The leader and such a member assign the same leader epoch to every offset from the
                              larger log start to the leader's high watermark. [KIP-101, KIP-279]
    leader-completeness       All that was below the high watermark of a leader is in the log of every leader of a
                              later epoch, with the same leader epoch at each offset. [Raft (figure 3), KIP-101]
    state-order               In the registry: a partition's leader epoch and controller epoch do not go back, and a
                              new leader has a new leader epoch. [ZkPartitionStateMachine]
    state-shape               In the registry: an ISR is not empty, has no broker twice, names assigned replicas only,
                              and contains the leader if there is one. [LeaderAndIsr]
    isr-by-controller         In the registry: a write with a new leader epoch (only controllers write these) adds no
                              broker to the ISR, except the leader of an unclean election.
                              [PartitionLeaderElectionAlgorithms]
    controller-epoch-order    `/controller_epoch` does not go back; no broker knows a larger controller epoch, and
                              what a process knows does not go back. [KafkaController]
    one-controller-per-epoch  For one controller epoch, one process at most is ever the controller. The node
                              `/controller`, if it exists, names the broker that won the registry's epoch.
                              [KafkaController.elect]
    known-topics              While a process lives, its metadata does not lose a topic that the registry has, unless
                              the topic is being deleted. [KafkaController.onControllerFailover]
    live-owner                Every ephemeral node of the registry belongs to a session that the registry holds.
                              [ZooKeeper]

What these rules do not say, because Kafka does not promise it:

* An ISR in the registry may name a broker whose session has just ended: leaders know who lives from the controller's
  UpdateMetadata, which comes later. `isr-admission` is about what the leader knew when it proposed.
* `leader-completeness`, `in-sync-prefix` and `epoch-agreement` say nothing of a partition's older epochs once an
  unclean election has begun a new one, and nothing of a partition any more once a replica has lost power whose
  topic does not set `flush.messages=1`. The epochs of a topic that is compacted, or was, are not compared: each
  replica's cleaner removes records, and where an epoch begins within a gap is then not the same everywhere. A failed
  log promises nothing.
* Nothing is said of offsets below the largest log start offset that a leader had: they were deleted. A follower that
  was away meanwhile may keep other records there, because its leader does not know their epochs any more; after a
  crash its log may begin with them, since a log start offset is only stored now and then.
* ISRs below `min.insync.replicas` are no exception: the high watermark then covers fewer replicas, but only these
  can be elected.

A violation is raised out of `run_for` and `run_until`: the simulation must not go on. It is a bug of the cluster, or a
planted bug; clients cannot cause one.

Cost: an event of a broker compares a few numbers of up to `REPLICAS_PER_EVENT` of its replicas with those seen last
(all of them in a usual simulation, in turns where a broker has more); only a difference is looked into. Every
`EVENTS_PER_FULL_CHECK` events everything is. The registry's writes are seen as they are committed.

Whose idea: TigerBeetle's state checker; Kafka's `LeaderAndIsr` rules as in its TLA+ specification (Vanlightly).
"""

from .observer import ClusterInvariants
from .violation import InvariantViolation

__all__ = ["ClusterInvariants", "InvariantViolation"]
