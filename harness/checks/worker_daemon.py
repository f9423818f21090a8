"""The daemon of Spark's Python workers, which starts together with the JVM: `python -m … LISTENER`.

PySpark's own daemon starts at the first task and forks a worker, which imports the kernels then: two seconds of a
processor after the JVM is ready. This daemon imports PySpark, and forks a spare worker that imports the kernels, while
the JVM starts. The kernels are imported after the fork, because polars starts threads, which a fork does not copy.

The protocol is that of `pyspark.daemon`: the path of a Unix socket on the standard output; each connection there is a
new worker, which writes its process id first; process ids of workers to kill on the standard input, and its end ends
the daemon. Spark's end of it arrives with the first connection to LISTENER (`worker_door.py`).

The daemon ends with the process that started it, and a worker with the daemon.
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import sys
import uuid
import warnings
from pathlib import Path

from .worker_door import ADOPTED, WORKER

PR_SET_PDEATHSIG = 1
ADOPT_TIMEOUT_S = 30.0


def import_kernels() -> None:
    """Import what a task needs."""
    from . import kernels, spark_tasks  # noqa: F401  # pyright: ignore[reportUnusedImport]


def end_with_parent() -> None:
    """Have the kernel kill this process when its parent ends."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class Spare:
    """A forked process that has imported the kernels and becomes a worker when it receives a connection."""

    def __init__(self, inherited: int) -> None:
        """Fork it; `inherited` is a descriptor of this process that it does not need."""
        self._ours, theirs = socket.socketpair()
        self.pid = os.fork()
        if not self.pid:
            self._ours.close()
            # else a connection there would wait for a process that accepts none
            os.close(inherited)
            end_with_parent()
            become_worker(theirs)
        theirs.close()

    def use(self, connection: socket.socket, environment: dict[str, str]) -> None:
        """Give it the connection of the JVM; the worker writes its process id there."""
        text = json.dumps(environment).encode()
        socket.send_fds(self._ours, [len(text).to_bytes(4, "big")], [connection.fileno()])
        self._ours.sendall(text)
        self._ours.close()


def received(source: socket.socket, most: int) -> tuple[list[int], dict[str, str]]:
    """Return descriptors and an environment that `send_fds` sent; EOFError when the sender has ended."""
    length, descriptors, _, _ = socket.recv_fds(source, 4, most)
    if len(length) < 4:
        raise EOFError
    text = b""
    while len(text) < int.from_bytes(length, "big"):
        part = source.recv(1 << 16)
        if not part:
            raise EOFError
        text += part
    return descriptors, json.loads(text)


def become_worker(source: socket.socket) -> None:
    """Import the kernels, wait for a connection, and work for it until it is closed. Does not return."""
    status = 1
    try:
        import_kernels()
        with source:
            (descriptor,), environment = received(source, 1)
        os.environ.update(environment)
        with socket.socket(fileno=descriptor) as connection:
            status = work(connection)
    except EOFError:
        status = 0
    finally:
        os._exit(status)


def work(connection: socket.socket) -> int:
    """Do the tasks that arrive on a connection of the JVM."""
    from pyspark.daemon import worker

    connection.sendall(os.getpid().to_bytes(4, "big"))
    code = 0
    while not code:
        code = worker(connection, True)
        if code or not os.environ.get("SPARK_REUSE_WORKER"):
            break
        gc.collect()
    with contextlib.suppress(OSError):
        while connection.recv(1024):  # until the JVM closes it
            pass
    return code


class Daemon:
    """Serves the JVM: forks a worker for each connection, the spare first."""

    def __init__(self, spare: Spare) -> None:
        self._spare: Spare | None = spare
        self._path = Path(os.environ["PYTHON_WORKER_FACTORY_SOCK_DIR"], f".{uuid.uuid4()}.sock")
        self._listener = socket.socket(socket.AF_UNIX)
        self._listener.bind(str(self._path))
        self._listener.listen(1024)

    def serve(self) -> None:
        """Serve until the JVM closes the standard input."""
        name = str(self._path).encode()
        os.write(1, len(name).to_bytes(4, "big") + name)
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # ended workers leave no entry behind
        ready = select.poll()
        ready.register(0, select.POLLIN)
        ready.register(self._listener, select.POLLIN)
        try:
            while True:
                found = dict(ready.poll(60_000))
                if 0 in found and not self._killed_one():
                    return
                if self._listener.fileno() in found:
                    self._begin_worker()
        finally:
            self._path.unlink(missing_ok=True)

    def _killed_one(self) -> bool:
        """Kill the worker whose process id arrived; False at the end of the input."""
        data = b""
        while len(data) < 4:
            part = os.read(0, 4 - len(data))
            if not part:
                return False
            data += part
        with contextlib.suppress(ProcessLookupError):
            os.kill(int.from_bytes(data, "big"), signal.SIGKILL)
        return True

    def _begin_worker(self) -> None:
        with self._listener.accept()[0] as connection:
            spare, self._spare = self._spare, None
            try:
                if spare is not None:
                    spare.use(connection, dict(os.environ))
                    return
            except OSError:
                pass  # the spare has ended, so that this process forks a worker
            if os.fork():
                return
            end_with_parent()
            self._listener.close()
            status = 1
            try:
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                status = work(connection)
            finally:
                os._exit(status)


def adopt(door: socket.socket) -> None:
    """Take over the pipes and the environment of the process at the door."""
    door.settimeout(ADOPT_TIMEOUT_S)
    descriptors, environment = received(door, 3)
    for number, descriptor in enumerate(descriptors):
        os.dup2(descriptor, number)
        os.close(descriptor)
    os.environ.update(environment)
    door.sendall(ADOPTED)


def main(listener: str) -> None:
    """Prepare a worker, wait for the JVM, and serve it."""
    warnings.simplefilter("ignore")
    import pyspark.daemon  # pyright: ignore[reportUnusedImport]
    import pyspark.worker  # noqa: F401  # pyright: ignore[reportUnusedImport]

    sys.argv[1:] = [WORKER]  # what pyspark.daemon's workers import
    spare = Spare(int(listener))
    with socket.socket(fileno=int(listener)) as doors:
        door, _ = doors.accept()
    try:
        adopt(door)
    except (EOFError, OSError):
        sys.exit(1)  # Spark has started its own daemon
    Daemon(spare).serve()


if __name__ == "__main__":
    main(*sys.argv[1:])
