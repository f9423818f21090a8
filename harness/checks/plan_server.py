"""The process that has plans judged for all test processes of a run.

    python -m … LISTENER FOLDER WARM_UP CLUSTER DATA

LISTENER is the descriptor of a Unix socket. A test process sends the path of a plan to it, as a line of JSON:
`{"collect": "/…/plan.json"}`, or `{"call": …}` for a pickled callable. The response is a line too:
`{"ok": true, "results": […]}`, or `{"ok": false, "error": …}`. The result of `{"connect": ""}` is the address of Spark
Connect, which starts then. So test processes import neither pyspark nor py4j. Each connection has its thread; plans of
several connections are judged at the same time.

The owner of the JVM (`spark_server.py`) starts this process together with the JVM, and writes how the JVM is reached
to its standard input, as JSON: py4j's port and tokens, or the address of the Connect server for a cluster of the
user's. Then this process opens Spark's context (`own_spark.py`) or the first session (`plan_queries.py`), and writes
`ready`, or why that failed as a JSON text, to its standard output. It judges small runs (`warm_up.py`), and writes
`warm` after the first; a plan of a test process is judged before the next small run. It ends when its standard input is
closed.

CLUSTER is the master of a cluster of the user's, or empty, and DATA the folder for copies (`cluster_queries.py`). There
are no small runs on such a cluster.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
import traceback
import warnings
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, cast

from .connect_channel import SparkError, too_late, verdict_seconds
from .own_spark import LOG, OwnSpark
from .plan_queries import PlanQueries

Queries = OwnSpark | PlanQueries

SESSIONS_MOST = 8
JVM_STACK = "JVM stacktrace:"
"""Where pyspark begins to print a stack of the JVM in the text of an error."""


class PlanServer:
    """Sessions, and the connections that use them."""

    def __init__(self, listener: socket.socket, folder: Path, cluster: str, data: str) -> None:
        """Serve the bound socket `listener`; its connections wait until `open` gives the address."""
        self._folder = folder
        self._cluster = cluster
        self._data = data
        self._address: Any = None
        self._sessions = 0
        self._idle: list[Queries] = []
        self._own: OwnSpark | None = None
        self._waiting = 0
        self._warming = not cluster
        self._failed = ""
        """Why there is no connection to the JVM."""
        self._changed = threading.Condition()
        self._listener = listener
        threading.Thread(target=self._accept, daemon=True).start()

    def open(self, address: Any) -> None:
        """Open Spark's context, or the first session; the plans that wait are judged from now on, or get the error."""
        try:
            first = self._connected(address)
        except Exception as error:
            with self._changed:
                self._failed = str(error)
                self._changed.notify_all()
            raise
        with self._changed:
            self._address = address
            self._sessions = 1
            self._idle.append(first)
            self._changed.notify_all()

    def _connected(self, address: Any) -> Queries:
        if isinstance(address, dict):
            if self._own is None:
                self._own = OwnSpark(cast("dict[str, Any]", address), self._folder)
            return self._own  # threads share it
        return PlanQueries(address, self._folder, cluster=self._cluster, data=self._data)

    def warm_up(self) -> None:
        """Judge small runs with the first session, whenever no test process waits for it."""
        from .judgement import judge
        from .warm_up import ROUNDS, TOPIC, tiny_run

        try:
            for number in range(ROUNDS):
                folder = self._folder / f"warm-up-{number}"
                tiny_run(folder)
                with self._changed:
                    self._changed.wait_for(lambda: not self._waiting, verdict_seconds())
                with self._session() as queries:
                    judge(folder, topics=[TOPIC], spark=queries)
                if not number:
                    print("warm", flush=True)
        finally:
            with self._changed:
                self._warming = False
                self._changed.notify_all()

    @contextmanager
    def _session(self) -> Generator[Queries]:
        """Take an idle session, or a new session when the warm-up is over and there are few."""
        with self._changed:
            free = self._changed.wait_for(lambda: self._failed or self._idle or self._may_grow(), verdict_seconds())
            if self._failed or not free:
                raise SparkError(self._failed or too_late(verdict_seconds(), LOG))
            queries = self._idle.pop() if self._idle else None
            self._sessions += queries is None
        try:
            if queries is None:
                queries = self._connected(self._address)
            yield queries
        except SparkError:
            queries = None  # its channel is closed
            raise
        finally:
            with self._changed:
                if queries is None:
                    self._sessions -= 1
                else:
                    self._idle.append(queries)
                self._changed.notify_all()

    def _may_grow(self) -> bool:
        return bool(self._address) and not self._warming and self._sessions < SESSIONS_MOST

    def _accept(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:
                return  # the socket is closed: the process ends
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        with connection, connection.makefile("rb") as lines:
            for line in lines:
                try:
                    connection.sendall(json.dumps(self._respond(json.loads(line))).encode() + b"\n")
                except OSError:
                    return  # the test process has ended

    def _respond(self, request: dict[str, Any]) -> dict[str, Any]:
        with self._changed:
            self._waiting += 1
        try:
            with self._session() as queries:
                ((method, plan),) = request.items()
                if method == "connect":
                    assert isinstance(queries, OwnSpark), "a cluster's address is known to all"
                    return {"ok": True, "results": [{"remote": queries.address()}]}
                judge_plan = {"collect": queries.collect, "call": queries.call}[method]
                return {"ok": True, "results": judge_plan(Path(plan))}
        except SparkError as error:
            return {"ok": False, "error": str(error)}
        except Exception as error:
            traceback.print_exc()  # in spark.log, with the stack of the JVM
            said = str(error).partition(JVM_STACK)[0].strip()
            return {"ok": False, "error": f"{type(error).__name__}: {said}"}
        finally:
            with self._changed:
                self._waiting -= 1
                self._changed.notify_all()


def main(listener: str, folder: str, warm_up: str, cluster: str, data: str) -> None:
    """Import what reaches the JVM, wait for the address, serve plans until the standard input is closed."""
    warnings.simplefilter("ignore")
    server = PlanServer(socket.socket(fileno=int(listener)), Path(folder), cluster, data)
    if cluster:
        import pyspark.sql.connect.session  # noqa: F401  # pyright: ignore[reportUnusedImport] - while the JVM starts
    else:
        import py4j.java_gateway  # noqa: F401  # pyright: ignore[reportUnusedImport]
    if address := sys.stdin.readline().strip():
        try:
            server.open(json.loads(address))
            print("ready", flush=True)
            if warm_up == "warm-up" and not cluster:
                server.warm_up()
        except SparkError as error:  # each plan gets the error
            print(json.dumps(str(error)), flush=True)
        sys.stdin.read()
    os._exit(0)  # threads of gRPC and of connections may still run


if __name__ == "__main__":
    main(*sys.argv[1:])
