"""A worker that forgets its committed offset when its group's coordinator moves: aiokafka 0.14, every time.

The worker below commits after each bill, and stops in an orderly way. The brokers do everything right, too.
"""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from harrow import Harrow, VerdictError, refuse_request

QUIET_S = 1.0


class BillingWorker:
    """Writes one bill for each order, and commits the order's offset after that."""

    def __init__(self, servers: str, where_to_begin: str) -> None:
        common: dict[str, Any] = {"bootstrap_servers": servers, "client_id": "billing"}
        self._producer: Any = AIOKafkaProducer(**common, enable_idempotence=True)
        self._consumer: Any = AIOKafkaConsumer(
            "orders", **common, group_id="billing", enable_auto_commit=False,
            auto_offset_reset=where_to_begin,  # for a group without committed offset, which this one has
        )  # fmt: skip

    async def start(self) -> None:
        """Join the group, and begin at its committed offset."""
        await self._producer.start()
        await self._consumer.start()

    async def bill(self) -> None:
        """Write bills until no more orders come."""
        while found := await self._consumer.getmany(timeout_ms=int(QUIET_S * 1_000)):
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
