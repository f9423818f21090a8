"""The fork server: a process that has imported everything and forks brokers in a few milliseconds.

Owns: one child of the supervising process for all its clusters (`ForkServer`), and the loop that this
child runs (`python -m harrow.cluster.forkserver FD`). A request is one JSON line on a socket pair with the status pipe
attached (SCM_RIGHTS). The fork server forks for each request; the child becomes the process that the options
name and never returns to the loop.

Children die with their parent, however it ends:

* The fork server ends when the socket pair is closed **or** the supervising process has ended (it watches a
  pidfd, because a forked copy of the user's process may hold the socket open).
* Each child requests SIGKILL from the kernel at the fork server's death (PR_SET_PDEATHSIG; the fork server
  has one thread, so the signal cannot fire early).

A child whose options have a `program` (a list of words) executes it, with `environment` added: a foreign broker
(`foreign_process.py`). Its output goes to `stdout.log` of its `folder`.

A program of the user's (`user_program`) differs: `environment` is its whole environment, `cwd` its working folder. With
`in_terminal` it stays in the supervising process's session, writes to the same terminal and reads the same stdin. An
error of its exec is the response to the request, and how it ended is a line on its status pipe. When the fork server
ends, SIGKILL goes to the process group of each such program.

What may fail: the fork server itself (ClusterError; the next request starts another one).
"""

from __future__ import annotations

import atexit
import contextlib
import ctypes
import gc
import json
import os
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from typing import Any, NoReturn

from .broker_folder import STDOUT
from .errors import ClusterError

PR_SET_PDEATHSIG = 1
MARKER = "HARROW_RUN"
"""Environment variable that marks every process of a run, for the sweep of orphans."""

START_TIMEOUT_S = 180.0
"""How long the imports may take: they end in a second, and in a minute where thirty processes share two cores."""
RESPONSE_TIMEOUT_S = 30.0


class ForkServer:
    """The supervising side. `spawn` is safe from any thread; the process starts with the first call."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._ready = False
        self._owner = os.getpid()

    def begin(self) -> None:
        """Start the process and return before its imports are done: the caller has imports of its own to do."""
        with self._lock:
            self._ensure(ready=False)

    def warm(self) -> None:
        """Start the process and wait for its imports, so that the first cluster does not."""
        with self._lock:
            self._ensure()

    def spawn(self, options: dict[str, Any], status_fd: int) -> int:
        """Fork a process that runs `options` and writes its status lines to `status_fd`; returns its pid."""
        with self._lock:
            channel = self._ensure()
            try:
                line = json.dumps(options).encode() + b"\n"
                socket.send_fds(channel, [line], [status_fd])
                response = _read_line(channel)
            except OSError as error:
                self._drop()
                raise ClusterError(f"the fork server has ended ({error}); try again") from error
        answer = json.loads(response)
        if answer.get("error"):
            raise ClusterError(f"{options['program'][0]!r} cannot be executed: {answer['error']}")
        pid = answer["pid"]
        assert isinstance(pid, int)
        return pid

    def close(self) -> None:
        """End the fork server and every process that it forked."""
        with self._lock:
            self._drop()

    def _ensure(self, *, ready: bool = True) -> socket.socket:
        if self._owner != os.getpid():  # this process is a forked copy of the owner
            self._process, self._socket, self._owner = None, None, os.getpid()
        if self._process is not None and self._process.poll() is not None:
            self._drop()
        if self._socket is None:
            self._start()
        assert self._socket is not None
        if ready and not self._ready:
            self._await_ready(self._socket)
        return self._socket

    def _start(self) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_STREAM)
        command = [sys.executable, "-m", "harrow.cluster.forkserver", str(theirs.fileno()), str(os.getpid())]
        environment = {**os.environ, MARKER: os.environ.get(MARKER, str(os.getpid()))}
        # -m puts the current folder first on sys.path, where a user's own cluster/ would shadow ours
        environment["PYTHONSAFEPATH"] = "1"
        # a Ctrl-C while the fork server imports must not end it with a traceback: it inherits the mask, and ignores
        # SIGINT before it removes the mask
        mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own interpreter and module
                command, pass_fds=[theirs.fileno()], stdin=subprocess.DEVNULL, env=environment
            )
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        theirs.close()
        ours.settimeout(START_TIMEOUT_S)
        self._socket, self._ready = ours, False

    def _await_ready(self, channel: socket.socket) -> None:
        try:
            _read_line(channel)
            channel.settimeout(RESPONSE_TIMEOUT_S)
            self._ready = True
        except TimeoutError as error:
            self._drop()
            raise ClusterError(
                f"the fork server did not start within {START_TIMEOUT_S:g} s: has the machine too little CPU or memory?"
            ) from error
        except OSError as error:
            self._drop()
            raise ClusterError(
                f"the fork server did not start ({error}): does `{sys.executable} -c 'import harrow.cluster'` work?"
            ) from error

    def _drop(self) -> None:
        if self._socket is not None:
            self._socket.close()
            self._socket = None
        if self._process is not None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(5)
            if self._process.poll() is None:
                self._process.kill()
                with contextlib.suppress(subprocess.TimeoutExpired):  # not even SIGKILL ends it now
                    self._process.wait(5)
            self._process = None


_forks = ForkServer()
atexit.register(_forks.close)


def fork_server() -> ForkServer:
    """The fork server of this process, shared by all its clusters."""
    return _forks


def _read_line(channel: socket.socket) -> bytes:
    data = b""
    while not data.endswith(b"\n"):
        chunk = channel.recv(4096)
        if not chunk:
            raise ConnectionResetError("its socket is closed")
        data += chunk
    return data


# ------------------------------------------------------------------- in the fork server's own process


def main(argv: list[str]) -> None:
    """Import what brokers need, then fork for each request until the supervising process has ended."""
    _preload()
    channel = socket.socket(fileno=int(argv[1]))
    try:
        parent = os.pidfd_open(int(argv[2]))
        channel.sendall(b"{}\n")
    except (ProcessLookupError, BrokenPipeError):
        return  # the supervising process ended meanwhile: a refused option, a Ctrl-C
    # signals that the supervising process blocks must not stay blocked here; it alone handles Ctrl-C
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    signal.signal(signal.SIGCHLD, _reap)
    watched = select.poll()
    for fd in (channel.fileno(), parent):
        watched.register(fd, select.POLLIN)
    while True:
        if any(fd == parent for fd, _ in watched.poll()):
            break
        line, fds = _receive(channel)
        if not line:
            break
        options = json.loads(line)
        if options.get("user_program"):
            channel.sendall(json.dumps(_programs.start(options, fds[0])).encode() + b"\n")
            continue
        pid = os.fork()
        if pid == 0:
            channel.close()
            os.close(parent)
            _become(options, fds[0])
        os.close(fds[0])
        channel.sendall(json.dumps({"pid": pid}).encode() + b"\n")

    _programs.kill_groups()


class _Programs:
    """The programs of the user's that run, and the pipes on which their ends are reported."""

    def __init__(self) -> None:
        self._pipes: dict[int, int] = {}
        self._leaders: set[int] = set()
        """Those that lead a process group."""

    def start(self, options: dict[str, Any], status_fd: int) -> dict[str, Any]:
        """Fork and execute one; return its pid, or the error of its exec."""
        os.set_inheritable(status_fd, False)
        failed, fails = os.pipe()  # both close on exec
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGCHLD])  # until its pipe is known
        try:
            pid = os.fork()
            if pid == 0:
                _execute(options, fails)
            os.close(fails)
            with os.fdopen(failed, "rb") as errors:
                error = errors.read().decode()
            if error:
                os.close(status_fd)
                return {"error": error}
            self._pipes[pid] = status_fd
            if not options.get("in_terminal"):
                self._leaders.add(pid)
            return {"pid": pid}
        finally:
            signal.pthread_sigmask(signal.SIG_UNBLOCK, [signal.SIGCHLD])

    def ended(self, pid: int, status: int) -> None:
        """Report the exit code of a program (negative: the signal that ended it), and when it ended."""
        self._leaders.discard(pid)
        pipe = self._pipes.pop(pid, None)
        if pipe is not None:
            said = {"exit": os.waitstatus_to_exitcode(status), "t_ns": time.monotonic_ns()}
            with contextlib.suppress(OSError):
                os.write(pipe, json.dumps(said).encode() + b"\n")
            os.close(pipe)

    def kill_groups(self) -> None:
        """Kill the processes that the programs started: the kernel kills only the programs themselves."""
        for pid in self._leaders:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(pid, signal.SIGKILL)


_programs = _Programs()


def _execute(options: dict[str, Any], fails: int) -> NoReturn:
    """Become a program of the user's; an error is written to `fails`."""
    try:
        parent = os.getppid()
        if options.get("in_terminal"):
            with contextlib.suppress(OSError):  # such as a socket, which cannot be opened again
                os.dup2(os.open(options["stdin"], os.O_RDONLY), 0)
        else:
            os.setsid()
            _redirect(os.path.join(options["folder"], STDOUT))
        die_with_parent(parent)
        for number in (signal.SIGCHLD, signal.SIGINT, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL)
        signal.pthread_sigmask(signal.SIG_SETMASK, ())
        os.chdir(options["cwd"])
        program: list[str] = options["program"]
        os.execvpe(program[0], program, options["environment"])  # noqa: S606 - the words of our own caller
    except OSError as error:
        os.write(fails, (error.strerror or str(error)).encode())
    except BaseException as error:
        os.write(fails, repr(error).encode())
    os._exit(127)


def _preload() -> None:
    """Do the heavy imports, which every child shares, and freeze their objects, so that no collection touches them.

    No collection runs during the imports, because all their objects stay.
    """
    gc.disable()
    from . import process

    process.preload()
    gc.collect()
    gc.freeze()
    gc.enable()


def _receive(channel: socket.socket) -> tuple[bytes, list[int]]:
    data, fds, _, _ = socket.recv_fds(channel, 65536, 1)
    while data and not data.endswith(b"\n"):
        more = channel.recv(65536)
        if not more:
            return b"", fds
        data += more
    return data, fds


def _reap(*_: object) -> None:
    with contextlib.suppress(ChildProcessError):
        while (ended := os.waitpid(-1, os.WNOHANG)) != (0, 0):
            _programs.ended(*ended)


def die_with_parent(parent_pid: int) -> None:
    """Request SIGKILL from the kernel for when this process's parent dies; kill this process if it is dead already."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGKILL)


def _become(options: dict[str, Any], status_fd: int) -> NoReturn:
    """Run the process in the child, with its own session, signals and streams, and exit."""
    from . import process

    code = 1
    try:
        parent = os.getppid()
        os.setsid()
        die_with_parent(parent)
        for number in (signal.SIGCHLD, signal.SIGINT):
            signal.signal(number, signal.SIG_DFL)
        _redirect(os.path.join(options["folder"], STDOUT))
        if "program" in options:
            program: list[str] = options["program"]
            os.execvpe(program[0], program, {**os.environ, **options.get("environment", {})})  # noqa: S606 - the words of our own caller
        code = process.run(options, status_fd)
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    except BaseException:
        import traceback

        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def _redirect(path: str) -> None:
    null = os.open(os.devnull, os.O_RDONLY)
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
    os.dup2(null, 0)
    os.dup2(out, 1)
    os.dup2(out, 2)
    os.close(null)
    os.close(out)


if __name__ == "__main__":
    main(sys.argv)
