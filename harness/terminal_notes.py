"""Where notes of long waits are shown (`cluster/wait_notes.py`): on the terminal of a pytest run, or on stderr.

pytest captures the standard streams while a test runs, so the plugin keeps a descriptor of the real stderr from before
(`Worker.stderr`), and each note is written there with the test that waits. Without pytest a note is a line on stderr,
and a command with a progress line shows it above that line (`commands/progress.py`). What may fail: nothing; a note
that cannot be written is dropped.
"""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable

from harrow.cluster import wait_notes

from .plain_text import encoded


def show_on(descriptor: Callable[[], int | None], who: Callable[[], str]) -> None:
    """Write each note of this process to a descriptor, while there is one; `who` returns the test that waits."""

    def say(note: str) -> None:
        number = descriptor()
        if number is not None:
            with contextlib.suppress(OSError):
                os.write(number, encoded(f"\nharrow: {who()} {note}\n", sys.__stderr__))

    wait_notes.listen(say)


def show_on_stderr() -> None:
    """Write each note of this process to stderr, unless something else receives them."""
    if not wait_notes.has_listener():
        wait_notes.listen(_to_stderr)


def _to_stderr(note: str) -> None:
    with contextlib.suppress(OSError, ValueError):  # a closed stream must not end the work
        print(f"harrow: {note}", file=sys.stderr, flush=True)
