"""KAFKA-19446: a late marker ends the next transaction of its producer.

What was wrong (Kafka 4.0 and 4.1, transaction version 2): a marker is one epoch above the records of its transaction,
and the next transaction has the epoch of that marker. The partition leader accepted every marker whose epoch is not
lower than the producer's, as it is right for version 1. So a marker that was late, because the coordinator had sent it
again after a broken connection, was accepted twice: the second time it ended the transaction that was open by then.
The rule since KIP-1228: with version 2 the marker's epoch must be higher, unless no transaction is open.

Needs: a WriteTxnMarkers that is late, and whose connection breaks, while the producer begins its next transaction.
Seen as: `missing-output` (the output is aborted, the transaction is committed), `duplicate-output`, `stuck-lso`.
Replaces: `ProducerEntry.accepts_marker`.
Source: KAFKA-19446, KIP-1228; Kafka's `ProducerAppendInfo.checkProducerEpoch`. Redpanda had the same (issue 3232).
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.storage.producers.producer_entry import ProducerEntry

TITLE = "KAFKA-19446: a late marker ends the next transaction of its producer"


def plant(planter: Planter) -> None:
    """Hold every marker to the rule of transaction version 1."""
    planter.replace_method(ProducerEntry, "accepts_marker", _not_of_an_older_epoch)


def _not_of_an_older_epoch(self: ProducerEntry, epoch: int, transaction_version: int) -> bool:
    del transaction_version
    return epoch >= self.epoch
