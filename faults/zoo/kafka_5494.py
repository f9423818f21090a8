"""KAFKA-5494: a broker remembers one batch of a producer, not five.

What was wrong: the broker knew only the last batch of each idempotent producer. A producer with several requests in
flight that loses a response sends that batch again after the broker has appended later ones. The broker does not
recognise it and answers OUT_OF_ORDER_SEQUENCE_NUMBER, although the batch is in the log. The producer then raises its
epoch, numbers the batch from 0 and sends it once more: it is in the log twice.

Replaces: `ProducerEntry.batches_to_remember`.
Source: KAFKA-5494, KIP-360; Kafka's `ProducerStateEntry.NUM_BATCHES_TO_RETAIN`.
"""

from __future__ import annotations

import random
from dataclasses import replace

from harrow.cluster.planting import Planter
from harrow.cluster.storage.producers.producer_entry import BatchMetadata, ProducerEntry

from .. import leader, lose_response, slow_link, took_effect
from ..runs import TOPIC, SimulationOptions
from ..schedule import ScheduledFault, step_after
from .bug import Bug, InOrder
from .shared import RUN, first_ms

TITLE = "KAFKA-5494: one batch of a producer is remembered, not five"


def plant(planter: Planter) -> None:
    """Let each new batch replace all that came before it."""
    planter.replace_method(ProducerEntry, "batches_to_remember", _none)


def _none(self: ProducerEntry) -> tuple[BatchMetadata, ...]:
    del self
    return ()


def steps_by_event(rng: random.Random) -> tuple[ScheduledFault, ...]:
    """Followers get records late, so that a producer has several requests in flight; it loses a response."""
    late = slow_link(leader(TOPIC), delay_ms=60)
    lost = lose_response("Produce", rng.randint(1, 3), leader(TOPIC))
    end = (took_effect("2"),)
    return (
        step_after(1, late, wait_ms=first_ms(rng), until=end),
        step_after(2, lost, took_effect("1"), until=end, overlaps=True),
    )


BUG = Bug(
    number=17,
    module=__name__,
    title=TITLE,
    versions="0.11",
    needs="a lost response with several requests of one producer in flight",
    seen_as=frozenset({"duplicate"}),
    # a producer that lost a response sends again; a restarted broker forgets batches without the bug, too
    options=SimulationOptions(seconds=4.0, resends=True, weights={"reset": 2, "slow_link": 2, "pause": 1}),
    in_order=InOrder(
        options=replace(RUN, resends=True, in_flight=5),
        steps=steps_by_event,
        on_processes={"guarantee": "exactly-once"},
    ),
)
