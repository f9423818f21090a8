"""What a state machine must provide, and what it hands to the runtime (the table is in the room's head).

Owns: `StateMachine`, `CoordinatorWrite`, and the translation of the log's errors that every coordinator shares.

Source: Kafka's CoordinatorShard and CoordinatorResult; GroupMetadataManager.appendForGroup and
TransactionStateManager.appendTransactionToLog (the translation of errors).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, Protocol

from ..errors import ErrorCode, HarrowError

if TYPE_CHECKING:
    from ..ids import Offset
    from ..wire.batches import Record

KeyValue = tuple[bytes, bytes | None]
"""One record to write: its key, and its value or None for a tombstone."""

COORDINATOR_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    ErrorCode.unknown_topic_or_partition: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas: ErrorCode.coordinator_not_available,
    ErrorCode.not_enough_replicas_after_append: ErrorCode.coordinator_not_available,
    ErrorCode.request_timed_out: ErrorCode.coordinator_not_available,
    ErrorCode.not_leader_or_follower: ErrorCode.not_coordinator,
    ErrorCode.kafka_storage_error: ErrorCode.not_coordinator,
}
"""Log error -> what the client of any coordinator gets. A state machine extends it; other errors pass as they are."""


class RecordFormatError(HarrowError):
    """Bytes in an internal topic that are no record of a version known here."""


class TransactionalProducer(NamedTuple):
    """Who wrote a record that counts only once its transaction is committed."""

    producer_id: int
    producer_epoch: int


class EndMarker(NamedTuple):
    """The control record that ends a transaction in this partition (WriteTxnMarkers)."""

    commit: bool
    coordinator_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CoordinatorWrite:
    """One batch that a state machine appends with acks=all, and what follows."""

    records: Sequence[KeyValue]
    committed: Callable[[Offset], None]
    """Called with the offset of the first record once all in-sync replicas have the batch."""
    failed: Callable[[ErrorCode], None]
    """Called with the translated error instead."""
    errors: Mapping[ErrorCode, ErrorCode]
    """Log error -> client error."""
    unacknowledged: Callable[[Offset], None] | None = None
    """Called before `failed` where the batch is in this leader's log, such as after a timeout: it is committed later,
    unless another broker leads first. A state machine that reads its own state must apply it, as Kafka's does."""
    producer: TransactionalProducer | None = None
    """Set for records that belong to a transaction (TxnOffsetCommit), and for an end marker."""
    end_marker: EndMarker | None = None
    """Set for a control batch, which has no other records."""

    def __post_init__(self) -> None:
        """Refuse what no batch can hold."""
        if self.end_marker is None:
            assert self.records, "a write without records"
        else:
            assert not self.records, "an end marker is a batch of its own"
            assert self.producer is not None, "an end marker without a producer"


class StateMachine(Protocol):
    """The state of one partition of an internal topic in one leadership generation."""

    def replay(self, record: Record, producer: TransactionalProducer | None, /) -> None:
        """Apply one record of the log; RecordFormatError or KafkaError when it cannot be understood.

        `producer` is set for a transactional record: it counts once `replay_end_marker` says commit.
        """
        ...

    def replay_end_marker(self, producer: TransactionalProducer, /, *, commit: bool) -> None:
        """A transaction of `producer` ended."""
        ...

    def loaded(self, took_ms: int) -> None:
        """Every record was replayed, in `took_ms`; the shard is active from now on."""
        ...

    def unload(self) -> None:
        """The shard is unloaded: respond NOT_COORDINATOR to every waiting request."""
        ...
