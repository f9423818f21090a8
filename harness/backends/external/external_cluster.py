"""`ExternalCluster`: brokers that Harrow did not start, behind Harrow's proxy.

Owns: the proxy, the folder of each broker with the proxy's files, the copies of the leaders' logs for a verdict, and
the topics that the test created, which `stop()` deletes. The brokers themselves are only asked: none is started,
stopped or changed. A broker that appears later gets a port at the proxy. `RunningCluster` of the harness.

A verdict waits for the judged topics only, because other programs use the cluster too.

What may fail: CapabilityError where the cluster cannot be used (`bootstrap.py`) or lacks a setting that the test asks
for; ClusterError without a response, and for topics that could not be deleted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import DATA, broker_name
from harrow.cluster.config import BrokerConfig
from harrow.cluster.convergence import CONVERGE_TIMEOUT_S, DescribedCluster, isr_not_full
from harrow.cluster.errors import ClusterError
from harrow.cluster.events import TraceEvent
from harrow.cluster.ids import TopicPartition
from harrow.cluster.listeners import Address
from harrow.cluster.planting import Plant
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.view import ClusterView, PartitionView
from harrow.faults.errors import CapabilityError

from ...running_cluster import RunningProcess
from ..apache.kafka_removals import cleaning_event, compacted_topics, deleted_event, write_events
from ..apache.kafka_views import CONSUMER, EARLIEST, LATEST, READ_COMMITTED, KafkaView, described, offsets
from .bootstrap import ExternalBrokers, find_brokers, shown
from .broker_settings import check_settings, known_config, read_settings, session_timeout_ms
from .created_topics import CreatedTopics
from .external_broker import ExternalBroker
from .leader_logs import LeaderLog, copy_logs, leader_ends

NO_REGISTRY = "the backend external has no registry that Harrow could reach"


class ExternalCluster(DescribedCluster):
    """The cluster at `bootstrap`; `config`: the settings that the test asks for, which its brokers must have."""

    plants: Sequence[Plant] = ()
    has_replica_logs = False
    has_broker_traces = False
    poll_s = 0.05

    def __init__(self, bootstrap: str, *, folder: Path, config: Mapping[str, object], seed: int) -> None:
        self.folder = folder.absolute()
        self.config = BrokerConfig.parse({})
        self.session_timeout_ms = 0
        self._bootstrap = bootstrap
        self._wanted = config
        self._seed = seed
        self._found: ExternalBrokers | None = None
        self._proxy: Proxy | None = None
        self._topic_ids: dict[str, str] = {}
        """The id with which each topic was first seen."""
        self._created = CreatedTopics(lambda: self._look().topic_ids)

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Find the brokers, compare their settings, and start the proxy. After an error call `stop`."""
        self._found = found = find_brokers(self._bootstrap)
        settings: dict[str, str] = {}
        for node, address in sorted(found.addresses.items()):
            try:
                settings = read_settings(node, address)
            except ClusterError:
                continue
            break
        check_settings(self._wanted, settings)
        self.config = known_config(settings)
        self.session_timeout_ms = session_timeout_ms(settings)
        self._proxy = Proxy(self.folder, found.addresses, seed=self._seed)
        self._proxy.start()

    def stop(self) -> None:
        """Delete the topics that the test created, and end the proxy; files stay, and so does the cluster."""
        try:
            if self._proxy is not None:
                self._created.delete(shown(self._upstreams().values()))
        finally:
            proxy, self._proxy = self._proxy, None
            if proxy is not None:
                proxy.stop()

    def topic_created(self, name: str) -> None:
        """Note that this topic ends with the test."""
        self._created.add(name)

    # ----------------------------------------------------------------- views

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's address of every broker that was found at the start."""
        return self.proxy.bootstrap_servers

    @property
    def proxy(self) -> Proxy:
        """The proxy before the brokers."""
        if self._proxy is None:
            raise ClusterError("the cluster is not started")
        return self._proxy

    @property
    def registry(self) -> RunningProcess:
        """It is not Harrow's."""
        raise CapabilityError(NO_REGISTRY)

    @property
    def brokers(self) -> dict[int, ExternalBroker]:
        """The brokers that the proxy has a port for."""
        return {
            node: ExternalBroker(node, self.folder / broker_name(node), address, self.live_brokers)
            for node, address in self.proxy.addresses.items()
        }

    def live_brokers(self) -> frozenset[int]:
        """The brokers that the cluster lists."""
        return self.describe().live

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on the proxy's control socket for a broker."""
        return self.proxy.control(node_id, op, **fields)

    def describe(self) -> ClusterView:
        """The cluster as one of its brokers knows it; the controller only where it is one of the brokers."""
        return self._look().cluster

    def _look(self) -> KafkaView:
        """Ask a broker, and remember the ids of topics that are seen for the first time.

        A controller that is no broker is None: nothing can be done to it.
        """
        assert self._found is not None, "started"
        _, view = next(described(self._upstreams().items(), quorum=self._found.quorum))
        self._topic_ids = {**view.topic_ids, **self._topic_ids}
        if view.cluster.controller in view.cluster.live:
            return view
        return view._replace(cluster=replace(view.cluster, controller=None))

    def _upstreams(self) -> dict[int, Address]:
        """Where the proxy reaches each broker."""
        return {int(row["node_id"]): Address(*row["upstream"]) for row in self.proxy.brokers()}

    def _leaders(self, view: ClusterView) -> dict[int, tuple[Address, dict[TopicPartition, PartitionView]]]:
        """Return each leader's address and the partitions that it leads."""
        addresses = self._upstreams()
        found: dict[int, tuple[Address, dict[TopicPartition, PartitionView]]] = {}
        for where, partition in view.partitions():
            if partition.leader in addresses:
                row = found.setdefault(partition.leader, (addresses[partition.leader], {}))
                row[1][where] = partition
        return found

    def log_dirs(self) -> dict[int, list[str]]:
        """Where the copies of the logs that a broker leads are."""
        return {node: [DATA] for node in self.brokers}

    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The partitions that each broker leads; what followers have is not known."""
        return self._state(self.describe())

    def _state(self, view: ClusterView) -> dict[int, list[dict[str, Any]]]:
        found: dict[int, list[dict[str, Any]]] = {}
        for node, (address, led) in self._leaders(view).items():
            ends = leader_ends(address, {where: row.leader_epoch for where, row in led.items()})
            high = offsets(address, led, CONSUMER, LATEST)
            stable = offsets(address, led, CONSUMER, LATEST, READ_COMMITTED)
            found[node] = [
                {
                    "topic": where.topic,
                    "partition": where.partition,
                    "is_leader": True,
                    "leader_epoch": row.leader_epoch,
                    "leo": ends[where],
                    "hw": high.get(where),
                    "lso": stable.get(where),
                }
                for where, row in led.items()
                if where in ends
            ]
        return found

    # ----------------------------------------------------------------- waits

    def await_replicated(self, timeout_s: float = CONVERGE_TIMEOUT_S, topics: Sequence[str] = ()) -> None:
        """Wait until the topics have full ISRs and committed ends; then copy what their leaders return of the logs.

        Without topics: those that the test created.
        """
        named = frozenset(topics) or self._created.names
        deadline = time.monotonic() + timeout_s
        self.wait_until("full ISRs of committed logs", lambda: self._lacking(named), timeout_s)
        self._note_logs(named, max(deadline, time.monotonic() + timeout_s / 2))

    def await_converged(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait for the topics that the test created; what followers have is not known."""
        self.await_replicated(timeout_s)

    def await_full_isr(self, timeout_s: float = CONVERGE_TIMEOUT_S) -> None:
        """Wait for the topics that the test created."""
        named = self._created.names
        self.wait_until("full ISRs", lambda: isr_not_full(self._part(named)), timeout_s)

    def _part(self, topics: frozenset[str]) -> ClusterView:
        view = self.describe()
        return replace(view, topics={name: view.topics[name] for name in topics & set(view.topics)})

    def _lacking(self, topics: frozenset[str]) -> str:
        view = self._part(topics)
        if problem := isr_not_full(view):
            return problem
        state = self._state(view)
        for where, partition in view.partitions():
            rows = [row for row in state.get(partition.leader, ()) if _is_of(row, where)]
            if not rows:
                return f"{where}: its leader {partition.leader} does not return its end"
            if rows[0]["leo"] != rows[0]["hw"]:
                return f"{where}: LEO {rows[0]['leo']}, HW {rows[0]['hw']}"
        return ""

    def _note_logs(self, topics: frozenset[str], deadline: float) -> None:
        """Copy the logs, and write what Kafka may have removed of them into the traces."""
        view = self._part(topics)
        logs: dict[TopicPartition, LeaderLog] = {}
        for node, (address, led) in self._leaders(view).items():
            starts = offsets(address, led, CONSUMER, EARLIEST)
            ends = offsets(address, led, CONSUMER, LATEST)
            compacted = compacted_topics(address, {where.topic for where in led})
            events: list[TraceEvent] = []
            for where in (where for where in led if where in starts and where in ends):
                logs[where] = LeaderLog(node, address, starts[where], ends[where])
                events += [deleted_event(where, starts[where])] if starts[where] else []
                events += [cleaning_event(where, ends[where])] if where.topic in compacted else []
            write_events(self.folder / broker_name(node), events)
        copy_logs(self.folder, logs, deadline)
        first = self._topic_ids
        now = self._look().topic_ids
        again = sorted(name for name in topics & first.keys() & now.keys() if now[name] != first[name])
        if again:
            raise ClusterError(
                f"topic {', '.join(again)} was deleted and created again, and Kafka does not tell when: its records "
                "cannot be judged; use another name for the new topic"
            )


def _is_of(row: Mapping[str, Any], where: TopicPartition) -> bool:
    return bool(row["topic"] == where.topic and row["partition"] == where.partition)
