"""`RunningCluster`: what the harness and a test may ask of a cluster, whichever backend runs it.

    local    `harrow.cluster.Cluster`                       Harrow's own brokers
    apache   `harness/backends/apache/kafka_cluster.py`     Apache Kafka, started by Harrow
    docker   `harness/backends/docker/docker_cluster.py`    the same in containers
    external `harness/backends/external/external_cluster.py`  brokers that Harrow did not start
    simulated `harness/backends/simulated/cluster.py`    Harrow's own brokers on a virtual clock

Faults do not use it: they act through `System` (`faults/system.py`). What a backend does not have raises
CapabilityError, which skips the test with its reason.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster.convergence import CONVERGE_TIMEOUT_S
from harrow.cluster.managed import START_TIMEOUT_S, STOP_TIMEOUT_S

from .histories.recordings import Recording

if TYPE_CHECKING:
    from harrow.cluster.config import BrokerConfig
    from harrow.cluster.planting import Plant
    from harrow.cluster.view import ClusterView

    from .histories.contents import FinalRead
    from .histories.group_states import GroupsAtTheEnd


def unrecorded_by(cluster: RunningCluster) -> list[str]:
    """Return what a cluster does not record, by the names of `Recording`."""
    found: list[str] = []
    if not cluster.has_replica_logs:
        found.append(Recording.REPLICA_LOGS)
    if not cluster.has_broker_traces:
        found.append(Recording.BROKER_EVENTS)
    elif not cluster.config.flag("harrow.tap"):
        found += [Recording.TAPS, Recording.COORDINATOR_TAPS]
    return found


class RunningProcess(Protocol):
    """A process of the cluster. Each method returns when its effect can be seen; ClusterError when it cannot."""

    @property
    def folder(self) -> Path:
        """The folder with the files that Harrow keeps for this broker."""
        ...

    @property
    def pid(self) -> int | None:
        """The process id of the last start; None before it."""
        ...

    @property
    def incarnations(self) -> int:
        """How often it has been started."""
        ...

    @property
    def alive(self) -> bool:
        """Whether the process exists, paused or not."""
        ...

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        ...

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Start the broker and wait until it serves."""
        ...

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended."""
        ...

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM (controlled shutdown), and wait."""
        ...

    def pause(self) -> None:
        """SIGSTOP."""
        ...

    def resume(self) -> None:
        """SIGCONT."""
        ...

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Terminate, then start."""
        ...


class RunningBroker(RunningProcess, Protocol):
    """The process of one broker."""

    @property
    def port(self) -> int:
        """The port for clients."""
        ...


class OwnRequests(Protocol):
    """What Harrow itself asks the brokers, for a cluster that Harrow's socket clients cannot reach."""

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, object]
    ) -> None:
        """Create a topic; HarrowError for one that exists, or that the brokers refuse."""
        ...

    def topic_exists(self, name: str) -> bool:
        """Whether the cluster has a topic."""
        ...

    def list_groups(self) -> GroupsAtTheEnd:
        """Ask each broker for its groups."""
        ...

    def ending_transactions(self) -> list[str]:
        """Ask each broker for the transactional ids whose transaction is being ended."""
        ...

    def read_all(self, topics: Sequence[str], folder: Path, *, contents: bool) -> list[FinalRead]:
        """Read whole topics into a history in `folder`, as `clients.final_read.read_all` does."""
        ...


def own_requests_of(cluster: RunningCluster) -> OwnRequests | None:
    """Return how Harrow asks this cluster; None: by its socket clients, at `own_servers`."""
    found: OwnRequests | None = getattr(cluster, "own_requests", None)
    return found


class RunningCluster(Protocol):
    """A cluster that was started for a test, or for several."""

    @property
    def folder(self) -> Path:
        """The folder of the cluster's files; `broker-N/` in it has what Harrow keeps for broker N."""
        ...

    @property
    def config(self) -> BrokerConfig:
        """The broker settings that all brokers have."""
        ...

    @property
    def plants(self) -> Sequence[Plant]:
        """Bugs that are planted in every broker."""
        ...

    @property
    def brokers(self) -> Mapping[int, RunningBroker]:
        """The brokers by node id, dead ones too."""
        ...

    @property
    def has_replica_logs(self) -> bool:
        """Whether the logs of all replicas are below `folder`; else copies of what the leaders return."""
        ...

    @property
    def has_broker_traces(self) -> bool:
        """Whether the brokers write traces, which foreign brokers do not."""
        ...

    @property
    def bootstrap_servers(self) -> str:
        """`host:port,…` of every broker, dead ones too: for the application."""
        ...

    @property
    def own_servers(self) -> str:
        """The same for clients of Harrow's own, which have no credentials: often `bootstrap_servers`."""
        ...

    @property
    def registry(self) -> RunningProcess:
        """The process of Harrow's registry."""
        ...

    def stop(self) -> None:
        """End every process."""
        ...

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on the control socket of a broker's host."""
        ...

    def describe(self) -> ClusterView:
        """Live brokers, controller, and each partition's leader, epoch, ISR; ClusterError without a response."""
        ...

    def log_dirs(self) -> dict[int, list[str]]:
        """Each broker's `log.dirs`, as names below its folder or absolute paths."""
        ...

    def leader(self, topic: str, partition: int) -> int | None:
        """The node id of a partition's leader; None without a leader."""
        ...

    def isr(self, topic: str, partition: int) -> list[int]:
        """The in-sync replicas of a partition."""
        ...

    def controller_id(self) -> int | None:
        """The node id of the active controller, or None while there is none."""
        ...

    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The replicas of each running broker: at least topic, partition, leo, hw and lso of leaders."""
        ...

    def await_full_isr(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until every partition has a leader and its ISR holds every replica."""
        ...

    def await_converged(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait until ISRs are full and all replicas have the same end, which is committed."""
        ...

    def await_replicated(self, timeout_s: float = CONVERGE_TIMEOUT_S, topics: Sequence[str] = ()) -> None:
        """Wait until ISRs are full, and the leader's HW and the LEO of every replica are the leader's LEO.

        `topics`: those that are judged; a cluster that others use too waits only for them.
        """
        ...

    def topic_created(self, name: str) -> None:
        """Note that the test created a topic: a cluster that outlives the test deletes it."""
        ...
