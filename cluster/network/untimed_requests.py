"""Requests to the controller whose `timeout_ms` may be anything, because their response needs none of its time.

Owns: `needs_no_time`. Such a request lists reassignments, names nothing, or each of its topics is refused by the
request alone: it is named twice, or by name and id, or by neither. Nothing here fails.

Source: Kafka's ControllerApis and QuorumController, which end such requests before they wait for the event queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Any

from ..wire.api_keys import ApiKey

_NAMED_ONCE = frozenset((ApiKey.CREATE_TOPICS, ApiKey.CREATE_PARTITIONS))
"""A topic that such a request names twice is refused."""


def needs_no_time(api_key: int, entity: Any) -> bool:
    """True when the response to a decoded request does not depend on `timeout_ms`."""
    if api_key == ApiKey.LIST_PARTITION_REASSIGNMENTS:
        return True
    if api_key == ApiKey.ALTER_PARTITION_REASSIGNMENTS:
        return not entity.topics
    if api_key == ApiKey.ELECT_LEADERS:
        return entity.topic_partitions is not None and not entity.topic_partitions
    if api_key in _NAMED_ONCE:
        return _all_twice([row.name for row in entity.topics])
    return api_key == ApiKey.DELETE_TOPICS and _no_topic_to_delete(entity)


def _all_twice(names: Sequence[Any]) -> bool:
    return all(count > 1 for count in Counter(names).values())


def _no_topic_to_delete(entity: Any) -> bool:
    if hasattr(entity, "topic_names"):
        return _all_twice(entity.topic_names)
    rows = [(row.name, row.topic_id) for row in entity.topics]
    counts = Counter(rows)
    return all((row[0] is None) == (row[1] is None) or counts[row] > 1 for row in rows)
