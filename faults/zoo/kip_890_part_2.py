"""KIP-890, part 2: a late EndTxn ends the next transaction of the producer.

What was wrong: all transactions of a producer had one epoch. When an EndTxn was late and the producer had sent it
again, the late one arrived after the producer had begun its next transaction. The coordinator could not tell the two
apart, and committed or aborted what the producer was still writing.

Seen as: `duplicate-output` (a part of a transaction is committed that the producer aborts, or that dies with it) or
`missing-output` (a part is aborted that the producer commits).
Replaces: `TransactionService.end`: each end is that of transaction version 1, which keeps the epoch.
Source: KIP-890; Kafka's `TransactionCoordinator.endTransaction`, `TransactionMetadata.prepareAbortOrCommit`.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial

from harrow.cluster.planting import Planter
from harrow.cluster.transactions.rules import Producer
from harrow.cluster.transactions.service import TransactionService

from .bug import Bug
from .kip_890_part_1 import late_requests
from .shared import NO_JOB_EVENTS, SHORT_JOB

TITLE = "KIP-890, part 2: a late EndTxn ends the next transaction of the same epoch"
KEEPS_EPOCH = 0
"""A transaction version whose ends leave the epoch as it is."""


def plant(planter: Planter) -> None:
    """Keep the producer's epoch, whichever version it speaks."""
    end = TransactionService.end

    async def end_under_the_same_epoch(
        self: TransactionService, transactional_id: str, producer: Producer, client_version: int, *, commit: bool
    ) -> Producer:
        del client_version
        return await end(self, transactional_id, producer, KEEPS_EPOCH, commit=commit)

    planter.replace_method(TransactionService, "end", end_under_the_same_epoch)


BUG = Bug(
    number=22,
    module=__name__,
    title=TITLE,
    versions="0.11 to 3.9, transaction version 1",
    needs=(
        "an EndTxn that is late by more than the client waits for its response, while the client begins to write again"
    ),
    seen_as=frozenset({"duplicate-output", "missing-output"}),
    options=replace(SHORT_JOB, partitions=3, batches=80, job={"operations": NO_JOB_EVENTS, "aborted_part": 0.5}),
    # EndTxn arrives later than its sender waits for the response
    steps=partial(late_requests, api="EndTxn", delay_ms=(650, 1_100)),
)
