"""A simulated machine and the incarnations of the process on it: `Host` of the seam.

Owns: `World` (loop, fabric and trace of one simulation), `Machine` (the parts that outlive a process: disk, link rules,
clock skew, the number of incarnations) and `SimHost`, one incarnation on a machine.

    world = World(seed=7)
    machine = Machine(world, "broker-1", Peer("broker", "1"), listeners={"clients": 9092})
    host = machine.boot()              # starts an incarnation
    machine.kill()                     # kill -9: memory is lost, the page cache is not
    machine.cut_power()                # unsynced writes are lost, too

All random numbers come from the world's seed and a name: those of the network, of each incarnation
(`host.random`), and of a power loss. So a world is a function of its seed and of the calls on it.
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
from .fabric import Fabric, Port
from .latency import Latency
from .loop import NS_PER_MS, HostGone, Life, SimLoop
from .network import SimNetwork
from .tasks import SimTasks

EPOCH_MS = 1_700_000_000_000
"""Wall time at monotonic zero of every world: constant, because timestamps are stored in the logs."""

Operation = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class SimClock:
    """The world's time as one machine sees it."""

    __slots__ = ("_loop", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        """Error of the machine's wall clock."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never falls."""
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        """Nanoseconds on the same clock."""
        return self._loop.now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        return EPOCH_MS + self._loop.now_ns // NS_PER_MS + self.skew_ms


class WorldTrace:
    """All events of a world, in one list of JSON lines."""

    def __init__(self, *, level: str = "warning") -> None:
        self.lines: list[str] = []
        self.events: list[tuple[int, str, str, dict[str, object]]] = []
        """Time, host, event, fields: for checks of a simulation."""
        self.level = LEVELS[level]
        self._encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode

    def write(self, t_ns: int, host: str, event: str, fields: dict[str, object]) -> None:
        """Add an event; its fields are encoded now, because the caller may change them later."""
        rest = f",{self._encode(fields)[1:]}" if fields else "}"
        self.lines.append(f'{{"t_ns":{t_ns},"host":"{host}","event":"{event}"{rest}')
        self.events.append((t_ns, host, event, fields))

    def text(self) -> str:
        """The whole trace, one line for each event."""
        return "\n".join(self.lines) + "\n"


class SimTrace:
    """The trace of one incarnation; `Trace` of the seam."""

    __slots__ = ("_clock", "_life", "_world")

    def __init__(self, world: WorldTrace, life: Life, clock: SimClock) -> None:
        self._world, self._life, self._clock = world, life, clock

    def emit(self, event: str, /, **fields: object) -> None:
        """Append `event` with its fields, unless the incarnation has ended."""
        if self._life.alive:
            self._world.write(self._clock.monotonic_ns(), self._life.name, event, fields)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """A line for people: level debug, info, warning or error."""
        if self._life.alive and LEVELS[level] >= self._world.level:
            said: dict[str, object] = {"level": level, "message": message, **fields}
            self._world.write(self._clock.monotonic_ns(), self._life.name, "log", said)


class SimFailpoints(RealFailpoints):
    """Failpoints that stop an incarnation instead of a process.

    `stop` and `delay` take effect after the call that hit the failpoint: a simulation does not interrupt a call.
    """

    def __init__(self, trace: Trace, machine: Machine) -> None:
        super().__init__(trace)
        self._machine = machine
        self._trace_of_life = trace

    def _fire(self, armed: Armed) -> None:
        armed.hits += 1
        if armed.hits < armed.nth:
            return
        self.disarm(armed.name)
        armed.fired += 1
        self._trace_of_life.emit(
            "failpoint.fired", name=armed.name, action=armed.action, hit=armed.hits
        )
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
    """The control operations of a host, called directly instead of over a socket."""

    def __init__(self) -> None:
        self._operations: dict[str, Operation] = {"ping": lambda _fields: {"pid": 0}}

    def register(self, name: str, operation: Operation) -> None:
        """Serve `name` from now on."""
        self._operations[name] = operation

    def call(self, op: str, **fields: object) -> dict[str, Any]:
        """Call an operation; ClusterError when the name is unknown, or when the operation is a coroutine."""
        if op not in self._operations:
            raise ClusterError(
                f"no operation {op!r}; there are {', '.join(sorted(self._operations))}"
            )
        result = self._operations[op](fields)
        if inspect.isawaitable(result):
            raise ClusterError(
                f"{op!r} is a coroutine: a simulation has no control socket that could wait for it"
            )
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
        """Add an event of the world itself to the trace."""
        self.trace.write(self.loop.now_ns, "world", event, fields)

    def close(self) -> None:
        """End the world: close every coroutine that remains."""
        for machine in self.machines.values():
            if machine.life is not None:
                machine.life.alive = False
        self.loop.close()


class SimHost:
    """One incarnation on a machine."""

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
        """The network, with the knobs of faults."""
        return self._network

    def report(self, name: str, error: BaseException) -> None:
        """Trace an exception that ended a task or a call."""
        self._tasks.report(name, error)


class Machine:
    """The parts that outlive a process: its disk, its port in the network, its clock."""

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
        """Duration of a BLOCKS call in later incarnations; `slow_disk` also changes the current one."""
        self._listeners = dict(listeners or {})
        self._power = world.rng(f"{name}/power")
        self.on_death: list[Callable[[], None]] = []
        self.on_power_cut: list[Callable[[], None]] = []
        world.machines[name] = self
        world.fabric.ports[name] = self.port
        for number in self._listeners.values():
            assert number not in world.fabric.owners, f"port {number} has an owner already"
            world.fabric.owners[number] = self.port

    @property
    def alive(self) -> bool:
        """True while a process runs here, paused or not."""
        return self.life is not None and self.life.alive

    @property
    def paused(self) -> bool:
        """True while the process is paused."""
        return self.life is not None and self.life.alive and self.life.paused

    def boot(self) -> SimHost:
        """Start an incarnation."""
        assert not self.alive, f"{self.name} already runs a process"
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
        """Kill -9: memory is lost, the page cache is not; the kernel closes the connections."""
        if self.alive:
            self.world.tell("host.killed", host_name=self.name)
            self._die(silently=False)
            self.disk = self.disk.survivor()

    def cut_power(self, rng: random.Random | None = None) -> None:
        """Power loss: unsynced writes are lost, connections are not closed; the machine is off until `boot`.

        `rng` draws which unsynced writes are lost; by default the world's own random numbers do.
        """
        if not self.port.powered:
            return
        self.world.tell("host.power-cut", host_name=self.name)
        for call in self.on_power_cut:
            call()
        self._die(silently=True)
        self.disk = self.disk.survivor(rng or self._power)
        self.port.powered = False
        self.world.fabric.changed()

    def end(self) -> None:
        """The process ends by itself; its kernel closes its open connections."""
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
        """Pause the process, as SIGSTOP does."""
        if self.life is not None and self.life.running:
            self.world.tell("host.paused", host_name=self.name)
            self.life.paused = True

    def resume(self) -> None:
        """Resume the process, as SIGCONT does."""
        if self.life is not None and self.paused:
            self.world.tell("host.resumed", host_name=self.name)
            self.life.paused = False
            self.world.loop.go_on(self.life)

    def slow_disk(self, low_ms: float, high_ms: float) -> None:
        """Set the duration of BLOCKS calls."""
        self.blocking_ms = (low_ms, high_ms)
        if self.host is not None:
            cast("SimTasks", self.host.tasks).blocking_ms = self.blocking_ms

    @property
    def blocking_calls(self) -> int:
        """Number of BLOCKS calls that the current or the last process of this machine has begun."""
        return 0 if self.host is None else cast("SimTasks", self.host.tasks).blocking_calls
