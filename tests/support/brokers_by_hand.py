"""What tests of real brokers do by hand: a topic placed on brokers of their choice, links cut, states awaited."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harrow.cluster import Cluster
from raw_kafka import RawKafka
from waiting import until


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """One replica as its own broker tells it."""

    leader: int
    epoch: int
    isr: tuple[int, ...]
    leo: int
    hw: int


@dataclass(frozen=True, slots=True)
class Placed:
    """Partition 0 of a topic whose replicas lie where the test wants them."""

    cluster: Cluster
    topic: str

    def raw(self, node: int, client_id: str = "raw") -> RawKafka:
        """A connection to one broker."""
        return RawKafka(self.cluster.brokers[node].port, client_id=client_id)

    def seen(self, node: int) -> Seen:
        """The replica on `node`, by the broker itself."""
        for row in self.cluster.control(node, "state")["partitions"]:
            if (row["topic"], row["partition"]) == (self.topic, 0):
                return Seen(
                    leader=row["leader"], epoch=row["leader_epoch"], isr=tuple(row["isr"]),
                    leo=row["leo"], hw=row["hw"],
                )  # fmt: skip
        raise AssertionError(f"broker {node} hosts no {self.topic}-0")

    def nodes(self) -> tuple[int, ...]:
        """Where the replicas lie, the preferred leader first."""
        return self.cluster.describe().topics[self.topic][0].replicas

    def await_ends(self, **expected: Mapping[int, int]) -> None:
        """Until the replicas' `leo` and `hw` (by node) are these."""
        told: dict[int, Seen] = {}

        def right() -> bool:
            told.update({node: self.seen(node) for rows in expected.values() for node in rows})
            return all(
                getattr(told[node], name) == value
                for name, rows in expected.items()
                for node, value in rows.items()
            )

        try:
            until(right)
        except AssertionError:
            raise AssertionError(f"expected {expected}, got {told}") from None

    def await_state(self, *, leader: int, isr: tuple[int, ...], told: int | None = None) -> None:
        """Until the registry has this leader and ISR, and broker `told` (by default the leader) knows the leader."""
        node = leader if told is None else told

        def right() -> bool:
            view = self.cluster.describe().partition(self.topic, 0)
            return view is not None and view.leader == leader and set(view.isr) == set(isr)

        until(right, f"leader {leader} and ISR {isr} of {self.topic}")
        until(lambda: self.seen(node).leader == leader, f"broker {node} told of leader {leader}")

    def produce(self, node: int, value: str, *, acks: int = -1, timeout_ms: int = 30_000) -> Any:
        """One record to `node`, whoever leads: the row of the answer."""
        with self.raw(node) as raw:
            return raw.produce(self.topic, 0, [value], acks=acks, timeout_ms=timeout_ms)

    def events(self, node: int, *names: str) -> list[dict[str, Any]]:
        """The partition's trace events on `node`, of these kinds, in order."""
        path = self.cluster.folder / f"broker-{node}" / "trace.jsonl"
        rows: list[dict[str, Any]] = [json.loads(line) for line in path.read_text().splitlines()]
        return [
            row
            for row in rows
            if row.get("topic") == self.topic and (not names or row["event"] in names)
        ]

    def checkpointed(self, node: int) -> int:
        """The HW in the checkpoint file on `node`; -1 where there is none."""
        path: Path = (
            self.cluster.folder / f"broker-{node}" / "data" / "replication-offset-checkpoint"
        )
        if not path.exists():
            return -1
        rows = [line.split() for line in path.read_text().splitlines()[2:]]
        return next((int(mark) for topic, _, mark in rows if topic == self.topic), -1)

    def await_checkpoint(self, node: int, mark: int) -> None:
        """Until the HW of `node` is on its disk."""
        until(lambda: self.checkpointed(node) == mark, f"HW {mark} in the checkpoint of {node}")


def place(
    cluster: Cluster, topic: str, *nodes: int, config: Mapping[str, str] | None = None
) -> Placed:
    """Create `topic` with one partition on `nodes`, the first its leader; all in the ISR and told so."""
    controller = until(cluster.controller_id, "a controller")
    with RawKafka(cluster.brokers[controller].port) as raw:
        created = raw.create_topic(topic, assignment=[nodes], config=dict(config or {}))
    assert created.error_code == 0, created
    placed = Placed(cluster, topic)
    for node in nodes:
        hosted = lambda node=node: any(  # noqa: E731 - a question
            row["topic"] == topic for row in cluster.control(node, "state")["partitions"]
        )
        until(hosted, f"broker {node} hosts {topic}")
    placed.await_state(leader=nodes[0], isr=nodes)
    return placed


def besides_the_controller(cluster: Cluster) -> list[int]:
    """Brokers that are not the controller, by id: what happens to them stops no election."""
    controller = until(cluster.controller_id, "a controller")
    return sorted(node for node in cluster.brokers if node != controller)
