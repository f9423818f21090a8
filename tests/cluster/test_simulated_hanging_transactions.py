"""Hanging transactions on a virtual clock: the operator of a simulated job aborts them (F3, F5).

Followers describe the producers of a partition as the leader does, and refuse markers. An operator that takes a
follower for the leader must find the leader.
"""

from __future__ import annotations

from typing import Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire.batches import build_batch
from harrow.harness.backends.simulated.wire import KnownLeader, WireClient
from harrow.harness.simulation.hanging_transactions import HANGING_TIMEOUTS, HangingTransactions
from harrow.harness.simulation.producer import produce_request

TP = TopicPartition("sink", 0)
CONFIG = {"transaction.partition.verification.enable": False, "default.replication.factor": 3}
TRANSACTION_MS = 4_000
WITHOUT_ADDITION = 11
"""A version of Produce that adds no partition to a transaction."""


async def open_transaction(client: WireClient) -> KnownLeader:
    """Append a transactional batch that no coordinator knows; returns the leader."""
    data = build_batch(
        [(None, b"open", ())],
        timestamp_ms=client.host.clock.wall_ms(),
        producer_id=7,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )
    request = produce_request(TP, data, WITHOUT_ADDITION, acks=-1, transactional_id="gone")
    leader = await client.leader(TP)
    response = await client.ask(leader.address, request, 3_000)
    assert response.responses[0].partition_responses[0].error_code is ErrorCode.none
    return leader


def partition_on(cluster: SimulatedCluster, node_id: int) -> Any:
    return cluster.broker(node_id).replicas.partition(TP)


def test_an_operator_that_asks_a_follower_first_aborts_a_hanging_transaction() -> None:
    with SimulatedCluster(brokers=3, seed=1, config=CONFIG) as cluster:
        cluster.start()
        client = WireClient(cluster.client("operator"), "operator", cluster.bootstrap)
        found: list[KnownLeader] = []

        async def prepare() -> None:
            await client.create_topic(TP.topic, 1, 3, {})
            found.append(await open_transaction(client))

        client.host.tasks.spawn(prepare(), name="prepare")
        assert cluster.run_until(lambda: bool(found), 30_000)
        (leader,) = found
        log = partition_on(cluster, leader.node_id).log
        assert log.last_stable_offset(log.high_watermark()) == 0
        follower = next(node for node in cluster.brokers if node != leader.node_id)
        assert not partition_on(cluster, follower).is_leader
        # as before a preferred election that the operator knows nothing of
        client.leaders[TP] = KnownLeader(follower, cluster.bootstrap[follower - 1], leader.epoch)
        HangingTransactions(client, lambda: [TP], TRANSACTION_MS).start()
        assert not cluster.run_until(lambda: log.log_end_offset > 1, HANGING_TIMEOUTS * TRANSACTION_MS), "too early"
        assert cluster.run_until(
            lambda: log.last_stable_offset(log.high_watermark()) == log.log_end_offset == 2,
            HANGING_TIMEOUTS * TRANSACTION_MS,
        )
