"""What Spark starts as the daemon of its Python workers: it hands its pipes to the daemon that runs already.

    python -m harrow.harness.checks.worker_door pyspark.worker

The daemon (`worker_daemon.py`) has begun together with the JVM and has imported the kernels meanwhile. HARROW_WORKERS
names its socket. This process sends it the environment and the descriptors that Spark gave, and lives as long as the
daemon does, because Spark looks whether the process that it started is alive. Where there is no such daemon, or Spark
asks for workers of another kind, this process is PySpark's own daemon.
"""

from __future__ import annotations

import contextlib
import json
import os
import socket
import sys

WORKERS = "HARROW_WORKERS"
WORKER = "pyspark.worker"
HANDED_TIMEOUT_S = 30.0
ADOPTED = b"a"
"""What the daemon sends when it has taken the descriptors over."""


def handed_over(path: str) -> bool:
    """Give the pipes and the environment to the daemon, and wait until it has ended; False when there is none."""
    with socket.socket(socket.AF_UNIX) as daemon:
        daemon.settimeout(HANDED_TIMEOUT_S)
        try:
            daemon.connect(path)
            environment = json.dumps(dict(os.environ)).encode()
            socket.send_fds(daemon, [len(environment).to_bytes(4, "big")], [0, 1, 2])
            daemon.sendall(environment)
            if daemon.recv(1) != ADOPTED:
                return False  # it serves another one
        except OSError:
            return False
        daemon.settimeout(None)
        with contextlib.suppress(OSError):
            daemon.recv(1)  # the daemon ends
    return True


def main() -> None:
    """Be the door to the daemon, or PySpark's daemon."""
    path = os.environ.get(WORKERS, "")
    if path and sys.argv[1:] == [WORKER] and handed_over(path):
        return
    from pyspark.daemon import manager

    manager()


if __name__ == "__main__":
    main()
