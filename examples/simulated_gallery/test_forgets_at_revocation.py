"""Orders wait in a buffer for their bill: at a revocation they must be billed before their offsets are committed."""

from __future__ import annotations

from typing import Any

import pytest
from aiokafka import ConsumerRebalanceListener as Listener
from harrow import Harrow, kill_program
from pairs import Service, pair
from simulated_shop import bill_of, encoded, new_consumer, new_orders, new_producer, order_of, place_orders

BUFFERED = 4


RebalanceListener: Any = Listener
"""Whose methods may be coroutines."""


class Billing(RebalanceListener):
    """Bills orders in groups of four, and what is left when no more come."""

    def __init__(self, servers: str) -> None:
        self._consumer = new_consumer(servers=servers, group="billing")
        self._producer = new_producer(servers)
        self._buffer: list[Any] = []

    async def run(self) -> None:
        self._consumer.subscribe(["orders"], listener=self)
        async with self._consumer, self._producer:
            while True:
                found = await self._consumer.getmany(timeout_ms=100, max_records=BUFFERED)
                self._buffer += [record for batch in found.values() for record in batch]
                if len(self._buffer) >= BUFFERED or (self._buffer and not found):
                    await self.bill()
                    await self._consumer.commit()

    async def bill(self) -> None:
        """Write the bills of the orders in the buffer."""
        for record in self._buffer:
            await self._producer.send("bills", **encoded(bill_of(order_of(record))))
        await self._producer.flush()
        self._buffer.clear()

    async def on_partitions_assigned(self, assigned: Any) -> None:
        """Begin with an empty buffer."""

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Commit the position."""
        self._buffer.clear()
        await self._consumer.commit()


class RightBilling(Billing):
    """Bills the orders in the buffer before it commits."""

    async def on_partitions_revoked(self, revoked: Any) -> None:
        """Write the bills, and commit the position after that."""
        await self.bill()
        await self._consumer.commit()


async def wrong(servers: str) -> None:
    await Billing(servers).run()


async def right(servers: str) -> None:
    await RightBilling(servers).run()


@pytest.mark.harrow(backend="simulated", seeds=200)
@pair(wrong, right, finds="missing-output, commit-before-output")
async def test_every_order_is_billed(harrow: Harrow, service: Service) -> None:
    orders, bills = harrow.topic("orders", partitions=2), harrow.topic("bills", partitions=1)
    for name in ("billing-1", "billing-2"):
        harrow.start(service, harrow.bootstrap_servers, name=name)
    await harrow.aio.await_assigned("billing", members=2)
    async with harrow.chaos(kill_program("billing-1", seconds=0.3)) as chaos:
        first = 0
        while chaos.running:
            await place_orders(harrow.bootstrap_servers, new_orders(first, first + 10))
            first += 10
    await harrow.aio.await_caught_up("billing", orders)
    harrow.verify_pipeline(orders, bills, guarantee="at-least-once", record_id="order")
