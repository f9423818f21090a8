"""States of share-partitions on brokers: requests 83 to 87, a coordinator that moves, the persister (KIP-932)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster import Cluster
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.share_coordinator.values import DeliveryState, SharePartition, StateBatch
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire.api_keys import ApiKey
from raw_kafka import RawKafka
from waiting import until

SHARE_TYPE = 2
STATE_TOPIC = "__share_group_state"
INITIALIZE, READ = ApiKey.INITIALIZE_SHARE_GROUP_STATE, ApiKey.READ_SHARE_GROUP_STATE
WRITE, DELETE, SUMMARY = (
    ApiKey.WRITE_SHARE_GROUP_STATE,
    ApiKey.DELETE_SHARE_GROUP_STATE,
    ApiKey.READ_SHARE_GROUP_STATE_SUMMARY,
)
VERSION = {INITIALIZE: 0, READ: 0, WRITE: 1, DELETE: 0, SUMMARY: 1}
NONE = ErrorCode.none


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config={"share.coordinator.snapshot.update.records.per.snapshot": 2}) as running:
        yield running


@pytest.fixture(scope="module")
def topic_id(cluster: Cluster) -> UUID:
    with RawKafka(cluster.brokers[1].port) as raw:
        assert raw.create_topic("orders", partitions=2, replication=3).error_code == 0
        row = until(lambda: (row := raw.metadata("orders", version=12).topics[0]).error_code == 0 and row)
    found: UUID = row.topic_id
    return found


def coordinator(cluster: Cluster, share: SharePartition) -> int:
    """The port of the broker that coordinates a share-partition; the first request creates the topic."""

    def port() -> int:
        for broker in cluster.brokers.values():
            try:
                with RawKafka(broker.port) as raw:
                    key = share.coordinator_key
                    (row,) = raw.ask(
                        ApiKey.FIND_COORDINATOR, 6, key_type=SHARE_TYPE, coordinator_keys=[key]
                    ).coordinators
            except OSError:
                continue
            if row.error_code is NONE:
                return int(row.port)
        return 0

    return until(port, "a share coordinator")


def ask(cluster: Cluster, share: SharePartition, api: ApiKey, **fields: Any) -> Any:
    """The row of the response; again while the coordinator moves."""
    row = {"partition": share.partition, **fields}
    again = {ErrorCode.not_coordinator, ErrorCode.coordinator_not_available, ErrorCode.coordinator_load_in_progress}

    def answer() -> Any:
        with RawKafka(coordinator(cluster, share)) as raw:
            topics = [{"topic_id": share.topic_id, "partitions": [row]}]
            (result,) = raw.ask(api, VERSION[api], group_id=share.group_id, topics=topics).results
        (found,) = result.partitions
        return None if found.error_code in again else found

    return until(answer, f"a response to {api.name}", amid=(OSError,))


def written(cluster: Cluster, share: SharePartition, *rows: tuple[int, int, int, int], **fields: Any) -> Any:
    batches = [
        {"first_offset": first, "last_offset": last, "delivery_state": state, "delivery_count": count}
        for first, last, state, count in rows
    ]
    given = {"state_epoch": 0, "leader_epoch": 1, "start_offset": -1, "delivery_complete_count": 0, **fields}
    return ask(cluster, share, WRITE, state_batches=batches, **given).error_code


def read(cluster: Cluster, share: SharePartition, leader_epoch: int = 1) -> tuple[Any, ...]:
    row = ask(cluster, share, READ, leader_epoch=leader_epoch)
    batches = [(b.first_offset, b.last_offset, b.delivery_state, b.delivery_count) for b in row.state_batches]
    return row.error_code, row.state_epoch, row.start_offset, batches


def test_a_state_is_initialized_written_read_and_deleted(cluster: Cluster, topic_id: UUID) -> None:
    share = SharePartition("billing", topic_id, 0)
    assert read(cluster, share)[0] is ErrorCode.invalid_request, "it is not initialized"
    assert ask(cluster, share, INITIALIZE, state_epoch=0, start_offset=0).error_code is NONE
    assert read(cluster, share) == (NONE, 0, 0, [])
    assert written(cluster, share, (0, 9, 0, 1)) is NONE
    assert written(cluster, share, (0, 4, 2, 1), start_offset=0, delivery_complete_count=5) is NONE
    assert read(cluster, share) == (NONE, 0, 0, [(0, 4, 2, 1), (5, 9, 0, 1)])
    assert written(cluster, share, (5, 5, 4, 5), start_offset=5, delivery_complete_count=1) is NONE
    assert written(cluster, share, (7, 7, 0, 2), start_offset=6) is NONE, "by now with a snapshot"
    assert read(cluster, share) == (NONE, 0, 6, [(6, 6, 0, 1), (7, 7, 0, 2), (8, 9, 0, 1)])
    summary = ask(cluster, share, SUMMARY, leader_epoch=1)
    assert (summary.start_offset, summary.state_epoch, summary.delivery_complete_count) == (6, 0, 0)
    assert ask(cluster, share, DELETE).error_code is NONE
    assert ask(cluster, share, DELETE).error_code is NONE, "there is nothing to delete"
    assert read(cluster, share)[0] is ErrorCode.invalid_request


def test_old_leaders_and_old_states_are_fenced(cluster: Cluster, topic_id: UUID) -> None:
    share = SharePartition("fenced", topic_id, 1)
    assert ask(cluster, share, INITIALIZE, state_epoch=3, start_offset=-1).error_code is NONE
    assert read(cluster, share, leader_epoch=4) == (NONE, 3, -1, [])
    assert written(cluster, share, (0, 0, 2, 1), state_epoch=3, leader_epoch=3) is ErrorCode.fenced_leader_epoch
    assert written(cluster, share, (0, 0, 2, 1), state_epoch=2, leader_epoch=4) is ErrorCode.fenced_state_epoch
    assert read(cluster, share, leader_epoch=3)[0] is ErrorCode.fenced_leader_epoch
    assert ask(cluster, share, INITIALIZE, state_epoch=2, start_offset=0).error_code is ErrorCode.fenced_state_epoch


def test_share_partitions_that_cannot_be_have_errors_of_their_own(cluster: Cluster, topic_id: UUID) -> None:
    known = SharePartition("errors", topic_id, 0)
    port = coordinator(cluster, known)
    rows = [
        {"topic_id": topic_id, "partitions": [{"partition": 6}, {"partition": 7}]},
        {"topic_id": None, "partitions": [{"partition": 0}]},
        {"topic_id": UUID(int=99, version=4), "partitions": [{"partition": 0}]},
    ]
    assert ask(cluster, known._replace(partition=-1), DELETE).error_code is ErrorCode.invalid_request
    with RawKafka(port) as raw:
        results = raw.ask(DELETE, 0, group_id="errors", topics=rows).results
        codes = [row.error_code for result in results for row in result.partitions]
        elsewhere = {ErrorCode.unknown_topic_or_partition, ErrorCode.not_coordinator}
        assert set(codes) <= elsewhere
        assert raw.ask(DELETE, 0, group_id="", topics=rows).results == ()
        assert raw.ask(DELETE, 0, group_id="errors", topics=[]).results == ()
        for key in ("billing", "a:b:c", f"billing:{'x' * 22}:one"):
            asked = raw.ask(ApiKey.FIND_COORDINATOR, 6, key_type=SHARE_TYPE, coordinator_keys=[key])
            assert asked.coordinators[0].error_code is ErrorCode.invalid_request


def test_a_coordinator_that_moves_has_every_state_that_was_answered(cluster: Cluster, topic_id: UUID) -> None:
    shares = [SharePartition(f"moved-{number}", topic_id, number % 2) for number in range(6)]
    for share in shares:
        assert ask(cluster, share, INITIALIZE, state_epoch=0, start_offset=0).error_code is NONE
        assert written(cluster, share, (0, 9, 2, 1), (10, 19, 0, 1)) is NONE
    for broker in cluster.brokers.values():
        broker.kill()
        for share in shares:
            assert read(cluster, share) == (NONE, 0, 0, [(0, 9, 2, 1), (10, 19, 0, 1)])
        broker.start()
        cluster.await_converged()


def test_the_persister_of_each_broker_reaches_the_coordinator_and_waits_while_it_moves() -> None:
    settings: dict[str, object] = {
        "share.coordinator.state.topic.num.partitions": 1,
        "share.coordinator.state.topic.prune.interval.ms": 500,
        "share.coordinator.snapshot.update.records.per.snapshot": 1,
    }
    with SimulatedCluster(brokers=3, config=settings) as cluster:
        cluster.start()
        results: list[Any] = []

        def run(node: int, coroutine: Any) -> Any:
            async def keep() -> None:
                results.append(await coroutine)

            before = len(results)
            host = cluster.brokers[node].machine.host
            assert host is not None
            host.tasks.spawn(keep(), name="keep")
            assert cluster.run_until(lambda: len(results) > before, 30_000)
            return results[-1]

        run(1, cluster.broker(1).topic_admin.ensure_topic("orders", partitions=1, replication_factor=3, config={}))
        topic = cluster.broker(1).cache.topic("orders")
        assert topic is not None and topic.topic_id is not None
        share = SharePartition("billing", topic.topic_id, 0)
        run(1, cluster.broker(1).shares.persister.initialize(share, state_epoch=0, start_offset=Offset(0)))
        for offset in range(6):
            stored = StateBatch(Offset(offset), Offset(offset), DeliveryState.ACKNOWLEDGED, 1)
            for node in (1, 2, 3):
                persister = cluster.broker(node).shares.persister
                epoch = LeaderEpoch(3 * offset + node)
                assert run(node, persister.read(share, leader_epoch=epoch)).start_offset == max(0, offset - 1)
            if offset == 3:
                leader = cluster.broker(1).cache.leader(TopicPartition(STATE_TOPIC, 0))
                cluster.brokers[leader].kill()
                cluster.brokers[leader].begin()
            other = next(node for node, row in cluster.brokers.items() if row.ready)
            run(
                other,
                cluster.broker(other).shares.persister.write(
                    share,
                    state_epoch=0,
                    leader_epoch=LeaderEpoch(3 * offset + 3),
                    start_offset=Offset(offset),
                    delivery_complete_count=1,
                    batches=[stored],
                ),
            )
            assert cluster.run_until(lambda: all(row.state == "running" for row in cluster.brokers.values()), 30_000)
        cluster.run_for(2_000)
        starts = {
            rows["log_start"] for node in cluster.states().values() for rows in node if rows["topic"] == STATE_TOPIC
        }
        assert max(starts) > 0, "records that no state needs are removed"
        assert run(3, cluster.broker(3).shares.persister.summary(share, leader_epoch=LeaderEpoch(99))).start_offset == 5
