"""A process that removes the containers of one cluster when the process that started them ends, however it ends.

It runs as a program of its own, `python guard.py LABEL`, in a session of its own: it reads its standard input to the
end, which its starter holds open, and then removes every container with the label. So it imports nothing of Harrow.
Where the starter did not say that it had stopped the cluster, the daemon may still be making a container that the
starter asked for: the guard looks again a little later.
"""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from pathlib import Path

STOP_TIMEOUT_S = 60.0
STOPPED = b"stopped"
AGAIN_AFTER_S = 3.0


class Guard:
    """The process, as its starter holds it."""

    def __init__(self, label: str) -> None:
        self._process = subprocess.Popen(  # noqa: S603 - this file
            [sys.executable, "-P", str(Path(__file__).resolve()), label],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def close(self) -> None:
        """Let it remove what is left, and wait for that."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError), self._process.stdin as end:
            end.write(STOPPED)
        try:
            self._process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(STOP_TIMEOUT_S)


def remove_containers(label: str) -> None:
    """Remove every container with the label; one that another process removes is no error."""
    import docker.errors

    with contextlib.closing(docker.from_env()) as client:
        for container in client.containers.list(all=True, filters={"label": label}, ignore_removed=True):
            with contextlib.suppress(docker.errors.DockerException):
                container.remove(force=True, v=True)


if __name__ == "__main__":
    stopped = sys.stdin.buffer.read() == STOPPED
    remove_containers(sys.argv[1])
    if not stopped:
        time.sleep(AGAIN_AFTER_S)
        remove_containers(sys.argv[1])
