"""KAFKA-5376: a fetch that is answered from the purgatory lacks the aborted transactions.

What was wrong: a fetch that waited for data was answered by `DelayedFetch`, which put the records of its second read
into the response, and neither the last stable offset nor the list of aborted transactions. A consumer with isolation
level read_committed knows by that list which batches it must drop, so it delivered the records of aborted transactions.

Replaces: `DelayedFetch.on_complete`.
Source: KAFKA-5376; Kafka's `DelayedFetch.onComplete`, `FetchPartitionData`.
"""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.replication.delayed_fetch import DelayedFetch

from .bug import Bug
from .shared import SHORT_JOB

TITLE = "KAFKA-5376: a fetch that waited is answered without the aborted transactions"


def plant(planter: Planter) -> None:
    """Answer a delayed fetch with the records of its second read, and nothing about transactions."""
    planter.replace_method(DelayedFetch, "on_complete", _without_aborted)


def _without_aborted(self: DelayedFetch) -> None:
    answers = self.reader.read()[0]
    self.done([answer._replace(aborted=None, last_stable_offset=-1) for answer in answers])


BUG = Bug(
    number=19,
    module=__name__,
    title=TITLE,
    versions="0.11 before its release",
    needs="a consumer of committed data that waits at the end of the log while a transaction is aborted",
    seen_as=frozenset({"aborted-read"}),
    options=SHORT_JOB,
)
