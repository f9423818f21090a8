"""The frames that a link has queued and that the kernel has not taken yet.

Owns: the pieces in the order in which they leave, how many of them are file regions, and the number of unsent bytes.
Without regions one system call takes all pieces (`send` of their join, or `sendmsg`). A region leaves by `sendfile` in
its place in the frame.

Invariant: `unsent_bytes` is the size of all pieces, plus the frames that a slow link holds back (`slow_send.py`).
"""

from __future__ import annotations

import errno
import os
import socket
from collections import deque
from collections.abc import Sequence
from itertools import islice
from typing import Any

from ..seam import Buffer
from .disk import IOV_MAX, RealRegion
from .pieces import Piece

SEND_JOIN_BYTES = 32 * 1024
"""Up to this many bytes a join and `send` is cheaper than `sendmsg` with many parts."""


class SendQueue:
    """The send queue of one connected socket."""

    __slots__ = ("_fd", "_sock", "pieces", "regions", "unsent_bytes")

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._fd = sock.fileno()
        self.pieces: deque[Piece] = deque()
        self.regions = 0
        """How many of the pieces are file regions."""
        self.unsent_bytes = 0

    def extend(self, pieces: Sequence[Piece]) -> None:
        """Append the pieces of one frame, of which the caller has counted the bytes."""
        self.regions += sum(piece.__class__ is RealRegion for piece in pieces)
        self.pieces.extend(pieces)

    def clear(self) -> None:
        """Forget everything unsent."""
        self.pieces.clear()
        self.unsent_bytes = self.regions = 0

    def send(self) -> bool:
        """Give the kernel as much as it takes; False when it takes no more for now. OSError: the socket or a file."""
        queue, sock = self.pieces, self._sock
        try:
            while queue:
                if self.regions:
                    self._drop(self._send_mixed())
                    continue
                buffers: Any = queue  # nothing else while there are no regions
                if self.unsent_bytes <= SEND_JOIN_BYTES:
                    sent = sock.send(buffers[0] if len(buffers) == 1 else b"".join(buffers))
                else:
                    sent = sock.sendmsg(islice(buffers, IOV_MAX))
                if sent == self.unsent_bytes:
                    queue.clear()
                    self.unsent_bytes = 0
                else:
                    self._drop(sent)
        except (BlockingIOError, InterruptedError):
            return False
        return True

    def _send_mixed(self) -> int:
        """Send the buffers up to the first region, or of that region what the kernel takes; how much it took."""
        first = self.pieces[0]
        if isinstance(first, RealRegion):
            sent = os.sendfile(self._fd, first.fd, first.position, first.size)
            if sent == 0:
                raise OSError(errno.EIO, "a file was cut under a response")
            return sent
        buffers: list[Buffer] = []
        for part in islice(self.pieces, IOV_MAX):
            if isinstance(part, RealRegion):
                break
            buffers.append(part)
        # MSG_MORE: what is before a region leaves in one segment with its beginning
        return self._sock.sendmsg(buffers, (), socket.MSG_MORE)

    def _drop(self, sent: int) -> None:
        self.unsent_bytes -= sent
        assert self.unsent_bytes >= 0, f"{sent} bytes sent, more than were queued"
        queue = self.pieces
        while sent:
            part = queue[0]
            size = len(part)
            if size > sent:
                queue[0] = part.after(sent) if isinstance(part, RealRegion) else memoryview(part)[sent:]
                return
            queue.popleft()
            self.regions -= part.__class__ is RealRegion
            assert self.regions >= 0, f"{self.regions} file regions are queued"
            sent -= size
