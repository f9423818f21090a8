"""KAFKA-5494: a broker remembers one batch of a producer, not five.

What was wrong (Kafka 0.11): the broker knew only the last batch of each idempotent producer. A producer with
several requests in flight that loses a response sends that batch again after the broker has appended later ones.
The broker does not recognise it and answers OUT_OF_ORDER_SEQUENCE_NUMBER, although the batch is in the log. The
producer then raises its epoch, numbers the batch from 0 and sends it once more: it is in the log twice.

Needs: a lost response with several requests of one producer in flight.
Seen as: `duplicate`.
Replaces: `ProducerEntry.batches_to_remember`.
Source: KAFKA-5494, KIP-360; Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.storage.producers.producer_entry import BatchMetadata, ProducerEntry

TITLE = "KAFKA-5494: one batch of a producer is remembered, not five"


def plant(planter: Planter) -> None:
    """Let each new batch replace all that came before it."""
    planter.replace_method(ProducerEntry, "batches_to_remember", _none)


def _none(self: ProducerEntry) -> tuple[BatchMetadata, ...]:
    del self
    return ()
