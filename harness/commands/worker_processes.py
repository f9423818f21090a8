"""The worker processes of `harrow chaos` and `harrow simulate`, and what a Ctrl-C does to them.

A Ctrl-C reaches every process of the terminal. The workers do not receive it, so that none prints a traceback: the
command terminates them, and their clusters end with them.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import signal
from collections.abc import Callable, Generator, Iterable, Iterator
from concurrent.futures import ProcessPoolExecutor, as_completed
from typing import TypeVar

T = TypeVar("T")


def results_of(jobs: int, tasks: Iterable[Callable[[], T]]) -> Iterator[T]:
    """Run `tasks` in processes, at most `jobs` at a time; yield the results in the order in which tasks end."""
    pool = ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn"))
    try:
        with _without_ctrl_c():
            running = [pool.submit(task) for task in tasks]
        for future in as_completed(running):
            yield future.result()
        pool.shutdown()
    except BaseException:
        pool.shutdown(wait=False, cancel_futures=True)
        for process in multiprocessing.active_children():
            process.terminate()
        raise


@contextlib.contextmanager
def _without_ctrl_c() -> Generator[None]:
    """Block SIGINT; processes that start now inherit that."""
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
