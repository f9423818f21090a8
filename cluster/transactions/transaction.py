"""One transactional id on its coordinator: what the log stores of it, and the transition in progress (F2).

Owns: `TransactionValue`, the logged state, and `Transaction`, the value now with the transition that is being
written. No log, no clock. Invariants:

* a transition changes `value` only when its record is committed; while it is being written, `pending` names it and
  every other request for this transactional id is refused with CONCURRENT_TRANSACTIONS;
* each transition is one that `states.BEFORE` allows;
* a producer epoch grows by one at a time, except that a new producer id begins with epoch 0.

The methods `…_value` return the value that a transition would log; they change nothing.

Source: Kafka's TransactionMetadata and TxnTransitMetadata; KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

from ..errors import ErrorCode, KafkaError
from ..ids import TopicPartition
from .states import (
    BEFORE,
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    IDLE,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_TIME = -1
EPOCH_MAX = 32767
"""The last epoch is for markers alone: a client never receives it."""

EPOCH_BUMP_FROM = 2
"""First transaction version in which each end of a transaction raises the epoch (KIP-890)."""
TRANSACTION_VERSION = 2
"""The transaction version of this cluster (`wire/api_table.py` announces it)."""


def is_exhausted(epoch: int) -> bool:
    """True when no client may receive an epoch after this one."""
    return epoch >= EPOCH_MAX - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionValue:
    """What one record of `__transaction_state` says. `partitions` are sorted; times are wall clock milliseconds."""

    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    """The id that the producer continues with after this transaction, because the epochs of its id are used up."""
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    """The epoch before the last bump, which a client that lost the response may still send; not in the log."""
    timeout_ms: int
    state: TransactionState = EMPTY
    partitions: tuple[TopicPartition, ...] = ()
    start_ms: int = NO_TIME
    update_ms: int = NO_TIME
    client_version: int = 0
    """Transaction version of the client; 2: each end raises the epoch."""

    @property
    def bumps_epoch(self) -> bool:
        """True when each end of a transaction raises the producer epoch."""
        return self.client_version >= EPOCH_BUMP_FROM

    @property
    def epoch_of_records(self) -> int:
        """The producer epoch of the transaction's records: the end of the transaction may have raised the epoch."""
        raised = self.bumps_epoch and self.state in PREPARED
        return self.producer_epoch - raised


class Transaction:
    """One transactional id: its value, and the transition that is being written."""

    __slots__ = ("_on_ended", "pending", "transactional_id", "value")

    def __init__(self, transactional_id: str, value: TransactionValue) -> None:
        self.transactional_id = transactional_id
        self.value = value
        self.pending: TransactionState | None = None
        self._on_ended: list[Callable[[], None]] = []

    # ---- the end of its markers ----------------------------------------------------------------------

    @property
    def is_ending(self) -> bool:
        """True while its markers are being written, and its completion."""
        return self.pending in (COMPLETE_COMMIT, COMPLETE_ABORT)

    def once_ended(self, call: Callable[[], None]) -> None:
        """Call once when it has ended; never when its coordinator changes before."""
        assert self.is_ending, f"{self.transactional_id}: {self.pending} is no end"
        self._on_ended.append(call)

    def call_waiting(self) -> None:
        """It has ended, and its value says so: call what waits for that."""
        assert not self.is_ending, f"{self.transactional_id}: {self.pending} is not committed"
        calls, self._on_ended = self._on_ended, []
        for call in calls:
            call()

    # ---- transitions -------------------------------------------------------------------------------

    def begin(self, value: TransactionValue) -> None:
        """A transition to `value` is being written."""
        assert self.pending is None, f"{self.transactional_id}: {value.state} after {self.pending}"
        before = self.value.state
        assert before in BEFORE[value.state], f"{self.transactional_id}: {before} -> {value.state}"
        idle = value.state in IDLE
        assert not idle or not value.partitions, f"{self.transactional_id}: {value.state} with {value.partitions}"
        assert idle or value.start_ms != NO_TIME, f"{self.transactional_id}: {value.state} began at no time"
        self.pending = value.state

    def complete(self, value: TransactionValue) -> None:
        """The transition to `value` is committed."""
        assert self.pending is value.state, f"{self.transactional_id}: no transition to {value}"
        same = value.producer_id == self.value.producer_id
        low, high = self.value.producer_epoch, self.value.producer_epoch + 1
        bumped = low <= value.producer_epoch <= high if same else value.producer_epoch == 0
        assert bumped, f"{self.transactional_id}: epoch of {value} after {self.value}"
        self.value = value
        self.pending = None

    def give_up(self) -> None:
        """The transition could not be written: the value does not change."""
        assert self.pending is not None, f"{self.transactional_id}: no transition is being written"
        self.pending = None

    # ---- values of transitions -----------------------------------------------------------------------

    def bumped_value(self, timeout_ms: int, expected_epoch: int | None, now_ms: int) -> TransactionValue:
        """InitProducerId: the next epoch. KafkaError(producer_fenced) for an epoch of another producer (KIP-360)."""
        value = self.value
        assert not is_exhausted(value.producer_epoch), f"{self.transactional_id}: no epoch left"
        epoch, last = value.producer_epoch + 1, NO_PRODUCER_EPOCH
        fresh = value.producer_epoch == NO_PRODUCER_EPOCH
        if expected_epoch is not None:
            if fresh or expected_epoch == value.producer_epoch:
                last = value.producer_epoch
            elif expected_epoch == value.last_producer_epoch:
                # the client did not receive the response to this same request
                epoch, last = value.producer_epoch, value.last_producer_epoch
            else:
                raise KafkaError(ErrorCode.producer_fenced)
        return self._initialised(value.producer_id, epoch, last, timeout_ms, now_ms)

    def rotated_value(
        self, producer_id: int, timeout_ms: int, now_ms: int, *, keep_last_epoch: bool
    ) -> TransactionValue:
        """InitProducerId when the epochs are used up: a new producer id."""
        last = self.value.producer_epoch if keep_last_epoch else NO_PRODUCER_EPOCH
        return self._initialised(producer_id, 0, last, timeout_ms, now_ms)

    def _initialised(self, producer_id: int, epoch: int, last: int, timeout_ms: int, now_ms: int) -> TransactionValue:
        assert 0 <= epoch < EPOCH_MAX, f"{self.transactional_id}: a client would receive epoch {epoch}"
        assert not self.value.partitions, f"{self.transactional_id}: {self.value} is not ended"
        return replace(
            self.value,
            producer_id=producer_id,
            previous_producer_id=self.value.producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            timeout_ms=timeout_ms,
            state=EMPTY,
            partitions=(),
            start_ms=NO_TIME,
            update_ms=now_ms,
        )

    def added_value(self, partitions: Iterable[TopicPartition], client_version: int, now_ms: int) -> TransactionValue:
        """AddPartitionsToTxn: these partitions, too; the transaction begins with the first of them."""
        value = self.value
        return replace(
            value,
            previous_producer_id=value.producer_id,
            state=ONGOING,
            partitions=tuple(sorted({*value.partitions, *partitions})),
            start_ms=now_ms if value.state in IDLE else value.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def prepared_value(
        self, *, commit: bool, client_version: int, next_producer_id: int, now_ms: int
    ) -> TransactionValue:
        """EndTxn: the result. The coordinator's own aborts have the cluster's version, so they fence the producer."""
        value = self.value
        assert self.pending is None, f"{self.transactional_id}: a result while {self.pending} is being written"
        epoch, last = value.producer_epoch, value.last_producer_epoch
        if client_version >= EPOCH_BUMP_FROM:
            epoch, last = min(epoch + 1, EPOCH_MAX), epoch
        return replace(
            value,
            previous_producer_id=value.producer_id,
            next_producer_id=next_producer_id,
            producer_epoch=epoch,
            last_producer_epoch=last,
            state=PREPARE_COMMIT if commit else PREPARE_ABORT,
            start_ms=now_ms if value.state in IDLE else value.start_ms,
            update_ms=now_ms,
            client_version=client_version,
        )

    def completed_value(self, now_ms: int) -> TransactionValue:
        """Every partition has its marker."""
        value = self.value
        assert value.state in PREPARED, f"{self.transactional_id}: {value.state} has no result"
        producer_id, epoch = value.producer_id, value.producer_epoch
        if value.bumps_epoch and value.next_producer_id != NO_PRODUCER_ID:
            producer_id, epoch = value.next_producer_id, 0
        return replace(
            value,
            producer_id=producer_id,
            previous_producer_id=value.producer_id,
            next_producer_id=NO_PRODUCER_ID,
            producer_epoch=epoch,
            state=COMPLETE_COMMIT if value.state is PREPARE_COMMIT else COMPLETE_ABORT,
            partitions=(),
            update_ms=now_ms,
        )
