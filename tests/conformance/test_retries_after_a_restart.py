"""A restarted broker has the last batch of each producer in its state, and not the batches before it (F1).

The snapshot at the log end has one batch for each producer. A producer with several batches in doubt (five in flight
are the default) gets OUT_OF_ORDER_SEQUENCE_NUMBER for the first of them, and librdkafka then ends it with a fatal
error. Seen first in a rolling restart of our own suite.
"""

from __future__ import annotations

import time
from functools import partial
from typing import Any

import pytest
from harrow.cluster.wire.records import build_batch
from waiting import until


def accepted(kafka: Any, topic: str, data: bytes) -> Any:
    """The row of the response, as soon as the leader is back and takes the batch."""
    row = kafka.raw(1).produce(topic, 0, data)
    return row if row.error_code.name == "none" else None


@pytest.mark.parametrize("stop", ["terminate", "kill"])
def test_a_restart_keeps_only_the_last_batch_of_a_producer(kafka: Any, stop: str) -> None:
    topic = kafka.topic("retries", 1)
    now_ms = time.time_ns() // 1_000_000
    sent = [
        build_batch(
            [(None, b"value", ())], timestamp_ms=now_ms, producer_id=4_000_000, producer_epoch=0, base_sequence=n
        )
        for n in range(3)
    ]
    rows = [kafka.raw(1).produce(topic, 0, data) for data in sent]
    assert [(row.error_code.name, row.base_offset) for row in rows] == [("none", n) for n in range(3)]
    assert kafka.raw(1).produce(topic, 0, sent[0]).base_offset == 0

    getattr(kafka, stop)(1)
    kafka.start(1)
    last = until(partial(accepted, kafka, topic, sent[2]), amid=(OSError, EOFError))
    assert last.base_offset == 2
    assert kafka.raw(1).produce(topic, 0, sent[0]).error_code.name == "out_of_order_sequence_number"
