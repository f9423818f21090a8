"""What the brokers store of clients' batches, and what they refuse, is that of Apache Kafka 4.2 (A4, F1)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import batch

Code = ErrorCode


@pytest.mark.parametrize("version", [3, 5])
def test_two_producers_that_name_the_same_id_get_two_ids_and_store_two_records(
    kafka: Any, version: int
) -> None:
    topic, raw = kafka.topic("two-producers", 1), kafka.raw(1)
    s = messages.schema(ApiKey.INIT_PRODUCER_ID, version, "request")
    entity = s.InitProducerIdRequest(
        transactional_id=None,
        transaction_timeout=messages.milliseconds(60_000),
        producer_id=0,
        producer_epoch=0,
    )
    producers = [raw.ask(ApiKey.INIT_PRODUCER_ID, version, entity) for _ in range(2)]
    assert [(row.error_code, row.producer_epoch) for row in producers] == [(Code.none, 0)] * 2
    assert len({row.producer_id for row in producers}) == 2
    for number, row in enumerate(producers):
        data = batch(
            [f"of producer {number}"],
            producer_id=row.producer_id,
            producer_epoch=row.producer_epoch,
            base_sequence=0,
        )
        produced = raw.produce(topic, 0, data)
        assert (produced.error_code, produced.base_offset) == (Code.none, number)
    assert raw.list_offset(topic, 0, -1).offset == 2
