"""One TCP connection that carries frames: `Link` of the seam, under the link rules of faults.

Owns: a connected socket, the bytes read and not yet delivered (`large_frame.py`), the frames queued and not yet sent
(`send_queue.py`), and the gates that stop reading.

The socket is driven by the loop's reader and writer callbacks, not through an asyncio transport: a
transport hides its write buffer, and a rule must be able to hold back **everything** that the kernel has not taken yet,
at once. It also saves a join (`sendmsg`) and a buffer for each read (all links of a host read into one buffer).

Invariants:

* Frames are delivered whole and in order, independent of the borders of the reads. Small frames are cut from the
  shared read buffer; a larger one is collected in pieces and joined once, so reassembly is linear, and
  no memory is allocated because of a size that a peer claims (an absurd size closes the link).
* `send` never blocks. During a delivery of frames, on any link of the host, `send` only queues; all is sent at the
  end of that delivery, with one system call for each link. Otherwise `send` sends at once. Bytes are sent in the
  order in which they were queued; no fault drops a part of a frame.
* A file region is sent by `os.sendfile`, in its place in the frame. When its file was cut meanwhile, the frame cannot
  be completed and the link is reset, because nothing else may follow half a frame.
* The link reads while no **gate** is shut: the handler's pause, a rule (HELD), or too many unsent bytes
  (CHOKED, on accepted links: a peer that does not read its answers is not read from).
* A blocked link does not pass the end of the connection either: neither FIN nor RST passes a partition.
* Frames that a rule delays wait in `slow_send.py` before they are queued; a closed link ends after they were sent.
* Bytes that arrived before a reset are delivered; then the link ends. (uvloop calls the reader of a socket that has
  failed once, and never again.)
* `link_closed` is called exactly once, never from inside `send` or `close`.
* Assigning `peer` during the delivery of a frame applies the rules to that frame, too: when they block it, the
  assignment raises FrameHeldError through the handler and the frame is delivered again after healing.
  Therefore a handler names its link before it processes the frame.

A WireError from the handler, an absurd size (both at `wire_error_level`) or any other exception closes this link with
one log line.
"""

from __future__ import annotations

import asyncio
import fcntl
import os
import socket
import struct
import termios
import traceback
from collections.abc import Callable, Sequence
from typing import Any

from ...errors import WireError
from ..knobs.link_rules import Blocked
from ..seam import CLOSED_BY_PEER, FrameHandler, Part, Peer
from .large_frame import OWN_PIECES_BYTES, PIECE_BYTES, LargeFrame
from .link_context import LinkContext, LinkSocket
from .pieces import JOIN_BYTES, SIZE, joined, pieces_of
from .send_queue import SendQueue
from .slow_send import NOT_SLOW, SlowSend

CHOKE_BYTES = 64 * 1024 * 1024
"""Unsent bytes at which an accepted link stops reading; it goes on at a quarter."""
LINGER_S = 30.0
"""How long a closed link may go on sending what was queued."""
RESET = struct.pack("ii", 1, 0)

PAUSED, HELD, CHOKED, CLOSED = 1, 2, 4, 8
FROZEN = Blocked(inward=True, outward=True)


class FrameHeldError(Exception):
    """Passes through a handler when the peer it has just named is blocked; see the module's head."""


class RealLink:
    """A connected socket; `start(handler)` begins to read."""

    __slots__ = (
        "_at_close",
        "_backlog",
        "_choke_bytes",
        "_context",
        "_delivering",
        "_drained",
        "_error",
        "_fd",
        "_gates",
        "_handler",
        "_large",
        "_linger",
        "_out_held",
        "_peer",
        "_queue",
        "_reading",
        "_rest",
        "_scheduled",
        "_slow",
        "_sock",
        "_writing",
        "frozen",
        "max_frame_bytes",
        "wire_error_level",
    )

    def __init__(
        self, context: LinkContext[RealLink], sock: socket.socket, peer: Peer, *, max_frame_bytes: int, accepted: bool
    ) -> None:
        self._context = context
        self._sock: LinkSocket = sock
        self._fd = sock.fileno()
        self._peer = peer
        self.max_frame_bytes = max_frame_bytes
        self.wire_error_level = "warning"
        self._choke_bytes = CHOKE_BYTES if accepted else float("inf")
        self._handler: FrameHandler | None = None
        self._gates = 0
        self._reading = self._writing = self._scheduled = self._delivering = False
        self._at_close = ""  # how a closed link ends: "drain", "reset" or "drop"
        self._linger: asyncio.TimerHandle | None = None
        self._backlog: memoryview | None = None  # read, and held back by a gate
        self._rest = b""  # the beginning of a small frame
        self._large = LargeFrame()
        self._error = ""  # why the socket failed, while bytes that came before are still to be delivered
        self._queue = SendQueue(sock)
        self.frozen = False
        """Whether a fault holds back everything on this one link."""
        self._out_held = False
        self._slow: SlowSend | None = None  # while a rule makes it slow
        self._drained: tuple[int, Callable[[], object]] | None = None
        context.links.add(self)

    def start(self, handler: FrameHandler) -> None:
        """Begin to read, under the rules in force."""
        self._handler = handler
        self.apply()
        self._update_reading()

    # ------------------------------------------------------------------ seam

    @property
    def peer(self) -> Peer:
        """The process it leads to; an assignment applies the rules of that peer at once."""
        return self._peer

    @peer.setter
    def peer(self, peer: Peer) -> None:
        if peer == self._peer:
            return
        self._peer = peer
        self.apply()
        if self._gates & HELD and self._delivering:
            raise FrameHeldError

    @property
    def certificate(self) -> bytes | None:
        """None: the connection has no TLS."""
        return None

    def when_established(self, call: Callable[[], object]) -> None:
        """Run `call` at once: there is no handshake."""
        call()

    @property
    def unsent_bytes(self) -> int:
        """Bytes sent (queued, or delayed on a slow link) and not yet taken by the kernel."""
        return self._queue.unsent_bytes

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame; on a closed link nothing happens. OSError where a small region cannot be read."""
        if self._gates & CLOSED:
            return
        size = sum(map(len, parts))
        queue = self._queue
        if self._slow is not None:
            self._slow.add(pieces_of(parts, size), size + 4)
        elif size < JOIN_BYTES:
            queue.pieces.append(joined(parts, size))
        else:
            queue.extend(pieces_of(parts, size))
        queue.unsent_bytes += size + 4
        if queue.unsent_bytes > self._choke_bytes:
            self._shut(CHOKED)
        if self._scheduled or self._writing or self._out_held:
            return
        if self._context.delivering:
            self._scheduled = True
            self._context.answered.append(self)
        else:
            self.flush()

    def close(self, *, reset: bool = False) -> None:
        """Close the link after queued frames were sent; with `reset` at once."""
        if self._gates & CLOSED:
            return
        self._end("reset here" if reset else "closed here", at_close="reset" if reset else "drain")

    def pause(self) -> None:
        """Deliver no more frames until `resume`."""
        self._shut(PAUSED)

    def resume(self) -> None:
        """Deliver frames again, from the next turn of the loop on."""
        self._open(PAUSED)

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:
        """Run `call` once, when `unsent_bytes` is at most `limit`; never, when the link is closed before."""
        self._drained = limit, call
        self._check_drained()

    def _check_drained(self) -> None:
        if self._drained is not None and self._queue.unsent_bytes <= self._drained[0]:
            call, self._drained = self._drained[1], None
            self._context.loop.call_soon(call)

    # ----------------------------------------------------------------- rules

    def apply(self) -> None:
        """Apply the rules: hold back, delay or release frames in both directions; no frame is lost."""
        rules = self._context.rules
        blocked = FROZEN if self.frozen else rules.blocked(self._peer)
        delay_ms = rules.delay_ms(self._peer)
        bytes_per_s = rules.bytes_per_s(self._peer)
        if blocked.inward:
            self._shut(HELD)
        else:
            self._open(HELD)
        self.delay(delay_ms, bytes_per_s)
        if blocked.outward == self._out_held:
            return
        self._out_held = blocked.outward
        if blocked.outward:
            self._stop_writing()
        else:
            self._flush_soon()

    def delay(self, delay_ms: int, bytes_per_s: int = 0) -> None:
        """Delay or limit what is sent from now on; both 0: send delayed frames now, and later ones at once."""
        slow = self._slow
        if delay_ms or bytes_per_s:
            if slow is None:
                context = self._context
                slow = SlowSend(context.loop, self._queue.extend, self._flush_soon, context.bandwidth)
            slow.delay_ms, slow.bytes_per_s = delay_ms, bytes_per_s
            self._slow = slow
        elif slow is not None:
            self._slow = None
            slow.let_go()

    @property
    def blocked(self) -> Blocked:
        """The directions that a rule holds back now."""
        return Blocked(bool(self._gates & HELD), self._out_held)

    def report(self) -> dict[str, Any]:
        """This link as JSON: evidence for the probe of a fault."""
        inward, outward = self.blocked
        read = len(self._rest) + self._large.held_bytes + len(self._backlog or b"")
        return {
            "peer": str(self._peer),
            "blocked_in": inward,
            "blocked_out": outward,
            "held_in_bytes": read + self._kernel_bytes() if inward else 0,
            "held_out_bytes": self._queue.unsent_bytes if outward else 0,
            **(NOT_SLOW if self._slow is None else self._slow.report()),
            "closed": bool(self._gates & CLOSED),
        }

    def _kernel_bytes(self) -> int:
        if self._fd < 0:
            return 0
        answer = fcntl.ioctl(self._fd, termios.FIONREAD, b"\0\0\0\0")
        return int.from_bytes(answer, "little")

    # ----------------------------------------------------------------- gates

    def _shut(self, gate: int) -> None:
        self._gates |= gate
        self._stop_reading()

    def _stop_reading(self) -> None:
        if self._reading:
            self._reading = False
            self._context.loop.remove_reader(self._fd)

    def _open(self, gate: int) -> None:
        if not self._gates & gate:
            return
        self._gates &= ~gate
        if not self._gates:
            # not from here: the caller may be in the middle of a frame
            self._context.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        backlog, self._backlog = self._backlog, None
        if backlog is not None:
            if self._gates or self._delivering:
                self._backlog = backlog
                return
            self._guard(self._deliver_all, backlog)
        self._update_reading()

    def _update_reading(self) -> None:
        if self._gates or self._reading or self._handler is None:
            return
        if self._error:
            self._context.loop.call_soon(self._read_rest)
            return
        self._reading = True
        self._context.loop.add_reader(self._fd, self._ready)

    # --------------------------------------------------------------- reading

    def _ready(self) -> None:
        """The socket is readable, or has failed: then uvloop calls its reader this once, although bytes may be left."""
        self._readable()
        if not self._reading:
            return
        error = self._sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if error:
            self._error = os.strerror(error)
            self._stop_reading()
            self._read_rest()

    def _read_rest(self) -> None:
        """Deliver what had arrived when the socket failed, as far as no gate holds it back, and end the link."""
        while not self._gates and self._kernel_bytes():
            self._readable()
        if not self._gates and self._backlog is None:
            self._end(self._error, at_close="drop")

    def _readable(self) -> None:
        try:
            large = self._large
            if large.missing_bytes:
                piece = self._sock.recv(min(large.missing_bytes, PIECE_BYTES))
                count = len(piece)
                frame = large.add(piece) if count else None
                if frame is not None:
                    self._guard(self._deliver_one, frame)
            else:
                buffer, have = self._context.buffer, len(self._rest)
                if have:
                    buffer[:have] = self._rest
                count = self._sock.recv_into(buffer[have:] if have else buffer)
                if count:
                    self._rest = b""
                    self._guard(self._deliver_all, buffer[: have + count])
        except (BlockingIOError, InterruptedError):
            return
        except OSError as error:
            self._end(f"{error.strerror or error}", at_close="drop")
            return
        if not count and not self._gates & CLOSED:
            self._input_ended()

    def _input_ended(self) -> None:
        self._end(CLOSED_BY_PEER, at_close="drop")

    def _deliver_one(self, frame: bytes) -> None:
        handler = self._handler
        assert handler is not None
        try:
            handler.frame_received(frame)
        except FrameHeldError:
            self._backlog = memoryview(SIZE.pack(len(frame)) + frame)

    def _guard(self, deliver: Callable[[Any], None], data: object) -> None:
        """Run a delivery, then send what it queued; an exception of it ends this link and nothing else."""
        context = self._context
        self._delivering = context.delivering = True
        try:
            deliver(data)
        except WireError as error:
            self._refuse(self.wire_error_level, str(error))
        except MemoryError:
            raise  # ends the process
        except Exception as error:  # a handler's bug ends its link, not the broker
            self._refuse("error", f"handler failed\n{''.join(traceback.format_exception(error))}")
        finally:
            self._delivering = context.delivering = False
        context.delivered()
        if not self._gates and self._backlog is not None:
            self._context.loop.call_soon(self._go_on)

    def _deliver_all(self, view: memoryview) -> None:
        """Deliver the whole frames in `view` and keep the rest."""
        handler = self._handler
        assert handler is not None
        receive, size_at, most = handler.frame_received, SIZE.unpack_from, self.max_frame_bytes
        at, end = 0, len(view)
        while end - at >= 4 and not self._gates:
            size: int = size_at(view, at)[0]
            if not 0 < size <= most:
                raise WireError(f"a frame of {size} bytes where 1 to {most} are allowed")
            stop = at + 4 + size
            if stop > end:
                break
            try:
                receive(bytes(view[at + 4 : stop]))
            except FrameHeldError:
                break
            at = stop
        if at < end and not self._gates & CLOSED:
            self._keep(view, at, end)

    def _keep(self, view: memoryview, at: int, end: int) -> None:
        if self._gates:
            # all links share the read buffer: what a gate holds back needs its own copy
            self._backlog = memoryview(bytes(view[at:end]))
            return
        if end - at > 4:
            size: int = SIZE.unpack_from(view, at)[0]
            if size > OWN_PIECES_BYTES:
                self._large.begin(bytes(view[at + 4 : end]), size)
                return
        self._rest = bytes(view[at:end])

    # --------------------------------------------------------------- writing

    def _flush_soon(self) -> None:
        if not self._scheduled:
            self._scheduled = True
            self._context.loop.call_soon(self.flush)

    def flush(self) -> None:
        """Give the kernel as much of the queue as it takes."""
        self._scheduled = False
        if self._out_held or self._fd < 0:
            return
        queue = self._queue
        try:
            if queue.send():
                self._stop_writing()
            elif not self._writing:
                self._writing = True
                self._context.loop.add_writer(self._fd, self.flush)
        except OSError as error:
            # half a region may have been sent: a FIN after it would look like an orderly end
            self._end(f"{error.strerror or error}", at_close="reset" if queue.regions else "drop")
            return
        if self._gates & CHOKED and queue.unsent_bytes <= self._choke_bytes / 4:
            self._open(CHOKED)
        if self._drained is not None:
            self._check_drained()
        if self._at_close and not queue.unsent_bytes:
            self._finish()
        elif self._at_close and queue.pieces and self._linger is None:
            self._linger = self._context.loop.call_later(LINGER_S, self._finish)

    def _stop_writing(self) -> None:
        if self._writing:
            self._writing = False
            self._context.loop.remove_writer(self._fd)

    # --------------------------------------------------------------- closing

    def _refuse(self, level: str, reason: str) -> None:
        self._context.log(level, f"closing the link to {self._peer}: {reason}")
        self._end(reason, at_close="drop")

    def _end(self, reason: str, *, at_close: str) -> None:
        """Stop reading, schedule the one `link_closed`, and close the socket by `at_close`: drop, drain or reset."""
        if self._gates & CLOSED:  # the socket failed while a closed link was draining
            self._finish()
            return
        self._shut(CLOSED)
        self._at_close = at_close
        self._drained = None
        self._backlog, self._rest = None, b""
        self._large.clear()
        if self._handler is not None:
            self._context.loop.call_soon(self._handler.link_closed, reason)
        if at_close != "drain":
            self._forget_unsent()
        self.flush()  # closes the socket now, when the queue is empty, or, on a blocked link, after healing

    def _finish(self) -> None:
        """Close the socket."""
        if self._fd < 0:
            return
        if self._linger is not None:
            self._linger.cancel()
        self._stop_writing()
        self._forget_unsent()
        self._fd = -1
        self._context.links.discard(self)
        if self._at_close == "reset":
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, RESET)
        self._sock.close()

    def _forget_unsent(self) -> None:
        self._queue.clear()
        if self._slow is not None:
            self._slow.drop()

    def abort(self, reason: str) -> None:
        """Reset the connection, even if a rule blocks it: the heal mode "reset", and the end of a host."""
        self._out_held = False
        if self._gates & CLOSED:
            self._at_close = "reset"
            self._finish()
        else:
            self._end(reason, at_close="reset")
