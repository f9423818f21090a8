"""Which topics the members of a group subscribe to.

Source: Kafka's ClassicGroup.computeSubscribedTopics and isSubscribedToTopic.
"""

from __future__ import annotations

from ..coordinators import RecordFormatError
from .consumer.subscriptions import subscribed_topics as topics_of_consumers
from .hosted_group import HostedGroup
from .records import CONSUMER_PROTOCOL, decode_subscription
from .states import GroupState


def subscribed_topics(hosted: HostedGroup) -> frozenset[str] | None:
    """Topics that a member subscribes to; None when the broker cannot know.

    Of a stable classic group the selected protocol counts, otherwise every protocol that a member supports.
    """
    if hosted.consumer is not None:
        return topics_of_consumers(hosted.consumer.data)
    if hosted.streams is not None:
        data = hosted.streams.data
        rows = () if data.topology is None or not data.members else data.topology.subtopologies
        return frozenset(topic for row in rows for topic in row.inputs())
    group = hosted.group
    if group.state is GroupState.EMPTY:
        return frozenset()
    if group.members.protocol_type != CONSUMER_PROTOCOL:
        return None
    selected = group.protocol_name if group.state is GroupState.STABLE else None
    topics: set[str] = set()
    for member in group.members:
        for protocol in member.protocols:
            if selected not in (None, protocol.name):
                continue
            try:
                topics.update(decode_subscription(protocol.metadata))
            except RecordFormatError:
                return None
    return frozenset(topics)
