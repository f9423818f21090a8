"""KIP-890, part 2: a late EndTxn ends the next transaction of the producer.

What was wrong (Kafka 0.11 to 3.9, transaction version 1): all transactions of a producer had one epoch. When an EndTxn
was late and the producer had sent it again, the late one arrived after the producer had begun its next transaction. The
coordinator could not tell the two apart, and committed or aborted what the producer was still writing.

Needs: an EndTxn that is late by more than the client waits for its response, while the client begins to write again.
Seen as: `duplicate-output` (a part of a transaction is committed that the producer aborts, or that dies with it) or
`missing-output` (a part is aborted that the producer commits).
Replaces: `TransactionService.end`: each end is that of transaction version 1, which keeps the epoch.
Source: KIP-890; Kafka's `TransactionCoordinator.endTransaction`, `TransactionMetadata.prepareAbortOrCommit`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.transactions.rules import Producer
from harrow.cluster.transactions.service import TransactionService

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
