"""KAFKA-13636: committed offsets expire while their group rebalances.

What was wrong: offsets of topics that a group with members does not subscribe to expire some time after their commit.
The coordinator knew the subscribed topics from the last generation. That of a group that had been empty had no members
and no topics, so while its members joined again, the offsets of all its topics counted as not subscribed to. Those
whose partitions had been idle for longer than `offsets.retention.minutes` were removed, and the group began at the
start of its partitions, or at their end.

Replaces: `OffsetRetention.subscriptions_count` and `OffsetRetention.kept_topics`.
Source: KAFKA-13636; Kafka's `GroupMetadata.getExpiredOffsets`, `GroupMetadata.initNextGeneration`.
"""

from __future__ import annotations

from dataclasses import replace

from harrow.cluster.groups.hosted_group import HostedGroup
from harrow.cluster.groups.membership import Group
from harrow.cluster.groups.offset_expiration import OffsetRetention
from harrow.cluster.groups.states import GroupState
from harrow.cluster.groups.subscriptions import subscribed_topics
from harrow.cluster.planting import Planter

from ..runs import CLASSIC
from .bug import Bug
from .shared import SHORT_JOB

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


BUG = Bug(
    number=25,
    module=__name__,
    title=TITLE,
    versions="2.1 to 3.1",
    needs=(
        "a commit that is older than the retention time (here the clocks of the brokers jump ahead), all members of a "
        "classic group away for longer than their session, and a check for expired offsets while they join again"
    ),
    seen_as=frozenset({"committed-offset-regression", "duplicate-output"}),
    options=replace(
        SHORT_JOB,
        batches=30,
        config={
            "offsets.retention.minutes": 1,
            "offsets.retention.check.interval.ms": 100,
            "group.initial.rebalance.delay.ms": 300,
        },
        job={"group_protocol": CLASSIC, "operations": ("alter",), "job_outage_ms": 2_000, "clock_jump_ms": 90_000},
    ),
)
