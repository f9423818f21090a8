"""The bug: the offset of a delayed record is committed before the store has the record.

A scheduler that dies in between does not receive it again.
"""

from __future__ import annotations

from collections.abc import Sequence

from confluent_kafka import Consumer
from retry_queue import scheduler
from retry_queue.reading import commit
from retry_queue.records import Record


def plant() -> None:
    """Commit first, and not again."""

    class CommitsFirst(scheduler.Scheduler):
        def keep(self) -> None:
            put = self.store.put

            def commit_and_put(records: Sequence[Record]) -> None:
                commit(self.consumer, records)
                put(records)

            self.store.put = commit_and_put
            try:
                super().keep()
            finally:
                self.store.put = put

    def committed(consumer: Consumer, records: Sequence[Record]) -> None:
        print(f"{len(records)} records of {consumer} are committed already", flush=True)

    scheduler.Scheduler = CommitsFirst
    scheduler.commit = committed
