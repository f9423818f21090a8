"""One process of the job: reads orders, writes a bill for each order, and commits both in one transaction (KIP-447).

    python job.py BOOTSTRAP SOURCE SINK GROUP MEMBERSHIP TIMEOUT_MS TRANSACTIONAL_ID

MEMBERSHIP is `static` (the member has the name of its transactional id, KIP-345) or `dynamic`, TIMEOUT_MS is the
`transaction.timeout.ms` of its producer.

It is written as an application should be, and imports nothing of Harrow:

* A transaction begins and ends between two polls, so a rebalance, which needs a poll, never meets an open transaction.
* An error that requires an abort: abort, then continue at the committed offsets, and not below those which this process
  has committed itself. A group coordinator that was replaced, and does not know it, returns old ones.
* An error that is retriable: the same call again.
* Any other error: the process ends with exit code 1, and its parent starts it again. Its successor has the same
  transactional id, so it ends what this process left open.
* A call that does not return in `STALLED_S`, although its timeout is `CALL_S`: the process ends, too. librdkafka waits
  without end for a group coordinator that has left the Metadata (its issues #5456 and #5511, open in 2.16).
* SIGTERM ends it after the current transaction. It also ends when its parent has died.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, Producer, TopicPartition

CALL_S = 5.0
STALLED_S = 12.0
BATCH = 200
"""Most records of a transaction: a job that is behind must be faster than the orders."""
POLL_S = 0.1
COMMON: dict[str, Any] = {
    "log_level": 0,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 200,
    "retry.backoff.ms": 20,
    "retry.backoff.max.ms": 200,
    "topic.metadata.refresh.fast.interval.ms": 50,
}
CONSUMER: dict[str, Any] = {
    "session.timeout.ms": 2_000,
    "heartbeat.interval.ms": 300,
    "enable.auto.commit": False,
    "auto.offset.reset": "earliest",
    "isolation.level": "read_committed",
    "fetch.wait.max.ms": 100,
}
SOCKET_TIMEOUT_MS = 3_000
"""librdkafka refuses one that is longer than the timeout of a transaction by more than 100 ms."""


class Job:
    """A consumer, a transactional producer, and the loop between them."""

    def __init__(
        self, servers: str, source: str, sink: str, group: str, membership: str, timeout_ms: str, name: str
    ) -> None:
        transaction_ms = int(timeout_ms)
        common = {
            **COMMON,
            "bootstrap.servers": servers,
            "client.id": name,
            "socket.timeout.ms": min(SOCKET_TIMEOUT_MS, transaction_ms + 100),
        }
        self._source, self._sink = source, sink
        member = {"group.instance.id": name} if membership == "static" else {}
        self._consumer = Consumer({**common, **CONSUMER, **member, "group.id": group})
        self._producer = Producer(
            {**common, "transactional.id": name, "transaction.timeout.ms": transaction_ms, "linger.ms": 2}
        )
        self._ends: dict[tuple[str, int], int] = {}
        """Where its last commit ended, for each partition that it has had since."""
        self._parent = os.getppid()
        self._stopped = False
        self.progress_at = time.monotonic()
        """When the last call that can block began."""

    def stop(self, *_: object) -> None:
        """End after the current transaction."""
        self._stopped = True

    def run(self) -> None:
        """Process orders until `stop`; KafkaException for an error after which the process must be replaced."""
        self._again(lambda: self._producer.init_transactions(CALL_S))
        log("ready")
        self._consumer.subscribe([self._source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._lost)
        while not self._stopped and os.getppid() == self._parent:
            self.progress_at = time.monotonic()
            received = self._consumer.consume(BATCH, POLL_S)
            messages = [message for message in received if message.error() is None]
            if messages and not self._transact(messages):
                self._continue_at_committed()
        self._consumer.close()
        log("closed")

    def _transact(self, messages: Sequence[Message]) -> bool:
        """One transaction; False after an abort."""
        self._producer.begin_transaction()
        try:
            for message in messages:
                bill = bill_text(message.value() or b"")
                self._producer.produce(self._sink, bill, message.key())
            offsets = next_offsets(messages)
            member = self._consumer.consumer_group_metadata()
            self._again(lambda: self._producer.send_offsets_to_transaction(list(offsets), member, CALL_S))
            self._again(lambda: self._producer.commit_transaction(CALL_S))
        except KafkaException as error:
            if not error.args[0].txn_requires_abort():
                raise
            log(f"abort: {error.args[0]}")
            self._again(lambda: self._producer.abort_transaction(CALL_S))
            return False
        self._ends |= {(row.topic, row.partition): row.offset for row in offsets}
        log(f"committed {sorted((row.partition, row.offset) for row in offsets)}")
        return True

    def _continue_at_committed(self) -> None:
        """Read again what the aborted transaction had read. A partition that was lost meanwhile is not read."""
        mine = self._consumer.assignment()
        if not mine:
            return
        for row in self._again(lambda: self._consumer.committed(mine, CALL_S)):
            offset = max(row.offset, self._ends.get((row.topic, row.partition), 0))
            self._consumer.seek(TopicPartition(row.topic, row.partition, offset))

    def _again(self, call: Callable[[], Any]) -> Any:
        """Return the result of `call`, which is called again after a retriable error."""
        while True:
            self.progress_at = time.monotonic()
            try:
                return call()
            except KafkaException as error:
                if not error.args[0].retriable():
                    raise
                log(f"again: {error.args[0]}")

    def _assigned(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)
        log(f"assigned {sorted(row.partition for row in partitions)}")

    def _revoked(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)
        log(f"revoked {sorted(row.partition for row in partitions)}")

    def _lost(self, _: Consumer, partitions: Sequence[TopicPartition]) -> None:
        self._forget(partitions)
        log(f"lost {sorted(row.partition for row in partitions)}")

    def _forget(self, partitions: Sequence[TopicPartition]) -> None:
        for row in partitions:
            self._ends.pop((row.topic, row.partition), None)


def bill_text(order: bytes) -> str:
    """Return the bill for an order, as JSON text."""
    given = json.loads(order)
    return json.dumps({"order": given["order"], "total": given["amount"] * 3})


def next_offsets(messages: Sequence[Message]) -> list[TopicPartition]:
    """Return, for each partition, the offset after the last message."""
    ends: dict[tuple[str, int], int] = {}
    for message in messages:
        ends[str(message.topic()), int(message.partition() or 0)] = int(message.offset() or 0) + 1
    return [TopicPartition(topic, partition, end) for (topic, partition), end in ends.items()]


def log(text: str) -> None:
    """Print a line with the time."""
    print(f"{time.monotonic():.3f} {text}", flush=True)


def end_when_stalled(job: Job) -> None:
    """End the process when a call does not return."""
    pause = threading.Event()
    while not pause.wait(0.5):
        silent_s = time.monotonic() - job.progress_at
        if silent_s > STALLED_S:
            log(f"stalled for {silent_s:.0f} s")
            os._exit(2)


def main(arguments: Sequence[str]) -> int:
    """Run one process of the job; return its exit code."""
    job = Job(*arguments)
    signal.signal(signal.SIGTERM, job.stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends the job
    threading.Thread(target=end_when_stalled, args=(job,), daemon=True).start()
    try:
        job.run()
    except KafkaException as error:
        log(f"fatal: {error.args[0]}")
        # a consumer that is not closed leaves the group by its session timeout, as after a crash
        os._exit(1)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
