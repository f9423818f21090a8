# pyright: basic, reportMissingImports=false
# FastStream is not in the environment of this repository: anyio, which it needs, brings a plugin for pytest.
"""A service on FastStream: a subscriber of orders, which publishes a bill for each."""

from __future__ import annotations

from typing import Any

from faststream import AckPolicy, FastStream
from faststream.kafka import KafkaBroker

DELIVERY_MS = 1_000
"""How long a delivery may take; then the handler fails."""


def new_service(servers: str, **policy: Any) -> FastStream:
    """Return the service; `policy`: the `ack_policy` of its subscriber."""
    broker = KafkaBroker(servers.split(","), request_timeout_ms=DELIVERY_MS, acks="all")

    @broker.publisher("bills")
    @broker.subscriber("orders", group_id="billing", auto_offset_reset="earliest", **policy)
    async def bill(order: dict[str, Any]) -> dict[str, Any]:
        return {"order": order["order"], "total": order["amount"] * 120 // 100}

    return FastStream(broker)


async def by_default(servers: str) -> None:
    """Run it as FastStream does by default, `ACK_FIRST`: an order is acknowledged before its bill is published."""
    await new_service(servers).run()


async def acknowledges_errors(servers: str) -> None:
    """Run it with `ACK`, "ack message after all process": also after a process that failed."""
    await new_service(servers, ack_policy=AckPolicy.ACK).run()


async def tries_again(servers: str) -> None:
    """Run it correctly, with `NACK_ON_ERROR`: after an error the order is consumed again."""
    await new_service(servers, ack_policy=AckPolicy.NACK_ON_ERROR).run()
