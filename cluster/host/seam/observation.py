"""What a host records: the trace of events and log lines, and the tap of acknowledged records and committed offsets."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Protocol

from .buffers import Buffer

if TYPE_CHECKING:
    from ...ids import TopicPartition


class Trace(Protocol):
    """Structured events of this host: what changed and why."""

    def emit(self, event: str, /, **fields: object) -> None:
        """Append `event` (dotted name) with JSON-able fields; time and host are added here."""
        ...

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """Write a line for people to the broker's log file; level is debug, info, warning or error."""
        ...


class Tap(Protocol):
    """Records what responses acknowledged or delivered, and committed offsets (J6); without `harrow.tap` nothing."""

    enabled: bool

    def produced(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        base_offset: int,
        error: int,
        acks: int,
        invoked_ns: int,
        batches: Buffer,
        lost: bool,
    ) -> None:
        """One partition of a produce response, just before its bytes are sent (`lost`: a fault drops the response)."""
        ...

    def fetched(
        self, client: str, topic: str, partition: int, *, offset: int, invoked_ns: int, batches: Sequence[Buffer]
    ) -> None:  # fmt: skip
        """One partition of a consumer's fetch response, just before its bytes are sent."""
        ...

    def committed(
        self,
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
    ) -> None:
        """The result of writing a group's committed offsets, before the response is sent."""
        ...
