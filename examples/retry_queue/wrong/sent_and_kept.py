"""The bug: what was sent is not removed from the store. After a restart it is sent again."""

from __future__ import annotations

from retry_queue.scheduler import BATCH, Scheduler


def plant() -> None:
    """Leave the last step out."""

    def send_due(self: Scheduler) -> None:
        for record in self.store.take(self.clock.now_ms(), BATCH):
            self.outbox.send(record.moved(self.names.retry))
        self.outbox.settle_all()

    Scheduler.send_due = send_due
