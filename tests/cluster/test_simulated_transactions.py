"""Transactions of version 2 on a virtual clock, while brokers are killed: each is whole or nothing (F3, F4).

The client sends again what it has no response for, with the same epoch and sequences, as the protocol demands. Its
responses must be true: a transaction whose commit was acknowledged is in both partitions, an aborted transaction in
none, and a transaction whose end is not known in both or in none. At the end nothing hangs: every last stable offset is
the high watermark.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import pytest
from harrow.cluster.errors import KafkaError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import TRANSACTIONS
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire.batches import decode_records, headers
from harrow.cluster.wire.records import CONTROL_KEY
from harrow.harness.backends.simulated.wire import WireClient
from harrow.harness.simulation.transactional_producer import SimulatedTransactionalProducer
from long_runs import seeds

PLACES = [TopicPartition("sink", number) for number in (0, 1)]
CONFIG = {
    "transaction.state.log.num.partitions": 3,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.replication.factor": 3,
    "transaction.state.log.min.isr": 2,
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "zookeeper.session.timeout.ms": 1500,
    "replica.lag.time.max.ms": 1500,
    "replica.fetch.backoff.ms": 50,
    "request.timeout.ms": 3000,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
}


@dataclass
class Application:
    """Writes one record to each partition in a transaction, again and again."""

    client: WireClient
    count: int
    results: dict[str, str] = field(default_factory=dict[str, str])

    async def run(self) -> None:
        await self.client.create_topic("sink", 2, 3, {})
        producer = SimulatedTransactionalProducer(self.client, "payments", "", timeout_ms=20_000, version=2)
        await producer.begin_again()
        for number in range(self.count):
            value, commit = str(number), number % 4 != 3
            self.results[value] = "unknown"
            try:
                for tp in PLACES:
                    await producer.produce(tp, [(None, value.encode(), ())])
                    await self.client.sleep(self.client.host.random.uniform(0, 120))
                await producer.end(commit=commit)
                self.results[value] = "committed" if commit else "aborted"
            except KafkaError:
                await producer.begin_again()


def leader_log(cluster: SimulatedCluster, tp: TopicPartition) -> Any:
    """The partition at its leader; None while there is no leader."""
    for node, process in cluster.brokers.items():
        if process.ready and process.state == "running":
            partition = cluster.broker(node).replicas.partition(tp)
            if partition is not None and partition.is_leader:
                return partition
    return None


def committed_values(partition: Any) -> list[str]:
    """What a reader of committed data receives, in the order of the markers."""
    opened: dict[int, list[str]] = {}
    committed: list[str] = []
    offset = 0
    while offset < partition.high_watermark:
        data = partition.log.read(offset, 1 << 20, partition.high_watermark, at_least_one=True)
        view = b"".join(bytes(part) for part in data.parts)
        for at, size, header in headers(view):
            records = decode_records(view[at : at + size])
            if header.is_control:
                mine = opened.pop(header.producer_id, [])
                assert records[0].key is not None
                if CONTROL_KEY.unpack(records[0].key)[1] == 1:
                    committed += mine
            else:
                values = [(record.value or b"").decode() for record in records]
                opened.setdefault(header.producer_id, []).extend(values)
            offset = header.last_offset + 1
    assert not opened, f"{partition}: open transactions {opened}"
    return committed


@pytest.mark.parametrize("seed", seeds(range(1), range(40)))
def test_transactions_are_whole_or_nothing_while_brokers_are_killed(seed: int) -> None:
    rng = Random(seed)
    with SimulatedCluster(brokers=3, seed=seed, config=CONFIG) as cluster:
        cluster.start()
        host = cluster.client("app")
        application = Application(WireClient(host, "app", cluster.bootstrap), count=60)
        done: list[bool] = []

        async def run() -> None:
            await application.run()
            done.append(True)

        host.tasks.spawn(run(), name="application")
        kills = 0
        while not done and kills < 40:
            cluster.run_for(rng.uniform(50, 900))
            victim = cluster.brokers[rng.choice(sorted(cluster.brokers))]
            if victim.ready and victim.state == "running":
                victim.kill()
                kills += 1
                cluster.run_for(rng.uniform(0, 2_500))
                victim.begin()
                assert cluster.run_until(partial(getattr, victim, "ready"), 30_000)
        assert cluster.run_until(lambda: bool(done), 120_000), application.results
        assert kills > 2

        def at_rest() -> bool:
            """Every transaction has its markers, and they are below the high watermark."""
            found = [leader_log(cluster, tp) for tp in PLACES]
            return all(
                partition is not None
                and partition.last_stable_offset == partition.high_watermark == partition.log_end_offset
                for partition in found
            )

        assert cluster.run_until(at_rest, 60_000), "a last stable offset does not advance"
        seen = [committed_values(leader_log(cluster, tp)) for tp in PLACES]
        leaders = [leader_log(cluster, TopicPartition(TRANSACTIONS.name, number)) for number in range(3)]
        assert all(leaders)
    for value, result in application.results.items():
        counts = [values.count(value) for values in seen]
        wanted = {"committed": [[1, 1]], "aborted": [[0, 0]], "unknown": [[0, 0], [1, 1]]}
        assert counts in wanted[result], (value, result, counts)
    assert "committed" in application.results.values()
