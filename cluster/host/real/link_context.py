"""What all links of one host share: loop, rules, log, the read buffer, and whether a delivery is in progress.

Owns: the order in which the responses of a delivery are sent. What a delivery sends on any link waits until its end
(`answered`, `flush_answered`), so that all of it is sent in the same call of the loop, with one system call for each
link. Calls that wait for the end of a delivery (`after_delivery`) run in the same call, too: on the next turn of the
loop they would delay every acknowledgement by a turn.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..knobs.bandwidth import Bandwidth
from ..knobs.link_rules import LinkRules

READ_BYTES = 256 * 1024
"""Of the one read buffer: fits the second-level cache, holds a burst of produce requests."""


class LinkSocket(Protocol):
    """The socket of a link, or TLS above it (`tls_session.py`); both are non-blocking."""

    def recv(self, size: int, /) -> bytes:
        """Up to `size` bytes; none at the end of the input."""
        ...

    def recv_into(self, view: memoryview, /) -> int:
        """Fill `view`; returns how many bytes, 0 at the end of the input."""
        ...

    def setsockopt(self, level: int, option: int, value: bytes, /) -> None:
        """Set an option of the socket."""
        ...

    def getsockopt(self, level: int, option: int, /) -> int:
        """Return an option of the socket."""
        ...

    def close(self) -> None:
        """Close the socket."""
        ...


class Sender(Protocol):
    """What the context needs of a link."""

    def flush(self) -> None:
        """Send what is queued."""
        ...


LinkT = TypeVar("LinkT", bound=Sender)


@dataclass(slots=True, kw_only=True)
class LinkContext(Generic[LinkT]):
    """The shared state of one host's links."""

    loop: asyncio.AbstractEventLoop
    rules: LinkRules
    log: Callable[[str, str], None]
    links: set[LinkT]
    on_handshake: Callable[[bool], object] = bool
    """Called at the end of the handshake of an accepted link with TLS, with whether it failed."""
    bandwidth: Bandwidth = field(default_factory=Bandwidth)
    """What all throttled links share."""
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    records: memoryview = field(default_factory=lambda: memoryview(b""))
    """The read buffer of links with TLS; the first of them makes it."""
    delivering: bool = False
    """True while a link delivers frames."""
    answered: list[LinkT] = field(default_factory=list[LinkT])
    """The links on which that delivery has sent frames."""

    _after: list[Callable[[], object]] = field(default_factory=list[Callable[[], object]], init=False)

    def delivered(self) -> None:
        """A delivery has ended: send, then run the calls that waited for it."""
        if self.answered:
            self.flush_answered()
        if self._after:
            after, self._after = self._after, []
            for call in after:
                try:
                    call()
                except MemoryError:
                    raise  # ends the process
                except Exception:  # a bug of ours must not stop the other calls
                    self.log("error", f"after a delivery\n{traceback.format_exc()}")

    def flush_answered(self) -> None:
        """Send what the delivery has queued so far."""
        answered, self.answered = self.answered, []
        for link in answered:
            link.flush()

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Run `call` after the delivery in progress and its sends; without one, on the next turn of the loop."""
        if self.delivering:
            self._after.append(call)
        else:
            self.loop.call_soon(call)
