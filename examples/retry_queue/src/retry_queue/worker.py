"""`python -m retry_queue.worker`: works on the inputs, and on those that are due again.

An input that fails goes to the delay topic with the time of its next attempt; after `--attempts` it goes to the
dead letters. Its offset is committed when Kafka has everything that it led to: an input may be worked on twice
after a failure, but none is forgotten.

`--transactional`: outputs, retries and offsets are one transaction, so that each input has its output once.
`--keep-order`: that, and the later inputs of a key wait behind the one in retry. They wait in the ledger, a
compacted topic, and the worker goes on with them in the transaction that finishes the earlier one. A restart or a
rebalance restores the ledger before the first record is worked on.
"""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass
from threading import Event
from typing import Any

from confluent_kafka import KafkaException

from .backoff import Policy
from .clock import SteadyClock
from .errors import PoisonError
from .handling import Handler, find_handler, output_of
from .ledger import Ledger
from .names import Names
from .outbox import Outbox
from .reading import Assignment, commit, consumer_of, next_offsets, record_of
from .records import Record
from .restoring import restored
from .service import arguments, names_of, run_service, servers, session_of

BATCH, POLL_S = 100, 0.05
TRANSACTION_MS = 15_000
"""After this the transaction of a worker that died is aborted, if none with its `--instance` starts earlier."""
RETRY_S = 0.1


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """How a worker works."""

    names: Names
    policy: Policy
    handler: Handler
    group: str = "billing"
    transactional_id: str | None = None
    keep_order: bool = False


class Attempts:
    """Decides what an input leads to. No Kafka here."""

    def __init__(self, options: Options, clock: SteadyClock) -> None:
        self._options, self._clock = options, clock

    def made(self, record: Record) -> int:
        """Return how many attempts were made before: the record itself says it, so that no restart forgets it."""
        return record.attempts

    def make(self, record: Record) -> Record:
        """Make an attempt; return the output, the record for the delay topic, or the dead letter."""
        names, attempt = self._options.names, self.made(record) + 1
        try:
            value = output_of(self._options.handler, record.value, attempt)
        except PoisonError as error:
            return self.dead(record, attempt, f"PoisonError: {error}")
        except Exception as error:  # a failed attempt, whatever the handler raises
            reason = f"{type(error).__name__}: {error}"
            if attempt >= self._options.policy.attempts:
                return self.dead(record, attempt, reason)
            due_ms = self._clock.now_ms() + self._options.policy.wait_ms(attempt)
            return record.failed(names.delay, attempts=attempt, reason=reason, due_ms=due_ms)
        return Record(topic=names.sink, partition=-1, key=record.key, value=value)

    def dead(self, record: Record, attempts: int, reason: str) -> Record:
        """Return the dead letter of an input."""
        due_ms = record.due_ms or None
        return record.failed(self._options.names.dead, attempts=attempts, reason=reason, due_ms=due_ms)


class Worker:
    """One instance of the worker."""

    def __init__(self, servers: str, options: Options, **session: Any) -> None:
        """`session`: further settings of the consumer."""
        self.options = options
        self.attempts = Attempts(options, SteadyClock())
        self.consumer = consumer_of(servers, options.group, "retry-worker", **session)
        transactional = options.transactional_id is not None
        settings = {"transactional.id": options.transactional_id} if transactional else {}
        limit = {"transaction.timeout.ms": TRANSACTION_MS} if transactional else {}
        timeouts = {"delivery.timeout.ms": TRANSACTION_MS} if transactional else {}
        self.outbox = Outbox(servers, "retry-worker", **settings, **limit, **timeouts)
        self.ledger = Ledger(options.names.open, options.names.source) if transactional else None
        self._servers = servers
        self._assignment = Assignment(self.consumer)

    def run(self, stop: Event) -> None:
        """Work until `stop` is set. KafkaException, UnavailableError: nothing of the last batch is committed."""
        if self.ledger is not None:
            self.outbox.producer.init_transactions(30.0)
        names = self.options.names
        self._assignment.subscribe(names.source, names.retry)
        while not stop.is_set():
            messages = self.consumer.consume(BATCH, timeout=POLL_S)
            gone, self._assignment.gone = self._assignment.gone, set()
            self._take_over(gone)
            records = [record_of(message) for message in messages if message.error() is None]
            # what was received before a rebalance is received again by the owner of the partition
            records = [record for record in records if record.partition not in gone]
            if records:
                (self.work if self.ledger is None else self.work_in_transaction)(records)

    def close(self) -> None:
        """Leave the group."""
        self.outbox.close()
        self.consumer.close()

    def _take_over(self, gone: set[int]) -> None:
        new = self._assignment.new()
        if self.ledger is not None:
            for partition in gone:
                self.ledger.give_up(partition)
            for partition in new:
                topic = self.options.names.open
                self.ledger.restore(partition, restored(self._servers, "retry-worker-ledger", topic, partition))
        if new:
            self._assignment.begin()

    # ----------------------------------------------------------------------- at least once

    def work(self, records: list[Record]) -> None:
        """Work on a batch, and commit it when Kafka has what it led to."""
        sent = [(record, self.attempts.make(record)) for record in records]
        for _, result in sent:
            self.outbox.send(result)
        self.bury(self.outbox.settle())
        commit(self.consumer, records)

    def bury(self, refused: list[Record]) -> None:
        """Send what the delay topic refused for its size to the dead letters. TooLargeError: another topic
        refused it.
        """
        for result in refused:
            delayed = result.topic == self.options.names.delay
            self.outbox.send(self._too_large(result) if delayed else result)
        self.outbox.settle_all()

    def _too_large(self, delayed: Record) -> Record:
        reason = f"too large for {delayed.topic}, after: {delayed.header('kafka_exception-message')}"
        return self.attempts.dead(delayed, delayed.attempts, reason)

    # --------------------------------------------------------------------- in transactions

    def work_in_transaction(self, records: list[Record]) -> None:
        """Work on a batch: results, ledger and offsets are committed together."""
        producer = self.outbox.producer
        producer.begin_transaction()
        for record in records:
            for result in self._results(record):
                self.outbox.send(result)
        self.outbox.settle_all()
        producer.send_offsets_to_transaction(next_offsets(records), self.consumer.consumer_group_metadata(), 30.0)
        self._commit_transaction()

    def _results(self, record: Record) -> list[Record]:
        """Return what an input leads to, and the inputs that waited behind it."""
        ledger, names = self.ledger, self.options.names
        assert ledger is not None
        if record.topic == names.retry and not ledger.is_current(record):
            return []  # the scheduler sent it twice
        if self.options.keep_order and ledger.is_behind(record):
            return [ledger.holds(record)]
        results: list[Record] = []
        following: Record | None = record
        while following is not None:
            result = self.attempts.make(following)
            if result.topic == names.delay:
                return [*results, result, ledger.waits(result)]
            results += [result, *ledger.finishes(following)]
            following = ledger.released(following)
        return results

    def _commit_transaction(self) -> None:
        deadline = time.monotonic() + 30.0
        while True:
            try:
                self.outbox.producer.commit_transaction(10.0)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > deadline:
                    raise
                time.sleep(RETRY_S)


def main(words: list[str]) -> None:
    """Read the arguments, and work until SIGTERM."""
    parser = arguments("works on inputs, and tries again later what fails")
    parser.add_argument("--handler", default="retry_queue.handling:bill_of", help="module:function")
    parser.add_argument("--attempts", type=int, default=5, help="after so many: dead letters")
    parser.add_argument("--backoff-ms", type=int, default=1_000, help="after the first attempt")
    parser.add_argument("--backoff-most-ms", type=int, default=60_000)
    parser.add_argument("--group", default="billing")
    parser.add_argument("--instance", default="1", help="another one for each worker of the group")
    parser.add_argument("--transactional", action="store_true", help="each output once")
    parser.add_argument("--keep-order", action="store_true", help="later inputs of a key wait behind one in retry")
    given = parser.parse_args(words)
    transactional = given.transactional or given.keep_order
    options = Options(
        names=names_of(given),
        handler=find_handler(given.handler),
        group=given.group,
        policy=Policy(attempts=given.attempts, first_ms=given.backoff_ms, most_ms=given.backoff_most_ms),
        transactional_id=f"{given.group}-{given.instance}" if transactional else None,
        keep_order=given.keep_order,
    )
    run_service("worker", lambda: Worker(servers(), options, **session_of(given)))


if __name__ == "__main__":
    main(sys.argv[1:])
