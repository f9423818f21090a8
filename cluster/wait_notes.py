"""Says what a long wait is for, so that no wait of minutes is silent.

Owns: the listener of this process, which receives each note as one line of text (`listen`; by default there is none,
and every note is dropped). A wait is noted after `AFTER_S`, and again every `AGAIN_S` while it lasts:

    waits for 3 of 3 replicas of orders-0 (5 s of at most 60 s)

What may fail: nothing; an error of the listener is not an error of the wait.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Generator

AFTER_S = 4.0
AGAIN_S = 20.0
END_S = 5.0
"""How long the end of a wait may take longer because a detail is being looked up."""


def _drop(note: str) -> None:
    del note


_listener: list[Callable[[str], None]] = [_drop]


def listen(say: Callable[[str], None] | None) -> Callable[[str], None] | None:
    """Let `say` receive every note of this process from now on (None: nothing does); return what received them."""
    before = _listener[0]
    _listener[0] = _drop if say is None else say
    return None if before is _drop else before


def has_listener() -> bool:
    """Whether something receives the notes of this process."""
    return _listener[0] is not _drop


class WaitNotes:
    """The notes of one waiter, which calls `look` again and again with what it waits for; empty: it does not wait."""

    def __init__(self, *, most_s: float | None = None, clock_s: Callable[[], float] = time.monotonic) -> None:
        self._most_s = most_s
        self._clock_s = clock_s
        self._key = ""
        self._since_s = self._next_s = 0.0

    def look(self, what: str, detail: str = "", *, most_s: float | None = None) -> None:
        """Note a wait for `what` that has lasted; `detail` may change meanwhile. `most_s`: how long it may last."""
        now_s = self._clock_s()
        if what != self._key:
            self._key, self._since_s, self._next_s = what, now_s, now_s + AFTER_S
            return
        if not what or now_s < self._next_s:
            return
        self._next_s = now_s + AGAIN_S
        most_s = self._most_s if most_s is None else most_s
        bound = "" if most_s is None else f" of at most {most_s:.0f} s"
        more = f": {detail}" if detail else ""
        with contextlib.suppress(Exception):
            _listener[0](f"waits for {what}{more} ({now_s - self._since_s:.0f} s{bound})")


@contextlib.contextmanager
def noted(what: str, *, most_s: float | None = None, detail: Callable[[], str] | None = None) -> Generator[None]:
    """Note the wait of a call that blocks, from a thread of its own; `detail` is called there for each note."""
    over = threading.Event()

    def note() -> None:
        notes = WaitNotes(most_s=most_s)
        notes.look(what)
        pause_s = AFTER_S
        while not over.wait(pause_s):
            said = ""
            if detail is not None:
                with contextlib.suppress(Exception):
                    said = detail()
            notes.look(what, said)
            pause_s = AGAIN_S

    thread = threading.Thread(target=note, name="harrow-wait-notes", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(END_S)
