"""Replica managers of several brokers on simulated machines: real partitions, fetchers and logs, a scripted controller.

Owns: links with a latency drawn from the seed, which carry requests directly to the handlers; a registry of partition
states with conditional writes; and a controller that follows the test. Machines, clocks, disks and tasks are
those of `cluster/host/simulated`. Everything is deterministic in the seed. A broker that is killed loses its memory
and keeps its disk (kill -9). An unhandled exception in a task or a callback of a broker fails the test
(`conftest.py`).
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.events.processes import TaskFailed
from harrow.cluster.host.seam import Buffer, Part, Peer, TappedRequest, bytes_of
from harrow.cluster.host.simulated import Machine, SimHost, World
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.host.simulated.network import SimNetwork
from harrow.cluster.host.simulated.tasks import SimPromise as HostPromise
from harrow.cluster.ids import BrokerEpoch, NodeId, TopicPartition
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.replication import ReplicaManager
from harrow.cluster.storage import LogManager
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_table import ApiTable
from harrow.cluster.wire.batches import headers
from harrow.cluster.wire.internal import LeaderAndIsrPartitionState, LeaderAndIsrRequest, LeaderAndIsrTopicState
from harrow.cluster.wire.records import build_batch
from harrow.cluster.wire.request import ARRIVES, OnSend, Request
from harrow.cluster.wire.topic_ids import UUID
from request_contexts import broker_context

ORDERS = TopicPartition("orders", 0)
SimPromise = HostPromise[Any]
OPEN: list[Simulation] = []
"""Simulations that the current test created; `conftest.py` closes them."""


@dataclass
class RegistryState:
    """The state of one partition in the registry."""

    leader: int
    leader_epoch: int
    isr: list[int]
    replicas: list[int]
    version: int = 0


class SimRegistry:
    """An `IsrStore` with a delay, whose responses may be lost."""

    def __init__(self, simulation: Simulation) -> None:
        self._simulation = simulation
        self.states: dict[TopicPartition, RegistryState] = {}
        self.unreachable_from: set[int] = set()
        self.lose_responses = 0
        self.delay_ms = 1.0

    async def write_isr(
        self, tp: TopicPartition, leader: int, leader_epoch: int, isr: Sequence[int],
        controller_epoch: int, expected_version: int, registrations: Mapping[int, int],
    ) -> int | None:  # fmt: skip
        del controller_epoch, registrations
        sim = self._simulation
        sleep = sim.brokers[leader].host.tasks.sleep
        await sleep(self.delay_ms)
        if leader in self.unreachable_from:
            raise TimeoutError("the registry does not respond")
        state = self.states[tp]
        same = (leader, leader_epoch, list(isr)) == (state.leader, state.leader_epoch, state.isr)
        if state.version != expected_version:
            return state.version if same and state.version == expected_version + 1 else None
        state.isr, state.version = list(isr), state.version + 1
        version = state.version
        await sleep(self.delay_ms)
        if self.lose_responses > 0:
            self.lose_responses -= 1
            raise TimeoutError("the response was lost")
        return version


class ListTap:
    """A tap that stores its rows in a list."""

    enabled = True

    def requested(self, row: TappedRequest) -> None:
        """Nothing."""

    def __init__(self) -> None:
        self.rows: list[tuple[str, dict[str, Any]]] = []

    def produced(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        tp = TopicPartition(topic, partition)
        self.rows.append(("produced", {"client": client, "tp": tp, **fields}))

    def fetched(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        tp = TopicPartition(topic, partition)
        self.rows.append(("fetched", {"client": client, "tp": tp, **fields}))

    def watermarks(self, client: str, found: Any, **fields: Any) -> None:
        self.rows.append(("watermarks", {"client": client, "found": list(found), **fields}))

    def committed(self, group: str, offsets: Any, **fields: Any) -> None:
        self.rows.append(("committed", {"group": group, "offsets": list(offsets), **fields}))

    def transaction(self, transactional_id: str, partitions: Any, **fields: Any) -> None:
        self.rows.append(("transaction", {"id": transactional_id, "on": list(partitions), **fields}))

    def member(self, group: str, member: str, client: str, **fields: Any) -> None:
        row = {"group": group, "member": member, "client": client, **fields}
        self.rows.append(("member", row))

    def shared(self, group: str, member: str, client: str, records: Any, **fields: Any) -> None:
        row = {"group": group, "member": member, "client": client, "records": list(records), **fields}
        self.rows.append(("shared", row))

    def group(self, group: str, now: Any, **fields: Any) -> None:
        self.rows.append(("group", {"group": group, "now": now, **fields}))

    def close(self) -> None:
        pass


class SimBroker:
    """One broker over all its incarnations."""

    def __init__(self, simulation: Simulation, node_id: int, config: dict[str, object]) -> None:
        self._simulation = simulation
        self.node_id = NodeId(node_id)
        name = f"broker-{node_id}"
        self.machine = Machine(simulation.world, name, Peer("broker", str(node_id)))
        self.tap = ListTap()
        self._config = BrokerConfig.parse(config)
        self.incarnations = 0
        self.epoch = -1
        self.host: SimHost
        self.replicas: ReplicaManager
        self.logs: LogManager
        self.table: ApiTable
        self.start()

    @property
    def alive(self) -> bool:
        return self.machine.alive

    def traced(self, event: str) -> list[dict[str, Any]]:
        """Return the fields of all trace events with this name."""
        own = (row.event for row in self._simulation.world.trace.events if row.process == self.machine.name)
        return [traced.json_fields() for traced in own if traced.event_name == event]

    def start(self) -> None:
        sim = self._simulation
        self.incarnations += 1
        self.host = host = self.machine.boot()
        host.tap = self.tap
        logs = self.logs = LogManager(host, f"/{self.machine.name}", self._config)
        logs.load()
        self.replicas = ReplicaManager(
            host, self.node_id, self._config, logs, cast("Any", sim.registry),
            lambda node: cast("PeerClient", SimPeer(sim, self, sim.brokers[node])), sim,
        )  # fmt: skip
        self.table = ApiTable(self.replicas.handlers())
        self.replicas.start()
        self.register()

    def register(self) -> None:
        """Open a registry session, which assigns a broker epoch."""
        self._simulation.epochs += 1
        self.epoch = self._simulation.epochs
        self.replicas.broker_epoch = BrokerEpoch(self.epoch)

    def kill(self) -> None:
        self.machine.kill()

    def serve(self, request: Request) -> None:
        """Pass a request to its handler, as a connection does."""
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


class FirstResult:
    """The promise of one request, which passes its result on to the `receiver` of several requests."""

    def __init__(self, receiver: Any) -> None:
        self._receiver: Any = receiver
        self._done = False

    def done(self) -> bool:
        return self._done or bool(self._receiver.done())

    def set_result(self, result: Any, /) -> None:
        self._done = True
        self._receiver.set_result(result)

    def set_exception(self, error: BaseException, /) -> None:
        self._done = True
        self._receiver.set_exception(error)


class SimPeer:
    """A fetcher's client of another broker, whose messages have a latency."""

    def __init__(self, simulation: Simulation, source: SimBroker, target: SimBroker) -> None:
        self._sim, self._source, self._target = simulation, source, target
        self._incarnation = target.incarnations
        self._closed = False
        self._pending: list[SimPromise] = []

    def close(self) -> None:
        self._closed = True
        for promise in self._pending:
            if not promise.done():
                promise.set_exception(ConnectionResetError("closed"))

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        body = messages.encode_request(api_key, version, entity)
        response = await self.request_parts(api_key, version, (body,), timeout_ms)
        return messages.decode_response(api_key, version, response)

    async def connect(self, api_key: int, timeout_ms: float) -> None:
        del api_key, timeout_ms
        sim, source = self._sim, self._source
        if self._closed or not self._target.alive or self._incarnation != self._target.incarnations:
            self._incarnation = self._target.incarnations
            await source.host.tasks.sleep(sim.latency())
            raise ConnectionRefusedError(f"broker {self._target.node_id} is dead")

    def request_if_connected(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float, receiver: Any
    ) -> bool:  # fmt: skip
        sim, source = self._sim, self._source
        if self._closed or not self._target.alive or self._incarnation != self._target.incarnations:
            return False
        self._pending = [promise for promise in self._pending if not promise.done()] + [receiver]
        frame = b"".join(bytes(part) for part in body_parts)
        client_id = f"broker-{source.node_id}"
        sent = cast("SimPromise", FirstResult(receiver))
        sim.send(self._target, api_key, version, frame, client_id, sent, sender=source)

        def time_out() -> None:
            if not sent.done():
                sent.set_exception(TimeoutError("no response"))

        sim.later(timeout_ms, time_out)
        return True

    async def request_parts(
        self, api_key: int, version: int, body_parts: Sequence[Buffer], timeout_ms: float
    ) -> memoryview:
        sim, source = self._sim, self._source
        promise = cast("SimPromise", source.host.tasks.promise())
        self._pending = [earlier for earlier in self._pending if not earlier.done()] + [promise]
        if self._closed or not self._target.alive or self._incarnation != self._target.incarnations:
            self._incarnation = self._target.incarnations
            await source.host.tasks.sleep(sim.latency())
            raise ConnectionRefusedError(f"broker {self._target.node_id} is dead")
        frame = b"".join(bytes(part) for part in body_parts)
        client_id = f"broker-{source.node_id}"
        sim.send(self._target, api_key, version, frame, client_id, promise, sender=source)
        return cast("memoryview", await source.host.tasks.wait(promise, timeout_ms))


class Simulation:
    """A cluster of replica managers, a registry, and a scripted controller."""

    def __init__(self, brokers: int = 3, *, seed: int = 0, config: dict[str, object] | None = None) -> None:
        self.seed = seed
        self.random = random.Random(seed)
        self.world = World(seed)
        self.loop = self.world.loop
        self.client = Machine(self.world, "client", Peer("client", "test")).boot()
        OPEN.append(self)
        self.epochs = 0
        self.blocked: set[tuple[int, int]] = set()
        self.missing_in_metadata: set[int] = set()
        """Brokers that the metadata of all brokers does not have."""
        self.controller_epoch = 1
        self.topic_ids: dict[str, UUID] = {}
        self.registry = SimRegistry(self)
        settings = {"replica.lag.time.max.ms": 1000, "harrow.trace.hw.interval.ms": 0}
        self.config: dict[str, object] = {**settings, **(config or {})}
        self.brokers: dict[int, SimBroker] = {}
        self.racks: dict[int, str] = {}
        for node in range(1, brokers + 1):
            self.brokers[node] = SimBroker(self, node, self.config)

    # --- metadata of the brokers (`ClusterMetadata`)

    def is_alive(self, node_id: NodeId, /) -> bool:
        return node_id not in self.missing_in_metadata and self.brokers[node_id].alive

    def rack(self, node_id: NodeId, listener: str, /) -> str | None:
        del listener
        return self.racks.get(node_id) if self.is_alive(node_id) else None

    def has_partition(self, tp: TopicPartition, /) -> bool:
        del tp
        return False

    def leader(self, tp: TopicPartition, /) -> None:
        del tp

    def address(self, node_id: NodeId, listener: str, /) -> None:
        del node_id, listener

    def topic_name(self, topic_id: UUID, /) -> None:
        del topic_id

    async def topic_config(self, topic: str, /) -> dict[str, object]:
        del topic
        return {}

    # --- the simulated environment

    def latency(self) -> float:
        return self.random.uniform(0.05, 2.0)

    def loop_promise(self) -> SimPromise:
        """Return a promise of the client."""
        return cast("SimPromise", self.client.tasks.promise())

    def later(self, delay_ms: float, call: Callable[[], object]) -> None:
        """Run `call` after `delay_ms` of virtual time, independent of the brokers' incarnations."""
        self.loop.call_after(None, int(delay_ms * NS_PER_MS), call)

    def close(self) -> None:
        """End the simulation; assert that it had no unhandled exception."""
        failed = [row for row in self.world.trace.events if isinstance(row.event, TaskFailed)]
        self.world.close()
        assert not failed, failed

    def send(
        self, target: SimBroker, api_key: int, version: int, body: bytes, client_id: str,
        promise: SimPromise, *, sender: SimBroker | None = None,
    ) -> None:  # fmt: skip
        """Deliver a request after a latency; its response completes `promise` after another latency."""
        incarnation, sender_incarnation = target.incarnations, sender.incarnations if sender else 0

        def is_blocked() -> bool:
            if sender is None:
                return False
            return (sender.node_id, target.node_id) in self.blocked

        def arrive() -> None:
            if not target.alive or target.incarnations != incarnation:
                if not promise.done():
                    promise.set_exception(ConnectionResetError("the broker was killed"))
                return
            if is_blocked():
                self.later(5, arrive)
                return
            request = Request(
                api_key, version, 1, client_id, body, 0, broker_context(client_id),
                target.host.clock.monotonic_ns(), complete,
            )  # fmt: skip
            cast("SimNetwork", target.host.network).deferred_calls.run(partial(target.serve, request))

        def complete(parts: Sequence[Part] | None, on_send: OnSend | None) -> None:
            if on_send is not None:
                on_send(ARRIVES)
            response = b"".join(bytes_of(part) for part in parts or ())

            def deliver() -> None:
                if is_blocked():
                    self.later(5, deliver)
                    return
                sender_restarted = sender is not None and (
                    sender.incarnations != sender_incarnation or not sender.alive
                )
                if not promise.done() and not sender_restarted:
                    promise.set_result(memoryview(response))

            self.later(self.latency(), deliver)

        self.later(self.latency(), arrive)

    def request(self, node: int, api_key: int, version: int, entity: Any) -> SimPromise:
        """Send a request to a broker as a client; the promise receives the bytes of the response."""
        promise = self.loop_promise()
        body = messages.encode_request(api_key, version, entity)
        self.send(self.brokers[node], api_key, version, body, "test", promise)
        return promise

    def call(self, node: int, api_key: int, version: int, entity: Any) -> Any:
        """Send a request, run until the response arrives, and return it."""
        promise = self.request(node, api_key, version, entity)
        assert self.loop.run_until(promise.done, 60_000), "no response"
        return messages.decode_response(api_key, version, promise.result())

    # --- the controller

    def topic_id(self, topic: str) -> UUID:
        if topic not in self.topic_ids:
            self.topic_ids[topic] = UUID(int=self.random.getrandbits(128) | 1, version=4)
        return self.topic_ids[topic]

    def create(self, tp: TopicPartition, replicas: Sequence[int]) -> None:
        first = replicas[0]
        self.registry.states[tp] = RegistryState(first, 0, list(replicas), list(replicas))
        self.send_leader_and_isr(tp)

    def elect(self, tp: TopicPartition, leader: int, isr: Sequence[int] | None = None) -> None:
        """Write a new leader (and possibly a new ISR) with the next epoch, and send it to all live replicas."""
        state = self.registry.states[tp]
        state.leader, state.leader_epoch = leader, state.leader_epoch + 1
        state.version += 1
        if isr is not None:
            state.isr = list(isr)
        self.send_leader_and_isr(tp)

    def send_leader_and_isr(self, tp: TopicPartition, nodes: Sequence[int] | None = None) -> None:
        """Send the registry's state to replicas; each receives it after a latency of its own."""
        state = self.registry.states[tp]
        for node in nodes if nodes is not None else state.replicas:
            if self.brokers[node].alive:
                self.request(node, 4, 7, self.leader_and_isr(tp, node))

    def leader_and_isr(self, tp: TopicPartition, node: int, **changed: Any) -> LeaderAndIsrRequest:
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
        topic = LeaderAndIsrTopicState(topic_name=tp.topic, topic_id=self.topic_id(tp.topic), partition_states=(row,))
        return LeaderAndIsrRequest(topic_states=(topic,), **top)

    # --- clients

    def partition(self, node: int, tp: TopicPartition) -> Any:
        return self.brokers[node].replicas.partition(tp)

    def produce(
        self, node: int, tp: TopicPartition, values: Sequence[bytes], *, acks: int = -1,
        timeout_ms: int = 5_000, **batch: Any,
    ) -> list[Any]:  # fmt: skip
        """Append directly at a broker; the list receives the result when the append completes."""
        results: list[Any] = []
        records = [(None, value, ()) for value in values]
        data = build_batch(records, timestamp_ms=self.brokers[node].host.clock.wall_ms(), **batch)
        self.brokers[node].replicas.append(
            {tp: data}, acks=acks, timeout_ms=timeout_ms,
            done=lambda appended: results.append(appended[tp]),
        )  # fmt: skip
        return results

    def content(self, node: int, tp: TopicPartition) -> list[tuple[int, int, bytes]]:
        """Return (base offset, leader epoch, bytes after the epoch) of every batch in a replica's log."""
        log = self.partition(node, tp).log
        offset, found = log.log_start_offset, list[tuple[int, int, bytes]]()
        while offset < log.log_end_offset:
            data = b"".join(log.read(offset, 1 << 20, log.log_end_offset, at_least_one=True).parts)
            for position, size, header in headers(data):
                found.append((header.base_offset, header.leader_epoch, bytes(data[position + 16 : position + size])))
                offset = header.last_offset + 1
        return found
