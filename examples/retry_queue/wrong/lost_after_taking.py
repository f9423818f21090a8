"""The bug: a record that is due is removed from the store first, and sent then.

A scheduler that dies in between has lost it: neither the store nor Kafka has it.
"""

from __future__ import annotations

from retry_queue.scheduler import BATCH, Scheduler


def plant() -> None:
    """Replace the order of the two steps."""

    def send_due(self: Scheduler) -> None:
        due = self.store.take(self.clock.now_ms(), BATCH)
        if not due:
            return
        self.store.remove(due)
        for record in due:
            self.outbox.send(record.moved(self.names.retry))
        self.outbox.settle_all()

    Scheduler.send_due = send_due
