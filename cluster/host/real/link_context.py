"""What all links of one host share: loop, rules, log, the read buffer, and whether frames are being delivered now.

Owns: the order in which a delivery's answers leave. What one delivery sends, on whichever link, waits in `answered`
until its end (`flush_answered`), so that all of it leaves in the same call of the loop and each link's at once. What
is to be done once a delivery's frames have been served (`after_delivery`) follows in the same call too: on the next
turn of the loop it would cost every acknowledgement a turn.
"""

from __future__ import annotations

import asyncio
import traceback
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Generic, Protocol, TypeVar

from ..knobs.link_rules import LinkRules

READ_BYTES = 256 * 1024
"""Of the one read buffer: fits the second-level cache, holds a burst of produce requests."""


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
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    delivering: bool = False
    """A link is delivering frames in this very call."""
    answered: list[LinkT] = field(default_factory=list[LinkT])
    """The links on which that delivery has sent."""

    _after: list[Callable[[], object]] = field(
        default_factory=list[Callable[[], object]], init=False
    )

    def delivered(self) -> None:
        """A delivery has ended: send, then do what was put off."""
        if self.answered:
            self.flush_answered()
        if self._after:
            after, self._after = self._after, []
            for call in after:
                try:
                    call()
                except Exception:  # our bug: as that of a call of the loop, it harms nobody else
                    self.log("error", f"after a delivery\n{traceback.format_exc()}")

    def flush_answered(self) -> None:
        """Send what the delivery has sent so far."""
        answered, self.answered = self.answered, []
        for link in answered:
            link.flush()

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Call it when the delivery has ended and its answers have left; on the next turn when there is none."""
        if self.delivering:
            self._after.append(call)
        else:
            self.loop.call_soon(call)
