"""The line that long commands show while they work: elapsed time, operations, faults so far (J9).

On a terminal the line is drawn again and again at the same place, on stderr, so that stdout can be piped. Elsewhere, as
in the log of a CI job, a line is written every half minute. While it is shown it receives the notes of long waits
(`cluster/wait_notes.py`), which it writes above itself.
"""

from __future__ import annotations

import contextlib
import shutil
import sys
import threading
import time
from collections.abc import Callable, Generator
from typing import Self, TextIO

from harrow.cluster import wait_notes

DRAW_EVERY_S = 0.2
LOG_EVERY_S = 30.0
END_S = 5.0
CLEAR = "\r\x1b[K"


class ProgressLine:
    """Shows `describe()` and the elapsed time while its `with` block lasts."""

    def __init__(self, describe: Callable[[], str], *, stream: TextIO | None = None) -> None:
        self._describe = describe
        self._stream = sys.stderr if stream is None else stream
        self._on_terminal = self._stream.isatty()
        self._began = time.monotonic()
        self._stop = threading.Event()
        self._lock = threading.Lock()
        self._heard_before: Callable[[str], None] | None = None
        self._thread = threading.Thread(target=self._show, name="harrow-progress", daemon=True)

    def __enter__(self) -> Self:
        self._heard_before = wait_notes.listen(self.note)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        wait_notes.listen(self._heard_before)
        self._stop.set()
        self._thread.join(END_S)
        with self.hidden():
            pass

    def note(self, text: str) -> None:
        """Write what a long wait is for above the line."""
        with self.hidden():
            self._write(f"harrow: {text}\n")

    @contextlib.contextmanager
    def hidden(self) -> Generator[None]:
        """Remove the line while the block prints something."""
        with self._lock:
            if self._on_terminal:
                self._write(CLEAR)
            yield

    def text(self) -> str:
        """Return the line."""
        minutes, seconds = divmod(int(time.monotonic() - self._began), 60)
        return f"{minutes}:{seconds:02}  {self._describe()}"

    def _show(self) -> None:
        while not self._stop.wait(DRAW_EVERY_S if self._on_terminal else LOG_EVERY_S):
            line = self.text()
            with self._lock:
                if self._on_terminal:
                    width = shutil.get_terminal_size().columns - 1
                    # the cursor returns to the first column: what a program prints now replaces the line
                    self._write(f"{CLEAR}{line[:width]}\r")
                else:
                    self._write(f"{line}\n")

    def _write(self, text: str) -> None:
        with contextlib.suppress(OSError, ValueError):  # a closed terminal must not end the work
            self._stream.write(text)
            self._stream.flush()
