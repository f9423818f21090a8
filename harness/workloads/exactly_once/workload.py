"""The job under faults: orders are placed all the time, three processes make bills of them, and the end is judged.

Owns: `TransformWorkload`. After the faults it waits until the group has committed every order, ends the processes, and
waits until no transaction is open. A wait ends when nothing has changed for `FINISH_S`; what is then missing is a
finding (`unfinished`), because a cluster that is healed must let the job finish.
"""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import HarrowError
from harrow.faults.runs import EXACTLY_ONCE

from ... import run_folder
from ...promises.relations import mapped
from ...run_settings import RunSettings
from ..orders import Workload, order_text
from .end_state import left_open
from .job_processes import JobProcesses

if TYPE_CHECKING:
    from ...checks import Verdict
    from ...run.harrow import Harrow
    from ...topics import Topic

GROUP = "billing"
SINK = "bills"
PROCESSES = 3
KILL_EVERY_S = 2.5
"""Time between two kills of a process, on average."""
RATE = 300
FINISH_S = 60.0
"""How long nothing may change after healing. A transaction of a killed process ends by its timeout at most."""
POLL_S = 0.2
GUARANTEE = "exactly-once"
CONFIG: Mapping[str, object] = {
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
    "group.initial.rebalance.delay.ms": 0,
}


def bill_of(order: Any) -> dict[str, Any]:
    """Return the bill that an order requires."""
    return {"order": order["order"], "total": order["amount"] * 3}


class TransformWorkload:
    """Places orders and makes bills while it is entered; then `finish` and `judge`."""

    def __init__(
        self, harrow: Harrow, orders: Topic, producer: Mapping[str, Any], settings: RunSettings | None = None
    ) -> None:
        """`producer`: settings of the producer of orders; `settings`: those of the job, None for the defaults."""
        from ...run.harrow import run_of

        settings = RunSettings() if settings is None else settings
        self._harrow = harrow
        run_of(harrow).workload = EXACTLY_ONCE
        self._orders = orders
        self._bills = harrow.topic(
            SINK, partitions=orders.partitions, replication_factor=orders.replication_factor, config=orders.config
        )
        self._source = Workload(harrow, orders, group=None, rate=RATE, producer=dict(producer), value=order_text)
        rng: random.Random = harrow.random
        membership = rng.choice(("static", "dynamic"))
        arguments = (
            harrow.bootstrap_servers,
            orders.name,
            self._bills.name,
            GROUP,
            membership,
            str(settings.transaction_timeout_ms),
        )
        self.jobs = JobProcesses(
            arguments,
            harrow.folder / run_folder.JOBS,
            random.Random(rng.random()),  # noqa: S311 - repeatable
            count=PROCESSES,
            kill_every_s=KILL_EVERY_S,
        )
        self.problems: list[str] = []
        """What the job or a transaction left unfinished."""

    def __enter__(self) -> TransformWorkload:
        self.jobs.start()
        self._source.__enter__()
        return self

    def __exit__(self, kind: object = None, *_: object) -> None:
        self.jobs.stop_kills()
        try:
            self._source.stop()
            if kind is None:
                self._await("the group has committed every order", self._uncommitted)
        finally:
            self.jobs.stop()
        if kind is None:
            self._await("no transaction is open", lambda: left_open(self._harrow.cluster))
        self.problems += self.jobs.problems

    @property
    def placed(self) -> int:
        """How many orders brokers have acknowledged."""
        return self._source.counts.acknowledged

    def judge(self, guarantee: str = GUARANTEE) -> Verdict:
        """Judge the output; raise VerdictError unless the verdict is valid."""
        return self._harrow.verify_pipeline(
            self._orders, self._bills, guarantee=guarantee, record_id="order", relation=mapped(bill_of), group=GROUP
        )

    def _uncommitted(self) -> list[str]:
        """Return a line for each partition of the source whose end the group has not committed."""
        from confluent_kafka import Consumer, TopicPartition

        reader = Consumer(
            {
                "bootstrap.servers": self._harrow.cluster.own_servers,
                "group.id": GROUP,
                "log_level": 0,
                "isolation.level": "read_committed",
            }
        )
        try:
            places = [TopicPartition(self._orders.name, number) for number in range(self._orders.partitions)]
            committed = {row.partition: row.offset for row in reader.committed(places, 5)}
            ends = {row.partition: reader.get_watermark_offsets(row, 5, cached=False)[1] for row in places}
        finally:
            reader.close()
        return [
            f"{self._orders.name}-{number}: committed {committed[number]} of {end}"
            for number, end in ends.items()
            if end and committed[number] != end
        ]

    def _await(self, what: str, missing: Callable[[], list[str]]) -> None:
        from confluent_kafka import KafkaException

        deadline, pause = time.monotonic() + FINISH_S, threading.Event()
        before: list[str] = []
        while True:
            try:
                lines = missing()
            except (KafkaException, HarrowError, OSError) as error:
                lines = [f"{type(error).__name__}: {error}"]
            if not lines:
                return
            if lines != before:
                deadline, before = time.monotonic() + FINISH_S, lines
            if time.monotonic() > deadline:
                self.problems.append(
                    f"for {FINISH_S:.0f} s it is not true that {what}, and nothing changes: {'; '.join(lines)}"
                )
                return
            pause.wait(POLL_S)
