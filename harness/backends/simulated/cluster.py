"""A simulated cluster as the harness sees it, and its files for the verdict.

Owns: `SimulatedRunningCluster` (`RunningCluster`) and `SimulatedNode`, one of its processes. Taps are written by the
brokers into real files while they run (`<folder>/broker-N/tap.*`). The replicas' logs and the traces are in memory;
`export` writes them where those of real brokers are, before a verdict reads them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import REGISTRY, TRACE, broker_name
from harrow.cluster.config import BrokerConfig
from harrow.cluster.convergence import CONVERGE_TIMEOUT_S, DescribedCluster, unconverged
from harrow.cluster.errors import ClusterError
from harrow.cluster.host.simulated.host import EPOCH_MS
from harrow.cluster.host.simulated.loop import NS_PER_MS
from harrow.cluster.managed import START_TIMEOUT_S, STOP_TIMEOUT_S
from harrow.cluster.planting import Plant
from harrow.cluster.simulation import SimulatedCluster, SimulatedProcess
from harrow.cluster.view import ClusterView, parse

from ...engines import PREALLOCATED
from .requests import SimulatedRequests
from .system import SimulatedRegistry
from .waiting import POLL_S, holds_within


class SimulatedNode:
    """One process of a simulated cluster; `RunningBroker` of the harness."""

    def __init__(self, process: SimulatedProcess, folder: Path, port: int = 0) -> None:
        self._process = process
        self.folder = folder
        self.port = port

    @property
    def pid(self) -> None:
        """None: it is no process of the operating system."""
        return

    @property
    def incarnations(self) -> int:
        """How often it has been started."""
        return self._process.machine.network_node.incarnations

    @property
    def alive(self) -> bool:
        """Whether it is alive, paused or not."""
        return self._process.machine.alive

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        return self._process.state

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start it and wait until it serves."""
        self._process.begin()
        self._await(lambda: self._process.ready, "serve", timeout_s)

    def kill(self) -> None:
        """Kill -9."""
        self._process.kill()

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """Shut it down, and wait."""
        self._process.terminate()
        self._await(lambda: not self._process.machine.alive, "end", timeout_s)

    def pause(self) -> None:
        """SIGSTOP."""
        self._process.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._process.resume()

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Terminate, then start."""
        self.terminate()
        self.start(timeout_s)

    def _await(self, condition: Callable[[], bool], what: str, timeout_s: float) -> None:
        if not holds_within(condition, timeout_s):
            raise ClusterError(f"{self._process.name} did not {what} within {timeout_s:g} s of virtual time")


class SimulatedRunningCluster(DescribedCluster):
    """A `SimulatedCluster` in the folder of a run."""

    poll_s = POLL_S

    def __init__(self, simulated: SimulatedCluster, folder: Path) -> None:
        self.simulated = simulated
        self.folder = folder
        self.config = BrokerConfig.parse(simulated.config)
        self.registry = SimulatedNode(simulated.registry, folder / REGISTRY)
        ports = dict(zip(simulated.brokers, (port for _, port in simulated.bootstrap), strict=True))
        self.brokers: Mapping[int, SimulatedNode] = {
            node: SimulatedNode(process, folder / broker_name(node), ports[node])
            for node, process in simulated.brokers.items()
        }
        self.own_requests = SimulatedRequests(self, simulated, self.export)
        self._exported_events = 0

    @property
    def plants(self) -> Sequence[Plant]:
        """Bugs that are planted in every broker."""
        return self.simulated.plants

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of every broker."""
        return ",".join(f"{host}:{port}" for host, port in self.simulated.bootstrap)

    def start(self) -> None:
        """Start all processes."""
        for node in (self.registry, *self.brokers.values()):
            node.folder.mkdir(parents=True, exist_ok=True)
        self.simulated.start()

    def stop(self) -> None:
        """Write the traces; the world ends with its process."""
        self._export_traces()

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on the control operations of a broker's host."""
        return self.simulated.brokers[node_id].control(op, **fields)

    def describe(self) -> ClusterView:
        """Read the registry's tree; ClusterError while it does not run."""
        return parse(SimulatedRegistry(self.simulated.registry).call("tree")["tree"])

    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The replicas of each running broker."""
        return self.simulated.states()

    def log_dirs(self) -> dict[int, list[str]]:
        """Each broker's `log.dirs`: below its folder."""
        return {node: [] for node in self.brokers}

    def await_converged(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until ISRs are full and all replicas have the same end, which is committed."""
        self.await_full_isr(timeout_s)
        self.wait_until("convergence", lambda: unconverged(self.state(), self.describe()), timeout_s)

    # -------------------------------------------------------------------------------- the files

    def export(self, topics: Collection[str]) -> None:
        """Write the logs of all replicas of these topics, and the traces, into the cluster's folder."""
        for node, process in self.simulated.brokers.items():
            disk, name = process.machine.disk, broker_name(node)
            for path, data in disk.contents(f"/{name}/"):
                log, _, file = path[1:].rpartition("/")
                if log.rpartition("/")[2].rpartition("-")[0] in topics and not file.endswith(PREALLOCATED):
                    target = self.folder / log
                    target.mkdir(parents=True, exist_ok=True)
                    (target / file).write_bytes(data)
        self._export_traces()

    def _export_traces(self) -> None:
        events = self.simulated.world.trace
        lines: dict[str, list[str]] = {}
        rows = zip(events.events[self._exported_events :], events.lines[self._exported_events :], strict=True)
        for event, line in rows:
            lines.setdefault(event.process, []).append(_with_wall_time(line, event.t_ns))
        self._exported_events = len(events.events)
        for node in (self.registry, *self.brokers.values()):
            _append(node.folder / TRACE, lines.get(node.folder.name, ()))


def _with_wall_time(line: str, t_ns: int) -> str:
    head = f'{{"t_ns":{t_ns},'
    assert line.startswith(head), f"a row of a trace begins with its time: {line[:80]}"
    return f'{head}"wall_ms":{EPOCH_MS + t_ns // NS_PER_MS},{line[len(head) :]}'


def _append(path: Path, lines: Iterable[str]) -> None:
    with path.open("a", encoding="utf-8") as file:
        file.writelines(f"{line}\n" for line in lines)
