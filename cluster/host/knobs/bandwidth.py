"""The bandwidth of one host under a throttle (K2): when a frame that is sent now has left.

Owns: until when the host's line is busy. All throttled links share it, so that a broker sends to all its peers together
no more than the rule's rate. A frame leaves as a whole when its last byte would have left.

Pure: times are nanoseconds of the host's clock, and an argument.
"""

from __future__ import annotations

NS_PER_S = 1_000_000_000


class Bandwidth:
    """The line of one host."""

    __slots__ = ("busy_until_ns",)

    def __init__(self) -> None:
        self.busy_until_ns = 0

    def departure_ns(self, now_ns: int, size: int, bytes_per_s: int) -> int:
        """Take the line for a frame of `size` bytes that is sent now; return when it has left."""
        begins_ns = max(now_ns, self.busy_until_ns)
        self.busy_until_ns = begins_ns + size * NS_PER_S // bytes_per_s
        return self.busy_until_ns

    def clear(self) -> None:
        """The line is free: no rule is left, and what waited has been sent."""
        self.busy_until_ns = 0
