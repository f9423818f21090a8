"""A worker that forgets its committed offset when its group's coordinator moves: aiokafka 0.14, every time.

The worker below commits after each bill, and stops in an orderly way. The brokers do everything right, too.
"""

from __future__ import annotations

import asyncio
import json
import os
import re
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.errors import NoOffsetForPartitionError
from harrow import Harrow, Topic, Verdict, VerdictError, refuse_request

QUIET_S = 1.0


class BillingWorker:
    """Writes one bill for each order, and commits the order's offset after that."""

    def __init__(self, servers: str, where_to_begin: str) -> None:
        common: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "billing"}
        self._producer: Any = AIOKafkaProducer(**common, enable_idempotence=True)
        self._consumer: Any = AIOKafkaConsumer(
            "orders",
            **common,
            group_id="billing",
            enable_auto_commit=False,
            auto_offset_reset=where_to_begin,  # for a group without committed offset, which this one has
        )

    async def start(self) -> None:
        """Join the group, and begin at its committed offset."""
        await self._producer.start()
        await self._consumer.start()

    async def bill(self, quiet_s: float = QUIET_S) -> None:
        """Write bills until no more orders come."""
        while found := await self._consumer.getmany(timeout_ms=int(quiet_s * 1_000)):
            for partition, orders in found.items():
                for order in orders:
                    await self._producer.send_and_wait("bills", order.value)
                    await self._consumer.commit({partition: order.offset + 1})

    async def stop(self) -> None:
        """Leave the group."""
        await self._consumer.stop()
        await self._producer.stop()


async def place_orders(servers: str, first: int) -> int:
    """Place five orders; returns the number of the next one."""
    shop: Any = AIOKafkaProducer(bootstrap_servers=servers, enable_idempotence=True)
    await shop.start()
    for number in range(first, first + 5):
        await shop.send_and_wait("orders", json.dumps({"order": number}).encode())
    await shop.stop()
    return first + 5


async def run_business(harrow: Harrow, where_to_begin: str) -> None:
    """A worker bills orders while it runs; others start later, and must continue where it stopped."""
    servers = harrow.bootstrap_servers
    worker = BillingWorker(servers, where_to_begin)
    await worker.start()
    placed = await place_orders(servers, 0)
    await worker.bill()
    await worker.stop()

    # A coordinator that moves answers NOT_COORDINATOR until the client has found the next one.
    fault = refuse_request("OffsetFetch", "NOT_COORDINATOR", client="billing")
    with harrow.chaos(fault) as chaos:
        while chaos.running:
            placed = await place_orders(servers, placed)
            worker = BillingWorker(servers, where_to_begin)
            await worker.start()
            await worker.bill()
            await worker.stop()


@pytest.mark.parametrize(
    ("where_to_begin", "anomaly"), [("latest", "missing-output"), ("earliest", "duplicate-output")]
)
def test_every_order_has_one_bill(harrow: Harrow, where_to_begin: str, anomaly: str) -> None:
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    asyncio.run(run_business(harrow, where_to_begin))
    with pytest.raises(VerdictError) as found:
        harrow.verify_pipeline(orders, bills, record_id="order", guarantee="exactly-once")
    assert found.value.verdict.anomaly_names() == {anomaly}


PATIENT_S = 4.0
"""A worker waits for orders for so long before it is replaced."""
RECOVERS_WITHIN_S = 3.0


async def work_once(servers: str, where_to_begin: str) -> None:
    """A worker bills orders until none has come for a while. Where its group has lost its offset, it starts again."""
    done = False
    while not done:
        worker = BillingWorker(servers, where_to_begin)
        await worker.start()
        try:
            await worker.bill(PATIENT_S)
            done = True
        except NoOffsetForPartitionError:
            done = False
        await worker.stop()


async def run_and_catch_up(harrow: Harrow, where_to_begin: str) -> None:
    """As above, and the worker is replaced at the end: the last one bills what is left."""
    servers = harrow.bootstrap_servers
    placed = await place_orders(servers, 0)
    await work_once(servers, "earliest")
    fault = refuse_request("OffsetFetch", "NOT_COORDINATOR", client="billing")
    with harrow.chaos(fault) as chaos:
        while chaos.running:
            placed = await place_orders(servers, placed)
            await work_once(servers, where_to_begin)
    await work_once(servers, where_to_begin)


def judged(harrow: Harrow, *topics: Topic, within: float | None) -> Verdict:
    """Judge the pipeline; a verdict that is not valid is returned, too."""
    try:
        return harrow.verify_pipeline(*topics, record_id="order", guarantee="exactly-once", recovers_within=within)
    except VerdictError as error:
        return error.verdict


LONG = pytest.mark.skipif(os.environ.get("HARROW_LONG") != "1", reason="HARROW_LONG=1 runs it")


@LONG
@pytest.mark.parametrize("where_to_begin", ["latest", "none"])
def test_the_worker_works_while_there_are_orders(harrow: Harrow, where_to_begin: str) -> None:
    """All orders are billed in the end. With `latest` nothing happened for seconds, although orders were there."""
    orders, bills = harrow.topic("orders", partitions=1), harrow.topic("bills", partitions=1)
    asyncio.run(run_and_catch_up(harrow, where_to_begin))
    verdict = judged(harrow, orders, bills, within=RECOVERS_WITHIN_S)
    if where_to_begin == "none":
        assert verdict.valid, verdict
        return
    assert verdict.anomaly_names() == {"stalled"}, verdict
    assert "group billing made no progress for" in str(verdict)
    # Five orders of one round: the fault acts in the round in which it is placed, which depends on the seed.
    ((first, last),) = re.findall(r"the records with offsets (\d+) to (\d+) could be read", str(verdict))
    assert (int(first) % 5, int(last) - int(first)) == (0, 4), verdict
    assert judged(harrow, orders, bills, within=None).valid
