"""What all links of one host share: loop, rules, log, the read buffer, and whether frames are being delivered now.

Owns: the order in which a delivery's answers leave. What one delivery sends, on whichever link, waits in `answered`
until its end (`flush_answered`), so that all of it leaves in the same call of the loop and each link's at once.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from .link_rules import LinkRules

if TYPE_CHECKING:
    from .link import RealLink

READ_BYTES = 256 * 1024
"""Of the one read buffer: fits the second-level cache, holds a burst of produce requests."""


@dataclass(slots=True, kw_only=True)
class LinkContext:
    """One for each host."""

    loop: asyncio.AbstractEventLoop
    rules: LinkRules
    log: Callable[[str, str], None]
    links: set[RealLink]
    buffer: memoryview = field(default_factory=lambda: memoryview(bytearray(READ_BYTES)))
    delivering: bool = False
    """A link is delivering frames in this very call."""
    answered: list[RealLink] = field(default_factory=list["RealLink"])
    """The links on which that delivery has sent."""

    def flush_answered(self) -> None:
        """The delivery has ended: send."""
        answered, self.answered = self.answered, []
        for link in answered:
            link.flush()
