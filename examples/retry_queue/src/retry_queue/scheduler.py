"""`python -m retry_queue.scheduler`: keeps what failed in a delay store, and sends it to the retry topic when
it is due.

The offset of a delayed record is committed when the store has it; the store forgets it when Kafka has the
record that was sent. So a record may be sent twice after a failure, but none is forgotten.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from threading import Event
from typing import Any

from .clock import SteadyClock
from .names import Names
from .outbox import Outbox
from .reading import Assignment, commit, consumer_of, record_of
from .service import arguments, names_of, run_service, servers, session_of
from .stores import DelayStore
from .stores.embedded import EmbeddedStore

BATCH, POLL_S = 500, 0.02


class Scheduler:
    """One instance of the scheduler."""

    def __init__(self, servers: str, names: Names, store: DelayStore, clock: SteadyClock, **session: Any) -> None:
        """`session`: further settings of the consumer."""
        self.names, self.store, self.clock = names, store, clock
        group = f"{names.source}-scheduler"
        self.consumer = consumer_of(servers, group, "retry-scheduler", **session)
        self.outbox = Outbox(servers, "retry-scheduler")
        self._assignment = Assignment(self.consumer)

    def run(self, stop: Event) -> None:
        """Work until `stop` is set. KafkaException, UnavailableError: what was not confirmed is done again."""
        self._assignment.subscribe(self.names.delay)
        while not stop.is_set():
            self.keep()
            self.send_due()

    def close(self) -> None:
        """Leave the group."""
        self.outbox.close()
        self.store.close()
        self.consumer.close()

    def keep(self) -> None:
        """Put what was delayed into the store, then commit it."""
        messages = self.consumer.consume(BATCH, timeout=POLL_S)
        gone, self._assignment.gone = self._assignment.gone, set()
        if gone:
            self.store.give_up(gone)
        new = self._assignment.new()
        if new:
            self.store.take_over(new)
            self._assignment.begin()
        records = [record_of(message) for message in messages if message.error() is None]
        records = [record for record in records if record.partition not in gone]
        if records:
            self.store.put(records)
            commit(self.consumer, records)

    def send_due(self) -> None:
        """Send what is due, then remove it from the store."""
        due = self.store.take(self.clock.now_ms(), BATCH)
        if not due:
            return
        for record in due:
            self.outbox.send(record.moved(self.names.retry))
        self.outbox.settle_all()
        self.store.remove(due)


def store_maker(address: str | None, names: Names, clock: SteadyClock) -> Callable[[], DelayStore]:
    """Return what makes the store: Redis at `address`, or the embedded store."""
    if address is None:
        return lambda: EmbeddedStore(servers(), names.store, clock, "retry-scheduler-store")

    def in_redis() -> DelayStore:
        from .stores.redis_set import RedisStore

        return RedisStore(address, names.delay)

    return in_redis


def main(words: list[str]) -> None:
    """Read the arguments, and work until SIGTERM."""
    parser = arguments("sends delayed records to the retry topic when they are due")
    parser.add_argument("--redis", help="host:port of the delay store; without it a topic of Kafka")
    given = parser.parse_args(words)
    names, clock = names_of(given), SteadyClock()
    make_store = store_maker(given.redis, names, clock)
    run_service("scheduler", lambda: Scheduler(servers(), names, make_store(), clock, **session_of(given)))


if __name__ == "__main__":
    main(sys.argv[1:])
