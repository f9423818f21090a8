"""The state of one producer in a log, and the rules by which the next batch changes it (F1).

Owns: `ProducerEntry`, a value: `advance` returns the next entry, `check` refuses a client's batch that must not follow,
`find_duplicate` finds a batch that was appended before. No state, no I/O.

Rules, of a batch with epoch e and first sequence s after an entry with epoch E and last sequence S:

    one of the last five batches of epoch E has exactly these sequences    duplicate
    e < E                                                                  invalid_producer_epoch
    e > E and s ≠ 0                                                        out_of_order_sequence_number
    e = E and s ≠ S + 1 (0 after 2^31 - 1)                                 out_of_order_sequence_number
    the producer is unknown                                                any s: older batches may be deleted

Source: Kafka's `ProducerStateEntry`, `ProducerAppendInfo`; KIP-98, KIP-360.
"""

from __future__ import annotations

from typing import NamedTuple

from ...errors import ErrorCode, KafkaError
from ...wire.batches import BatchHeader

BATCHES_KEPT = 5
"""Most batches that a client may have in flight (`max.in.flight.requests.per.connection`)."""

SEQUENCE_MAX = 2**31 - 1
NO_TRANSACTION = -1
UNKNOWN_EPOCH = -1
MARKER_BUMPS_EPOCH_FROM = 2
"""First transaction version whose markers are one epoch above the records."""


class BatchMetadata(NamedTuple):
    """One appended batch of a producer."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    timestamp: int


class ProducerEntry(NamedTuple):
    """State of one producer id in one log."""

    producer_id: int
    epoch: int = UNKNOWN_EPOCH
    """Producer epoch of the last batch or marker; -1: unknown."""
    batches: tuple[BatchMetadata, ...] = ()
    """The last five of this epoch, oldest first."""
    last_timestamp: int = -1
    coordinator_epoch: int = -1
    """Epoch of the transaction coordinator that wrote the last marker."""
    txn_first_offset: int = NO_TRANSACTION
    """First offset of the open transaction in this log."""
    marker_offset: int = -1
    """Offset of the last marker; not in snapshots."""

    def batches_to_remember(self) -> tuple[BatchMetadata, ...]:
        """Return the batches to remember beside the next batch: the last four, for retries of batches in flight."""
        return self.batches[1 - BATCHES_KEPT :]

    @property
    def last_offset(self) -> int:
        """Offset of the newest batch or marker of this entry; -1 without one."""
        return max(self.batches[-1].last_offset if self.batches else -1, self.marker_offset)

    def accepts_marker(self, epoch: int, transaction_version: int) -> bool:
        """True when a transaction coordinator may end this producer's transaction with a marker of `epoch` (KIP-890).

        With transaction version 2 a marker is one epoch above the records, so a marker of the present epoch is late,
        and would end the next transaction; except when no transaction is open: then it repeats the last marker
        (KAFKA-19999). With older versions a marker has the epoch of the records.
        """
        if transaction_version < MARKER_BUMPS_EPOCH_FROM:
            return epoch >= self.epoch
        return epoch > self.epoch or (epoch == self.epoch and self.txn_first_offset == NO_TRANSACTION)

    def has_open_transaction(self, epoch: int) -> bool:
        """True when a transaction of this producer epoch has records here, so that its partition was verified."""
        return self.txn_first_offset != NO_TRANSACTION and self.epoch == epoch

    def may_stem_from(self, offset: int) -> bool:
        """True when a batch or a marker at `offset` or above may have changed this entry.

        Snapshots lack the offset of the last marker, so it is unknown for an entry with a coordinator epoch.
        """
        unknown_marker = self.coordinator_epoch >= 0 and self.marker_offset < 0
        return unknown_marker or self.last_offset >= offset


def shift_sequence(sequence: int, delta: int) -> int:
    """Add to a sequence number, which wraps at 2^31."""
    return (sequence + delta) % (SEQUENCE_MAX + 1)


def find_duplicate(entry: ProducerEntry, header: BatchHeader) -> BatchMetadata | None:
    """The remembered batch with the same epoch and sequences."""
    if header.producer_epoch != entry.epoch:
        return None
    first, last = header.base_sequence, header.last_sequence
    for batch in entry.batches:
        if batch.first_sequence == first and batch.last_sequence == last:
            return batch
    return None


def check(entry: ProducerEntry, header: BatchHeader) -> None:
    """KafkaError when a client's batch may not follow; see the module's head."""
    epoch, sequence = header.producer_epoch, header.base_sequence
    check_epoch(entry, epoch)
    if entry.epoch == UNKNOWN_EPOCH:
        return
    if epoch != entry.epoch:
        if sequence != 0:
            raise _out_of_order(entry, f"{sequence} begins new epoch {epoch}, expected 0")
        return
    last = entry.batches[-1].last_sequence if entry.batches else -1
    if sequence != last + 1 and not (sequence == 0 and last == SEQUENCE_MAX):
        raise _out_of_order(entry, f"{sequence} of epoch {epoch} follows {last}")


def check_epoch(entry: ProducerEntry, epoch: int) -> None:
    """KafkaError(invalid_producer_epoch) for an older epoch than the log has seen."""
    if epoch < entry.epoch:
        raise KafkaError(
            ErrorCode.invalid_producer_epoch,
            f"producer {entry.producer_id} has epoch {epoch}, the log has seen {entry.epoch}",
        )


def advance(entry: ProducerEntry, header: BatchHeader, first_offset: int) -> ProducerEntry:
    """The entry after a data batch at `first_offset`."""
    last_offset = first_offset + header.last_offset_delta
    batch = BatchMetadata(header.base_sequence, header.last_sequence, first_offset, last_offset, header.max_timestamp)
    same_epoch = header.producer_epoch == entry.epoch
    older = entry.batches_to_remember() if same_epoch else ()
    assert not older or older[-1].last_offset < first_offset, f"{batch} follows {older[-1]}"
    txn = entry.txn_first_offset
    if txn == NO_TRANSACTION and header.is_transactional:
        txn = first_offset
    assert txn <= first_offset, (
        f"producer {entry.producer_id}: a batch at {first_offset} before its transaction at {txn}"
    )
    return ProducerEntry(
        entry.producer_id,
        header.producer_epoch,
        (*older, batch),
        header.max_timestamp,
        entry.coordinator_epoch,
        txn,
        entry.marker_offset,
    )


def end_transaction(entry: ProducerEntry, header: BatchHeader, offset: int, coordinator_epoch: int) -> ProducerEntry:
    """The entry after a transaction marker at `offset`."""
    assert entry.last_offset < offset, f"a marker at {offset} ends records up to {entry.last_offset}: {entry}"
    return ProducerEntry(
        entry.producer_id,
        header.producer_epoch,
        entry.batches if header.producer_epoch == entry.epoch else (),
        header.max_timestamp,
        coordinator_epoch,
        NO_TRANSACTION,
        offset,
    )


def _out_of_order(entry: ProducerEntry, what: str) -> KafkaError:
    return KafkaError(ErrorCode.out_of_order_sequence_number, f"producer {entry.producer_id}: sequence {what}")
