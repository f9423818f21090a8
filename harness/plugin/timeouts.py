"""Timeouts of pytest-timeout by its method `thread`, which ends the process without a report.

With the method `signal` a timeout is a failure as any other. With `thread`, or where the test runs in no main thread,
pytest-timeout prints all stacks and calls `os._exit`. Before that, the runs of the test get the verdict unknown and
their pages (without the cluster and without Spark), and the run its index. That takes at most `NOTE_MOST_S`, in a
thread of its own, because the test may hold any lock. pytest-timeout asks plugins for a timer by a hook; where it lacks
what is used here, its own timer stays.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import sys
import threading
from typing import TYPE_CHECKING, Any

from ..plain_text import encoded
from .requested_fixtures import runs_of
from .workers import WORKER

if TYPE_CHECKING:
    import pytest

NOTE_MOST_S = 5.0


def start_timer(item: pytest.Item, settings: Any) -> bool | None:
    """Start the timer of a test; None leaves it to pytest-timeout. `settings`: pytest-timeout's."""
    plugin: Any = importlib.import_module("pytest_timeout")
    end_process = getattr(plugin, "timeout_timer", None)
    is_debugging = getattr(plugin, "is_debugging", None)
    if end_process is None or is_debugging is None:
        return None

    def expire() -> None:
        if settings.disable_debugger_detection or not is_debugging():
            noting = threading.Thread(target=note_timeout, args=(item, settings.timeout), daemon=True)
            noting.start()
            noting.join(NOTE_MOST_S)
        end_process(item, settings)

    timer = threading.Timer(settings.timeout, expire)

    def cancel() -> None:
        timer.cancel()
        timer.join(2 * NOTE_MOST_S)  # it has expired: the process ends meanwhile

    setattr(item, "cancel_timeout", cancel)  # noqa: B010 - pytest-timeout reads it from the item
    timer.start()
    return True


def note_timeout(item: pytest.Item, timeout_s: float) -> None:
    """Give the runs of a test their verdict, say it on stderr, and write the index: the process ends now."""
    reason = (
        f"the test ran into its timeout of {timeout_s:g} s, and the method thread of pytest-timeout ends the process, "
        "so nothing was judged; its method signal ends the test alone"
    )
    stderr = item.config.stash[WORKER].stderr
    for run in runs_of(item):
        text = run.failures.end_unjudged(reason)
        if text and stderr is not None:
            with contextlib.suppress(OSError):
                os.write(stderr, encoded(f"\nharrow: {item.nodeid}: {text}\n", sys.__stderr__))
    index: Any = item.config.pluginmanager.get_plugin("harrow-index")
    if index is not None:  # None in a worker of xdist, whose controller writes it
        index.write(item.config)
