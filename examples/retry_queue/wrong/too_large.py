"""The bug: what the delay topic refuses is forgotten. An input of the largest size and its headers are too large."""

from __future__ import annotations

from retry_queue.records import Record
from retry_queue.worker import Worker


def plant() -> None:
    """Forget what was refused."""

    def forget(self: Worker, refused: list[Record]) -> None:
        for result in refused:
            print(f"{self.options.group}: {result.topic} refused a record", flush=True)

    Worker.bury = forget
