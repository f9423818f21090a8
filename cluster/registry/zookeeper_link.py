"""A session with a ZooKeeper, as `ZooKeeperClient` needs it; `network/kazoo_link.py` implements it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

__all__ = ["Done", "SessionLink", "StateChanged"]

StateChanged = Callable[[str, int, int], None]
Done = Callable[[Any, tuple[str, int] | None, int], None]


class SessionLink(Protocol):
    """A ZooKeeper session; `done(result, (code, index) or None, zxid)` is called on the loop, in order."""

    def start(self, on_state: StateChanged, on_event: Callable[[str, str], None], /) -> None:
        """Begin to connect; `on_state(state, session's id, zxid of the newest response)` is called on the loop."""
        ...

    def close(self) -> None:
        """BLOCKS. End the session."""
        ...

    def exists(self, path: str, done: Done, /, *, watch: bool) -> None:
        """A stat or None."""
        ...

    def get(self, path: str, done: Done, /, *, watch: bool) -> None:
        """Data and stat."""
        ...

    def children(self, path: str, done: Done, /, *, watch: bool) -> None:
        """Names below."""
        ...

    def set(self, path: str, data: bytes, version: int, done: Done, /) -> None:
        """New data; the result is the stat."""
        ...

    def delete(self, path: str, version: int, done: Done, /) -> None:
        """Remove a node."""
        ...

    def multi(self, operations: Sequence[tuple[Any, ...]], done: Done, /) -> None:
        """All or nothing; the result lists the results of the parts."""
        ...
