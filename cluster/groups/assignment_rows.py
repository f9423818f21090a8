"""Partitions of assignments as responses about consumer groups and share groups have them: by topic id, in order.

May fail: nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from .consumer.members import Partitions
from .consumer.subscriptions import TopicView

UNDESCRIBABLE = "The group has described topic(s) that the client is not authorized to describe."


def rows_by_id(s: Any, partitions: Partitions) -> tuple[Any, ...]:
    """Rows of a heartbeat's response `s`."""
    return tuple(
        s.TopicPartitions(topic_id=topic_id, partitions=tuple(sorted(numbers)))
        for topic_id, numbers in sorted(partitions.items())
    )


def rows_with_names(s: Any, partitions: Partitions, view: TopicView) -> tuple[Any, ...]:
    """Rows of a description's response `s`; topics that do not exist are left out."""
    named = ((topic_id, view.topic_name(topic_id), numbers) for topic_id, numbers in sorted(partitions.items()))
    rows: Iterable[Any] = (
        s.TopicPartitions(topic_id=topic_id, topic_name=name, partitions=tuple(sorted(numbers)))
        for topic_id, name, numbers in named
        if name is not None
    )
    return tuple(rows)
