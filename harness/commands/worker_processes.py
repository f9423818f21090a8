"""The worker processes of `harrow chaos` and `harrow simulate`, and what a Ctrl-C does to them.

A Ctrl-C reaches every process of the terminal. The workers do not receive it, so that none prints a traceback: the
command kills them, and their clusters end with them (parent-death signals). They themselves end with a command that is
killed.

Each worker has a pipe and no thread or lock is shared, so that a worker which is killed at any moment cannot block the
command. (ProcessPoolExecutor of Python 3.11 can: it waits for a lock that a killed worker held.)

What may fail: an exception of a task is raised here, with the worker's traceback as its note. A worker that dies raises
WorkerDiedError.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import pickle
import signal
import threading
import traceback
from collections.abc import Callable, Generator, Iterable
from dataclasses import dataclass
from multiprocessing import connection, resource_tracker
from multiprocessing.connection import Connection
from multiprocessing.context import SpawnProcess
from typing import Any, Generic, TypeVar, cast

from harrow.cluster.forkserver import die_with_parent

from ..errors import HarrowError

AGAIN_S = 60.0
END_S = 10.0
"""How long a worker may need to end whose pipe is closed."""
T = TypeVar("T")
Task = Callable[[], T]


class WorkerDiedError(HarrowError):
    """A worker process ended before it had returned its result."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Result(Generic[T]):
    """What a worker sends for a task: its value or its exception."""

    value: T | None = None
    error: Exception | None = None

    def returned(self) -> T:
        if self.error is not None:
            raise self.error
        return cast("T", self.value)


def results_of(jobs: int, tasks: Iterable[Task[T]]) -> Generator[T]:
    """Run `tasks` in processes, at most `jobs` at a time; yield the results in the order in which tasks end."""
    waiting = iter(tasks)
    workers: dict[Connection, SpawnProcess] = {}
    try:
        with _without_ctrl_c():
            for _, task in zip(range(jobs), waiting, strict=False):
                channel, process = _start_worker()
                workers[channel] = process
                _send(channel, process, task)
        while workers:
            # a worker that ends closes its channel
            for ready in connection.wait(list(workers), AGAIN_S):
                channel = cast("Connection", ready)
                process = workers[channel]
                result: _Result[T] = _receive(channel, process)
                following = next(waiting, None)
                if following is None:
                    del workers[channel]
                    _end(channel, process)
                else:
                    _send(channel, process, following)
                yield result.returned()
    finally:
        for channel, process in workers.items():
            process.kill()
            _end(channel, process)


def results_here_or_of(jobs: int, tasks: Iterable[Task[T]]) -> Generator[T]:
    """Run `tasks` as `results_of` does; a single job runs in this process."""
    if jobs == 1:
        yield from (task() for task in tasks)
    else:
        yield from results_of(jobs, tasks)


def _start_worker() -> tuple[Connection, SpawnProcess]:
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_work, args=(theirs, os.getpid()), daemon=True)
    process.start()
    theirs.close()
    return ours, process


def _work(channel: Connection, command_pid: int) -> None:
    """Run the tasks that the command sends, until it closes the pipe or ends in any way."""
    die_with_parent(command_pid)
    while True:
        try:
            task: Task[Any] = channel.recv()
        except EOFError:
            return
        try:
            result: _Result[Any] = _Result(value=task())
        except Exception as error:
            result = _Result(error=_portable(error))
        channel.send(result)


def _portable(error: Exception) -> Exception:
    """Return the exception with the worker's traceback as its note; as text where it cannot travel."""
    note = "in a worker process:\n" + "".join(traceback.format_exception(error))
    try:
        copy: Exception = pickle.loads(pickle.dumps(error))  # noqa: S301 - made on the left
    except Exception:
        copy = HarrowError(f"{type(error).__name__}: {error}")
    copy.add_note(note)
    return copy


def _send(channel: Connection, process: SpawnProcess, task: Task[Any]) -> None:
    try:
        channel.send(task)
    except OSError:
        raise _died(process) from None


def _receive(channel: Connection, process: SpawnProcess) -> Any:
    try:
        return channel.recv()
    except (EOFError, OSError):
        raise _died(process) from None


def _died(process: SpawnProcess) -> WorkerDiedError:
    process.join(END_S)
    return WorkerDiedError(
        f"a worker process (pid {process.pid}) ended with exit code {process.exitcode} before its task was done; run "
        "the command again, with --jobs 1 when memory is short"
    )


def _end(channel: Connection, process: SpawnProcess) -> None:
    """Close the pipe, which ends a worker that has no task, and wait for its end."""
    channel.close()
    process.join(END_S)
    if process.exitcode is None:
        process.kill()
        process.join(END_S)
    if process.exitcode is not None:
        process.close()


@contextlib.contextmanager
def _without_ctrl_c() -> Generator[None]:
    """Block SIGINT and keep one that arrives for the end of the block; processes that start now inherit the mask.

    The mask is this thread's. Another thread, such as that of the progress line, may receive the signal, and Python
    calls the handler in the main thread all the same. So the handler is replaced, too.

    The first process that multiprocessing starts is its resource tracker, after which it unblocks SIGINT whatever the
    mask was. So the tracker is started before: otherwise the workers would not inherit the mask, and a Ctrl-C could
    interrupt this process half-way through the start of a worker.
    """
    resource_tracker.ensure_running()
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    arrived: list[int] = []
    in_main = threading.current_thread() is threading.main_thread()

    def note(number: int, _frame: object) -> None:
        arrived.append(number)

    handler = signal.signal(signal.SIGINT, note) if in_main else None
    try:
        yield
    finally:
        if in_main:
            signal.signal(signal.SIGINT, handler)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
        if arrived:
            signal.raise_signal(signal.SIGINT)
