"""One TCP connection that carries any bytes: a `RealLink` without frames, for a relay in front of any service.

What arrives is delivered as it was read, in order, and each end of a direction apart: a client that has sent its whole
request may close its side (FIN) and still read the response. Link rules, resets, delays and evidence are those of
every link.

Invariants: `input_ended` is called at most once, after everything that was read. `finish_sending` sends FIN after
everything that was queued; on a blocked link FIN waits until the link is healed. A link of which both directions have
ended is closed.
"""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Sequence
from typing import Any, cast

from ..seam import Part, bytes_of
from .link import CHOKED, CLOSED, RealLink

ENDED = 16
"""The gate that stops reading for good: the peer sends no more."""


class RealRawLink(RealLink):
    """A connected socket; its handler is a `RawHandler`."""

    __slots__ = ("_finishing", "_sent_fin")

    def __init__(self, *args: Any, **more: Any) -> None:
        super().__init__(*args, **more)
        self._finishing = self._sent_fin = False

    def send(self, parts: Sequence[Part]) -> None:
        """Queue bytes; on a closed link nothing happens."""
        if self._gates & CLOSED:
            return
        pieces = [bytes_of(part) for part in parts if len(part)]
        size = sum(map(len, pieces))
        if self._slow is not None:
            self._slow.add(pieces, size)
        else:
            self._queue.extend(pieces)
        self._queue.unsent_bytes += size
        if self._queue.unsent_bytes > self._choke_bytes:
            self._shut(CHOKED)
        if self._scheduled or self._writing or self._out_held:
            return
        if self._context.delivering:
            self._scheduled = True
            self._context.answered.append(self)
        else:
            self.flush()

    def finish_sending(self) -> None:
        """Send FIN after everything that was queued; the link still receives."""
        self._finishing = True
        self._flush_soon()

    def flush(self) -> None:
        """Give the kernel as much of the queue as it takes, and then FIN where sending is finished."""
        super().flush()
        may_end = self._finishing and not self._sent_fin and not self._out_held
        if may_end and self._fd >= 0 and not self._queue.unsent_bytes:
            self._sent_fin = True
            with contextlib.suppress(OSError):  # the peer has reset the connection
                cast("socket.socket", self._sock).shutdown(socket.SHUT_WR)
            self._close_ended()

    def _input_ended(self) -> None:
        self._shut(ENDED)
        handler: Any = self._handler
        self._context.loop.call_soon(handler.input_ended)
        self._close_ended()

    def _close_ended(self) -> None:
        if self._sent_fin and self._gates & ENDED:
            self.close()

    def _deliver_all(self, view: memoryview) -> None:
        handler = self._handler
        assert handler is not None
        if self._gates:
            # all links share the read buffer: what a gate holds back needs its own copy
            self._backlog = memoryview(bytes(view))
        else:
            handler.frame_received(bytes(view))
