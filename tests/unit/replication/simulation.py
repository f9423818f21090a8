"""Brokers' replica managers on a virtual clock: real partitions, fetchers and logs, no machine.

Owns: a loop over a heap of calls, an in-memory disk, links with a latency drawn from the seed, a registry of
partition states with conditional writes, and a controller that does what the test says. Everything is
deterministic in the seed. A broker that is killed loses its memory and keeps its disk (kill -9).
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.seam import Buffer, Host, Peer
from harrow.cluster.ids import BrokerEpoch, NodeId, TopicPartition
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.replication import ReplicaManager
from harrow.cluster.storage import LogManager
from harrow.cluster.wire import messages
from harrow.cluster.wire.api import ApiTable
from harrow.cluster.wire.batches import headers
from harrow.cluster.wire.internal import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from harrow.cluster.wire.records import build_batch
from harrow.cluster.wire.request import Request
from harrow.cluster.wire.topic_ids import UUID

T = TypeVar("T")


class SimPromise:
    """A promise of the virtual loop."""

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self._settled = False
        self.result: Any = None
        self._error: BaseException | None = None
        self._callbacks: list[Callable[[], None]] = []

    def done(self) -> bool:
        return self._settled

    def set_result(self, result: Any, /) -> None:
        self._settle(result, None)

    def set_exception(self, error: BaseException, /) -> None:
        self._settle(None, error)

    def cancel(self) -> None:
        if not self._settled:
            self._settle(None, TimeoutError("cancelled"))

    def _settle(self, result: Any, error: BaseException | None) -> None:
        assert not self._settled
        self._settled, self.result, self._error = True, result, error
        for call in self._callbacks:
            self._loop.call_soon(call)

    def when_done(self, call: Callable[[], None]) -> None:
        if self._settled:
            self._loop.call_soon(call)
        else:
            self._callbacks.append(call)

    def __await__(self) -> Generator[Any, None, Any]:
        if not self._settled:
            yield self
        if self._error is not None:
            raise self._error
        return self.result


class SimTimer:
    def __init__(self) -> None:
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class SimTask:
    def __init__(self, loop: SimLoop, coroutine: Coroutine[Any, Any, object]) -> None:
        self._loop = loop
        self._coroutine = coroutine
        self.promise = SimPromise(loop)
        loop.call_soon(self._step)

    def _step(self) -> None:
        if self.promise.done():
            return
        try:
            awaited = self._coroutine.send(None)
        except StopIteration as stop:
            self.promise.set_result(stop.value)
        except BaseException as error:
            self.promise.set_exception(error)
            self._loop.failures.append(error)
        else:
            assert isinstance(awaited, SimPromise)
            awaited.when_done(self._step)

    def cancel(self) -> None:
        self._coroutine.close()
        if not self.promise.done():
            self.promise.set_result(None)

    def done(self) -> bool:
        return self.promise.done()


class SimLoop:
    """Virtual time in milliseconds and what is due when."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000.0
        self.failures: list[BaseException] = []
        self._heap: list[tuple[float, int, SimTimer, Callable[[], object]]] = []
        self._made = 0

    def at(self, when_ms: float, call: Callable[[], object]) -> SimTimer:
        timer = SimTimer()
        self._made += 1
        heapq.heappush(self._heap, (when_ms, self._made, timer, call))
        return timer

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.at(self.now_ms, lambda: call(*args))

    def run_for(self, duration_ms: float) -> None:
        self.run_until(lambda: False, duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        deadline = self.now_ms + limit_ms
        while not condition():
            if not self._heap or self._heap[0][0] > deadline:
                self.now_ms = deadline
                return condition()
            when, _, timer, call = heapq.heappop(self._heap)
            self.now_ms = max(self.now_ms, when)
            if not timer.cancelled:
                call()
            if self.failures:
                raise self.failures[0]
        return True


class SimFile:
    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk, self.path = disk, path

    @property
    def _data(self) -> bytearray:
        return self._disk.files[self.path]

    def append(self, parts: Sequence[Buffer]) -> int:
        self._disk.check()
        data = self._data
        at = len(data)
        for part in parts:
            data += part
        return at

    def write_at(self, position: int, data: Buffer) -> None:
        self._data[position : position + len(data)] = data

    def read_at(self, position: int, size: int) -> bytes:
        return bytes(self._data[position : position + size])

    def size(self) -> int:
        return len(self._data)

    def truncate(self, size: int) -> None:
        del self._data[size:]

    def sync(self) -> None:
        self._disk.check()

    def close(self) -> None:
        pass


class SimDisk:
    """Files in a dict; `broken` makes every write fail."""

    def __init__(self) -> None:
        self.files: dict[str, bytearray] = {}
        self.folders: set[str] = set()
        self.broken = False

    def check(self) -> None:
        if self.broken:
            raise OSError(5, "simulated I/O error")

    def open(self, path: str, *, create: bool = True) -> SimFile:
        if path not in self.files:
            if not create:
                raise FileNotFoundError(path)
            self.files[path] = bytearray()
        return SimFile(self, path)

    def read(self, path: str) -> bytes:
        if path not in self.files:
            raise FileNotFoundError(path)
        return bytes(self.files[path])

    def replace(self, path: str, data: bytes) -> None:
        self.check()
        self.files[path] = bytearray(data)

    def exists(self, path: str) -> bool:
        return path in self.files or path in self.folders

    def is_folder(self, path: str) -> bool:
        return path in self.folders

    def list(self, folder: str) -> list[str]:
        prefix = folder + "/"
        paths = [*self.files, *self.folders]
        return sorted({p[len(prefix) :].split("/")[0] for p in paths if p.startswith(prefix)})

    def make_folder(self, path: str) -> None:
        self.folders.add(path)

    def rename(self, source: str, target: str) -> None:
        for path in list(self.files):
            if path == source or path.startswith(source + "/"):
                self.files[target + path[len(source) :]] = self.files.pop(path)
        if source in self.folders:
            self.folders.discard(source)
            self.folders.add(target)

    def remove(self, path: str) -> None:
        self.files.pop(path, None)

    def remove_folder(self, path: str) -> None:
        self.folders.discard(path)
        for one in [one for one in self.files if one.startswith(path + "/")]:
            del self.files[one]

    def modified_ms(self, path: str) -> int:
        del path
        return 0


class SimTasks:
    def __init__(self, loop: SimLoop, alive: Callable[[], bool]) -> None:
        self._loop, self._alive = loop, alive

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.call_later(0, call, *args)

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> SimTimer:
        def run() -> None:
            if self._alive():
                call(*args)

        return self._loop.at(self._loop.now_ms + delay_ms, run)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> SimTask:
        del name
        return SimTask(self._loop, coroutine)

    def promise(self) -> SimPromise:
        return SimPromise(self._loop)

    async def sleep(self, delay_ms: float) -> None:
        promise = self.promise()
        self.call_later(delay_ms, promise.set_result, None)
        await promise

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        assert isinstance(awaitable, SimPromise)
        outer = self.promise()

        def late() -> None:
            if not outer.done():
                outer.set_exception(TimeoutError())

        def ready() -> None:
            if not outer.done():
                outer.set_result(None)

        timer = self.call_later(timeout_ms, late)
        awaitable.when_done(ready)
        await outer
        timer.cancel()
        return cast("T", await awaitable)

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        await self.sleep(0)
        return call(*args)


@dataclass
class SimTrace:
    events: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])
    lines: list[str] = field(default_factory=list[str])

    def emit(self, event: str, /, **fields: object) -> None:
        self.events.append((event, fields))

    def log(self, level: str, message: str, /, **fields: object) -> None:
        self.lines.append(f"{level} {message} {fields or ''}")

    def named(self, event: str) -> list[dict[str, Any]]:
        return [fields for name, fields in self.events if name == event]


class SimFailpoints:
    def __init__(self) -> None:
        self.armed: dict[str, Callable[[], None]] = {}

    def hit(self, name: str) -> None:
        if name in self.armed:
            self.armed[name]()


@dataclass
class SimTap:
    enabled: bool = True
    rows: list[tuple[str, dict[str, Any]]] = field(default_factory=list[Any])

    def produced(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        self.rows.append(
            ("produced", {"client": client, "tp": TopicPartition(topic, partition), **fields})
        )

    def fetched(self, client: str, topic: str, partition: int, **fields: Any) -> None:
        self.rows.append(
            ("fetched", {"client": client, "tp": TopicPartition(topic, partition), **fields})
        )


class SimHost:
    """Host of one life of one broker."""

    def __init__(self, name: str, loop: SimLoop, disk: SimDisk, seed: str) -> None:
        self.alive = True
        self.name = name
        self.loop = loop
        self.disk = disk
        self.clock = self
        self.tasks = SimTasks(loop, lambda: self.alive)
        self.random = random.Random(seed)
        self.failpoints = SimFailpoints()
        self.trace = SimTrace()
        self.tap = SimTap()
        self.network = None

    def monotonic_ms(self) -> int:
        return int(self.loop.now_ms)

    def monotonic_ns(self) -> int:
        return int(self.loop.now_ms * 1_000_000)

    def wall_ms(self) -> int:
        return int(self.loop.now_ms) + 1_700_000_000_000


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
        handler = self.table.lookup(request.api_key, request.version)
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
                api_key, version, 1, client_id, body, 0, Peer("client", client_id),
                target.host.monotonic_ns(), complete,
            )  # fmt: skip
            target.serve(request)

        def complete(
            parts: Sequence[Buffer] | None, on_send: Callable[[bool], None] | None
        ) -> None:
            if on_send is not None:
                on_send(False)
            answer = b"".join(bytes(part) for part in parts or ())

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
