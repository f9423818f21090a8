"""The line that shows how far the search of a simulated test is, on a terminal.

Nothing is shown where no one watches: in a log, in CI, in a worker of xdist, with -q. The line is drawn again at the
same place, and is gone when the search ends. It is written to stderr as it was before pytest captured it
(`Worker.stderr`).
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest

    from .workers import Worker

FIRST_S = 1.0
"""A shorter search shows nothing."""
DRAW_EVERY_S = 0.2
CLEAR = "\r\x1b[K"


class SeedProgress:
    """The line of one search."""

    def __init__(self, item: pytest.Item, worker: Worker) -> None:
        self._config = item.config
        self._descriptor = worker.stderr if _is_watched(item.config, worker.stderr) else None
        self._began = time.monotonic()
        self._draw_at = self._began + FIRST_S
        self._drawn = False

    @property
    def elapsed_s(self) -> float:
        """Since the search began."""
        return max(1e-9, time.monotonic() - self._began)

    def show(self, text: str) -> None:
        """Draw the line, where it is time to."""
        if self._descriptor is None or time.monotonic() < self._draw_at:
            return
        if not self._drawn:
            self._end_pytests_line()
        self._drawn = True
        self._draw_at = time.monotonic() + DRAW_EVERY_S
        width = shutil.get_terminal_size().columns - 1
        self._write(f"{CLEAR}{text[:width]}\r")

    def end(self) -> None:
        """Remove the line."""
        if self._drawn:
            self._write(CLEAR)
            self._drawn = False

    def _end_pytests_line(self) -> None:
        """Let pytest begin a new line when it shows the result: it has written the file of the test into this one."""
        reporter: Any = self._config.pluginmanager.get_plugin("terminalreporter")
        capture: Any = self._config.pluginmanager.get_plugin("capturemanager")
        if reporter is not None and reporter.isatty:
            with contextlib.nullcontext() if capture is None else capture.global_and_fixture_disabled():
                reporter.ensure_newline()
                reporter.flush()

    def _write(self, text: str) -> None:
        assert self._descriptor is not None
        with contextlib.suppress(OSError):  # a closed terminal must not end the search
            os.write(self._descriptor, text.encode("utf-8", "replace"))


def _is_watched(config: pytest.Config, descriptor: int | None) -> bool:
    if descriptor is None or hasattr(config, "workerinput") or os.environ.get("CI") or config.option.verbose < 0:
        return False
    return os.isatty(descriptor) and os.environ.get("TERM") != "dumb"
