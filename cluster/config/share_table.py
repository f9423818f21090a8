"""The settings of share groups (KIP-932): locks and deliveries, the topic of their state, the share coordinator.

Owns: `SHARE_SETTINGS`. Source: Kafka's ShareGroupConfig, ShareCoordinatorConfig.
"""

from __future__ import annotations

from .setting import INT_MAX, Change, Setting, int_setting

__all__ = ["SHARE_SETTINGS"]

SHARE_SETTINGS: tuple[Setting, ...] = (
    int_setting("group.share.session.timeout.ms", 45_000, "session timeout of share groups", low=1),
    int_setting("group.share.min.session.timeout.ms", 45_000, "shortest such session timeout", low=1),
    int_setting("group.share.max.session.timeout.ms", 60_000, "longest such session timeout", low=1),
    int_setting("group.share.heartbeat.interval.ms", 5_000, "how often such members send heartbeats", low=1),
    int_setting("group.share.min.heartbeat.interval.ms", 5_000, "shortest such interval", low=1),
    int_setting("group.share.max.heartbeat.interval.ms", 15_000, "longest such interval", low=1),
    int_setting("group.share.max.size", 200, "most members of a share group", low=1, high=1_000),
    Setting(
        name="group.share.assignors", default="simple", doc="the assignor of share groups; only simple", kind="list"
    ),
    Setting(
        name="group.share.initialize.retry.interval.ms",
        default=30_000,
        doc="after how long a share-partition that is not initialized yet is initialized again",
        low=1,
        high=INT_MAX,
        internal=True,
    ),
    int_setting("group.share.delivery.count.limit", 5, "a record is delivered so often at most", low=2, high=10),
    int_setting("group.share.min.delivery.count.limit", 2, "least such limit of a group", low=2, high=5),
    int_setting("group.share.max.delivery.count.limit", 10, "largest such limit of a group", low=5, high=25),
    int_setting(
        "group.share.record.lock.duration.ms",
        30_000,
        "how long a member may keep a record before it is delivered again",
        low=1_000,
        high=3_600_000,
    ),
    int_setting("group.share.min.record.lock.duration.ms", 15_000, "shortest such lock", low=1_000, high=30_000),
    int_setting("group.share.max.record.lock.duration.ms", 60_000, "longest such lock", low=30_000, high=3_600_000),
    int_setting(
        "group.share.partition.max.record.locks",
        2_000,
        "most records of a share-partition that are in flight",
        low=100,
        high=10_000,
    ),
    int_setting("group.share.min.partition.max.record.locks", 100, "least such number of a group", low=100, high=2_000),
    int_setting(
        "group.share.max.partition.max.record.locks", 4_000, "largest such number of a group", low=2_000, high=10_000
    ),
    Setting(
        name="errors.deadletterqueue.auto.create.topics.enable",
        default=False,
        doc="whether the dead-letter queue of a share group is created when it is needed",
        change=Change.CLUSTER,
    ),
    Setting(
        name="errors.deadletterqueue.topic.name.prefix",
        default="dlq.",
        doc="how the names of dead-letter queues of share groups begin; empty: in any way",
        change=Change.CLUSTER,
    ),
    int_setting("group.share.max.share.sessions", 2_000, "most share sessions of a broker", low=1),
    int_setting(
        "share.fetch.purgatory.purge.interval.requests",
        1_000,
        "completed share fetches are removed from the purgatory at this number",
    ),
    int_setting("share.coordinator.state.topic.num.partitions", 50, "partitions of __share_group_state", low=1),
    Setting(
        name="share.coordinator.state.topic.replication.factor",
        default=3,
        doc="replicas of __share_group_state",
        low=1,
        high=32767,
        kind="short",
    ),
    Setting(
        name="share.coordinator.state.topic.min.isr",
        default=2,
        doc="smallest ISR of __share_group_state",
        low=1,
        high=32767,
        kind="short",
    ),
    int_setting(
        "share.coordinator.state.topic.segment.bytes", 104_857_600, "segment size of __share_group_state", low=1
    ),
    int_setting(
        "share.coordinator.snapshot.update.records.per.snapshot",
        500,
        "so many changes of a share-partition are stored between two records of its whole state",
        high=500,
    ),
    int_setting(
        "share.coordinator.write.timeout.ms", 5_000, "how long a change of a state waits for its replicas", low=1
    ),
    Setting(
        name="share.coordinator.state.topic.prune.interval.ms",
        default=300_000,
        doc="how often records that no state needs are removed from __share_group_state",
        low=1,
        internal=True,
    ),
    Setting(
        name="share.coordinator.cold.partition.snapshot.interval.ms",
        default=300_000,
        doc="how often a state that does not change is stored again",
        low=1,
        internal=True,
    ),
)
