"""Brokers' replica managers on a virtual clock: real partitions, fetchers and logs, no machine.

Owns: a loop over a heap of calls, an in-memory disk, links with a latency drawn from the seed, a registry of
partition states with conditional writes, and a controller that does what the test says. Everything is
deterministic in the seed. A broker that is killed loses its memory and keeps its disk (kill -9).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.seam import Buffer, Host, Part, bytes_of
from harrow.cluster.ids import BrokerEpoch, NodeId, TopicPartition
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.replication import ReplicaManager
from harrow.cluster.storage import LogManager
from harrow.cluster.wire import messages
from harrow.cluster.wire.api import ApiTable
from harrow.cluster.wire.batches import headers
from harrow.cluster.wire.fetch import FetchPartition, FetchRequest, encode_fetch_request
from harrow.cluster.wire.fetch_response import FetchedPartition, decode_fetch_response
from harrow.cluster.wire.internal import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from harrow.cluster.wire.records import build_batch
from harrow.cluster.wire.request import Request
from harrow.cluster.wire.topic_ids import UUID
from request_contexts import broker_context

from .sim_host import SimDisk, SimHost, SimLoop, SimPromise

ORDERS = TopicPartition("orders", 0)


@dataclass
class RegistryState:
    """One partition's state as the registry has it."""

    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    version: int = 0


class SimRegistry:
    """`IsrStore` with a delay, and answers that may be lost."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.states: dict[TopicPartition, RegistryState] = {}
        self.cut_off: set[int] = set()
        self.lose_answers = 0
        self.delay_ms = 1.0

    async def write_isr(
        self, tp: TopicPartition, leader: int, leader_epoch: int, isr: Sequence[int],
        controller_epoch: int, expected_version: int,
    ) -> int | None:  # fmt: skip
        del controller_epoch
        sim = self._simulation
        await sim.sleep(self.delay_ms)
        if leader in self.cut_off:
            raise TimeoutError("the registry does not answer")
        state = self.states[tp]
        same = (leader, leader_epoch, list(isr)) == (state.leader, state.leader_epoch, state.isr)
        if state.version != expected_version:
            return state.version if same and state.version == expected_version + 1 else None
        state.isr, state.version = list(isr), state.version + 1
        version = state.version
        await sim.sleep(self.delay_ms)
        if self.lose_answers > 0:
            self.lose_answers -= 1
            raise TimeoutError("the answer was lost")
        return version


class SimBroker:
    """One broker across its lives."""

    def __init__(self, simulation: Simulation, node_id: int, config: dict[str, object]) -> None:
        self._simulation = simulation
        self.node_id = NodeId(node_id)
        self.disk = SimDisk()
        self._config = BrokerConfig.parse(config)
        self.lives = 0
        self.epoch = -1
        self.host: SimHost
        self.replicas: ReplicaManager
        self.table: ApiTable
        self.paused = False
        self.start()

    @property
    def alive(self) -> bool:
        return self.host.alive

    def start(self) -> None:
        sim = self._simulation
        self.lives += 1
        name = f"broker-{self.node_id}"
        self.host = SimHost(name, sim.loop, self.disk, f"{sim.seed}/{name}/{self.lives}")
        host = cast("Host", self.host)
        logs = LogManager(host, f"/{name}", self._config)
        logs.load()
        self.replicas = ReplicaManager(
            host, self.node_id, self._config, logs, cast("Any", sim.registry),
            lambda node: cast("PeerClient", SimPeer(sim, self, sim.brokers[node])),
        )  # fmt: skip
        self.replicas.alive = lambda node: sim.brokers[node].alive
        self.table = ApiTable(self.replicas.handlers())
        self.replicas.start()
        self.register()

    def register(self) -> None:
        """Open a session, which gives a broker epoch."""
        self._simulation.epochs += 1
        self.epoch = self._simulation.epochs
        self.replicas.broker_epoch = BrokerEpoch(self.epoch)

    def kill(self) -> None:
        self.host.alive = False

    def serve(self, request: Request) -> None:
        """Hand a request to its handler, as a connection does."""
        handler = self.table.lookup(request.api_key, request.version).handler
        try:
            running = handler(request)
        except Exception as error:
            code = getattr(error, "code", None)
            if code is None:
                raise
            request.fail(code)
            return
        if running is not None:
            self.host.tasks.spawn(running, name="request")


class Once:
    """One answer for what takes many."""

    def __init__(self, settled: Any) -> None:
        self._settled: Any = settled
        self._done = False

    def done(self) -> bool:
        return self._done or bool(self._settled.done())

    def set_result(self, result: Any, /) -> None:
        self._done = True
        self._settled.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        self._done = True
        self._settled.set_exception(error)


class SimPeer:
    """What a fetcher gets: a client of another broker whose messages take their time."""

    def __init__(self, simulation: Simulation, source: SimBroker, target: SimBroker) -> None:
        self._sim, self._source, self._target = simulation, source, target
        self._life = target.lives
        self._closed = False
        self._pending: list[SimPromise] = []

    def close(self) -> None:
        self._closed = True
        for promise in self._pending:
            if not promise.done():
                promise.set_exception(ConnectionResetError("closed"))

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        body = messages.encode_request(api_key, version, entity)
        answer = await self.request_parts(api_key, version, (body,), timeout_ms)
        return messages.decode_response(api_key, version, answer)

    async def connect(self, api_key: int, timeout_ms: float) -> None:
        del api_key, timeout_ms
        sim, source = self._sim, self._source
        if self._closed or not self._target.alive or self._life != self._target.lives:
            self._life = self._target.lives
            await source.host.tasks.sleep(sim.latency())
            raise ConnectionRefusedError(f"broker {self._target.node_id} is dead")

    def request_if_connected(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float, settled: Any
    ) -> bool:  # fmt: skip
        sim, source = self._sim, self._source
        if self._closed or not self._target.alive or self._life != self._target.lives:
            return False
        self._pending = [one for one in self._pending if not one.done()] + [settled]
        frame = b"".join(bytes(part) for part in body_parts)
        client_id = f"broker-{source.node_id}"
        sent = cast("SimPromise", Once(settled))
        sim.send(self._target, api_key, version, frame, client_id, sent, sender=source)

        def late() -> None:
            if not sent.done():
                sent.set_exception(TimeoutError("no answer"))

        sim.loop.at(sim.loop.now_ms + timeout_ms, late)
        return True

    async def request_parts(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float
    ) -> memoryview:
        sim, source = self._sim, self._source
        promise = sim.loop_promise()
        self._pending = [one for one in self._pending if not one.done()] + [promise]
        if self._closed or not self._target.alive or self._life != self._target.lives:
            self._life = self._target.lives
            await source.host.tasks.sleep(sim.latency())
            raise ConnectionRefusedError(f"broker {self._target.node_id} is dead")
        frame = b"".join(bytes(part) for part in body_parts)
        client_id = f"broker-{source.node_id}"
        sim.send(self._target, api_key, version, frame, client_id, promise, sender=source)
        return cast("memoryview", await source.host.tasks.wait(promise, timeout_ms))


class Simulation:
    """A cluster of replica managers, a registry, and a scripted controller."""

    def __init__(
        self, brokers: int = 3, *, seed: int = 0, config: dict[str, object] | None = None
    ) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.loop = SimLoop()
        self.epochs = 0
        self.blocked: set[tuple[int, int]] = set()
        self.controller_epoch = 1
        self.topic_ids: dict[str, UUID] = {}
        self.registry = SimRegistry(self)
        settings = {"replica.lag.time.max.ms": 1000, "harrow.trace.hw.interval.ms": 0}
        self.config: dict[str, object] = {**settings, **(config or {})}
        self.brokers: dict[int, SimBroker] = {}
        for node in range(1, brokers + 1):
            self.brokers[node] = SimBroker(self, node, self.config)

    # --- the world

    def latency(self) -> float:
        return self.random.uniform(0.05, 2.0)

    def loop_promise(self) -> SimPromise:
        return SimPromise(self.loop)

    async def sleep(self, delay_ms: float) -> None:
        promise = self.loop_promise()
        self.loop.at(self.loop.now_ms + delay_ms, lambda: promise.set_result(None))
        await promise

    def send(
        self, target: SimBroker, api_key: int, version: int, body: bytes, client_id: str,
        promise: SimPromise, *, sender: SimBroker | None = None,
    ) -> None:  # fmt: skip
        """Deliver a request after a while; its answer settles `promise` after another."""
        life, sender_life = target.lives, sender.lives if sender else 0

        def cut() -> bool:
            if sender is None:
                return False
            return (sender.node_id, target.node_id) in self.blocked

        def arrive() -> None:
            if not target.alive or target.lives != life:
                if not promise.done():
                    promise.set_exception(ConnectionResetError("died"))
                return
            if cut():
                self.loop.at(self.loop.now_ms + 5, arrive)
                return
            request = Request(
                api_key, version, 1, client_id, body, 0, broker_context(client_id),
                target.host.monotonic_ns(), complete,
            )  # fmt: skip
            target.host.network.deliver(partial(target.serve, request))

        def complete(parts: Sequence[Part] | None, on_send: Callable[[bool], None] | None) -> None:
            if on_send is not None:
                on_send(False)
            answer = b"".join(bytes_of(part) for part in parts or ())

            def deliver() -> None:
                if cut():
                    self.loop.at(self.loop.now_ms + 5, deliver)
                    return
                gone = sender is not None and (sender.lives != sender_life or not sender.alive)
                if not promise.done() and not gone:
                    promise.set_result(memoryview(answer))

            self.loop.at(self.loop.now_ms + self.latency(), deliver)

        self.loop.at(self.loop.now_ms + self.latency(), arrive)

    def request(self, node: int, api_key: int, version: int, entity: Any) -> SimPromise:
        """Ask a broker as a client; the promise gets the response's bytes."""
        promise = self.loop_promise()
        body = messages.encode_request(api_key, version, entity)
        self.send(self.brokers[node], api_key, version, body, "test", promise)
        return promise

    def ask(self, node: int, api_key: int, version: int, entity: Any) -> Any:
        """Ask and run until the answer is there."""
        promise = self.request(node, api_key, version, entity)
        assert self.loop.run_until(promise.done, 60_000), "no answer"
        return messages.decode_response(api_key, version, promise.result)

    # --- the controller

    def topic_id(self, topic: str) -> UUID:
        if topic not in self.topic_ids:
            self.topic_ids[topic] = UUID(int=self.random.getrandbits(128) | 1, version=4)
        return self.topic_ids[topic]

    def create(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        first = replicas[0]
        self.registry.states[tp] = RegistryState(first, 0, list(replicas), list(replicas))
        self.tell(tp)

    def elect(self, tp: TopicPartition, leader: int, isr: Sequence[int] | None = None) -> None:
        """Write a new leader (and maybe ISR) with the next epoch, and tell all replicas that live."""
        state = self.registry.states[tp]
        state.leader, state.leader_epoch = leader, state.leader_epoch + 1
        state.version += 1
        if isr is not None:
            state.isr = list(isr)
        self.tell(tp)

    def tell(self, tp: TopicPartition, nodes: Sequence[int] | None = None) -> None:
        """Send the registry's state to replicas; each hears of it after a latency of its own."""
        state = self.registry.states[tp]
        for node in nodes if nodes is not None else state.replicas:
            if self.brokers[node].alive:
                self.request(node, 4, 7, self.order(tp, node))

    def order(self, tp: TopicPartition, node: int, **changed: Any) -> LeaderAndIsrRequest:
        state = self.registry.states[tp]
        fields: dict[str, Any] = {
            "partition_index": tp.partition,
            "controller_epoch": self.controller_epoch,
            "leader": state.leader,
            "leader_epoch": state.leader_epoch,
            "isr": tuple(state.isr),
            "partition_epoch": state.version,
            "replicas": tuple(state.replicas),
        }
        top: dict[str, Any] = {
            "controller_id": 1,
            "controller_epoch": self.controller_epoch,
            "broker_epoch": self.brokers[node].epoch,
        }
        for name, value in changed.items():
            (top if name in top else fields)[name] = value
        row = LeaderAndIsrPartitionState(**fields)
        topic = LeaderAndIsrTopicState(
            topic_name=tp.topic, topic_id=self.topic_id(tp.topic), partition_states=(row,)
        )
        return LeaderAndIsrRequest(topic_states=(topic,), **top)

    # --- clients

    def partition(self, node: int, tp: TopicPartition) -> Any:
        return self.brokers[node].replicas.partition(tp)

    def produce(
        self, node: int, tp: TopicPartition, values: Sequence[bytes], *, acks: int = -1,
        timeout_ms: int = 5_000, **batch: Any,
    ) -> list[Any]:  # fmt: skip
        """Append directly at a broker; the list gets the result when there is one."""
        answers: list[Any] = []
        records = [(None, value, ()) for value in values]
        data = build_batch(records, timestamp_ms=self.brokers[node].host.wall_ms(), **batch)
        self.brokers[node].replicas.append(
            {tp: data}, acks=acks, timeout_ms=timeout_ms,
            done=lambda results: answers.append(results[tp]),
        )  # fmt: skip
        return answers

    def content(self, node: int, tp: TopicPartition) -> list[tuple[int, int, bytes]]:
        """(base offset, leader epoch, bytes behind the epoch) of every batch in a replica's log."""
        log = self.partition(node, tp).log
        offset, found = log.log_start_offset, list[tuple[int, int, bytes]]()
        while offset < log.log_end_offset:
            data = b"".join(log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True).parts)
            for position, size, header in headers(data):
                found.append(
                    (
                        header.base_offset,
                        header.leader_epoch,
                        bytes(data[position + 16 : position + size]),
                    )
                )
                offset = header.last_offset + 1
        return found


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
        view = promise.result
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


def settle(sim: Simulation, answers: list[Any], limit_ms: float = 10_000) -> Any:
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
