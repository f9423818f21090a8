"""Measures transactions and consumer groups of ours and of a warm Apache Kafka in the same run.

    python benchmarks/bench_transactions.py [--rounds 3] [--seconds 3] [--skip transactions,commits,rebalances,kafka]

Prints for each figure the median of each peer, the ratio of ours to Kafka's, and the goal; exit code 1 when a goal is
missed. The peers take turns in every round; the first round warms them up and is not counted.

* transactions: transactions per second of one producer with 1, 100 and 10,000 records of 100 B each, in a topic with
  three partitions and replication factor 3; and the CPU time of all brokers for each transaction
* commits: synchronous commits of a consumer's offset per second, and the CPU time of all brokers for each commit
* rebalances: a third member joins a group of two, and fifty members join an empty group: time until every member has
  its partitions
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Any
from uuid import uuid4

import load
import peers
from confluent_kafka import Consumer, Producer, TopicPartition
from figures import Figures
from load import ExceededError
from peers import Peer

RECORDS = (1, 100, 10_000)
VALUE = bytes(100)
CALL_S = 30.0
REBALANCE_S = 60.0
MANY = 50


def turn(peer: Peer, seconds: float, work: Callable[[], None]) -> tuple[float, float]:
    """Repeat `work` for so long; return how often in a second, and the CPU time of all brokers for each, in us."""
    cpu, begun, count = peers.cpu_seconds(peer), time.perf_counter(), 0
    while (spent := time.perf_counter() - begun) < seconds or not count:
        work()
        count += 1
    return count / spent, (peers.cpu_seconds(peer) - cpu) / count * 1e6


class Application:
    """The clients of one peer, which live for the whole run."""

    def __init__(self, peer: Peer) -> None:
        self.peer = peer
        self.common: dict[str, Any] = {"bootstrap.servers": peer.bootstrap_servers, "log_level": 0}
        self.topic = load.make_topic(peer)
        self.producer = Producer({**self.common, "transactional.id": uuid4().hex, "linger.ms": 0})
        self.producer.init_transactions(CALL_S)
        self._reader = Consumer({**self.common, "group.id": uuid4().hex, "enable.auto.commit": False})
        self._wide = load.make_topic(peer, partitions=MANY)
        self._offset = 0

    def transaction(self, records: int) -> None:
        """Write and commit one transaction."""
        self.producer.begin_transaction()
        for _ in range(records):
            self.producer.produce(self.topic, VALUE)
        self.producer.commit_transaction(CALL_S)

    def commit(self) -> None:
        """Commit one offset, and wait for the response."""
        self._offset += 1
        offset = TopicPartition(self.topic, 0, self._offset)
        self._reader.commit(offsets=[offset], asynchronous=False)

    def join_ms(self, before: int, joining: int) -> float:
        """Return the time that `joining` members take to join a group of `before`."""
        with ExitStack() as stack:
            group, members = uuid4().hex, list[Consumer]()
            for count in (before, joining):
                begun = time.perf_counter()
                for _ in range(count):
                    consumer = Consumer({**self.common, "group.id": group, "enable.auto.commit": False})
                    stack.callback(consumer.close)
                    consumer.subscribe([self._wide])
                    members.append(consumer)
                await_assignments(members)
            return (time.perf_counter() - begun) * 1e3

    def close(self) -> None:
        """Close the consumer."""
        self._reader.close()


def await_assignments(members: Sequence[Consumer]) -> None:
    """Poll all members until together they have every partition, and each has an equal share."""
    share, deadline = MANY // max(1, len(members)), time.perf_counter() + REBALANCE_S
    while members:
        for member in members:
            member.poll(0)
        sizes = [len(member.assignment()) for member in members]
        if sum(sizes) == MANY and min(sizes) >= share:
            return
        if time.perf_counter() > deadline:
            raise ExceededError(f"the assignments after {REBALANCE_S:g} s: {sizes}")


def measure(figures: Figures, app: Application, seconds: float, skip: set[str]) -> None:
    """One turn of one peer."""
    name = app.peer.name
    if "transactions" not in skip:
        for records in RECORDS:
            rate, cpu = turn(app.peer, seconds, partial(app.transaction, records))
            figures.add(f"transactions of {records:,} records, /s", name, rate)
            figures.add(f"transactions of {records:,} records, broker CPU us", name, cpu)
    if "commits" not in skip:
        rate, cpu = turn(app.peer, seconds, app.commit)
        figures.add("commits, /s", name, rate)
        figures.add("commits, broker CPU us", name, cpu)
    if "rebalances" not in skip:
        figures.add("rebalance from 2 to 3 members, ms", name, app.join_ms(2, 1))
        figures.add(f"rebalance of {MANY} members, ms", name, app.join_ms(0, MANY))


def main() -> int:
    """Run the benchmark; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each figure in each turn")
    parser.add_argument("--skip", default="", help="transactions, commits, rebalances, kafka")
    given = parser.parse_args()
    skip, figures = set(given.skip.split(",")), Figures()
    with ExitStack() as stack:
        apps = [Application(stack.enter_context(peers.harrow()))]
        if "kafka" not in skip:
            try:
                apps.append(Application(stack.enter_context(peers.apache_kafka())))
            except peers.UnavailableError as error:
                print(f"Apache Kafka is not measured: {error}")
        for number in range(given.rounds + 1):
            for app in apps:
                measure(figures if number else Figures(), app, given.seconds, skip)
        for app in apps:
            app.close()
    missed = figures.report()
    for line in missed:
        print(f"missed: {line}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
