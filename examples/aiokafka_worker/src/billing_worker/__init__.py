"""Bills orders: reads the topic `orders`, and writes a bill for each order to the topic `bills`."""

from billing_worker.worker import bill_of, work

__all__ = ["bill_of", "work"]
