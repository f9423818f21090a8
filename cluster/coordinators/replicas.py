"""What coordinators need of replication, as protocols: the room of replication provides them.

Owns: no behaviour. `ReplicaManager` is a `Replicas`, `Partition` a `LedPartition`, `Log` a `ReplayedLog`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from ..errors import ErrorCode
    from ..host.seam import Buffer
    from ..ids import LeaderEpoch, Offset, TopicPartition
    from ..purgatory import Purgatory


class LogSlice(Protocol):
    """Bytes read from a log: whole batches once the parts are joined."""

    @property
    def parts(self) -> Sequence[Buffer]:
        """The bytes in order; a batch may continue from one part to the next."""
        ...


class ReplayedLog(Protocol):
    """The log of one partition, for a load."""

    @property
    def log_start_offset(self) -> Offset:
        """First offset that the log has."""
        ...

    def read(self, offset: Offset, max_bytes: int, upper: Offset, *, at_least_one: bool) -> LogSlice:
        """Batches from `offset` on, below `upper`."""
        ...


class LedPartition(Protocol):
    """A replica that this broker leads, or led."""

    @property
    def topic_partition(self) -> TopicPartition:
        """Which partition it is."""
        ...

    @property
    def log(self) -> ReplayedLog:
        """Its log."""
        ...

    @property
    def is_leader(self) -> bool:
        """True while this replica leads."""
        ...

    @property
    def leadership_generation(self) -> int:
        """Counts how often this replica began to lead after it had not led."""
        ...

    @property
    def leader_epoch(self) -> LeaderEpoch:
        """Epoch of the leadership; rises also within one generation."""
        ...

    @property
    def epoch_start(self) -> Offset:
        """Log end offset when the leader epoch began."""
        ...

    @property
    def high_watermark(self) -> Offset:
        """Offset below which all in-sync replicas have the log."""
        ...


class AppendResult(Protocol):
    """The result of an append to one partition."""

    @property
    def error(self) -> ErrorCode:
        """NONE, or why the append is not acknowledged."""
        ...

    @property
    def base_offset(self) -> Offset:
        """Offset of the first record; -1 with an error."""
        ...

    @property
    def last_offset(self) -> Offset:
        """Offset of the last record, also when the append was made and is not acknowledged; -1 without an append."""
        ...


class Replicas(Protocol):
    """The replicas of this broker."""

    @property
    def produces(self) -> Purgatory:
        """Operations under the key of a partition are tried again when its HW moves or its role changes."""
        ...

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int,
        timeout_ms: int,
        done: Callable[[Mapping[TopicPartition, AppendResult]], None],
        internal: bool = False,
    ) -> None:
        """Append to partitions led here; `done(results)` once, possibly before this returns."""
        ...
