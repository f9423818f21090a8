"""Clients of a `Simulation`: fetches, offsets, the result of an append; and three brokers with one topic."""

from __future__ import annotations

from typing import Any

from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire import messages
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchedPartition, decode_fetch_response

from .simulation import ORDERS, SimPromise, Simulation


class Consumer:
    """Fetches of `tp` at broker `node`."""

    def __init__(
        self, sim: Simulation, node: int = 1, version: int = 12, tp: TopicPartition = ORDERS
    ) -> None:
        self.sim, self.node, self.version, self.tp = sim, node, version, tp

    def send(self, offset: int, *, wait: int = 100, min_bytes: int = 1, **row: int) -> SimPromise:
        topic: Any = self.tp.topic if self.version < 13 else self.sim.topic_id(self.tp.topic)
        epoch, last = row.get("epoch", -1), row.get("last_epoch", -1)
        part = FetchPartition(
            topic, self.tp.partition, epoch, offset, last, -1, row.get("size", 1 << 20)
        )
        fetch = FetchRequest(
            row.get("replica", -1), row.get("life", -1), wait, min_bytes, 1 << 20,
            row.get("isolation", 0), 0, -1, [part], [], "",
        )  # fmt: skip
        body = encode_fetch_request(self.version, fetch)
        promise = self.sim.loop_promise()
        target = self.sim.brokers[self.node]
        self.sim.send(target, 1, self.version, body, "reader", promise)
        return promise

    def answer(self, promise: SimPromise) -> FetchedPartition:
        assert self.sim.loop.run_until(promise.done, 60_000)
        view = promise.result()
        return decode_fetch_response(self.version, bytes(view)).partitions[0]

    def fetch(self, offset: int, **row: Any) -> FetchedPartition:
        return self.answer(self.send(offset, **row))


PATIENT: dict[str, object] = {"replica.lag.time.max.ms": 60_000}
"""Nobody leaves the ISR while a test lasts."""


def three(**config: object) -> Simulation:
    """`ORDERS` on three brokers, the first its leader."""
    sim = Simulation(3, seed=1, config=config)
    sim.create(ORDERS, [1, 2, 3])
    sim.loop.run_for(50)
    return sim


def result_of(sim: Simulation, answers: list[Any], limit_ms: float = 10_000) -> Any:
    """The one result of an append, when there is one."""
    assert sim.loop.run_until(lambda: bool(answers), limit_ms)
    assert len(answers) == 1
    return answers[0]


def list_offset(sim: Simulation, timestamp: int, version: int = 7, isolation: int = 0) -> Any:
    """ListOffsets of `ORDERS` at broker 1, as a consumer asks: its row of the answer."""
    s = messages.schema(2, version, "request")
    row = s.ListOffsetsPartition(partition_index=ORDERS.partition, timestamp=timestamp)
    topic = s.ListOffsetsTopic(name=ORDERS.topic, partitions=(row,))
    entity = s.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=(topic,))
    return sim.ask(1, 2, version, entity).topics[0].partitions[0]
