"""What the coordinator decides about a request of a producer: pure rules over one `Transaction` (F2, F4).

Owns: `initialise` (InitProducerId), `add_partitions`, `verify`, `end` (EndTxn, and the coordinator's own aborts). No
log, no clock, no registry: a rule returns the value to log, or raises KafkaError with the code for the client. A rule
that needs a new producer id raises `ProducerIdNeededError`; the caller reserves an id and calls again.

EndTxn of a client of transaction version 2 whose epoch is the producer's (current) or the one before it (retry, because
the response was lost); NONE: success without a write, BUMP: abort of no partitions, which raises the epoch:

    state            abort, retry       abort, current   commit, retry      commit, current
    Empty            PRODUCER_FENCED    BUMP             PRODUCER_FENCED    INVALID_TXN_STATE
    CompleteAbort    NONE               BUMP             INVALID_TXN_STATE  INVALID_TXN_STATE
    CompleteCommit   INVALID_TXN_STATE  BUMP             NONE               INVALID_TXN_STATE

With version 1 there is no retry by epoch: CompleteAbort accepts an abort and CompleteCommit a commit, without a write.

Source: Kafka's TransactionCoordinator; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from ..errors import ErrorCode, KafkaError
from ..ids import TopicPartition
from .states import COMPLETE_ABORT, COMPLETE_COMMIT, EMPTY, IDLE, ONGOING, PREPARE_COMMIT, PREPARED
from .transaction import (
    EPOCH_BUMP_FROM,
    EPOCH_MAX,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    TRANSACTION_VERSION,
    Transaction,
    TransactionValue,
    is_exhausted,
)


class ProducerIdNeededError(Exception):
    """The rule needs a new producer id: the epochs of the present one are used up."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Producer:
    """A producer id and its epoch, as a request names them."""

    producer_id: int
    epoch: int


# ---- InitProducerId ------------------------------------------------------------------------------


def initialise(
    transaction: Transaction, expected: Producer | None, timeout_ms: int, now_ms: int, new_producer_id: int | None
) -> TransactionValue | None:
    """The value to log; None: a transaction is open and must be aborted first.

    `expected` is what a producer that continues after an error names (KIP-360); None for a producer that starts, which
    fences every earlier producer.
    """
    value = transaction.value
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if expected is not None and not _may_continue(value, expected):
        raise KafkaError(ErrorCode.producer_fenced)
    if value.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if value.state is ONGOING:
        return None
    exhausted = is_exhausted(value.producer_epoch)
    if exhausted and (expected is None or expected.epoch == value.producer_epoch):
        if new_producer_id is None:
            raise ProducerIdNeededError
        return transaction.rotated_value(new_producer_id, timeout_ms, now_ms, keep_last_epoch=expected is not None)
    if exhausted:
        raise KafkaError(ErrorCode.producer_fenced)
    return transaction.bumped_value(timeout_ms, None if expected is None else expected.epoch, now_ms)


def _may_continue(value: TransactionValue, expected: Producer) -> bool:
    """True unless another producer has taken over: the id is the present one, or the one before a change of the id."""
    fresh = value.producer_epoch == NO_PRODUCER_EPOCH
    before = expected.producer_id == value.previous_producer_id and is_exhausted(expected.epoch)
    return fresh or expected.producer_id == value.producer_id or before


# ---- AddPartitionsToTxn --------------------------------------------------------------------------


def add_partitions(
    transaction: Transaction,
    producer: Producer,
    partitions: Collection[TopicPartition],
    client_version: int,
    now_ms: int,
) -> TransactionValue | None:
    """The value to log; None: every partition is in the transaction already."""
    value = transaction.value
    _check_producer(value, producer)
    if transaction.pending is not None or value.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if value.state is ONGOING and set(partitions) <= set(value.partitions):
        return None
    return transaction.added_value(partitions, client_version, now_ms)


def verify(
    transaction: Transaction, producer: Producer, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Whether each partition is in the open transaction of this producer (KIP-890): an append is refused otherwise."""
    value = transaction.value
    _check_producer(value, producer)
    if value.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)
    added = set(value.partitions)
    return {tp: ErrorCode.none if tp in added else ErrorCode.transaction_abortable for tp in partitions}


def _check_producer(value: TransactionValue, producer: Producer) -> None:
    if producer.producer_id != value.producer_id:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    if producer.epoch != value.producer_epoch:
        raise KafkaError(ErrorCode.producer_fenced)


# ---- EndTxn --------------------------------------------------------------------------------------


def end(
    transaction: Transaction,
    producer: Producer,
    *,
    commit: bool,
    client_version: int,
    now_ms: int,
    new_producer_id: int | None,
) -> TransactionValue | None:
    """The value to log; None: the transaction has ended so already, which is a success."""
    if client_version < EPOCH_BUMP_FROM:
        return _end_version_1(transaction, producer, now_ms, commit=commit)
    value = transaction.value
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    rotated = (
        value.previous_producer_id == producer.producer_id
        and producer.epoch == EPOCH_MAX - 1
        and value.producer_epoch == 0
    )
    if producer.producer_id != value.producer_id and not rotated:
        raise KafkaError(ErrorCode.invalid_producer_id_mapping)
    retry = rotated or producer.epoch == value.producer_epoch - 1
    current = producer.epoch == value.producer_epoch
    _check_epoch(value, retry=retry, current=current)
    if value.state in PREPARED or retry:
        _check_same_result(value, commit=commit)
        return None
    if value.state is not ONGOING and commit:
        raise _invalid(value, commit=commit)
    return prepare(
        transaction, commit=commit, client_version=client_version, now_ms=now_ms, new_producer_id=new_producer_id
    )


def abort(transaction: Transaction, now_ms: int, new_producer_id: int | None) -> TransactionValue | None:
    """The coordinator's own abort: a transaction timed out, or its producer is replaced; None: none is open."""
    if transaction.pending is not None or transaction.value.state is not ONGOING:
        return None
    return prepare(
        transaction, commit=False, client_version=TRANSACTION_VERSION, now_ms=now_ms, new_producer_id=new_producer_id
    )


def prepare(
    transaction: Transaction, *, commit: bool, client_version: int, now_ms: int, new_producer_id: int | None
) -> TransactionValue:
    """The result of a transaction, with the next epoch where the version has one."""
    next_producer_id = NO_PRODUCER_ID
    if client_version >= EPOCH_BUMP_FROM and is_exhausted(transaction.value.producer_epoch):
        if new_producer_id is None:
            raise ProducerIdNeededError
        next_producer_id = new_producer_id
    return transaction.prepared_value(
        commit=commit, client_version=client_version, next_producer_id=next_producer_id, now_ms=now_ms
    )


def _check_epoch(value: TransactionValue, *, retry: bool, current: bool) -> None:
    if value.state in PREPARED:
        allowed = retry
    elif value.state in (COMPLETE_COMMIT, COMPLETE_ABORT):
        allowed = retry or current
    else:
        allowed = current
    if not allowed:
        raise KafkaError(ErrorCode.producer_fenced)


def _check_same_result(value: TransactionValue, *, commit: bool) -> None:
    """A retry must ask for the result that the transaction has or is getting."""
    if commit is not (value.state in (PREPARE_COMMIT, COMPLETE_COMMIT)):
        raise _invalid(value, commit=commit)
    if value.state in PREPARED:
        raise KafkaError(ErrorCode.concurrent_transactions)


def _end_version_1(
    transaction: Transaction, producer: Producer, now_ms: int, *, commit: bool
) -> TransactionValue | None:
    value = transaction.value
    _check_producer(value, producer)
    if transaction.pending is not None:
        raise KafkaError(ErrorCode.concurrent_transactions)
    if value.state is ONGOING:
        return transaction.prepared_value(
            commit=commit, client_version=0, next_producer_id=NO_PRODUCER_ID, now_ms=now_ms
        )
    if value.state is EMPTY:
        raise _invalid(value, commit=commit)
    _check_same_result(value, commit=commit)
    return None


def _invalid(value: TransactionValue, *, commit: bool) -> KafkaError:
    asked = "commit" if commit else "abort"
    return KafkaError(ErrorCode.invalid_txn_state, f"{asked} in state {value.state.title}")


# ---- timeouts ------------------------------------------------------------------------------------


def has_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """True for an open transaction that has lasted longer than its producer allowed."""
    value = transaction.value
    late = value.start_ms + value.timeout_ms < now_ms
    return transaction.pending is None and value.state is ONGOING and late


def has_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """True for a transactional id that was not used for `transactional.id.expiration.ms`."""
    value = transaction.value
    return transaction.pending is None and value.state in IDLE and value.update_ms + expiration_ms <= now_ms
