"""KAFKA-13636: committed offsets expire while their group rebalances.

What was wrong (Kafka 2.1 to 3.1): offsets of topics that a group with members does not subscribe to expire some time
after their commit. The coordinator knew the subscribed topics from the last generation. That of a group that had been
empty had no members and no topics, so while its members joined again, the offsets of all its topics counted as not
subscribed to. Those whose partitions had been idle for longer than `offsets.retention.minutes` were removed, and the
group began at the start of its partitions, or at their end.

Needs: a commit that is older than the retention time (here the clocks of the brokers jump ahead), all members of a
classic group away for longer than their session, and a check for expired offsets while they join again.
Seen as: `committed-offset-regression`, `duplicate-output`.
Replaces: `OffsetRetention.subscriptions_count` and `OffsetRetention.kept_topics`.
Source: KAFKA-13636; Kafka's `GroupMetadata.getExpiredOffsets`, `GroupMetadata.initNextGeneration`.
"""

from __future__ import annotations

from harrow.cluster.groups.hosted_group import HostedGroup
from harrow.cluster.groups.membership import Group
from harrow.cluster.groups.offset_expiration import OffsetRetention
from harrow.cluster.groups.states import GroupState
from harrow.cluster.groups.subscriptions import subscribed_topics
from harrow.cluster.planting import Planter

TITLE = "KAFKA-13636: committed offsets expire while their group rebalances"


def plant(planter: Planter) -> None:
    """Let the topics of the last generation count in every state."""
    planter.replace_method(OffsetRetention, "subscriptions_count", _in_every_state)
    planter.replace_method(OffsetRetention, "kept_topics", _topics_of_the_last_generation)


def _in_every_state(self: OffsetRetention, group: Group) -> bool:
    del self, group
    return True


def _topics_of_the_last_generation(self: OffsetRetention, hosted: HostedGroup) -> frozenset[str] | None:
    del self
    group = hosted.group
    was_empty = group.state is GroupState.PREPARING_REBALANCE and group.protocol_name is None
    return frozenset() if was_empty else subscribed_topics(hosted)
