"""The supervisor: one object that runs a whole cluster, without Docker and without root.

Owns: the folder of a cluster, its ports (reserved while the cluster exists), its registry and its brokers as
processes, and the calls on their control sockets. Synchronous; several threads may use one `Cluster`
(a nemesis and a test do). All processes end with `stop()`, with the `with` block, or with this process.

Each broker has the listeners of its settings (`listeners.py`). By default these are a listener for clients and the
inter-broker listener, each with port 0, which the supervisor resolves to a free port.

    with Cluster(brokers=3, config={"min.insync.replicas": 2}) as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

What may fail: ConfigError for a setting or argument that cannot be used, before anything is started;
ClusterError for a process that did not start, stop or respond, with the message of that process.
"""

from __future__ import annotations

import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from .argument_types import checked
from .broker_folder import CONTROL_SOCKET, REGISTRY, broker_name
from .config import BrokerConfig
from .convergence import CONVERGE_TIMEOUT_S, DescribedCluster, unconverged
from .defaults import cluster_defaults
from .errors import ClusterError, ConfigError
from .forkserver import MARKER, fork_server
from .listeners import HARROW, Address, Listener, format_listeners, parse_listeners
from .managed import STOP_TIMEOUT_S, ManagedProcess, Starter
from .planting import import_paths, load_plants
from .ports import LOOPBACK, ReservedPort
from .view import ClusterView, parse

BROKERS_MOST = 64


class BrokerProcess(ManagedProcess):
    """One broker: a managed process with a node id and an address for clients."""

    def __init__(self, cluster: Cluster, node_id: int, options: dict[str, Any], listeners: Sequence[Listener]) -> None:
        super().__init__(cluster.starter, f"broker {node_id}", cluster.folder / broker_name(node_id), options)
        self.node_id = node_id
        self.listeners = {listener.name: listener for listener in listeners}
        self.address = client_address(listeners)
        own = self.listeners.get(HARROW)
        self.own_address = self.address if own is None or own.advertised is None else own.advertised
        """The address for clients of Harrow's own, which have no credentials."""

    @property
    def port(self) -> int:
        """The port for clients."""
        return self.address.port


@checked
class Cluster(DescribedCluster):
    """A Kafka-protocol cluster of `brokers` processes and a registry on this machine's loopback.

    `config`: Kafka's broker settings by name, for all brokers; `broker_config`: for single ones, by node id.
    `folder`: holds all files (None: a temporary folder, which `stop` removes). The folder of an earlier cluster is
    used again, with its records.
    `plants`: modules of planted bugs, applied in each broker before it starts (`planting.py`).
    `port`: broker i listens for clients on port + i (None: on free ports). `seed`: of all random choices.
    """

    def __init__(
        self,
        *,
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        broker_config: Mapping[int, Mapping[str, object]] | None = None,
        folder: str | Path | None = None,
        port: int | None = None,
        seed: int = 0,
        name: str = "cluster",
        plants: Sequence[str] = (),
    ) -> None:
        if not 1 <= brokers <= BROKERS_MOST:
            raise ConfigError(f"brokers={brokers}: expected a number from 1 to {BROKERS_MOST}")
        if port is not None and not 0 < port <= 65535 - brokers:
            raise ConfigError(f"port={port}: expected a number from 1 to {65535 - brokers}")
        self.config = BrokerConfig.parse(cluster_defaults(brokers, config) | dict(config or {}))
        self._own_config = {node: BrokerConfig.parse(own).overrides() for node, own in (broker_config or {}).items()}
        self.plants = load_plants(plants)
        """Bugs planted in every broker; empty for brokers as they are."""
        for node_id in range(1, brokers + 1):
            parse_listeners(self._broker_config(node_id))
        self.name = name
        self.seed = seed
        self._count = brokers
        self._added = 0
        self._base_port = port
        self._given = None if folder is None else Path(folder).absolute()
        self.folder: Path = self._given or Path()
        self.brokers: dict[int, BrokerProcess] = {}
        self._registry: ManagedProcess | None = None
        self._ports: list[ReservedPort] = []
        self._lock = threading.RLock()
        self._started = False

    @property
    def starter(self) -> Starter:
        """What starts the processes."""
        return fork_server()

    # ------------------------------------------------------------------ life

    def __enter__(self) -> Cluster:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def start(self) -> None:
        """Start the registry and all brokers; returns when every broker knows all of them."""
        with self._lock:
            if self._started:
                return
            self._started = True
            self.folder = self._make_folder()
            try:
                self._lay_out()
                if self._registry is not None:
                    self._registry.begin()  # brokers retry until it listens
                for broker in self.brokers.values():
                    broker.begin()
                if self._registry is not None:
                    self._registry.wait_ready()
                for broker in self.brokers.values():
                    broker.wait_ready()
                    broker.options["expect"] = 1  # a broker that starts again does not wait for the others
            except BaseException:
                self.stop(graceful=False)
                raise

    def stop(self, *, graceful: bool = False) -> None:
        """End every process; `graceful`: by controlled shutdowns, which leave clean logs."""
        with self._lock:
            if graceful:
                self._shut_down()
            for process in [*self.brokers.values(), *([self._registry] if self._registry else [])]:
                process.close()
            for port in self._ports:
                port.release()
            self._ports.clear()
            if self._started and self._given is None:
                shutil.rmtree(self.folder, ignore_errors=True)
            self._started = False

    def _shut_down(self) -> None:
        for broker in self.brokers.values():
            if broker.alive:
                broker.terminate()
        if self._registry is not None and self._registry.alive:
            self._registry.terminate()

    def _make_folder(self) -> Path:
        if self._given is None:
            return Path(tempfile.mkdtemp(prefix=f"harrow-{self.name}-"))
        try:
            self._given.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"the data folder {self._given} cannot be made: {error}") from error
        if not os.access(self._given, os.W_OK):
            raise ClusterError(f"the data folder {self._given} cannot be written; choose another")
        return self._given

    def _lay_out(self) -> None:
        registry_port = 0
        if not self.config.text("zookeeper.connect"):
            registry_port = self._hold()
            self._registry = ManagedProcess(
                self.starter, "registry", self.folder / REGISTRY, self._options("registry", REGISTRY)
            )
            self._registry.options["listeners"] = {"registry": registry_port}
        for node_id in range(1, self._count + 1):
            self.brokers[node_id] = self._lay_out_broker(node_id, registry_port)

    def add_broker(self) -> int:
        """Begin to start one more broker, with the next node id, and return the id; it has no replica."""
        with self._lock:
            if not self.brokers:
                raise ClusterError("the cluster is not started; call start() or use `with`")
            if len(self.brokers) >= BROKERS_MOST:
                raise ClusterError(f"the cluster has {BROKERS_MOST} brokers; remove one first")
            port = 0 if self._registry is None else self._registry.options["listeners"]["registry"]
            self._added += 1
            node_id = self._count + self._added
            broker = self._lay_out_broker(node_id, port)
            broker.options["expect"] = 1
            # a new dict: other threads may be reading the old one
            self.brokers = {**self.brokers, node_id: broker}
            broker.begin()
            return node_id

    def forget_broker(self, node_id: int) -> None:
        """Take an added broker out of the cluster, and end it if it lives; its folder stays."""
        with self._lock:
            broker = self.brokers[node_id]
            self.brokers = {own: row for own, row in self.brokers.items() if own != node_id}
            broker.close()

    def _lay_out_broker(self, node_id: int, registry_port: int) -> BrokerProcess:
        config = self._broker_config(node_id)
        wanted = 0 if self._base_port is None else self._base_port + node_id
        listeners = self._hold_listeners(parse_listeners(config), wanted)
        options = self._options("broker", broker_name(node_id))
        options |= {
            "node_id": node_id,
            "registry": [LOOPBACK, registry_port],
            "config": config.overrides() | resolved_listeners(config, listeners),
            "tap": self.config.flag("harrow.tap"),
            "expect": self._count,
        }
        if self.plants:
            options["plants"] = [plant.module for plant in self.plants]
            options["import_paths"] = import_paths()
        return BrokerProcess(self, node_id, options, listeners)

    def _broker_config(self, node_id: int) -> BrokerConfig:
        return BrokerConfig.parse(self.config.overrides() | self._own_config.get(node_id, {}))

    def _options(self, role: str, name: str) -> dict[str, Any]:
        folder = self.folder / name
        return {"role": role, "name": name, "folder": str(folder), "seed": self.seed}

    def _hold_listeners(self, listeners: Sequence[Listener], wanted: int) -> list[Listener]:
        """Hold the ports; port 0 becomes a free port, or `wanted` for the first listener for clients."""
        for_clients = next((row for row in listeners if not row.inter_broker), listeners[0])
        held: list[Listener] = []
        for listener in listeners:
            port = listener.bind.port or (wanted if listener is for_clients else 0)
            number = self._hold(port, listener.bind.host)
            held.append(listener.at_port(number) if listener.bind.port == 0 else listener)
        return held

    def _hold(self, wanted: int = 0, host: str = LOOPBACK) -> int:
        port = ReservedPort(wanted, host)
        self._ports.append(port)
        return port.number

    # ----------------------------------------------------------------- views

    @property
    def registry(self) -> ManagedProcess:
        """The process of the registry."""
        if self._registry is None:
            if self.brokers:
                raise ClusterError(
                    "this cluster's registry is a ZooKeeper (zookeeper.connect), which is no process of the cluster"
                )
            raise ClusterError("the cluster is not started; call start() or use `with`")
        return self._registry

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of every broker, dead brokers too: the value of a client's `bootstrap.servers`."""
        if not self.brokers:
            raise ClusterError("the cluster is not started; call start() or use `with`")
        return ",".join(str(broker.address) for broker in self.brokers.values())

    @property
    def own_servers(self) -> str:
        """The same for clients of Harrow's own: of the listener HARROW, where there is one."""
        return ",".join(str(broker.own_address) for broker in self.brokers.values())

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on a broker's control socket; ClusterError when the broker does not respond or refuses."""
        if node_id not in self.brokers:
            raise ClusterError(f"broker {node_id} is not in this cluster of {sorted(self.brokers)}")
        return self._control(self.brokers[node_id], op, **fields)

    def registry_control(self, op: str, **fields: object) -> dict[str, Any]:
        """One call on the registry's control socket."""
        return self._control(self.registry, op, **fields)

    def _control(self, process: ManagedProcess, op: str, **fields: object) -> dict[str, Any]:
        from .host.knobs.control import ControlClient

        with ControlClient(str(process.folder / CONTROL_SOCKET)) as client:
            return client.call(op, **fields)

    def describe(self) -> ClusterView:
        """The registry's state: live brokers, controller, and each partition's leader, epoch and ISR."""
        if self._registry is not None or not self.brokers:
            return parse(self.registry_control("tree")["tree"])
        error = ClusterError("no broker is running through which ZooKeeper can be read; start a broker")
        for node_id, broker in self.brokers.items():
            if broker.state == "running":
                try:
                    return parse(self.control(node_id, "tree")["tree"])
                except ClusterError as refused:
                    error = refused
        raise error

    def log_dirs(self) -> dict[int, list[str]]:
        """Each broker's `log.dirs`, as names or absolute paths; empty where it is not set."""
        found: dict[int, list[str]] = {}
        for node_id, broker in self.brokers.items():
            text = str(broker.options["config"].get("log.dirs", ""))
            found[node_id] = [name.strip() for name in text.split(",") if name.strip()]
        return found

    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The replicas of each running broker, from that broker: leader, epoch, ISR, LEO, HW, LSO, log start."""
        return {
            node_id: self.control(node_id, "state")["partitions"]
            for node_id, broker in self.brokers.items()
            if broker.state == "running"
        }

    # ----------------------------------------------------------------- waits

    def await_converged(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until ISRs are full, and the LEO and HW of every replica are the leader's LEO.

        `await_replicated` does not wait for the followers' HW, which a follower receives with its next fetch
        response, up to `replica.fetch.wait.max.ms` later.
        """
        deadline = time.monotonic() + timeout_s
        self.await_full_isr(timeout_s)
        self.wait_until(
            "convergence", lambda: unconverged(self.state(), self.describe()), max(0.1, deadline - time.monotonic())
        )


def resolved_listeners(config: BrokerConfig, listeners: Sequence[Listener]) -> dict[str, str]:
    """The settings of these listeners, whose port 0 was resolved; the advertised ones where they are set."""
    found = {"listeners": format_listeners(listeners)}
    if config.text("advertised.listeners"):
        rows = [f"{row.name}://{row.advertised}" for row in listeners if row.advertised is not None]
        found["advertised.listeners"] = ",".join(rows)
    return found


def client_address(listeners: Sequence[Listener]) -> Address:
    """The advertised address for clients: of the first listener that is not the inter-broker listener, if any is."""
    advertised = [row for row in listeners if row.advertised is not None]
    found = next((row for row in advertised if not row.inter_broker), advertised[0]).advertised
    assert found is not None
    return found


def sweep_orphans() -> list[int]:
    """Kill the processes of runs whose supervising process has ended; returns their pids.

    Every process of a run has `HARROW_RUN=<pid of the supervising process>` in its environment.
    """
    swept: list[int] = []
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit() or int(entry.name) == os.getpid():
            continue
        try:
            environment = (entry / "environ").read_bytes().split(b"\0")
            command = (entry / "cmdline").read_bytes()
        except OSError:
            continue
        owner = next((row[len(MARKER) + 1 :] for row in environment if row.startswith(f"{MARKER}=".encode())), b"")
        ours = b"harrow.cluster.forkserver" in command
        if ours and owner.isdigit() and not Path(f"/proc/{int(owner)}").exists():
            os.kill(int(entry.name), signal.SIGKILL)
            swept.append(int(entry.name))
    return swept


__all__ = ["STOP_TIMEOUT_S", "BrokerProcess", "Cluster", "fork_server", "sweep_orphans"]
