"""A whole cluster in one process on a virtual clock: the same brokers and registry on simulated machines.

Owns: `SimulatedCluster`, the registry and N brokers on one `World`, and what a supervisor may do to their
processes. Faults reach it through `harness/backends/simulated/system.py`, as they reach a real cluster through its
backend.

    with SimulatedCluster(brokers=5, seed=7) as cluster:
        cluster.start()
        cluster.brokers[1].kill()
        assert cluster.run_until(lambda: cluster.controller_id() not in (None, 1), 5_000)

Invariants: brokers run only inside `run_for` and `run_until`; the trace is a function of the seed and of the calls,
byte for byte. The registry keeps its committed tree across its incarnations (`MemoryStore`), as its file would.

What may fail: ClusterError when the cluster does not start within a bound of virtual time; a broker that stops
with an error writes `process.failed` to the trace and is dead.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, cast

from .broker import Broker
from .config import BrokerConfig
from .defaults import ASSIGNED_AT_ONCE
from .errors import ClusterError, ConfigError, HarrowError
from .events.brokers import BrokerPlanted
from .events.processes import ProcessFailed
from .host.seam import Peer, ProcessHost
from .host.simulated import Latency, Machine, SimHost, World
from .invariants import ClusterInvariants
from .invariants.registry_invariants import ObservedStore
from .listeners import BROKERS, CLIENTS, parse_listeners
from .log_schedule import FLUSH_CHECK_MS
from .planting import apply_plants, load_plants
from .registry.process import RegistryProcess
from .storage.log_folder import log_folders
from .tap.recorder import FileTap

SAFE_TRUNCATION = "kip-320"
"""The truncation strategy under which the invariants hold; the others are those of older versions of Kafka."""
REGISTRY_PORT = 2181
CLIENT_PORTS = 9_000
BROKER_PORTS = 9_500
START_MS = 30_000
LOOPBACK = "127.0.0.1"

Server = Broker | RegistryProcess


class SimulatedProcess:
    """The registry or a broker across its incarnations on one machine."""

    def __init__(self, machine: Machine, make: Callable[[ProcessHost], Server], folders: Sequence[str] = ()) -> None:
        self.machine = machine
        self._folders = folders
        self.server: Server | None = None
        """The server of the current incarnation, or of the last."""
        self.ready = False
        self._make = make
        machine.on_death.append(self._died)

    @property
    def name(self) -> str:
        """`registry`, `broker-1`."""
        return self.machine.name

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`, as a real process's."""
        if not self.machine.alive:
            return "dead"
        if self.machine.paused:
            return "paused"
        return "running" if self.ready else "starting"

    def begin(self, failpoints: Sequence[Mapping[str, object]] = ()) -> None:
        """Start it; it serves some virtual milliseconds later. No-op while it is alive.

        `failpoints`: rows with the fields of such a rule, armed before any code of the process runs.
        """
        if self.machine.alive:
            return
        host = self.machine.boot()
        for fields in failpoints:
            host.control.call("rules.add", kind="failpoint", **fields)
        host.tasks.spawn(self._main(host), name="main")

    async def _main(self, host: SimHost) -> None:
        try:
            self.server = self._make(host)
            await self.server.start()
            self.ready = True
            await self.server.failed()
        except (HarrowError, OSError) as error:
            host.trace.emit(ProcessFailed(error=f"{type(error).__name__}: {error}"))
            self.machine.end()

    def terminate(self) -> None:
        """SIGTERM: a controlled shutdown, which takes its time."""
        self.machine.resume()
        host, server = self.machine.host, self.server
        if not self.machine.alive or host is None:
            return
        if server is None or not self.ready:
            self.machine.kill()
            return

        async def stop() -> None:
            await server.stop()
            self.machine.end()

        host.tasks.spawn(stop(), name="stop")

    def kill(self) -> None:
        """Kill -9: memory is lost, the page cache is not."""
        self.machine.kill()

    def wipe(self) -> int:
        """Empty the data folders of a dead broker; returns how many files were in them."""
        return self.machine.wipe(self._folders)

    def pause(self) -> None:
        """SIGSTOP."""
        self.machine.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self.machine.resume()

    def control(self, op: str, **fields: object) -> dict[str, Any]:
        """One call on the control operations of its host; ClusterError while it does not run."""
        host = self.machine.host
        if self.state != "running" or host is None:
            raise ClusterError(f"{self.name} is {self.state}: it cannot serve {op!r}")
        return host.control.call(op, **fields)

    def forget_link_rules(self) -> None:
        """Remove the link rules of a dead process: on a real machine they end with it."""
        self.machine.network_node.rules.heal()
        self.machine.world.fabric.changed()

    def _died(self) -> None:
        self.ready = False


class SimulatedCluster:
    """The registry and brokers 1 to `brokers`, in one process."""

    def __init__(
        self,
        *,
        brokers: int = 3,
        seed: int | str = 0,
        config: Mapping[str, object] | None = None,
        latency: Latency | None = None,
        log_level: str = "warning",
        plants: Sequence[str] = (),
        invariants: bool | None = None,
        taps: Path | None = None,
        world: World | None = None,
    ) -> None:
        """`plants`: modules of planted bugs, in this process until `close` (`planting.py`).

        `invariants`: check `cluster/invariants` after every event. None: unless a bug is planted or the truncation
        strategy is one that loses records, because the verdict is to find that, and a violation would end the run.
        `taps`: a folder with a folder `broker-N` for each broker, into which it writes its tap (real files). None: no
        broker has a tap. `world`: one that exists already, of this seed.
        """
        self._taps = taps
        self.config = {"log.flush.scheduler.interval.ms": FLUSH_CHECK_MS, **(config or {})}
        listeners = f"{CLIENTS}://{LOOPBACK}:0,{BROKERS}://{LOOPBACK}:0"
        settings = BrokerConfig.parse({**self._config(), "listeners": listeners})
        if any(row.security_protocol.has_tls for row in parse_listeners(settings)):
            raise ConfigError("TLS is not simulated: use PLAINTEXT or SASL_PLAINTEXT in listener.security.protocol.map")
        truncation = settings.text("harrow.replica.truncation")
        self.plants = load_plants(plants)
        self._planter = apply_plants(self.plants)
        self.world = world or World(seed, latency=latency, log_level=log_level)
        self._store = ObservedStore()
        machine = Machine(self.world, "registry", Peer("registry", ""), listeners={"registry": REGISTRY_PORT})
        self.registry = SimulatedProcess(machine, self._make_registry)
        self.brokers: dict[int, SimulatedProcess] = {}
        for node_id in range(1, brokers + 1):
            self.brokers[node_id] = self._broker(node_id, expect=brokers)
        self.invariants = ClusterInvariants(self.brokers, self._store)
        sound = not plants and truncation == SAFE_TRUNCATION
        if sound if invariants is None else invariants:
            self.world.loop.after_event = self.invariants.after_event

    def _config(self) -> dict[str, object]:
        """The settings of the brokers; the trace has those that are not usual, and its bytes must not change."""
        return {**ASSIGNED_AT_ONCE, **self.config}

    def _make_registry(self, host: ProcessHost) -> RegistryProcess:
        return RegistryProcess(host, {"folder": "/registry"}, self._store)

    def _broker(self, node_id: int, *, expect: int) -> SimulatedProcess:
        ports = {CLIENTS: CLIENT_PORTS + node_id, BROKERS: BROKER_PORTS + node_id}
        listeners = ",".join(f"{name}://{LOOPBACK}:{port}" for name, port in ports.items())
        machine = Machine(self.world, f"broker-{node_id}", Peer("broker", str(node_id)), listeners=ports)

        def make(host: ProcessHost) -> Broker:
            first = machine.network_node.incarnations == 1
            if self._taps is not None:
                cast("SimHost", host).open_tap(FileTap(str(self._taps / machine.name), host.clock))
            return Broker(
                host,
                {
                    "node_id": node_id,
                    "folder": f"/{machine.name}",
                    "registry": [LOOPBACK, REGISTRY_PORT],
                    "config": {**self._config(), "listeners": listeners},
                    "expect": expect if first else 1,
                },
            )

        folders = log_folders(BrokerConfig.parse(self.config), f"/{machine.name}")
        return SimulatedProcess(machine, make, folders)

    def __enter__(self) -> SimulatedCluster:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    # ------------------------------------------------------------------- start and stop

    def start(self, limit_ms: float = START_MS) -> None:
        """Start all processes and run until all of them are ready."""
        if self.plants:
            self.world.record_event(BrokerPlanted(plants=tuple(plant.to_json() for plant in self.plants)))
        self.registry.begin()
        for broker in self.brokers.values():
            broker.begin()
        if not self.run_until(lambda: all(process.ready for process in self.processes()), limit_ms):
            states = {process.name: process.state for process in self.processes()}
            raise ClusterError(f"the simulated cluster did not start in {limit_ms} ms: {states}")

    def processes(self) -> Iterable[SimulatedProcess]:
        """The registry, then the brokers."""
        return (self.registry, *self.brokers.values())

    def close(self) -> None:
        """End the world. This is no shutdown: no broker runs any further code."""
        self.world.close()
        self._planter.undo()

    def run_for(self, duration_ms: float) -> None:
        """Let virtual time pass."""
        self.world.loop.run_for(duration_ms)

    def run_until(self, condition: Callable[[], bool], limit_ms: float) -> bool:
        """Let virtual time pass until `condition` holds; False when `limit_ms` passed before."""
        return self.world.loop.run_until(condition, limit_ms)

    def client(self, name: str) -> SimHost:
        """A machine of its own for a client, booted."""
        return self.client_machine(name).boot()

    def client_machine(self, name: str) -> Machine:
        """A machine of its own for a client, which the caller boots and may kill."""
        return Machine(self.world, f"client-{name}", Peer("client", name))

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        """Addresses of all brokers, for clients."""
        return [(LOOPBACK, CLIENT_PORTS + node_id) for node_id in self.brokers]

    # ------------------------------------------------------------------- view

    def broker(self, node_id: int) -> Broker:
        """The broker object of a node's current incarnation."""
        server = self.brokers[node_id].server
        assert server is not None, f"broker {node_id} has never started"
        return cast("Broker", server)

    def controller_id(self) -> int | None:
        """The active controller with the highest epoch; None where no broker is an active controller."""
        found = [
            (self.broker(node_id).controller.epoch, node_id)
            for node_id, process in self.brokers.items()
            if process.ready and self.broker(node_id).controller.is_active
        ]
        return max(found)[1] if found else None

    def states(self) -> dict[int, list[dict[str, Any]]]:
        """The partitions that `state` of each ready broker returns."""
        return {
            node_id: list(self.broker(node_id).state()["partitions"])
            for node_id, process in self.brokers.items()
            if process.ready
        }
