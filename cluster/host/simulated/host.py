"""A simulated machine and the incarnations of the process on it: `Host` of the seam.

Owns: `World` (loop, fabric and trace of one simulation), `Machine` (what outlives a process: disk, link rules, clock
skew, the number of incarnations) and `SimHost`, one incarnation on a machine: one run of the process.

    world = World(seed=7)
    machine = Machine(world, "broker-1", Peer("broker", "1"), listeners={"clients": 9092})
    host = machine.boot()              # starts an incarnation
    machine.kill()                     # kill -9: memory is lost, the page cache is not
    machine.lose_power()               # unsynced writes are lost, too

All random numbers come from the world's seed and a name: those of the network, of each incarnation (`host.random`), and
of a power loss. So a world is a function of its seed and of the calls on it.
"""

from __future__ import annotations

import inspect
import json
import random
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, cast

from ...errors import ClusterError
from ...events import TracedEvent, TraceEvent
from ...events.processes import FailpointFired, LogLine, MachineKilled, MachinePaused, MachinePowerCut, MachineResumed
from ..knobs.clock_faults import ClockFaults, ClockRules
from ..knobs.failpoints import Armed, FailpointError, RealFailpoints
from ..knobs.rules import rule_operations
from ..seam import Clock, Disk, Failpoints, Network, NoTap, Peer, Tap, Tasks, Trace
from ..trace import LEVELS, plain
from .disk import SimDisk
from .fabric import Fabric, NetworkNode
from .latency import Latency
from .loop import NS_PER_MS, Incarnation, ProcessKilled, SimLoop
from .network import SimNetwork
from .tasks import BLOCKING_MS, MillisecondRange, SimTasks

EPOCH_MS = 1_700_000_000_000
"""Wall time at monotonic zero of every world: constant, because timestamps are stored in the logs."""

Operation = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]


class SimClock:
    """The world's time as one machine sees it."""

    __slots__ = ("_loop", "faults", "skew_ms")

    def __init__(self, loop: SimLoop) -> None:
        self._loop = loop
        self.skew_ms = 0
        """Error of its wall clock, for as long as the machine exists."""
        self.faults = ClockFaults()
        """The error that a fault has set; it ends with the incarnation."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never moves back."""
        return self._loop.now_ns // NS_PER_MS

    def monotonic_ns(self) -> int:
        """Nanoseconds on the same clock."""
        return self._loop.now_ns

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC."""
        wall_ms, monotonic_ms = self.true_times()
        return self.faults.read(wall_ms, monotonic_ms) if self.faults.active else wall_ms

    def true_times(self) -> tuple[int, int]:
        """Wall time without the error of a fault, and monotonic time."""
        monotonic_ms = self._loop.now_ns // NS_PER_MS
        return EPOCH_MS + monotonic_ms + self.skew_ms, monotonic_ms


class WorldTrace:
    """All events of a world, in one list of JSON lines."""

    def __init__(self, *, level: str = "warning") -> None:
        self.lines: list[str] = []
        self.events: list[TracedEvent[TraceEvent]] = []
        """For checks of a simulation."""
        self.level = LEVELS[level]
        self._encode = json.JSONEncoder(separators=(",", ":"), default=plain).encode

    def write(self, t_ns: int, host: str, event: TraceEvent) -> None:
        """Add an event."""
        fields = event.fields()
        rest = f",{self._encode(fields)[1:]}" if fields else "}"
        self.lines.append(f'{{"t_ns":{t_ns},"host":"{host}","event":"{event.event_name}"{rest}')
        self.events.append(TracedEvent(t_ns, host, event))

    def text(self) -> str:
        """The whole trace, one line for each event."""
        return "\n".join(self.lines) + "\n"


class SimTrace:
    """The trace of one incarnation; `Trace` of the seam."""

    __slots__ = ("_clock", "_incarnation", "_world")

    def __init__(self, world: WorldTrace, incarnation: Incarnation, clock: SimClock) -> None:
        self._world, self._incarnation, self._clock = world, incarnation, clock

    def emit(self, event: TraceEvent, /) -> None:
        """Append the row of `event`, unless the incarnation is over."""
        if self._incarnation.alive:
            self._world.write(self._clock.monotonic_ns(), self._incarnation.name, event)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """A line for people: level debug, info, warning or error."""
        if self._incarnation.alive and LEVELS[level] >= self._world.level:
            self.emit(LogLine(level=level, message=message, values=fields))


class SimFailpoints(RealFailpoints):
    """Failpoints that stop an incarnation instead of a process.

    `stop` and `delay` take effect after the call that hit the failpoint: a simulation does not interrupt a call.
    """

    def __init__(self, trace: Trace, machine: Machine) -> None:
        super().__init__(trace)
        self._machine = machine
        self._trace_of_incarnation = trace

    def _fire(self, armed: Armed) -> None:
        armed.hits += 1
        if armed.hits < armed.nth:
            return
        self.disarm(armed.name)
        armed.fired += 1
        self._trace_of_incarnation.emit(FailpointFired(name=armed.name, action=armed.action, hit=armed.hits))
        if armed.action == "crash":
            self._machine.kill()
            raise ProcessKilled
        if armed.action == "error":
            raise FailpointError(f"failpoint {armed.name} was armed with error")
        self._machine.pause()
        if armed.action == "delay":
            self._machine.world.loop.call_after(None, armed.delay_ms * NS_PER_MS, self._machine.resume)


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
            raise ClusterError(f"no operation {op!r}; there are {', '.join(sorted(self._operations))}")
        result = self._operations[op](fields)
        if inspect.isawaitable(result):
            raise ClusterError(f"{op!r} is a coroutine: call it on a real host")
        return dict(result)


class World:
    """One simulation: its loop, its network, its trace."""

    def __init__(self, seed: int | str, *, latency: Latency | None = None, log_level: str = "warning") -> None:
        self.seed = seed
        self.loop = SimLoop()
        self.fabric = Fabric(self.loop, self.rng("network"), latency)
        self.trace = WorldTrace(level=log_level)
        self.machines: dict[str, Machine] = {}

    def rng(self, purpose: str) -> random.Random:
        """Random numbers for one purpose; the same for the same seed."""
        return random.Random(f"{self.seed}/{purpose}")  # noqa: S311 - not cryptography

    def record_event(self, event: TraceEvent) -> None:
        """Add an event of the world itself to the trace, with the host name `world`."""
        self.trace.write(self.loop.now_ns, "world", event)

    def close(self) -> None:
        """End the world: close every coroutine that is left."""
        for machine in self.machines.values():
            if machine.incarnation is not None:
                machine.incarnation.alive = False
        self.loop.close()


class SimHost:
    """One incarnation on a machine."""

    def __init__(self, machine: Machine, incarnation: Incarnation, listeners: Mapping[str, int]) -> None:
        world, name = machine.world, machine.name
        self.name = name
        self.machine = machine
        self.incarnation = incarnation
        self._trace = SimTrace(world.trace, incarnation, machine.clock)
        rng = world.rng(f"{name}/{machine.network_node.incarnations}")
        self._tasks = SimTasks(
            world.loop, incarnation, self._trace, world.rng(f"{name}/{machine.network_node.incarnations}/threads")
        )
        self._tasks.blocking_ms = machine.blocking_ms
        self._network = SimNetwork(world.fabric, machine.network_node, incarnation, self._tasks, listeners, self._trace)
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
        clock = machine.clock
        rules = {
            **self._network.rules(),
            "failpoint": self._failpoints,
            "clock": ClockRules(clock.faults, clock.true_times, self._trace),
            "disk": machine.disk.faults,
        }
        for op, operation in {**self._network.operations(), **rule_operations(rules)}.items():
            self.control.register(op, operation)

    def open_tap(self, tap: Tap) -> None:
        """Record in `tap`, until the incarnation ends."""
        self.tap = tap
        self._network.on_end.append(tap.close)

    @property
    def knobs(self) -> SimNetwork:
        """The network, with its fault injection points."""
        return self._network

    def report(self, name: str, error: BaseException) -> None:
        """Trace an exception that ended a task or a call."""
        self._tasks.report(name, error)


class Machine:
    """What outlives a process: its disk, its port in the network, its clock."""

    def __init__(self, world: World, name: str, identity: Peer, *, listeners: Mapping[str, int] | None = None) -> None:
        assert name not in world.machines, f"there is a machine {name} already"
        self.world = world
        self.name = name
        self.clock = SimClock(world.loop)
        self.disk = SimDisk(self.clock.wall_ms)
        number = len(world.machines)
        self.network_node = NetworkNode(name, identity, f"10.0.{number // 250}.{number % 250 + 1}")
        self.incarnation: Incarnation | None = None
        self.host: SimHost | None = None
        self._slow_disks: list[MillisecondRange] = []
        self._listeners = dict(listeners or {})
        self._power = world.rng(f"{name}/power")
        self.on_death: list[Callable[[], None]] = [self.clock.faults.clear]
        self.on_power_loss: list[Callable[[], None]] = []
        world.machines[name] = self
        world.fabric.network_nodes[name] = self.network_node
        for number in self._listeners.values():
            assert number not in world.fabric.owners, f"port {number} has an owner already"
            world.fabric.owners[number] = self.network_node

    @property
    def alive(self) -> bool:
        """True while a process is alive here, paused or not."""
        return self.incarnation is not None and self.incarnation.alive

    @property
    def paused(self) -> bool:
        """True while the process is paused."""
        return self.incarnation is not None and self.incarnation.alive and self.incarnation.paused

    def boot(self) -> SimHost:
        """Start an incarnation."""
        assert not self.alive, f"{self.name} is alive already"
        self.network_node.incarnations += 1
        if not self.network_node.powered:
            self.network_node.powered = True
            self.world.fabric.power_restored(self.network_node)
            self.world.fabric.changed()
        self.incarnation = Incarnation(self.name)
        self.host = SimHost(self, self.incarnation, self._listeners)
        self.disk.make_folder(f"/{self.name}")
        return self.host

    def kill(self) -> None:
        """Kill -9: memory is lost, the page cache is not; the kernel closes the connections."""
        if self.alive:
            self.world.record_event(MachineKilled(host_name=self.name))
            self._die(silently=False)
            self.disk = self.disk.survivor()

    def lose_power(self, rng: random.Random | None = None) -> None:
        """Lose the power: unsynced writes are lost, connections are not closed; `boot` restores the power.

        `rng` draws which unsynced writes are lost; by default the world's own random numbers do.
        """
        if not self.network_node.powered:
            return
        self.world.record_event(MachinePowerCut(host_name=self.name))
        for call in self.on_power_loss:
            call()
        self._die(silently=True)
        self.disk = self.disk.survivor(rng or self._power)
        self.network_node.powered = False
        self.world.fabric.changed()

    def wipe(self, folders: Iterable[str]) -> int:
        """Empty `folders` of a dead process; returns how many files were in them."""
        assert not self.alive, f"{self.name} is alive"
        return sum(self.disk.wipe(folder) for folder in folders)

    def end(self) -> None:
        """The process has ended by itself; the kernel closes its open connections."""
        if self.alive:
            self._die(silently=False)
            self.disk = self.disk.survivor()

    def _die(self, *, silently: bool) -> None:
        if self.incarnation is None or not self.incarnation.alive:
            return
        self.incarnation.alive = False
        self.incarnation.held.clear()
        assert self.host is not None
        self.host.knobs.end(silently=silently)
        for call in self.on_death:
            call()

    def pause(self) -> None:
        """SIGSTOP."""
        if self.incarnation is not None and self.incarnation.running:
            self.world.record_event(MachinePaused(host_name=self.name))
            self.incarnation.paused = True

    def resume(self) -> None:
        """SIGCONT."""
        if self.incarnation is not None and self.paused:
            self.world.record_event(MachineResumed(host_name=self.name))
            self.incarnation.paused = False
            self.world.loop.resume(self.incarnation)

    @property
    def blocking_ms(self) -> MillisecondRange:
        """Duration of a BLOCKS call, least and most: of the slowest of the slow disks."""
        return max(self._slow_disks, key=lambda spread: spread[1], default=BLOCKING_MS)

    def slow_disk(self, spread: MillisecondRange) -> None:
        """Make BLOCKS calls of this and of later incarnations take so long; several may overlap."""
        self._slow_disks.append(spread)
        self._blocking_changed()

    def end_slow_disk(self, spread: MillisecondRange) -> None:
        """End one `slow_disk`; those that overlap it go on."""
        self._slow_disks.remove(spread)
        self._blocking_changed()

    def _blocking_changed(self) -> None:
        if self.host is not None:
            cast("SimTasks", self.host.tasks).blocking_ms = self.blocking_ms

    @property
    def blocking_calls(self) -> int:
        """Number of BLOCKS calls that the current or the last process of this machine has begun."""
        return 0 if self.host is None else cast("SimTasks", self.host.tasks).blocking_calls
