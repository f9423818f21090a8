"""The worker processes of commands: every result once, exceptions with their traceback, and workers that die."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from harrow.cluster.errors import HarrowError
from harrow.harness.commands.worker_processes import WorkerDiedError, results_of
from waiting import readable


def square(number: int) -> int:
    return number * number


def fail(number: int) -> int:
    raise KeyError(number)


class TwoArgumentsError(Exception):
    """Cannot be unpickled."""

    def __init__(self, first: int, second: int) -> None:
        super().__init__(f"{first} {second}")


def fail_unpicklably() -> int:
    raise TwoArgumentsError(1, 2)


def die() -> int:
    os.kill(os.getpid(), signal.SIGKILL)
    return 0


def blocks_ctrl_c() -> bool:
    return signal.SIGINT in signal.pthread_sigmask(signal.SIG_BLOCK, [])


KILLED_COMMAND = """
from test_worker_processes import report_and_wait
from harrow.harness.commands.worker_processes import results_of
if __name__ == "__main__":
    list(results_of(2, [report_and_wait]))
"""


def report_and_wait() -> None:
    print(os.getpid(), flush=True)
    signal.pause()


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_a_worker_ends_with_a_command_that_is_killed(number: signal.Signals, tmp_path: Path) -> None:
    command = tmp_path / "command.py"
    command.write_text(KILLED_COMMAND, encoding="utf-8")
    with subprocess.Popen(
        [sys.executable, str(command)],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(Path(__file__).parent), *sys.path])},
    ) as process:
        assert process.stdout is not None
        worker = os.pidfd_open(int(process.stdout.readline()))
        try:
            process.send_signal(number)
            assert readable(worker, 60), "the worker outlived its command"
        finally:
            os.close(worker)


@pytest.mark.parametrize(("jobs", "tasks"), [(1, 3), (2, 5), (4, 2), (2, 0)])
def test_each_task_gives_its_result_once(jobs: int, tasks: int) -> None:
    found = list(results_of(jobs, [partial(square, number) for number in range(tasks)]))
    assert sorted(found) == [number * number for number in range(tasks)]
    assert not multiprocessing.active_children()


def test_workers_do_not_receive_ctrl_c_and_this_process_does() -> None:
    assert list(results_of(2, [blocks_ctrl_c] * 4)) == [True] * 4
    assert not blocks_ctrl_c()


def test_an_exception_of_a_task_is_raised_with_the_traceback_of_the_worker() -> None:
    with pytest.raises(KeyError, match="7") as raised:
        list(results_of(2, [partial(fail, 7)]))
    assert "raise KeyError(number)" in raised.value.__notes__[0]
    assert not multiprocessing.active_children()


def test_an_exception_that_cannot_be_pickled_is_sent_as_text() -> None:
    with pytest.raises(HarrowError, match="TwoArgumentsError: 1 2") as raised:
        list(results_of(1, [fail_unpicklably]))
    assert "raise TwoArgumentsError(1, 2)" in raised.value.__notes__[0]


def test_a_worker_that_dies_ends_the_command_with_an_error() -> None:
    with pytest.raises(WorkerDiedError, match=r"ended with exit code -9 .* --jobs 1"):
        list(results_of(2, [partial(die), *[partial(square, 2)] * 3]))
    assert not multiprocessing.active_children()


def test_a_caller_that_stops_early_leaves_no_worker() -> None:
    results = results_of(2, [partial(square, number) for number in range(50)])
    next(results)
    results.close()
    assert not multiprocessing.active_children()


def test_a_ctrl_c_that_another_thread_receives_waits_until_the_workers_are_started() -> None:
    """SIGINT is blocked in the main thread only, and Python calls its handler there for every thread."""
    arrived, wakeup = os.pipe()
    os.set_blocking(wakeup, False)
    end = threading.Event()
    receiver = threading.Thread(target=end.wait)
    receiver.start()
    begun: list[int] = []

    def tasks() -> Iterator[partial[int]]:
        for number in (1, 2):
            begun.append(number)
            yield partial(square, number)
            if number == 1:
                assert receiver.ident is not None
                signal.pthread_kill(receiver.ident, signal.SIGINT)
                os.read(arrived, 1)

    before = signal.set_wakeup_fd(wakeup)
    # a shell that starts the suite in the background lets it ignore SIGINT
    handler = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        with pytest.raises(KeyboardInterrupt):
            list(results_of(2, tasks()))
    finally:
        signal.signal(signal.SIGINT, handler)
        signal.set_wakeup_fd(before)
        end.set()
        receiver.join()
        os.close(arrived)
        os.close(wakeup)
    assert begun == [1, 2], "the second worker was started, too"
