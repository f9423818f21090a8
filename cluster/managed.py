"""One process of a cluster, as the supervisor handles it: start, stop, signals, state.

Owns: the pid (through a pidfd, so that a signal never reaches another process), the status pipe, the state.
Every wait is for an event and has a deadline. Several threads may use one object; a lock orders their calls.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import shutil
import signal
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Protocol

from .broker_folder import LOG, STDOUT, data_folders
from .disk_space import REMEDY, lack_of_space, why_not_writable
from .errors import ClusterError
from .host.power_loss.roll_back import lose_power
from .host.power_loss.unsynced import UNSYNCED
from .wait_notes import WaitNotes

START_TIMEOUT_S = 60.0
STOP_TIMEOUT_S = 30.0
LOOK_EVERY_S = 0.5
"""How often a start that takes long is looked at: a full disk ends it at the second look."""
STATUS_TIMEOUT_S = 1.0
"""How long the rest of a status line may take: a process writes it with one call."""


class Starter(Protocol):
    """What starts a process: the fork server, or a container of an image."""

    def spawn(self, options: dict[str, Any], status_fd: int) -> int:
        """Start a process that runs `options` and writes its status lines to `status_fd`; returns its pid."""
        ...


class ManagedProcess:
    """A broker or the registry; each start passes the current `options` to the new process."""

    def __init__(self, starter: Starter, label: str, folder: Path, options: dict[str, Any]) -> None:
        self.label = label
        self.folder = folder
        self.options = options
        self.pid: int | None = None
        self.incarnations = 0
        """How often it has been started."""
        self._starter = starter
        self._pidfd: int | None = None
        self._status: int | None = None
        self._status_bytes = b""
        self._lock = threading.RLock()

    def __repr__(self) -> str:
        return f"<{self.label} {self.state} pid={self.pid}>"

    @property
    def alive(self) -> bool:
        """True while the process exists, paused or not."""
        with self._lock:
            if self._pidfd is None:
                return False
            return not _readable(self._pidfd, 0)

    @property
    def state(self) -> str:
        """`dead`, `starting`, `running` or `paused`."""
        if not self.alive:
            return "dead"
        if _proc_state(self.pid) in ("T", "t"):
            return "paused"
        return "starting" if self._status is not None else "running"

    def begin(self) -> None:
        """Fork the process and return before it serves. No-op while it is alive."""
        with self._lock:
            if self.alive:
                return
            self._forget()
            self._make_folder()
            ours, theirs = os.pipe()
            try:
                self.pid = self._starter.spawn(self.options, theirs)
                self.incarnations += 1
            except BaseException:
                os.close(ours)
                raise
            finally:
                os.close(theirs)
            self._status, self._status_bytes = ours, b""
            with contextlib.suppress(ProcessLookupError):  # it has ended already: its status line says why
                self._pidfd = os.pidfd_open(self.pid)

    def wait_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Wait until the process reports that it serves; ClusterError with its own message when it does not."""
        with self._lock:
            if self._status is None:
                if self.alive:
                    return
                raise ClusterError(f"{self.label} is not running; start it first")
            line = self._read_status(timeout_s)
            os.close(self._status)
            self._status = None
        if line.get("event") != "ready":
            error = line.get("error", "it ended without a status line")
            self.kill()
            if REMEDY not in error and (lack := self._disk_problem(lack_of_space)):
                error = f"{error}; {lack}; {REMEDY}"
            raise ClusterError(f"{self.label} did not start: {error}; see {self.folder}{self._tail()}")

    def check_ready(self) -> None:
        """Read what a starting process said, if it said anything; never waits.

        ClusterError with its own words when it did not start; it is killed then, as by `wait_ready`.
        """
        with self._lock:
            if self._status is not None and _readable(self._status, 0):
                self.wait_ready(STATUS_TIMEOUT_S)

    def start(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Fork the process and wait until it serves."""
        self.begin()
        self.wait_ready(timeout_s)

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended. No-op on a dead process."""
        self.send_signal(signal.SIGKILL)
        self.wait_dead(STOP_TIMEOUT_S)

    def lose_power(self, *, seed: int | str, keep: float | None = None) -> dict[str, int]:
        """SIGKILL, then `roll_back`; returns what was rolled back.

        `keep`: the share of the unsynced writes that survives (0 none, 1 all); drawn by the seed when it is None.
        ClusterError without a journal of unsynced writes.
        """
        self.kill()
        return self.roll_back(seed=seed, keep=keep)

    def roll_back(self, *, seed: int | str, keep: float | None = None) -> dict[str, int]:
        """Roll a dead process's files back to what was fsynced; what that took. ClusterError without a journal."""
        try:
            return lose_power(str(self.folder / UNSYNCED), seed=seed, keep=keep).facts()
        except FileNotFoundError:
            raise ClusterError(
                f"{self.label} keeps no journal of unsynced writes; start its cluster with "
                "config={'harrow.power.loss': True}"
            ) from None

    def wipe(self, names: Sequence[str]) -> int:
        """Empty a dead broker's data folders, which `names` of `log.dirs` say; returns how many files were in them."""
        removed = 0
        for folder in data_folders(self.folder, names):
            for path in folder.iterdir() if folder.is_dir() else ():
                if path.is_dir():
                    removed += sum(1 for file in path.rglob("*") if file.is_file())
                    shutil.rmtree(path)
                else:
                    removed += 1
                    path.unlink()
        return removed

    def terminate(self, timeout_s: float = STOP_TIMEOUT_S) -> None:
        """SIGTERM (controlled shutdown), and wait; ClusterError when the process has not ended in time."""
        self.send_signal(signal.SIGCONT)
        self.send_signal(signal.SIGTERM)
        self.wait_dead(timeout_s)

    def pause(self) -> None:
        """SIGSTOP, and wait until the kernel reports the process as stopped."""
        self.send_signal(signal.SIGSTOP)
        self._await_proc_state(paused=True)

    def resume(self) -> None:
        """SIGCONT, and wait until the kernel reports the process as running. No-op on a dead process."""
        self.send_signal(signal.SIGCONT)
        self._await_proc_state(paused=False)

    def restart(self, timeout_s: float = START_TIMEOUT_S) -> None:
        """Terminate, then start."""
        self.terminate()
        self.start(timeout_s)

    def wait_dead(self, timeout_s: float) -> None:
        """Wait until the process has ended; ClusterError when it has not in time."""
        pidfd = self._pidfd
        if pidfd is not None and not _readable(pidfd, timeout_s):
            raise ClusterError(f"{self.label} (pid {self.pid}) is still alive after {timeout_s} s")

    def close(self) -> None:
        """Kill the process and close the file descriptors."""
        with contextlib.suppress(ClusterError):
            self.kill()
        with self._lock:
            self._forget()

    def send_signal(self, number: signal.Signals) -> None:
        """Send a signal; returns before it takes effect. No-op on a dead process."""
        with self._lock:
            if self._pidfd is not None:
                with contextlib.suppress(ProcessLookupError):
                    signal.pidfd_send_signal(self._pidfd, number)

    def _await_proc_state(self, *, paused: bool) -> None:
        deadline = time.monotonic() + STOP_TIMEOUT_S
        while self.alive and (_proc_state(self.pid) in ("T", "t")) is not paused:
            if time.monotonic() > deadline:
                raise ClusterError(f"{self.label} (pid {self.pid}) did not {'stop' if paused else 'go on'}")
            time.sleep(0.0005)

    def _make_folder(self) -> None:
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise ClusterError(f"{self.label} did not start: {error}; {REMEDY}") from error

    def _read_status(self, timeout_s: float) -> dict[str, Any]:
        assert self._status is not None
        deadline = time.monotonic() + timeout_s
        notes, problem = WaitNotes(most_s=timeout_s), ""
        while b"\n" not in self._status_bytes:
            left = deadline - time.monotonic()
            if left <= 0:
                return {"error": f"it was not ready after {timeout_s} s"}
            if not _readable(self._status, min(left, LOOK_EVERY_S)):
                before, problem = problem, self._disk_problem(why_not_writable)
                if problem and problem == before:
                    return {"error": f"{problem}; {REMEDY}"}
                notes.look(f"{self.label} to start", problem)
                continue
            chunk = os.read(self._status, 65536)
            if not chunk:
                return {}
            self._status_bytes += chunk
        line: dict[str, Any] = json.loads(self._status_bytes.partition(b"\n")[0])
        return line

    def _disk_problem(self, problem_of: Callable[[Path], str]) -> str:
        """Return the first problem that `problem_of` finds in the folders where the process writes; empty for none."""
        names = str(self.options.get("config", {}).get("log.dirs", "")).split(",")
        folders = [self.folder, *data_folders(self.folder, [n.strip() for n in names if n.strip()])]
        found = (problem_of(folder) for folder in folders if folder.is_dir())
        return next((why for why in found if why), "")

    def _tail(self) -> str:
        lines: list[str] = []
        for name in (STDOUT, LOG):
            with contextlib.suppress(OSError):
                lines += (self.folder / name).read_text(errors="replace").splitlines()[-8:]
        return "".join(f"\n  {line}" for line in lines)

    def _forget(self) -> None:
        for fd in (self._pidfd, self._status):
            if fd is not None:
                os.close(fd)
        self._pidfd = self._status = self.pid = None


def _readable(fd: int, timeout_s: float) -> bool:
    """True when `fd` becomes readable within `timeout_s`; by poll, because select takes no descriptor above 1,023."""
    watched = select.poll()
    watched.register(fd, select.POLLIN)
    return bool(watched.poll(timeout_s * 1000))


def _proc_state(pid: int | None) -> str:
    try:
        text = Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return ""
    return text.rpartition(")")[2].split()[0]
