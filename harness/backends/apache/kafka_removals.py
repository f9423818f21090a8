"""What Kafka may have removed from its logs, as events of the traces that a verdict reads (`checks/traced_changes.py`).

Harrow's brokers trace each removal. Kafka does not, so what it may have removed is asked before a verdict:

* a compacted topic may lack every record that has a later one of its key: `log.cleaning` up to the log end offset;
* a log that begins later than 0 has lost its first segments by retention or DeleteRecords: `log.segments-deleted`.

The checkers still look for the later record of each key, and compare the replicas with each other.
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import TRACE
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.logs import LogCleaning, SegmentsDeleted
from harrow.cluster.ids import TopicPartition
from harrow.cluster.listeners import Address
from harrow.cluster.view import ClusterView
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ...requests.raw import ask
from .kafka_views import log_start_offsets

DESCRIBE_CONFIGS_VERSION = 4
TOPIC_RESOURCE = 2
CLEANUP_POLICY = "cleanup.policy"


def compacted_topics(address: Address, topics: Iterable[str]) -> frozenset[str]:
    """Return those of the topics whose `cleanup.policy` has `compact`."""
    resources = [
        {"resource_type": TOPIC_RESOURCE, "resource_name": name, "configuration_keys": [CLEANUP_POLICY]}
        for name in topics
    ]
    if not resources:
        return frozenset()
    response = ask(address, client_request(ApiKey.DESCRIBE_CONFIGS, DESCRIBE_CONFIGS_VERSION, resources=resources))
    return frozenset(
        str(result.resource_name)
        for result in response.results
        for config in result.configs
        if config.name == CLEANUP_POLICY and "compact" in (config.value or "")
    )


def removal_events(
    node: int, address: Address, view: ClusterView, compacted: frozenset[str], ends: Mapping[Any, int]
) -> list[TraceEvent]:
    """Return the events of one broker's replicas; `ends`: their log end offsets."""
    events: list[TraceEvent] = []
    for where, start in log_start_offsets(node, address, view).items():
        if where.topic in compacted and where in ends:
            events.append(cleaning_event(where, ends[where]))
        if start > 0:
            events.append(deleted_event(where, start))
    return events


def cleaning_event(where: TopicPartition, end: int) -> LogCleaning:
    """Return the event of a log that compaction may have cleaned up to `end`."""
    return LogCleaning(topic=where.topic, partition=where.partition, first_uncleanable=end)


def deleted_event(where: TopicPartition, start: int) -> SegmentsDeleted:
    """Return the event of a log that begins at `start`, above 0."""
    return SegmentsDeleted(topic=where.topic, partition=where.partition, base_offsets=(start - 1,))


def write_events(broker_folder: Path, events: Iterable[TraceEvent]) -> None:
    """Append the events to a broker's trace, with one write; the time of all is now."""
    now_ns = time.monotonic_ns()
    rows = [{"t_ns": now_ns, "event": event.event_name, **event.fields()} for event in events]
    text = "".join(json.dumps(row, separators=(",", ":")) + "\n" for row in rows)
    if text:
        with (broker_folder / TRACE).open("a", encoding="utf-8") as file:
            file.write(text)
