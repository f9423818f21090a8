"""KAFKA-10080: the completion of a transaction is written twice.

What was wrong: two threads, which had the responses of two brokers to the last markers of a transaction, could both
find that no marker is missing. Both wrote the completion to the log of the coordinator. When the second thread was
slow, the producer had begun its next transaction: its state was then followed by the completion of the transaction
before. The second append ended in an IllegalStateException, and the coordinator went on; but the next coordinator,
which loads the log, did not know the open or prepared transaction. It never sent its markers.

Our coordinator has one thread, so the plant makes the race: where the responses of two brokers to the last two markers
come within `RACE_MS`, the completion is written again `STALL_MS` later. What happens in memory is what happened in
Kafka: the second result is refused, and changes nothing.

Seen as: `stuck-lso`; or `missing-output` and `duplicate-output`, when a later transaction of the producer ends there.
Replaces: `MarkerSender.written` and `Transaction.complete`.
Source: KAFKA-10080; Kafka's `TransactionMarkerChannelManager.maybeWriteTxnCompletion`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.cluster.ids import NodeId, TopicPartition
from harrow.cluster.planting import Planter
from harrow.cluster.transactions.marker_sender import EndingTransaction, MarkerSender
from harrow.cluster.transactions.transaction import Transaction, TransactionValue

from .. import kill, txn_coordinator
from ..schedule import ScheduledFault, timed_step
from .bug import Bug
from .shared import SESSION, SHORT_JOB, SHORT_SESSION_MS

TITLE = "KAFKA-10080: the completion of a transaction is written twice"
RACE_MS, STALL_MS = 5, 60
OPTIONS = replace(SHORT_JOB, partitions=3, batches=120, config={SESSION: SHORT_SESSION_MS}, job={"operations": ()})


def plant(planter: Planter) -> None:
    """Let two responses at the same time complete a transaction twice."""
    written, complete = MarkerSender.written, Transaction.complete
    last: dict[EndingTransaction, tuple[NodeId | None, int]] = {}

    def written_by_two_threads(self: MarkerSender, ending: EndingTransaction, tp: TopicPartition) -> None:
        if tp not in ending.missing:
            return
        node, now_ms = ending.missing[tp], self.host.clock.monotonic_ms()
        other, other_ms = last.get(ending, (node, now_ms))
        last[ending] = node, now_ms
        written(self, ending, tp)
        if not ending.missing:
            del last[ending]
            if other != node and now_ms - other_ms <= RACE_MS:
                self.host.tasks.call_later(STALL_MS, complete_again, ending)

    def complete_again(ending: EndingTransaction) -> None:
        if ending.is_current():
            ending.ended()

    def complete_expected(self: Transaction, value: TransactionValue) -> None:
        same_epoch = value.producer_id != self.value.producer_id or (value.producer_epoch >= self.value.producer_epoch)
        if self.pending is value.state and same_epoch:
            complete(self, value)

    planter.replace_method(MarkerSender, "written", written_by_two_threads)
    planter.replace_method(Transaction, "complete", complete_expected)


def steps_by_time(rng: random.Random) -> list[ScheduledFault]:
    """Coordinators of the job's transactions are killed, one after another."""
    at_ms, steps = rng.uniform(0.3, 0.8) * 1_000, list[ScheduledFault]()
    while at_ms < 900 * OPTIONS.seconds:
        coordinator = txn_coordinator(f"job-{rng.randint(1, 3)}")
        steps.append(timed_step(len(steps) + 1, at_ms, kill(coordinator), 0.5 * SHORT_SESSION_MS))
        at_ms += SHORT_SESSION_MS * rng.uniform(1.2, 1.8)
    return steps


BUG = Bug(
    number=23,
    module=__name__,
    title=TITLE,
    versions="0.11 to 2.5",
    needs="markers on two brokers, and a coordinator that dies while the next transaction is open or gets its markers",
    seen_as=frozenset({"duplicate-output", "missing-output", "stuck-lso"}),
    options=OPTIONS,
    steps=steps_by_time,
)
