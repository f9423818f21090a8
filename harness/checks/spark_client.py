"""A client of the run's Spark server: gets the server's address at the rendezvous, connects, and has plans judged.

`SparkHandle(run_folder)` is cheap. `request()` makes sure that the server is starting, and returns; `collect()` waits
for it. The first client starts the owner (`spark_server.py`) under a file lock; later clients find its socket. A
Connect address (`sc://…`) that the user gave replaces the server; a master (`spark://…`, `local[8]`) is used by the
server.

Environment: HARROW_RENDEZVOUS names the socket instead of `<run folder>/spark.sock`. With it, HARROW_CONTROLLER is the
id of the process with which the server ends, independent of the process that starts the server.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Generator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

from harrow.cluster.errors import HarrowError

from .spark_server import reachable

RENDEZVOUS = "HARROW_RENDEZVOUS"
CONTROLLER = "HARROW_CONTROLLER"
READY_TIMEOUT_S = 120.0
_by_folder: dict[Path, SparkHandle] = {}


@contextlib.contextmanager
def quiet() -> Generator[None]:
    """Ignore warnings: pandas and pyspark warn when they are imported, and when a query is made."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


class SparkError(HarrowError):
    """Spark did not start, or did not respond."""


class SparkHandle:
    """The connection of this process to the Spark of its run; threads may share it."""

    def __init__(
        self, run_folder: str | Path, *, controller: int | None = None, master: str | None = None,
        remote: str | None = None, settings: Mapping[str, str] | None = None, warm_up: bool = True,
    ) -> None:  # fmt: skip
        """`controller` is the id of the process with which the server ends, by default this process."""
        self.run_folder = Path(run_folder).absolute()
        self.rendezvous = Path(os.environ.get(RENDEZVOUS) or self.run_folder / "spark.sock")
        self._remote = remote
        named = os.environ.get(CONTROLLER, "") if os.environ.get(RENDEZVOUS) else ""
        ends_with = int(named) if named.isdigit() else controller or os.getpid()
        self._options: dict[str, Any] = {
            "rendezvous": str(self.rendezvous), "controller": ends_with, "master": master,
            "settings": dict(settings or {}), "log": str(self.run_folder / "spark.log"), "warm_up": warm_up,
        }  # fmt: skip
        self._socket: socket.socket | None = None
        self._session: Any = None
        self._query: Any = None
        self._registered = False
        self._lock = threading.RLock()
        self.server: dict[str, Any] = {}
        """The owner's response: `remote`, `pid`, `owner`, `started_ms`."""

    @classmethod
    def of_run(cls, run_folder: str | Path, **options: Any) -> SparkHandle:
        """Return this process's handle of a run folder; `options` apply only when the call creates it."""
        folder = Path(run_folder).absolute()
        if folder not in _by_folder:
            _by_folder[folder] = cls(folder, **options)
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
        try:
            with reachable(self.rendezvous) as name:
                client.connect(name)
        except (FileNotFoundError, ConnectionRefusedError):
            client.close()
            return None
        return client

    def _start(self) -> socket.socket:
        self.run_folder.mkdir(parents=True, exist_ok=True)
        self.rendezvous.parent.mkdir(parents=True, exist_ok=True)
        with open(self.rendezvous.with_suffix(".lock"), "w") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)
            found = self._connect()
            if found is not None:
                return found
            self.rendezvous.unlink(missing_ok=True)
            with open(self._options["log"], "ab") as log:
                started = subprocess.run(  # noqa: S603  (our own module)
                    [sys.executable, "-m", f"{__package__}.spark_server", json.dumps(self._options)],
                    stdin=subprocess.DEVNULL, stdout=log, stderr=log, check=False,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
                )  # fmt: skip
            found = self._connect()
        if started.returncode or found is None:
            raise SparkError(
                f"the owner process of Spark did not start; see {self._options['log']}"
            )
        return found

    def _address(self) -> str:
        if self._remote is not None:
            return self._remote
        self.request()
        assert self._socket is not None
        self._socket.settimeout(READY_TIMEOUT_S)
        try:
            line = self._socket.makefile("rb").readline()
        except TimeoutError:
            line = b""
        response = (
            json.loads(line) if line else {"ok": False, "error": "its owner process has ended"}
        )
        if not response["ok"]:
            self._socket.close()
            self._socket = None
            raise SparkError(
                f"Spark did not start: {response['error']}; see {self._options['log']}"
            )
        self.server = response
        return str(response["remote"])

    def session(self) -> Any:
        """Return the handle's Spark session; the first call creates it."""
        with self._lock:
            if self._session is None:
                address = self._address()
                with quiet():
                    from pyspark.sql.connect.session import SparkSession

                    self._session = SparkSession.builder.remote(address).create()
                if self._remote is None:
                    # no response is lost within this machine, and reattaching costs two more requests
                    self._session.client.disable_reattachable_execute()
                self._registered, self._query = False, None
            return self._session

    def collect(self, plan: Path) -> list[dict[str, Any]]:
        """Have every job of a plan judged, and return a result for each."""
        if len(json.loads(plan.read_text())) == 1:
            return self.call(plan)
        with self._lock, quiet():
            rows = self.collect_frame(self._tasks(plan))
        return [json.loads(row[0]) for row in rows]

    def call(self, plan: Path) -> list[dict[str, Any]]:
        """Have one task judge a plan of one task, or call the pickled callable `plan`, and return its results."""
        with self._lock, quiet():
            query = self._single_task_query()
            self._slot().write_text(str(plan))
            rows = self.collect_frame(query)
        return [json.loads(row[0]) for row in rows]

    def collect_frame(self, frame: Any) -> list[Any]:
        """Return the rows of a frame of this handle's session."""
        with self._lock, quiet():
            rows: list[Any] = frame.collect()
        return rows

    def _slot(self) -> Path:
        """Return the file, of this handle only, in which the query of a single task finds the path of its plan."""
        return self.run_folder / f"spark-plan-{os.getpid()}-{id(self):x}"

    def _single_task_query(self) -> Any:
        """Return the query for a plan of one task. It is created once, because creating it takes four requests."""
        from .sources import judge_at, result_schema

        session = self.session()
        if self._query is None:
            judge_plan = partial(judge_at, str(self._slot()))
            self._query = session.range(0, 1, 1, 1).mapInArrow(judge_plan, result_schema())
        return self._query

    def _tasks(self, plan: Path) -> Any:
        from .sources import NAME, VerdictSource

        session = self.session()
        if not self._registered:
            session.dataSource.register(VerdictSource)
            self._registered = True
        return session.read.format(NAME).option("plan", str(plan)).load()

    def _stop_session(self) -> None:
        if self._session is not None:
            self._session.stop()
            self._session = self._query = None
        self._slot().unlink(missing_ok=True)

    def close(self) -> None:
        """Close the connection; the server continues to run for other clients."""
        with self._lock:
            self._stop_session()
            if self._socket is not None:
                self._socket.close()
                self._socket = None

    def stop(self) -> None:
        """End the run's server, for all clients, and wait until it has ended."""
        with self._lock:
            self._stop_session()
            client = self._socket or (None if self._remote else self._connect())
            self._socket = None
        if client is None:
            return
        with client:
            client.settimeout(READY_TIMEOUT_S)
            client.sendall(b"stop\n")
            deadline = time.monotonic() + READY_TIMEOUT_S
            while time.monotonic() < deadline and client.recv(4096):
                pass  # the owner closes the connection when it ends
