"""The settings of share groups (KIP-932): the topic of their state, and the share coordinator.

Owns: `SHARE_SETTINGS`. Source: Kafka's ShareCoordinatorConfig.
"""

from __future__ import annotations

from .setting import Setting, int_setting

__all__ = ["SHARE_SETTINGS"]

SHARE_SETTINGS: tuple[Setting, ...] = (
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
