"""On real brokers: a request fault whose client matches none ends, and names the clients that used its API (K2)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from harrow import Harrow, lose_response
from harrow.faults import NemesisError

TIMEOUT_S = 30


@pytest.mark.harrow(brokers=1)
def test_a_commit_that_no_matching_client_sends_ends_the_block_with_the_client_ids(harrow: Harrow) -> None:
    orders = harrow.topic("orders")
    servers = {"bootstrap.servers": harrow.bootstrap_servers}
    producer = Producer({**servers, "client.id": "shop"})
    consumer = Consumer(
        {
            **servers,
            "client.id": "one-0",
            "group.id": "billing",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe([orders.name])
    fault = lose_response("OffsetCommit", client="billing*")
    words = (
        r"no request OffsetCommit of a client that matches 'billing\*' arrived; client ids seen for this API: one-0; "
        r"others: .*shop \(.*Produce.*in 2 s of traffic; where it takes longer, write harrow\.chaos\(…, reached_within"
    )
    block = harrow.chaos(fault, reached_within=2)
    block.__enter__()
    while block.running:
        producer.produce(orders.name, "order")
        assert producer.flush(TIMEOUT_S) == 0
        if (message := consumer.poll(0.2)) is not None and not message.error():
            consumer.commit(message=message, asynchronous=False)
    with pytest.raises(NemesisError, match=words):
        block.__exit__(None, None, None)
    consumer.close()
