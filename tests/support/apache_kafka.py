"""A real Apache Kafka for a whole test run: three KRaft nodes, started once, shared by all workers, and always stopped.

The first test that needs the nodes starts them under a keeper: a separate process that waits for the end of the run's
first process (`HARROW_CONTROLLER`, see conftest.py), in whatever way it ends, and then kills the nodes and removes
their folder. A file lock gives the nodes to a single test at a time, because tests stop and kill nodes. `MISSING` is
the reason why Kafka cannot run here, or that HARROW_APACHE is not 1 (`make conformance` sets it).
"""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from detached import await_end, detached, outlive_signals
from free_ports import first_free
from kafka_reference import ASSIGNED_AT_ONCE, HAS_JARS, JARS, TOOL
from waiting import until

NODES = (1, 2, 3)
START_TIMEOUT_S = 120.0
HEAP = "256m"


def _missing() -> str:
    if os.environ.get("HARROW_APACHE") != "1":
        return "three JVMs would slow down the suite on two cores; `make conformance` runs Apache Kafka"
    if shutil.which("java") is None:
        return "no java, so no Apache Kafka to compare with"
    if not Path(TOOL).exists():
        return f"no {TOOL}, so no Apache Kafka to compare with"
    if not HAS_JARS:
        return f"Apache Kafka's jars are not here; fetch them once with `{TOOL} jars`"
    return ""


MISSING = _missing()


class ApacheKafka:
    """The running nodes."""

    def __init__(self, folder: Path, port: int) -> None:
        self.folder = folder
        self._port = port

    @property
    def ports(self) -> dict[int, int]:
        """The port of each node, by node id."""
        return {node: self._port + node for node in NODES}

    def signal(self, node: int, number: int) -> None:
        """Sends a signal to a node."""
        os.kill(int((self.folder / f"{node}.pid").read_text()), number)

    def kill(self, node: int) -> None:
        """Sends SIGKILL, and waits until the node does not listen."""
        self.signal(node, signal.SIGKILL)
        until(lambda: not _listens(self.ports[node]))

    def terminate(self, node: int) -> None:
        """Sends SIGTERM, and waits for the end of the process: a controlled shutdown."""
        pid = int((self.folder / f"{node}.pid").read_text())
        self.signal(node, signal.SIGTERM)
        until(lambda: not Path(f"/proc/{pid}").exists(), f"node {node} has ended")

    def start(self, node: int) -> None:
        """Starts a node that has ended."""
        heap = [f"-Xmx{HEAP}", f"-Xms{HEAP}", "-XX:+UseG1GC"]
        command = ["java", *heap, "-cp", f"{JARS}/*", "kafka.Kafka"]
        log = self.folder / f"{node}.log"
        pid = detached([*command, str(self.folder / f"{node}.properties")], log)
        (self.folder / f"{node}.pid").write_text(str(pid))
        until(lambda: _listens(self.ports[node]))


@contextmanager
def apache_kafka() -> Generator[ApacheKafka]:
    """Yields the nodes of this run; no other test has them at the same time."""
    rendezvous = Path(os.environ["HARROW_RENDEZVOUS"])
    assert rendezvous.is_absolute(), f"HARROW_RENDEZVOUS={rendezvous}: not the folder of this run"
    shared = rendezvous.parent
    with (shared / "apache.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        ready = shared / "apache.json"
        if not ready.exists():
            _begin(shared, ready)
        address = json.loads(ready.read_text())
        if "error" in address:
            raise RuntimeError(f"Apache Kafka did not start: {address['error']}")
        yield ApacheKafka(Path(address["folder"]), address["port"])


def _begin(shared: Path, ready: Path) -> None:
    command = [sys.executable, __file__, str(shared), os.environ["HARROW_CONTROLLER"]]
    detached(command, shared / "apache.log")
    until(ready.exists, timeout_s=START_TIMEOUT_S)


def keep(shared: Path, run: int) -> None:
    """Starts the nodes, writes their address to `apache.json`, and kills them when process `run` ends."""
    outlive_signals()
    ended = os.pidfd_open(run)
    folder = shared / "apache"
    controllers = (node - 10_000 for node in NODES)  # the tool's rule for their ports
    port = first_free(range(30_090, 32_700, 20), (*NODES, *controllers))
    environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_HEAP": HEAP}
    settings = ["auto.create.topics.enable=false", "replica.lag.time.max.ms=30000"]
    settings += ["group.initial.rebalance.delay.ms=300", "group.min.session.timeout.ms=1000"]
    settings += [f"{name}={str(value).lower()}" for name, value in ASSIGNED_AT_ONCE.items()]
    environment["KAFKA_SET"] = "\n".join([*settings, "broker.session.timeout.ms=6000"])
    up = subprocess.run(
        [TOOL, "up", str(folder), str(len(NODES))], env=environment, capture_output=True, text=True, check=False
    )
    address: dict[str, object] = {"folder": str(folder), "port": port}
    try:  # on a busy machine the start takes longer than the tool waits
        until(lambda: all(_listens(port + node) for node in NODES), timeout_s=START_TIMEOUT_S - 40)
    except AssertionError:
        address = {"error": (up.stdout + up.stderr)[-500:]}
    part = shared / "apache.json.part"
    part.write_text(json.dumps(address))
    part.rename(shared / "apache.json")
    await_end(ended)
    subprocess.run([TOOL, "down", str(folder)], check=False, capture_output=True)
    shutil.rmtree(folder, ignore_errors=True)


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


if __name__ == "__main__":
    keep(Path(sys.argv[1]), int(sys.argv[2]))
