"""An application that begins at an old committed offset, which a replaced coordinator returned.

The application does what its client tells it to do. Apache Kafka 4.2.0 has this gap, too: a commit through such a
coordinator fails, a read of committed offsets does not.
"""

from __future__ import annotations

import json
from contextlib import ExitStack
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from harrow import Harrow, group_coordinator, isolate
from harrow.cluster.errors import ErrorCode
from harrow.harness.errors import VerdictError
from harrow.harness.requests.operator import addresses_of
from raw_groups import GROUP_KIND, RawGroup
from raw_kafka import RawKafka
from raw_transactions import coordinator_of
from waiting import until

GROUP = "billing"

FAST = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 100,
}
ORDERS, BATCH = 9, 3


def write(producer: Producer, topic: str, orders: range) -> None:
    for order in orders:
        producer.produce(topic, json.dumps({"order": order}), partition=0)
    assert producer.flush(30) == 0


class Successor(ExitStack):
    """The member that gets the partition next: it asks a broker that knows the new coordinator."""

    def __init__(self, servers: str) -> None:
        super().__init__()
        self._links = dict(enumerate(addresses_of(servers), start=1))
        self._isolated = coordinator_of(self._connect(1), GROUP, GROUP_KIND)

    def _connect(self, node: int) -> RawKafka:
        address = self._links[node]
        return self.enter_context(RawKafka(address.port, address.host, client_id="second"))

    def commit(self, topic: str, offset: int) -> bool:
        """Commit through the new coordinator; False while there is none."""
        asked = next(node for node in self._links if node != self._isolated)
        if coordinator_of(self._connect(asked), GROUP, GROUP_KIND) == self._isolated:
            return False
        return RawGroup(self._connect, GROUP, asked).commit(topic, offset) is ErrorCode.none


def repeat_outputs_from_an_old_offset(harrow: Harrow, isolated_s: float) -> None:
    """Isolate the coordinator so long, and expect a verdict that names it as the cause of the repeated outputs."""
    orders, bills, visits = map(harrow.topic, ("orders", "bills", "visits"))
    common = {**FAST, "bootstrap.servers": harrow.bootstrap_servers}
    biller = Producer({**common, "enable.idempotence": True})
    write(biller, orders.name, range(ORDERS))
    first = Consumer({**common, "client.id": "first", "group.id": GROUP, "enable.auto.commit": False})
    write(biller, bills.name, range(ORDERS))
    first.commit(offsets=[TopicPartition(orders.name, 0, BATCH)], asynchronous=False)
    with (
        Successor(harrow.bootstrap_servers) as second,
        harrow.chaos(isolate(group_coordinator(GROUP), seconds=isolated_s)) as chaos,
    ):
        while not chaos.effects and chaos.running:  # the fault waits for traffic
            biller.produce(visits.name, "")
            biller.poll(0.02)
        until(lambda: second.commit(orders.name, 2 * BATCH), "the successor has the second commit")
        (row,) = first.committed([TopicPartition(orders.name, 0)], 5)
        assert row.offset == BATCH, "it is connected with the coordinator that is isolated"
        until(lambda: second.commit(orders.name, ORDERS), "the successor has the last commit")
    write(biller, bills.name, range(row.offset, 2 * BATCH))  # once more

    with pytest.raises(VerdictError) as found:
        harrow.verify_pipeline(orders, bills, record_id="order", guarantee="exactly-once")
    verdict: Any = found.value.verdict
    assert verdict.anomaly_counts == {"duplicate-output": BATCH}
    text = str(found.value)
    assert f"returned {BATCH} as the committed offset of orders-0 to first" in text
    assert "a coordinator that was replaced and does not know it returns old offsets" in text
