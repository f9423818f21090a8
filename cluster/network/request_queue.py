"""`queued.max.requests`: the bound on requests that the broker has read and not begun to handle.

Owns: the number of waiting requests of all connections on listeners for clients, and the decision to stop reading. A
request waits while the handler of an earlier request of its connection runs as a coroutine; most requests never wait,
and those never come here.

    at the bound            every connection stops reading
    at half of the bound    every connection reads again

Kafka's network threads block on the full queue, with the same effect. The inter-broker listener has a queue of its own,
as Kafka's `control.plane.listener.name` (KIP-291) gives it one: a handler of a waiting client may wait for a
request of the controller, so the controller must not wait behind clients.

Invariants: 0 <= waiting requests <= bound, because a request is added only by a connection that reads. Sans-IO.
"""

from __future__ import annotations

from typing import Protocol


class QueueReader(Protocol):
    """A connection that adds requests to the queue."""

    def hold(self) -> None:
        """Stop reading."""
        ...

    def release(self) -> None:
        """Read again, from the next turn of the loop on."""
        ...


class RequestQueue:
    """The waiting requests of several connections, as a number; `bound` is at least 1."""

    def __init__(self, bound: int) -> None:
        assert bound >= 1, f"a queue of {bound} requests"
        self._bound = bound
        self._waiting = 0
        self._full = False
        self._readers: dict[QueueReader, None] = {}

    @property
    def waiting(self) -> int:
        """Requests that were read and whose handler has not begun."""
        return self._waiting

    def join(self, reader: QueueReader) -> None:
        """A connection was accepted; it is held at once while the queue is full."""
        assert reader not in self._readers, f"{reader!r} joined twice"
        self._readers[reader] = None
        if self._full:
            reader.hold()

    def leave(self, reader: QueueReader) -> None:
        """A connection is closed; its waiting requests were removed before."""
        self._readers.pop(reader, None)

    def added(self) -> None:
        """One request waits."""
        self._waiting += 1
        if self._waiting >= self._bound and not self._full:
            self._full = True
            for reader in self._readers:
                reader.hold()

    def removed(self, count: int = 1) -> None:
        """The handlers of `count` waiting requests begin, or the requests are dropped."""
        self._waiting -= count
        assert self._waiting >= 0, f"{self._waiting} waiting requests"
        if self._full and self._waiting <= self._bound // 2:
            self._full = False
            for reader in self._readers:
                reader.release()
