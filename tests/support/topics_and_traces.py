"""Helpers for tests on real brokers: topics with given replicas, broker epochs, and events of a broker's trace."""

from __future__ import annotations

import json
from typing import Any

from harrow.harness.running_cluster import RunningCluster
from kafka.admin import NewTopic


def create_placed(admin: Any, name: str, *replicas: list[int], **config: str) -> None:
    """Creates a topic with these replicas for each partition; the first replica of a partition leads."""
    topic = NewTopic(name, replica_assignments=dict(enumerate(replicas)), topic_configs=config)
    admin.create_topics([topic])


def broker_epochs(cluster: RunningCluster) -> dict[int, int]:
    """Returns the broker epoch of each broker, by node id."""
    return {node: int(cluster.control(node, "state")["broker_epoch"]) for node in cluster.brokers}


def trace_events(cluster: RunningCluster, node: int, event: str) -> list[dict[str, Any]]:
    """Returns the events of this name in the trace of a broker; ignores a line that is still being written."""
    lines = (cluster.brokers[node].folder / "trace.jsonl").read_text().splitlines()
    rows = [json.loads(line) for line in lines if f'"{event}"' in line and line.endswith("}")]
    return [row for row in rows if row["event"] == event]
