"""A client of the run's Spark server: gets the server's address at the rendezvous, connects, and has plans judged.

`SparkHandle(run_folder)` is cheap. `request()` makes sure that the server is starting, and returns; `collect()` waits
for it. The first client starts the owner (`spark_server.py`) under a file lock; later clients find its socket. A
Connect address (`sc://…`) that the user gave replaces the server; a master (`spark://…`, `local[8]`) is used by the
server. With a Connect address, and with a master that is not `local…`, executors may be on other machines
(`cluster_queries.py`).

Plans go to the run's plan server (`plan_server.py`), so that this process does not import pyspark. With the user's own
Connect server, and for `session()`, this process connects itself (`plan_queries.py`); the JVM of the run starts Connect
when the first session is asked for.

No wait is without an end: `READY_TIMEOUT_S` for the start, `verdict_seconds()` (`connect_channel.py`) for a verdict.

Environment: HARROW_RENDEZVOUS names the socket instead of `<run folder>/spark.sock`. With it, HARROW_CONTROLLER is the
id of the process with which the server ends, independent of the process that starts the server.
"""

from __future__ import annotations

import atexit
import contextlib
import json
import os
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.file_locks import lock
from harrow.cluster.unix_sockets import reachable
from harrow.cluster.wait_notes import noted

from .connect_channel import SparkError, too_late, verdict_seconds
from .installed_spark import check_client, check_server
from .jvm import cluster_master
from .plan_queries import quiet

if TYPE_CHECKING:
    from .cluster_queries import ClusterQueries
    from .plan_queries import PlanQueries

__all__ = ["CONTROLLER", "RENDEZVOUS", "SparkError", "SparkHandle", "quiet"]

RENDEZVOUS = "HARROW_RENDEZVOUS"
CONTROLLER = "HARROW_CONTROLLER"
READY_TIMEOUT_S = 120.0
GRACE_S = 150.0
"""How long a plan may wait at the plan server before Spark begins with it: the first session is connected then."""
_by_folder: dict[Path, SparkHandle] = {}


def shown_address(remote: str) -> str:
    """Return a Connect address without its parameters, which may have a token."""
    return remote.partition(";")[0].rstrip("/")


class SparkHandle:
    """The connection of this process to the Spark of its run; threads may share it."""

    def __init__(
        self,
        run_folder: str | Path,
        *,
        controller: int | None = None,
        master: str | None = None,
        remote: str | None = None,
        settings: Mapping[str, str] | None = None,
        warm_up: bool = True,
        data: str = "",
        class_list: str = "",
    ) -> None:
        """`controller` is the id of the process with which the server ends, by default this process.

        `data`: a folder or URL that executors on other machines can read (`--harrow-spark-data`); what they judge is
        copied there. Empty: they read the run folder. `class_list`: a file for the names of the JVM's classes
        (`aot.py`).
        """
        self.run_folder = Path(run_folder).absolute()
        self.rendezvous = Path(os.environ.get(RENDEZVOUS) or self.run_folder / "spark.sock")
        self._remote = remote
        self._data = data
        self.cluster = shown_address(remote) if remote else cluster_master(master)
        """The address of a cluster whose executors are not this run's own; empty for Harrow's own Spark."""
        named = os.environ.get(CONTROLLER, "") if os.environ.get(RENDEZVOUS) else ""
        ends_with = int(named) if named.isdigit() else controller or os.getpid()
        self._options: dict[str, Any] = {
            "rendezvous": str(self.rendezvous),
            "controller": ends_with,
            "master": master,
            "settings": dict(settings or {}),
            "log": str(self.run_folder / "spark.log"),
            "warm_up": warm_up,
            "data": data,
            "class_list": class_list,
        }
        self._socket: socket.socket | None = None
        self._plans: socket.socket | None = None
        """The connection to the plan server."""
        self._queries: PlanQueries | None = None
        self._lock = threading.RLock()
        self.server: dict[str, Any] = {}
        """The owner's response: `plans`, `pid`, `owner`, `started_ms`; empty before it. `remote` where it is known."""

    @classmethod
    def of_run(cls, run_folder: str | Path, **options: Any) -> SparkHandle:
        """Return this process's handle of a run folder; `options` apply only when the call creates it.

        Its connections are closed when the process ends.
        """
        folder = Path(run_folder).absolute()
        if folder not in _by_folder:
            _by_folder[folder] = cls(folder, **options)
            atexit.register(_by_folder[folder].disconnect)
        return _by_folder[folder]

    def request(self) -> None:
        """Make sure that the run's server is running or starting, without waiting for it."""
        if self._remote is not None:
            return
        with self._lock:
            if self._socket is None:
                self._socket = self._connect() or self._start()

    def _connect(self) -> socket.socket | None:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(READY_TIMEOUT_S)
        try:
            with reachable(self.rendezvous) as name:
                client.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            return None
        return client

    def _start(self) -> socket.socket:
        check_server()
        self.run_folder.mkdir(parents=True, exist_ok=True)
        self.rendezvous.parent.mkdir(parents=True, exist_ok=True)
        with open(self.rendezvous.with_suffix(".lock"), "w") as file:
            if not lock(file.fileno(), READY_TIMEOUT_S):
                raise SparkError(
                    f"another process of this run starts Spark's owner and has held {file.name} for "
                    f"{READY_TIMEOUT_S:g} s; is it stopped? see {self._options['log']}"
                )
            found = self._connect()
            if found is not None:
                return found
            self.rendezvous.unlink(missing_ok=True)
            why = self._run_owner()
            found = None if why else self._connect()
        if found is None:
            raise SparkError(
                f"the owner process of Spark did not start: {why or 'it has ended'}; see {self._options['log']}"
            )
        return found

    def _run_owner(self) -> str:
        """Start the owner, which detaches itself; return why it did not start."""
        try:
            started = subprocess.run(  # noqa: S603  (our own module)
                [sys.executable, "-m", f"{__package__}.spark_server", json.dumps(self._options)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                check=False,
                env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                timeout=READY_TIMEOUT_S,
            )
        except subprocess.TimeoutExpired:
            return f"it did not begin within {READY_TIMEOUT_S:g} s: has the machine too little CPU or memory?"
        if not started.returncode:
            return ""
        said = started.stderr.decode(errors="replace").strip()
        return said.splitlines()[-1] if said else f"it ended with {started.returncode}"

    def _ready(self) -> dict[str, Any]:
        """Wait until the server has started, and return the owner's response."""
        self.request()
        assert self._socket is not None
        if self.server:
            return self.server
        self._socket.settimeout(READY_TIMEOUT_S)
        missing = "its owner process has ended"
        try:
            with noted("Spark to start", most_s=READY_TIMEOUT_S):
                line = self._socket.makefile("rb").readline()
        except TimeoutError:
            line, missing = b"", f"its owner process did not say so within {READY_TIMEOUT_S:g} s"
        response = json.loads(line) if line else {"ok": False, "error": missing}
        if not response["ok"]:
            self.disconnect()
            raise SparkError(f"Spark did not start: {response['error']}; see {self._options['log']}")
        self.server = response
        return self.server

    def session(self) -> Any:
        """Return a Spark session of this process; the first call imports pyspark and connects."""
        return self._own_queries().session

    def _own_queries(self) -> PlanQueries:
        from .plan_queries import PlanQueries

        with self._lock:
            if self._queries is None:
                check_client()
                address = self._remote or self._address_of_server()
                self._queries = PlanQueries(
                    address, self.run_folder, local=self._remote is None, cluster=self.cluster, data=self._data
                )
            return self._queries

    def _address_of_server(self) -> str:
        """Return the Connect address of the run's server, which starts Connect now when it is Harrow's own."""
        remote = self._ready().get("remote") or self._ask_plan_server({"connect": ""})[0]["remote"]
        self.server["remote"] = remote
        return str(remote)

    def cluster_queries(self) -> ClusterQueries | None:
        """Return what runs joins on a cluster of the user's; None for Harrow's own Spark."""
        return self._own_queries().cluster if self.cluster else None

    def collect_frame(self, frame: Any) -> list[Any]:
        """Return the rows of a frame of `session()`."""
        return self._own_queries().collect_frame(frame)

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Have every job of a plan judged, and return a result for each."""
        if self._remote is not None:
            return self._own_queries().collect(plan)
        return self._ask_plan_server({"collect": str(plan)})

    def call(self, plan: Path) -> list[dict[str, Any]]:
        """Have one task call the pickled callable in the file `plan`, and return its results."""
        if self._remote is not None:
            return self._own_queries().call(plan)
        return self._ask_plan_server({"call": str(plan)})

    def _ask_plan_server(self, request: dict[str, str]) -> list[dict[str, Any]]:
        with self._lock:
            if self._plans is None:
                self._plans = self._connect_to_plans(Path(self._ready()["plans"]))
            wait_s = verdict_seconds() + GRACE_S
            try:
                self._plans.settimeout(wait_s)
                self._plans.sendall(json.dumps(request).encode() + b"\n")
                with noted("Spark to judge", most_s=wait_s):
                    line = self._plans.makefile("rb").readline()
            except TimeoutError:
                self.disconnect()
                raise SparkError(too_late(wait_s, f"see {self._options['log']}")) from None
            except OSError:
                line = b""
            if not line:
                self.disconnect()
                raise SparkError(f"Spark's plan server has ended; see {self._options['log']}")
        response = json.loads(line)
        if not response["ok"]:
            raise SparkError(f"Spark could not judge {request}: {response['error']}")
        results: list[dict[str, Any]] = response["results"]
        return results

    def _connect_to_plans(self, path: Path) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(READY_TIMEOUT_S)
        try:
            with reachable(path) as name:
                client.connect(name)
        except OSError as error:
            client.close()
            raise SparkError(f"Spark's plan server cannot be reached: {error}; see {self._options['log']}") from error
        return client

    def disconnect(self) -> None:
        """Close the connections to the server; the next request connects again."""
        for connection in (self._plans, self._socket):
            if connection is not None:
                connection.close()
        self._plans = self._socket = None
        self.server = {}

    def _stop_session(self) -> None:
        if self._queries is not None:
            self._queries.close()
            self._queries = None

    def close(self) -> None:
        """Close the connection; the server continues to run for other clients."""
        with self._lock:
            self._stop_session()
            self.disconnect()

    def stop(self) -> None:
        """End the run's server, for all clients, and wait until it has ended."""
        with self._lock:
            self._stop_session()
            client = self._socket or (None if self._remote else self._connect())
            self._socket = None
            self.disconnect()
        if client is None:
            return
        with client:
            client.settimeout(READY_TIMEOUT_S)
            deadline = time.monotonic() + READY_TIMEOUT_S
            with contextlib.suppress(ConnectionError):  # the owner has ended already
                client.sendall(b"stop\n")
                while time.monotonic() < deadline and client.recv(4096):
                    pass  # the owner closes the connection when it ends
