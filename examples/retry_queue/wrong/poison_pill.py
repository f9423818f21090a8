"""The bug: an input that fails is tried again at once in its place. Nothing behind it in the partition is worked on."""

from __future__ import annotations

from retry_queue.errors import UnavailableError
from retry_queue.reading import commit
from retry_queue.records import Record
from retry_queue.worker import Worker


def plant() -> None:
    """Begin again at the input that failed."""

    def work(self: Worker, records: list[Record]) -> None:
        for record in records:
            result = self.attempts.make(record)
            if result.topic != self.options.names.sink:
                raise UnavailableError(f"{record.topic}-{record.partition}@{record.offset} failed")
            self.outbox.send(result)
            self.outbox.settle_all()
            commit(self.consumer, [record])

    Worker.work = work
