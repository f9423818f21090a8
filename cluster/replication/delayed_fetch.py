"""Fetches that wait in a purgatory: for bytes, for an error, or for their deadline (E4).

Owns: `DelayedFetch` for full fetches, `DelayedSessionFetch` for a follower's fetch in a session. Both read again when
they complete: nothing is kept while they wait, so the response shows the moment at which it leaves.

Source: Kafka's `DelayedFetch`.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import TYPE_CHECKING

from ..purgatory import DelayedOperation
from ..wire.fetch import FetchRequest
from ..wire.fetch_response import FetchAnswer

if TYPE_CHECKING:
    from .fetch_reads import FetchReader
    from .fetch_session import FetchSession


class DelayedFetch(DelayedOperation):
    """A full fetch of a consumer or a follower."""

    __slots__ = ("_min_bytes", "done", "reader")

    def __init__(
        self, deadline_ms: int, reader: FetchReader, min_bytes: int, done: Callable[[list[FetchAnswer]], None]
    ) -> None:
        super().__init__(deadline_ms)
        self.reader = reader
        """Reads its partitions, as often as the fetch is tried."""
        self._min_bytes = min_bytes
        self.done = done
        """Sends the response."""

    def try_complete(self) -> bool:
        """Complete when the role of a partition changed or enough bytes are there."""
        return self._is_due() and self.force_complete()

    def _is_due(self) -> bool:
        reader = self.reader
        if not reader.changed():
            if not reader.has_data():
                return False
            if self._min_bytes > 1:
                _, size, urgent = reader.read()
                if size < self._min_bytes and not urgent:
                    return False
        return True

    def due_keys(self) -> Sequence[Hashable]:
        """Return the first partition whose records it could return."""
        return self.reader.keys_with_data()[:1] if self._is_due() else ()

    def on_complete(self) -> None:
        """Read again and answer."""
        self.done(self.reader.read()[0])


class DelayedSessionFetch(DelayedOperation):
    """A follower's fetch in a session."""

    __slots__ = ("_done", "_max_bytes", "_min_bytes", "_session")

    def __init__(
        self,
        deadline_ms: int,
        session: FetchSession,
        fetch: FetchRequest,
        done: Callable[[list[FetchAnswer] | None], None],
    ) -> None:
        """`done` gets None when the session has ended."""
        super().__init__(deadline_ms)
        self._session = session
        self._min_bytes = fetch.min_bytes
        self._max_bytes = fetch.max_bytes
        self._done = done

    def try_complete(self) -> bool:
        """Complete when the session has ended or enough bytes are there."""
        if not self._session.ended and not self._has_enough():
            return False
        return self.force_complete()

    def _has_enough(self) -> bool:
        session = self._session
        if not session.has_data():
            return False
        if self._min_bytes <= 1:
            return True
        answers = session.read(self._max_bytes, record_sent=False)
        return answers is None or _size_of(answers) >= self._min_bytes

    def on_complete(self) -> None:
        """Read again and answer."""
        session = self._session
        self._done(None if session.ended else session.read(self._max_bytes))


def _size_of(answers: Sequence[FetchAnswer]) -> int:
    return sum(len(part) for answer in answers for part in answer.records or ())
