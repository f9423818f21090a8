"""The names of the topics, and the configurations that they need.

All of them have the same number of partitions: a record stays in the partition of its input, so that one
instance of the worker has every record of a key.
"""

from __future__ import annotations

from dataclasses import dataclass

HEADROOM_BYTES = 4096
"""What the headers of the retry queue add to an input, at most, with the reason of its failure."""
INPUT_BYTES_MOST = 1_048_588
"""Kafka's default of `max.message.bytes`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Names:
    """The topics of one retry queue, by the name of its input."""

    source: str = "orders"
    sink: str = "bills"

    @property
    def delay(self) -> str:
        """What waits, with the time at which it is due; the scheduler reads it."""
        return f"{self.source}-delay"

    @property
    def retry(self) -> str:
        """What is due; the worker reads it."""
        return f"{self.source}-retry"

    @property
    def dead(self) -> str:
        """What is not tried again."""
        return f"{self.source}-dead"

    @property
    def store(self) -> str:
        """The embedded delay store."""
        return f"{self.source}-delay-store"

    @property
    def open(self) -> str:
        """The ledger of a transactional worker."""
        return f"{self.source}-open"

    def configurations(self, input_bytes_most: int = INPUT_BYTES_MOST) -> dict[str, dict[str, str]]:
        """Return the configuration of each topic that is the retry queue's own.

        Each takes the largest record of the topic before it, else a record would be refused on its way.
        """
        largest = [str(input_bytes_most + HEADROOM_BYTES * step) for step in (1, 2)]
        compacted = {"cleanup.policy": "compact"}
        return {
            self.delay: {"max.message.bytes": largest[0]},
            self.retry: {"max.message.bytes": largest[0]},
            self.dead: {"max.message.bytes": largest[0], "retention.ms": "-1"},
            self.store: {"max.message.bytes": largest[1], **compacted},
            self.open: {"max.message.bytes": largest[0], **compacted},
        }
