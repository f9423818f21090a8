"""The states of a transaction, as a table (F2).

Owns: `TransactionState` with the numbers and names of Apache Kafka, and which state may follow which.
PREPARE_EPOCH_FENCE and DEAD are never in the log: the first is a step before an abort, the second ends in a
tombstone.

Source: Kafka's TransactionState; KIP-98, KIP-360, KIP-890.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum


class TransactionState(Enum):
    """Kafka's number of each state in `__transaction_state`."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def title(self) -> str:
        """The name that DescribeTransactions shows: `PrepareCommit`."""
        return "".join(word.capitalize() for word in self.name.split("_"))


EMPTY = TransactionState.EMPTY
ONGOING = TransactionState.ONGOING
PREPARE_COMMIT = TransactionState.PREPARE_COMMIT
PREPARE_ABORT = TransactionState.PREPARE_ABORT
COMPLETE_COMMIT = TransactionState.COMPLETE_COMMIT
COMPLETE_ABORT = TransactionState.COMPLETE_ABORT
DEAD = TransactionState.DEAD
PREPARE_EPOCH_FENCE = TransactionState.PREPARE_EPOCH_FENCE

PREPARED = frozenset({PREPARE_COMMIT, PREPARE_ABORT})
"""The result is in the log; the markers are being written."""
ENDED = frozenset({COMPLETE_COMMIT, COMPLETE_ABORT})
"""Every partition has its marker."""
IDLE = frozenset({EMPTY, *ENDED})
"""No transaction is open."""

BEFORE: Mapping[TransactionState, frozenset[TransactionState]] = {
    EMPTY: IDLE,
    ONGOING: frozenset({ONGOING, *IDLE}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    # with transaction version 2 a producer may abort a transaction without partitions
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE, *IDLE}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: IDLE,
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""State -> states that it may follow."""
