"""KAFKA-6119: a transaction that has timed out is aborted without a new producer epoch.

What was wrong: the coordinator aborted a transaction that had lasted too long under the epoch that its producer had. A
producer that was only slow knew nothing of it and was not fenced: what it wrote next began another transaction, and its
commit succeeded. The first part of its transaction was gone, the second part was committed.

Seen as: `missing-output`: the output is in the aborted part, the offset of the input in the committed one.
Replaces: `TransactionService.abort_timed_out`.
Source: KAFKA-6119; Kafka's `TransactionCoordinator.startup` (abort of timed out transactions).
"""

from __future__ import annotations

from dataclasses import replace

from harrow.cluster.planting import Planter
from harrow.cluster.transactions import rules
from harrow.cluster.transactions.service import TransactionService
from harrow.cluster.transactions.states import ONGOING
from harrow.cluster.transactions.transaction import Transaction, TransactionValue

from .bug import Bug
from .shared import NO_JOB_EVENTS, SHORT_JOB

TITLE = "KAFKA-6119: a timed-out transaction is aborted without a new producer epoch"
KEEPS_EPOCH = 0
"""A transaction version whose ends leave the epoch as it is."""


def plant(planter: Planter) -> None:
    """Abort as the producer itself would have done it in 0.11."""
    planter.replace_method(TransactionService, "abort_timed_out", _abort_under_the_same_epoch)


async def _abort_under_the_same_epoch(self: TransactionService, transactional_id: str) -> None:
    def decide(transaction: Transaction, new_id: int | None) -> TransactionValue | None:
        if transaction.pending is not None or transaction.value.state is not ONGOING:
            return None
        return rules.prepare(
            transaction,
            commit=False,
            client_version=KEEPS_EPOCH,
            now_ms=self.host.clock.wall_ms(),
            new_producer_id=new_id,
        )

    await self.change(transactional_id, decide)


BUG = Bug(
    number=20,
    module=__name__,
    title=TITLE,
    versions="0.11, 1.0",
    needs="a client that is paused for longer than its transaction timeout, in the middle of a transaction",
    seen_as=frozenset({"missing-output"}),
    options=replace(
        SHORT_JOB,
        config={"transaction.abort.timed.out.transaction.cleanup.interval.ms": 50},
        job={"transaction_timeout_ms": 300, "job_pause_ms": 1_000, "operations": NO_JOB_EVENTS},
    ),
)
