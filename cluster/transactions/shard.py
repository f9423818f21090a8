"""The transactions of one partition of `__transaction_state`: a state machine of the coordinator runtime (F2, F3).

Owns: the transactions of one shard by transactional id, and the steps of their transitions:

    a rule decides (`rules.py`) ─► record logged with acks=all ─► the value changes ─► the response
                                     PREPARE: ─► markers to every partition leader ─► COMPLETE logged

Invariants: the value changes only when its record is committed; while a transition is in progress, further requests
for the transactional id get CONCURRENT_TRANSACTIONS. After PREPARE is committed nothing but COMPLETE can follow, by
this coordinator or by the next, which finds PREPARE in the log and sends the markers again.

Timers: transactions that are open for longer than their timeout are aborted, and transactional ids that were not used
for `transactional.id.expiration.ms` get a tombstone.

Source: Kafka's TransactionStateManager, TransactionCoordinator.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..coordinators import COORDINATOR_ERRORS, CoordinatorWrite, RecordFormatError, Shard, TransactionalProducer
from ..errors import ErrorCode, KafkaError
from ..events.coordinators import TransactionChanged, TransactionsLoaded
from ..host.seam import Host
from ..host.seam.failpoints import (
    AFTER_COMPLETE,
    AFTER_INIT,
    AFTER_PARTITIONS,
    AFTER_PREPARE,
    BEFORE_COMPLETE,
    BEFORE_INIT,
    BEFORE_PARTITIONS,
    BEFORE_PREPARE,
    passes,
)
from . import rules
from .marker_sender import EndingTransaction, MarkerSender
from .records import decode_key, decode_value, encode_key, encode_value
from .states import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    DEAD,
    EMPTY,
    ENDED,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    PREPARED,
    TransactionState,
)
from .transaction import Transaction, TransactionValue

if TYPE_CHECKING:
    from ..ids import Offset
    from ..wire.batches import Record

TIMEOUTS, EXPIRATION = "transaction-timeouts", "transactional-id-expiration"
RETRY_MS = 50
"""Pause before COMPLETE is written again."""

LOG_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **COORDINATOR_ERRORS,
    ErrorCode.message_too_large: ErrorCode.unknown_server_error,
    ErrorCode.record_list_too_large: ErrorCode.unknown_server_error,
}
"""Log error -> the error of a producer's request."""

FAILPOINTS: Mapping[TransactionState, tuple[str, str]] = {
    EMPTY: (BEFORE_INIT, AFTER_INIT),
    ONGOING: (BEFORE_PARTITIONS, AFTER_PARTITIONS),
    PREPARE_COMMIT: (BEFORE_PREPARE, AFTER_PREPARE),
    PREPARE_ABORT: (BEFORE_PREPARE, AFTER_PREPARE),
    COMPLETE_COMMIT: (BEFORE_COMPLETE, AFTER_COMPLETE),
    COMPLETE_ABORT: (BEFORE_COMPLETE, AFTER_COMPLETE),
}
"""State -> the failpoints before its record is appended and after it is committed."""

OnWritten = Callable[[ErrorCode], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class TransactionEnvironment:
    """What all shards of a broker share."""

    host: Host
    markers: MarkerSender
    abort: Callable[[str], None]
    """Abort the open transaction of a transactional id, which has timed out."""
    timeout_check_ms: int
    expiration_ms: int
    expiration_check_ms: int


class TransactionShard:
    """The transactions of one partition in one leadership generation."""

    def __init__(self, shard: Shard, environment: TransactionEnvironment) -> None:
        self.shard = shard
        self._environment = environment
        self._host = environment.host
        self._transactions: dict[str, Transaction] = {}

    def __iter__(self) -> Iterator[Transaction]:
        return iter(list(self._transactions.values()))

    def find(self, transactional_id: str) -> Transaction | None:
        """The transaction of a transactional id, if the id is known."""
        return self._transactions.get(transactional_id)

    def get(self, transactional_id: str) -> Transaction:
        """As `find`; KafkaError(invalid_producer_id_mapping) for an unknown id."""
        found = self._transactions.get(transactional_id)
        if found is None:
            raise KafkaError(ErrorCode.invalid_producer_id_mapping)
        return found

    def create(self, transactional_id: str, producer_id: int, timeout_ms: int) -> Transaction:
        """A new transactional id; its first write gives it epoch 0."""
        assert transactional_id not in self._transactions, f"{transactional_id} exists"
        value = TransactionValue(producer_id=producer_id, timeout_ms=timeout_ms, update_ms=self.now_ms())
        created = self._transactions[transactional_id] = Transaction(transactional_id, value)
        return created

    def now_ms(self) -> int:
        """Wall clock: the log's times are compared with those of other coordinators."""
        return self._host.clock.wall_ms()

    # ---- state machine of the runtime --------------------------------------------------------------

    def replay(self, record: Record, _producer: TransactionalProducer | None, /) -> None:
        """Apply one record; RecordFormatError when it is no record of transactions."""
        if record.key is None:
            raise RecordFormatError("a record without key")
        transactional_id = decode_key(record.key)
        if record.value is None:
            self._transactions.pop(transactional_id, None)
        else:
            value = decode_value(record.value)
            self._transactions[transactional_id] = Transaction(transactional_id, value)

    def replay_end_marker(self, producer: TransactionalProducer, *, commit: bool) -> None:
        """Nothing: the log of the coordinator has no transactions of its own."""

    def loaded(self, took_ms: int) -> None:
        """Send the markers of what the last coordinator had prepared, and begin the periodic checks."""
        for transaction in self:
            self._tap(transaction.transactional_id, transaction.value)
            if transaction.value.state in PREPARED:
                self._send_markers(transaction)
        self._schedule_timeouts()
        self._schedule_expiration()
        if self._transactions:
            self._host.trace.emit(
                TransactionsLoaded(partition=self.shard.number, transactions=len(self._transactions), took_ms=took_ms)
            )

    def unload(self) -> None:
        """Nothing: the runtime fails the writes in progress, and the marker sender asks whether a shard is current."""

    # ---- transitions -------------------------------------------------------------------------------

    def write(self, transaction: Transaction, value: TransactionValue, done: OnWritten) -> None:
        """Log a transition and change the value; `done(error for the client)` follows once."""
        before, after = FAILPOINTS[value.state]
        if not self._passes(before):
            done(ErrorCode.unknown_server_error)
            return
        if value.state not in ENDED:  # that transition has begun with the markers
            transaction.begin(value)

        def committed(_base_offset: Offset) -> None:
            before = transaction.value
            transaction.complete(value)
            self._trace(transaction)
            self._tap(transaction.transactional_id, value, before)
            self._passes(after)
            if value.state in PREPARED:
                self._send_markers(transaction)
            done(ErrorCode.none)
            if value.state in ENDED:
                transaction.call_waiting()

        def failed(error: ErrorCode) -> None:
            if value.state not in ENDED:
                transaction.give_up()
            done(error)

        self._append(transaction.transactional_id, encode_value(value), committed, failed)

    def _passes(self, failpoint: str) -> bool:
        """False when the failpoint was armed with an error."""
        host = self._host
        return passes(host.failpoints, host.trace, failpoint, self.shard.topic_partition)

    def _append(
        self,
        transactional_id: str,
        value: bytes | None,
        committed: Callable[[Offset], None],
        failed: Callable[[ErrorCode], None],
    ) -> None:
        self.shard.write(
            CoordinatorWrite(
                records=[(encode_key(transactional_id), value)], committed=committed, failed=failed, errors=LOG_ERRORS
            )
        )

    def _send_markers(self, transaction: Transaction) -> None:
        """Write the markers of a prepared transaction, then log that it is complete."""
        value = transaction.value
        epoch = self.shard.leader_epoch
        completed = transaction.completed_value(self.now_ms())
        transaction.begin(completed)
        self._environment.markers.add(
            EndingTransaction(
                transactional_id=transaction.transactional_id,
                producer_id=value.producer_id,
                producer_epoch=value.producer_epoch,
                coordinator_epoch=epoch,
                commit=value.state is PREPARE_COMMIT,
                client_version=value.client_version,
                missing=dict.fromkeys(value.partitions),
                is_current=lambda: self.shard.is_active,
                ended=lambda: self._complete(transaction, completed),
            )
        )

    def _complete(self, transaction: Transaction, completed: TransactionValue) -> None:
        def written(error: ErrorCode) -> None:
            if error is not ErrorCode.none and self.shard.is_active:
                self.shard.timers.schedule(
                    (transaction.transactional_id, DEAD), RETRY_MS, lambda: self._complete(transaction, completed)
                )

        if self.shard.is_active:
            self.write(transaction, completed, written)

    def _trace(self, transaction: Transaction) -> None:
        value = transaction.value
        self._host.trace.emit(
            TransactionChanged(
                transactional_id=transaction.transactional_id,
                state=value.state.title,
                producer_id=value.producer_id,
                epoch=value.producer_epoch,
                partitions=len(value.partitions),
            )
        )

    def _tap(self, transactional_id: str, value: TransactionValue, before: TransactionValue | None = None) -> None:
        """Record a state that is in the log, with the partitions that it is about, before any marker is sent."""
        tap = self._host.tap
        if not tap.enabled or value.state is EMPTY:
            return
        ended = before if before is not None and value.state in ENDED else value
        known = before.partitions if before is not None and value.state is ONGOING else ()
        tap.transaction(
            transactional_id,
            [tp for tp in ended.partitions if tp not in known],
            state=value.state.value,
            producer_id=ended.producer_id,
            producer_epoch=ended.epoch_of_records,
            timeout_ms=value.timeout_ms,
        )

    # ---- timeouts ----------------------------------------------------------------------------------

    def _schedule_timeouts(self) -> None:
        check_ms = self._environment.timeout_check_ms
        self.shard.timers.schedule(TIMEOUTS, check_ms, self._abort_timed_out)

    def _abort_timed_out(self) -> None:
        self._schedule_timeouts()
        now_ms = self.now_ms()
        for transaction in self:
            if rules.has_timed_out(transaction, now_ms):
                self._environment.abort(transaction.transactional_id)

    def _schedule_expiration(self) -> None:
        check_ms = self._environment.expiration_check_ms
        self.shard.timers.schedule(EXPIRATION, check_ms, self._remove_expired)

    def _remove_expired(self) -> None:
        self._schedule_expiration()
        now_ms = self.now_ms()
        for transaction in self:
            if rules.has_expired(transaction, now_ms, self._environment.expiration_ms):
                self._remove(transaction)

    def _remove(self, transaction: Transaction) -> None:
        transaction.pending = DEAD

        def committed(_base_offset: Offset) -> None:
            if self._transactions.get(transaction.transactional_id) is transaction:
                del self._transactions[transaction.transactional_id]

        def failed(_error: ErrorCode) -> None:
            transaction.give_up()

        self._append(transaction.transactional_id, None, committed, failed)
