"""One node of a Kafka cluster: a process of this machine here, a container in `docker/node.py`.

Owns: the commands that format and run a node, and `Node`, what the cluster asks of it.
"""

from __future__ import annotations

import signal
from collections.abc import Sequence
from pathlib import Path
from typing import Protocol

from harrow.cluster.foreign_process import ForeignProcess
from harrow.cluster.listeners import Address
from harrow.cluster.managed import START_TIMEOUT_S

from ...running_cluster import RunningBroker
from .installation import KafkaInstallation
from .kafka_views import live_brokers

PROPERTIES = "server.properties"
ENVIRONMENT = {"LC_ALL": "C"}


def server_command(installation: KafkaInstallation, folder: Path, options: Sequence[str]) -> list[str]:
    """Return the command of the node whose server.properties is in `folder`; `options` are its JVM's."""
    return installation.command("kafka.Kafka", str(folder / PROPERTIES), options=options)


def format_command(
    installation: KafkaInstallation, folder: Path, cluster_id: str, scram_users: Sequence[str] = ()
) -> list[str]:
    """Return the command that formats the data folder of this node, with users of SCRAM (`--add-scram`)."""
    users = [word for user in scram_users for word in ("--add-scram", user)]
    properties = str(folder / PROPERTIES)
    return installation.command("kafka.tools.StorageTool", "format", "-t", cluster_id, "-c", properties, *users)


class Node(RunningBroker, Protocol):
    """One node, whatever runs it."""

    @property
    def address(self) -> Address:
        """Where the node itself listens, behind the proxy."""
        ...

    def begin(self) -> None:
        """Start the node and return before it serves. No-op while it is alive."""
        ...

    def check_ready(self) -> None:
        """Notice that a starting node serves, or has ended (ClusterError); never waits for it."""
        ...

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the node serves; ClusterError with the end of its output when it does not."""
        ...

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; returns before it takes effect. No-op on a dead node."""
        ...

    def close(self) -> None:
        """Kill the node and give back what it holds."""
        ...


class KafkaNode(ForeignProcess):
    """One node as a process of this machine: broker and controller."""

    def __init__(
        self, installation: KafkaInstallation, node: int, folder: Path, clients: Address, options: Sequence[str]
    ) -> None:
        self.node_id = node
        self.address = clients
        """Where the node itself listens, behind the proxy."""
        program = server_command(installation, folder, options)
        super().__init__(f"Kafka node {node}", folder, program, serves=self._is_unfenced, environment=ENVIRONMENT)

    @property
    def port(self) -> int:
        """The node's own port, behind the proxy."""
        return self.address.port

    def _is_unfenced(self) -> bool:
        return self.node_id in live_brokers(self.address)
