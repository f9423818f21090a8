"""Helpers for tests of real brokers: a topic placed on chosen brokers, raw connections, waits for replica states."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harrow.harness.running_cluster import RunningCluster
from raw_kafka import RawKafka
from waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplicaView:
    """One replica as its own broker reports it."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    leo: int
    hw: int


@dataclass(frozen=True, slots=True)
class PlacedTopic:
    """Partition 0 of a topic whose replicas are on the brokers that the test chose."""

    cluster: RunningCluster
    topic: str

    def raw(self, node: int, client_id: str = "raw") -> RawKafka:
        """Return a connection to one broker."""
        return RawKafka(self.cluster.brokers[node].port, client_id=client_id)

    def seen(self, node: int) -> ReplicaView:
        """Return the replica on `node` as that broker reports it."""
        for row in self.cluster.control(node, "state")["partitions"]:
            if (row["topic"], row["partition"]) == (self.topic, 0):
                return ReplicaView(
                    leader=row["leader"], epoch=row["leader_epoch"], isr=tuple(row["isr"]), leo=row["leo"], hw=row["hw"]
                )
        raise AssertionError(f"broker {node} hosts no {self.topic}-0")

    def nodes(self) -> tuple[int, ...]:
        """Return the replicas' brokers, the preferred leader first."""
        return self.cluster.describe().topics[self.topic][0].replicas

    def await_ends(self, **expected: Mapping[int, int]) -> None:
        """Wait until the replicas' `leo` and `hw` (by node) have these values."""
        views: dict[int, ReplicaView] = {}

        def as_expected() -> bool:
            views.update({node: self.seen(node) for rows in expected.values() for node in rows})
            return all(
                getattr(views[node], name) == value for name, rows in expected.items() for node, value in rows.items()
            )

        try:
            until(as_expected)
        except AssertionError:
            raise AssertionError(f"expected {expected}, got {views}") from None

    def await_state(self, *, leader: int, isr: tuple[int, ...], at_broker: int | None = None) -> None:
        """Wait until the registry has this leader and ISR, and `at_broker` (default: the leader) has the leader."""
        node = leader if at_broker is None else at_broker

        def as_expected() -> bool:
            view = self.cluster.describe().partition(self.topic, 0)
            return view is not None and view.leader == leader and set(view.isr) == set(isr)

        until(as_expected, f"leader {leader} and ISR {isr} of {self.topic}")
        until(lambda: self.seen(node).leader == leader, f"broker {node} has received leader {leader}")

    def produce(self, node: int, value: str, *, acks: int = -1, timeout_ms: int = 30_000) -> Any:
        """Send one record to `node`, whichever broker leads; return the partition of the response."""
        with self.raw(node) as raw:
            return raw.produce(self.topic, 0, [value], acks=acks, timeout_ms=timeout_ms)

    def events(self, node: int, *names: str) -> list[dict[str, Any]]:
        """Return the partition's trace events on `node` with these names, in order."""
        path = self.cluster.folder / f"broker-{node}" / "trace.jsonl"
        rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
        return [row for row in rows if row.get("topic") == self.topic and (not names or row["event"] in names)]

    def checkpointed(self, node: int) -> int:
        """Return the HW in the checkpoint file on `node`; -1 if the file is absent."""
        path: Path = self.cluster.folder / f"broker-{node}" / "data" / "replication-offset-checkpoint"
        if not path.exists():
            return -1
        rows = [line.split() for line in path.read_text().splitlines()[2:]]
        return next((int(high_watermark) for topic, _, high_watermark in rows if topic == self.topic), -1)

    def await_checkpoint(self, node: int, high_watermark: int) -> None:
        """Wait until the checkpoint file of `node` has this HW."""
        until(lambda: self.checkpointed(node) == high_watermark, f"HW {high_watermark} in the checkpoint of {node}")


def place(cluster: RunningCluster, topic: str, *nodes: int, config: Mapping[str, str] | None = None) -> PlacedTopic:
    """Create `topic` with one partition on `nodes`, the first its leader; wait until all are in the ISR."""
    controller = until(cluster.controller_id, "a controller")
    with RawKafka(cluster.brokers[controller].port) as raw:
        created = raw.create_topic(topic, assignment=[nodes], config=dict(config or {}))
    assert created.error_code == 0, created
    placed = PlacedTopic(cluster, topic)
    for node in nodes:
        hosted = lambda node=node: any(  # noqa: E731 - a condition
            row["topic"] == topic for row in cluster.control(node, "state")["partitions"]
        )
        until(hosted, f"broker {node} hosts {topic}")
    placed.await_state(leader=nodes[0], isr=nodes)
    return placed


def besides_the_controller(cluster: RunningCluster) -> list[int]:
    """Return the brokers that are not the controller, by id: faults on them prevent no election."""
    controller = until(cluster.controller_id, "a controller")
    return sorted(node for node in cluster.brokers if node != controller)
