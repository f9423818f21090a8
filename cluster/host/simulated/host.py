"""A simulated machine and the lives of the process on it: `Host` of the seam.

Owns: `World` (loop, fabric, trace of one simulation), `Machine` (what outlives a process: disk, link rules, clock
skew, how often it lived) and `SimHost`, one life on a machine.

    world = World(seed=7)
    machine = Machine(world, "broker-1", Peer("broker", "1"), listeners={"clients": 9092})
    host = machine.boot()              # begins a life
    machine.kill()                     # kill -9: memory is gone, the page cache is not
    machine.cut_power()                # and what was not synced is not there any more

Everything random comes from the world's seed by name: the network's draws, each life's own (`host.random`), and
what a power cut leaves. So a world is a function of its seed and of what is done to it.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, cast

from ...errors import ClusterError
from ..knobs.failpoints import Armed, FailpointError, RealFailpoints
from ..seam import Clock, Disk, Failpoints, Network, Peer, Tap, Tasks, Trace
from ..tap import NoTap
from ..trace import LEVELS, plain
from .disk import SimDisk
from .loop import NS_PER_MS, HostGone, Life, SimLoop
from .network import SimNetwork
from .tasks import SimTasks
from .wires import Fabric, Latency, Port

EPOCH_MS = 1_700_000_000_000
"""Wall time at monotonic zero of every world: constant, for timestamps are in the logs."""

Operation = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class SimClock:
    """The world's time as one machine sees it."""

    __slots__ = ("_loop", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        """By how much its wall clock is wrong."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        """Nanoseconds on the same clock."""
        return self._loop.now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return EPOCH_MS + self._loop.now_ns // NS_PER_MS + self.skew_ms


class WorldTrace:
    """Everything that happened in a world, in one list of JSON lines."""

    def __init__(self, *, level: str = "warning") -> None:
        self.lines: list[str] = []
        self.events: list[tuple[int, str, str, dict[str, object]]] = []
        """Time, host, event, fields: for who asks questions of a simulation."""
        self.level = LEVELS[level]
        self._encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode

    def write(self, t_ns: int, host: str, event: str, fields: dict[str, object]) -> None:
        """One event; fields are written now, for they may change later."""
        rest = f",{self._encode(fields)[1:]}" if fields else "}"
        self.lines.append(f'{{"t_ns":{t_ns},"host":"{host}","event":"{event}"{rest}')
        self.events.append((t_ns, host, event, fields))

    def text(self) -> str:
        """The whole trace, a line an event."""
        return "\n".join(self.lines) + "\n"


class SimTrace:
    """The diary of one life; `Trace` of the seam."""

    __slots__ = ("_clock", "_life", "_world")

    def __init__(self, world: WorldTrace, life: Life, clock: SimClock) -> None:
        self._world, self._life, self._clock = world, life, clock

    def emit(self, event: str, /, **fields: object) -> None:
        """Append `event` with its fields; the dead are silent."""
        if self._life.alive:
            self._world.write(self._clock.monotonic_ns(), self._life.name, event, fields)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """A line for people: level debug, info, warning or error."""
        if self._life.alive and LEVELS[level] >= self._world.level:
            said: dict[str, object] = {"level": level, "message": message, **fields}
            self._world.write(self._clock.monotonic_ns(), self._life.name, "log", said)


class SimFailpoints(RealFailpoints):
    """Failpoints that stop a life instead of a process.

    `stop` and `delay` take hold when the call that hit them has ended: a simulation has no half calls.
    """

    def __init__(self, trace: Trace, machine: Machine) -> None:
        super().__init__(trace)
        self._machine = machine
        self._diary = trace

    def _fire(self, armed: Armed) -> None:
        armed.hits += 1
        if armed.hits < armed.nth:
            return
        self.disarm(armed.name)
        armed.fired += 1
        self._diary.emit("failpoint.fired", name=armed.name, action=armed.action, hit=armed.hits)
        if armed.action == "crash":
            self._machine.kill()
            raise HostGone
        if armed.action == "error":
            raise FailpointError(f"failpoint {armed.name} was armed with error")
        self._machine.pause()
        if armed.action == "delay":
            self._machine.world.loop.call_after(
                None, armed.delay_ms * NS_PER_MS, self._machine.resume
            )


class SimControl:
    """Operations of a host, called instead of asked over a socket."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {"ping": lambda _fields: {"pid": 0}}

    def register(self, name: str, operation: Operation) -> None:
        """Serve `name` from now on."""
        self._operations[name] = operation

    def call(self, op: str, **fields: object) -> dict[str, Any]:
        """Ask for one operation; ClusterError where there is none of that name, or it takes time."""
        if op not in self._operations:
            raise ClusterError(
                f"no operation {op!r}; there are {', '.join(sorted(self._operations))}"
            )
        result = self._operations[op](fields)
        if inspect.isawaitable(result):
            raise ClusterError(f"{op!r} takes time: a simulation cannot be asked for it")
        return dict(result)


class World:
    """One simulation: its loop, its network, its trace."""

    def __init__(
        self, seed: int | str, *, latency: Latency | None = None, log_level: str = "warning"
    ) -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.fabric = Fabric(self.loop, self.rng("network"), latency)
        self.trace = WorldTrace(level=log_level)
        self.machines: dict[str, Machine] = {}

    def rng(self, purpose: str) -> random.Random:
        """Random numbers for one purpose; the same for the same seed."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - not cryptography

    def tell(self, event: str, **fields: object) -> None:
        """An event of the world's own in the trace."""
        self.trace.write(self.loop.now_ns, "world", event, fields)

    def close(self) -> None:
        """End it: every coroutine that is left is closed."""
        for machine in self.machines.values():
            if machine.life is not None:
                machine.life.alive = False
        self.loop.close()


class SimHost:
    """One life on a machine."""

    def __init__(self, machine: Machine, life: Life, listeners: Mapping[str, int]) -> None:
        world, name = machine.world, machine.name
        self.name = name
        self.machine = machine
        self.life = life
        self._trace = SimTrace(world.trace, life, machine.clock)
        rng = world.rng(f"{name}/{machine.port.lives}")
        self._tasks = SimTasks(
            world.loop, life, self._trace, world.rng(f"{name}/{machine.port.lives}/threads")
        )
        self._tasks.blocking_ms = machine.blocking_ms
        self._network = SimNetwork(
            world.fabric, machine.port, life, self._tasks, listeners, machine.clock, self._trace
        )
        self._failpoints = SimFailpoints(self._trace, machine)
        self.clock: Clock = machine.clock
        self.tasks: Tasks = self._tasks
        self.disk: Disk = machine.disk
        self.network: Network = self._network
        self.random = rng
        self.failpoints: Failpoints = self._failpoints
        self.trace: Trace = self._trace
        self.tap: Tap = NoTap()
        self.control = SimControl()
        for operations in (self._network.operations(), self._failpoints.operations()):
            for op, operation in operations.items():
                self.control.register(op, operation)

    @property
    def knobs(self) -> SimNetwork:
        """The network with what faults may turn."""
        return self._network

    def report(self, name: str, error: BaseException) -> None:
        """Trace an exception that ends something."""
        self._tasks.report(name, error)


class Machine:
    """What outlives a process: its disk, its place in the network, its clock."""

    def __init__(
        self, world: World, name: str, identity: Peer, *, listeners: Mapping[str, int] | None = None
    ) -> None:
        assert name not in world.machines, f"there is a machine {name} already"
        self.world = world
        self.name = name
        self.clock = SimClock(world.loop)
        self.disk = SimDisk(self.clock.wall_ms)
        self.port = Port(name, identity)
        self.life: Life | None = None
        self.host: SimHost | None = None
        self.blocking_ms = (0.02, 0.5)
        """How long a BLOCKS call takes; applies to lives that begin from now on, and by `slow_disk` at once."""
        self._listeners = dict(listeners or {})
        self._power = world.rng(f"{name}/power")
        self.on_death: list[Callable[[], None]] = []
        world.machines[name] = self
        world.fabric.ports[name] = self.port
        for number in self._listeners.values():
            assert number not in world.fabric.owners, f"port {number} has an owner already"
            world.fabric.owners[number] = self.port

    @property
    def alive(self) -> bool:
        """True while a process lives here, paused or not."""
        return self.life is not None and self.life.alive

    @property
    def paused(self) -> bool:
        """True while it stands still."""
        return self.life is not None and self.life.alive and self.life.paused

    def boot(self) -> SimHost:
        """Begin a life."""
        assert not self.alive, f"{self.name} lives already"
        self.port.lives += 1
        if not self.port.powered:
            self.port.powered = True
            self.world.fabric.power_is_back(self.port)
            self.world.fabric.changed()
        self.life = Life(self.name)
        self.host = SimHost(self, self.life, self._listeners)
        self.disk.make_folder(f"/{self.name}")
        return self.host

    def kill(self) -> None:
        """Kill -9: everything in memory is gone, the page cache is not; peers hear of it from the kernel."""
        if self.alive:
            self.world.tell("host.killed", host_name=self.name)
            self._die(silently=False)
            self.disk = self.disk.survivor()

    def cut_power(self, rng: random.Random | None = None) -> None:
        """Kill it, lose what was not synced, and tell nobody; the machine is off until its next life.

        `rng` draws what is lost: by default the world's own.
        """
        if not self.port.powered:
            return
        self.world.tell("host.power-cut", host_name=self.name)
        self._die(silently=True)
        self.disk = self.disk.survivor(rng or self._power)
        self.port.powered = False
        self.world.fabric.changed()

    def end(self) -> None:
        """The process ends by itself; its kernel closes what it left open."""
        if self.alive:
            self._die(silently=False)
            self.disk = self.disk.survivor()

    def _die(self, *, silently: bool) -> None:
        if self.life is None or not self.life.alive:
            return
        self.life.alive = False
        self.life.held.clear()
        assert self.host is not None
        self.host.knobs.end(silently=silently)
        for call in self.on_death:
            call()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.life is not None and self.life.running:
            self.world.tell("host.paused", host_name=self.name)
            self.life.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.life is not None and self.paused:
            self.world.tell("host.resumed", host_name=self.name)
            self.life.paused = False
            self.world.loop.go_on(self.life)

    def slow_disk(self, low_ms: float, high_ms: float) -> None:
        """How long BLOCKS calls take from now on."""
        self.blocking_ms = (low_ms, high_ms)
        if self.host is not None:
            cast("SimTasks", self.host.tasks).blocking_ms = self.blocking_ms

    @property
    def blocking_calls(self) -> int:
        """BLOCKS calls that the life of now, or the last one, has begun."""
        return 0 if self.host is None else cast("SimTasks", self.host.tasks).blocking_calls
