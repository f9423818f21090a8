"""Where failed inputs wait: one interface, and two delay stores."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Protocol

from ..records import Record


class DelayStore(Protocol):
    """Records that wait until they are due. Each call may raise an error after which the store is closed and
    made again.

    A record is in the store from the return of `put` to `remove`, whatever ends the process in between. So a
    record that was taken and not removed is found again by the next `take_over`: it may be sent twice, but it
    is never lost.
    """

    def take_over(self, partitions: Collection[int]) -> None:
        """Find everything that waits for these partitions, and what a scheduler that died had taken."""

    def give_up(self, partitions: Collection[int]) -> None:
        """Another instance has these partitions."""

    def put(self, records: Sequence[Record]) -> None:
        """Keep records. They are durable when this returns."""

    def take(self, now_ms: int, most: int) -> list[Record]:
        """Return records that are due, the earliest first."""
        ...

    def remove(self, records: Sequence[Record]) -> None:
        """Forget records that were taken: Kafka has them."""

    def close(self) -> None:
        """End the connections."""
