"""Clients of a `Simulation` (fetches, offsets, the result of an append), and a simulation of three brokers."""

from __future__ import annotations

from typing import Any

from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchedPartition, decode_fetch_response

from .simulation import ORDERS, SimPromise, Simulation


class Consumer:
    """A consumer that fetches `tp` from broker `node`."""

    def __init__(self, sim: Simulation, node: int = 1, version: int = 12, tp: TopicPartition = ORDERS) -> None:
        self.sim, self.node, self.version, self.tp = sim, node, version, tp

    def send(self, offset: int, *, wait: int = 100, min_bytes: int = 1, **row: int) -> SimPromise:
        topic: Any = self.tp.topic if self.version < 13 else self.sim.topic_id(self.tp.topic)
        epoch, last = row.get("epoch", -1), row.get("last_epoch", -1)
        part = FetchPartition(topic, self.tp.partition, epoch, offset, last, -1, row.get("size", 1 << 20))
        fetch = FetchRequest(
            row.get("replica", -1),
            row.get("incarnation", -1),
            wait,
            min_bytes,
            1 << 20,
            row.get("isolation", 0),
            0,
            -1,
            [part],
            [],
            "",
        )
        body = encode_fetch_request(self.version, fetch)
        promise = self.sim.loop_promise()
        target = self.sim.brokers[self.node]
        self.sim.send(target, 1, self.version, body, "reader", promise)
        return promise

    def response(self, promise: SimPromise) -> FetchedPartition:
        assert self.sim.loop.run_until(promise.done, 60_000)
        view = promise.result()
        return decode_fetch_response(self.version, bytes(view)).partitions[0]

    def fetch(self, offset: int, **row: Any) -> FetchedPartition:
        return self.response(self.send(offset, **row))


PATIENT: dict[str, object] = {"replica.lag.time.max.ms": 60_000}
"""No replica leaves the ISR during a test."""


def three(**config: object) -> Simulation:
    """A simulation with `ORDERS` on three brokers; broker 1 is the leader."""
    sim = Simulation(3, seed=1, config=config)
    sim.create(ORDERS, [1, 2, 3])
    sim.loop.run_for(50)
    return sim


def result_of(sim: Simulation, results: list[Any], limit_ms: float = 10_000) -> Any:
    """Run until the append has its result; return it."""
    assert sim.loop.run_until(lambda: bool(results), limit_ms)
    assert len(results) == 1
    return results[0]


def list_offset(sim: Simulation, timestamp: int, version: int = 7, isolation: int = 0) -> Any:
    """Send ListOffsets for `ORDERS` to broker 1 as a consumer; return the partition of the response."""
    topics = [
        {"name": ORDERS.topic, "partitions": [{"partition_index": ORDERS.partition, "timestamp": timestamp}]},
    ]
    asked = client_request(2, version, replica_id=-1, isolation_level=isolation, topics=topics)
    return sim.call(1, *asked).topics[0].partitions[0]
