"""The signals that end a command which runs a cluster: SIGINT (Ctrl-C) and SIGTERM.

Owns: `stop_signals`. Invariant: when the block has ended, the signal mask of the thread is as before. A mask that
stayed would be inherited by every process that starts later, and SIGTERM would end none of them.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Final

STOPS: Final = frozenset({signal.SIGINT, signal.SIGTERM})


@contextmanager
def stop_signals() -> Generator[Callable[[], object]]:
    """Block the stop signals in this thread, and give the function that waits for one of them.

    A signal that arrives before the wait is not lost. One that arrives after it, while the block ends, is dropped.
    """
    mask = signal.pthread_sigmask(signal.SIG_BLOCK, STOPS)
    try:
        yield lambda: signal.sigwait(STOPS)
    finally:
        while signal.sigpending() & STOPS:
            signal.sigwait(STOPS)
        signal.pthread_sigmask(signal.SIG_SETMASK, mask)
