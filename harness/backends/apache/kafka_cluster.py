"""`KafkaCluster`: Apache Kafka's KRaft nodes as processes of this machine, and Harrow's proxy before them.

Owns: the nodes' folders (`broker-N/`: server.properties, hosts, stdout.log, data), their ports, and the proxy. Clients
reach the nodes through the proxy, and so do the nodes each other (`kafka_listeners.py`). All processes end with
`stop()`, and with this process however it ends. `RunningCluster` of the harness. What may fail: ClusterError with the
end of a node's output when it does not start.
"""

from __future__ import annotations

import base64
import shutil
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harrow.cluster.broker_folder import DATA, broker_name
from harrow.cluster.config import BrokerConfig
from harrow.cluster.convergence import CONVERGE_TIMEOUT_S, DescribedCluster
from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.planting import Plant
from harrow.cluster.ports import LOOPBACK, ReservedPort
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.view import ClusterView
from harrow.faults.errors import CapabilityError

from ...running_cluster import RunningProcess
from .installation import KafkaInstallation
from .kafka_listeners import NODES_MOST, NodeListeners, can_relay, hosts_file, listener_settings, peer_links
from .kafka_node import PROPERTIES, KafkaNode, Node, format_command
from .kafka_removals import compacted_topics, removal_events, write_events
from .kafka_security import ClientSecurity
from .kafka_settings import node_settings, server_properties
from .kafka_views import KafkaView, described, live_brokers, log_end_offsets, replica_states

FORMAT_TIMEOUT_S = 120.0
NODE_START_TIMEOUT_S = 180.0
HOSTS = "hosts"
NO_REGISTRY = "Kafka's nodes are a KRaft quorum: there is no registry"


class KafkaCluster(DescribedCluster):
    """A cluster of `brokers` nodes; `config` has broker settings by Kafka's names (`kafka_settings.py`)."""

    plants: Sequence[Plant] = ()
    has_broker_traces = False
    poll_s = 0.1

    def __init__(
        self,
        installation: KafkaInstallation,
        *,
        folder: Path,
        brokers: int,
        config: Mapping[str, object],
        seed: int,
        relayed: bool | None = None,
    ) -> None:
        """`relayed`: whether the links between the nodes pass the proxy; by default where the machine allows it."""
        self.installation = installation
        self.relayed = (can_relay() if relayed is None else relayed) and brokers <= NODES_MOST
        self.folder = folder.absolute()
        self.config = BrokerConfig.parse(config)
        self._security = ClientSecurity.of(config)
        self._settings = node_settings(self._security.without_own(config))
        self._count = brokers
        self._seed = seed
        self.cluster_id = base64.urlsafe_b64encode(seed.to_bytes(16, "big")).decode().rstrip("=")
        self.brokers: dict[int, Node] = {}
        self._topic_ids: dict[str, str] = {}
        """The id with which each topic was first seen."""
        self._asked_last = 0
        self._highest_epoch = -1
        """Of a controller, in any view so far."""
        self._ports: list[ReservedPort] = []
        self._proxy: Proxy | None = None

    @property
    def session_timeout_ms(self) -> int:
        """After which time without a heartbeat the controller fences a broker."""
        return int(self._settings["broker.session.timeout.ms"])

    # ------------------------------------------------------------------ life

    def start(self) -> None:
        """Format and start all nodes and the proxy; returns when every node serves and knows all of them.

        After an error call `stop`.
        """
        listeners = self._lay_out()
        upstreams = {node: row.clients for node, row in listeners.items()}
        links = peer_links(listeners) if self.relayed else ()
        self._proxy = Proxy(
            self.folder,
            upstreams,
            seed=self._seed,
            peer_links=links,
            own_upstreams={node: row.harrow for node, row in listeners.items() if row.harrow is not None},
            keystore=self._security.keystore,
            truststore=self._security.truststore,
        )
        self._proxy.start()  # before the nodes, which reach each other through it
        for broker in self.brokers.values():
            broker.begin()
        for broker in self.brokers.values():
            broker.wait_ready(NODE_START_TIMEOUT_S)
        self._await_all()
        self.wait_until("open ports of the proxy", self._closed_ports, CONVERGE_TIMEOUT_S)

    def stop(self) -> None:
        """End every process and give the ports back; files stay."""
        for broker in self.brokers.values():
            broker.close()
        if self._proxy is not None:
            self._proxy.stop()
            self._proxy = None
        for port in self._ports:
            port.release()
        self._ports.clear()

    def _lay_out(self) -> dict[int, NodeListeners]:
        """Write and format the nodes' folders; return where the nodes listen."""
        nodes = range(1, self._count + 1)
        security = self._security
        listeners = {
            node: NodeListeners(self._hold(), self._hold(), self._hold(), None if security.is_plain else self._hold())
            for node in nodes
        }
        for node in nodes:
            folder = self.folder / broker_name(node)
            shutil.rmtree(folder / DATA, ignore_errors=True)
            folder.mkdir(parents=True, exist_ok=True)
            named = listener_settings(node, listeners, relayed=self.relayed, protocol=security.node_protocol)
            text = server_properties(node, named, folder / DATA, self._settings)
            (folder / PROPERTIES).write_text(text, encoding="utf-8")
            hosts = folder / HOSTS
            hosts.write_text(hosts_file(node, nodes), encoding="utf-8")
            options = [*([f"-Djdk.net.hosts.file={hosts}"] if self.relayed else []), *security.jvm_options]
            self.brokers[node] = self._new_node(node, folder, listeners[node].plain, options)
        self._format()
        return listeners

    def _new_node(self, node: int, folder: Path, clients: Address, options: Sequence[str]) -> Node:
        """Return the node whose server.properties is in `folder`, not started; `options` are its JVM's."""
        return KafkaNode(self.installation, node, folder, clients, options)

    def _format(self) -> None:
        """Format the data folders, all at the same time."""
        formats = [(node, *self._begin_format(broker.folder)) for node, broker in self.brokers.items()]
        for node, process, output in formats:
            if process.wait(FORMAT_TIMEOUT_S) != 0:
                said = output.read_text(errors="replace")[-2000:]
                raise ClusterError(f"the data folder of Kafka node {node} was not formatted: {said}")

    def _begin_format(self, folder: Path) -> tuple[subprocess.Popen[bytes], Path]:
        command = format_command(self.installation, folder, self.cluster_id, self._security.scram_users)
        output = folder / "format.log"
        with output.open("wb") as file:
            process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)  # noqa: S603 - Kafka's own tool
        return process, output

    def _await_all(self) -> None:
        everyone = frozenset(self.brokers)

        def lacking() -> str:
            for node, broker in self.brokers.items():
                known = live_brokers(broker.address)
                if known != everyone:
                    return f"node {node} knows {sorted(known)}"
            return ""

        self.wait_until("complete metadata", lacking, CONVERGE_TIMEOUT_S)

    def _closed_ports(self) -> str:
        closed = [row["node_id"] for row in self.proxy.brokers() if not row["open"]]
        return f"closed: those of brokers {closed}" if closed else ""

    def _hold(self) -> Address:
        port = ReservedPort()
        self._ports.append(port)
        return Address(LOOPBACK, port.number)

    # ----------------------------------------------------------------- views

    @property
    def bootstrap_servers(self) -> str:
        """The proxy's address of every broker."""
        return self.proxy.bootstrap_servers

    @property
    def own_servers(self) -> str:
        """The proxy's address of every broker for Harrow's own clients."""
        return self.proxy.own_servers

    @property
    def proxy(self) -> Proxy:
        """The proxy before the nodes."""
        if self._proxy is None:
            raise ClusterError("the cluster is not started")
        return self._proxy

    @property
    def registry(self) -> RunningProcess:
        """Kafka's nodes are their own controllers."""
        raise CapabilityError(NO_REGISTRY)

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One call on the proxy's control socket for a broker."""
        return self.proxy.control(node_id, op, **fields)

    def describe(self) -> ClusterView:
        """The cluster as a running broker knows it."""
        return self._look().cluster

    def _look(self) -> KafkaView:
        """Ask a running broker, and remember the ids of topics that are seen for the first time.

        The broker that answered last is asked first. A broker that is cut off answers late or with an old epoch of the
        controller, and then the next broker is asked.
        """
        running = self._running()
        order = sorted(running, key=lambda node: (node != self._asked_last, node))
        found: KafkaView | None = None
        for node, view in described((node, running[node]) for node in order):
            if found is None or view.cluster.controller_epoch > found.cluster.controller_epoch:
                self._asked_last, found = node, view
            if found.cluster.controller_epoch >= self._highest_epoch:
                break
        assert found is not None, "described"
        self._highest_epoch = max(self._highest_epoch, found.cluster.controller_epoch)
        self._topic_ids = {**found.topic_ids, **self._topic_ids}
        return found

    def _running(self) -> dict[int, Address]:
        return {node: broker.address for node, broker in self.brokers.items() if broker.state == "running"}

    def log_dirs(self) -> dict[int, list[str]]:
        """Each node has one data folder."""
        return {node: [DATA] for node in self.brokers}

    def state(self) -> dict[int, list[dict[str, Any]]]:
        """The replicas of each running broker (`kafka_views.replica_states`)."""
        view = self.describe()
        return {node: replica_states(node, address, view) for node, address in self._running().items()}

    # ----------------------------------------------------------------- waits

    def await_replicated(self, timeout_s: float = CONVERGE_TIMEOUT_S, topics: Sequence[str] = ()) -> None:
        """Wait until ISRs are full and the replicas' logs are equal; then note what Kafka may have removed of them."""
        super().await_replicated(timeout_s, topics)
        self._note_removals()

    await_converged = await_replicated
    """Kafka does not tell the high watermark of a follower."""

    def _note_removals(self) -> None:
        """Write what Kafka may have removed into the traces, for the verdict that follows."""
        view, running = self._look(), self._running()
        cluster = view.cluster
        some = next(iter(running.values()))
        topics = (name for name in cluster.topics if not name.startswith("__"))
        compacted = compacted_topics(some, topics)
        for node, address in running.items():
            ends = log_end_offsets(node, address, cluster)
            events = removal_events(node, address, cluster, compacted, ends)
            write_events(self.brokers[node].folder, events)
        again = sorted(name for name, id_ in view.topic_ids.items() if self._topic_ids[name] != id_)
        if again:
            raise ClusterError(
                f"topic {', '.join(again)} was deleted and created again, and Kafka does not tell when: its records "
                "cannot be judged; use the backend local, or another name for the new topic"
            )
