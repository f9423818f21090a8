"""Elections of controllers and leaders, and what brokers receive, over a real registry (D1, D2, D4, D6)."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from controlled_cluster import ControlledCluster, ReceivedRequests, clustered
from harrow.cluster.controller import RegistryIsrStore
from harrow.cluster.controller.operator_api import unregister
from harrow.cluster.errors import ErrorCode, IsrMemberChangedError, KafkaError
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from registry_in_process import RecordedEvents, deleted

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


pytestmark = pytest.mark.usefixtures("registry_kind")


def test_new_topic_gets_leaders_and_every_broker_receives_them(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 3, 1), (3, 1))
        for received in cluster.received.values():
            await received.until(lambda received=received: received.metadata == {T0: 2, T1: 3})  # type: ignore[misc]  # mypy cannot infer a default
        assert cluster.received[NodeId(1)].leaders == {T0: (2, 0, (2, 3, 1)), T1: (3, 0, (3, 1))}
        assert cluster.received[NodeId(2)].leaders == {T0: (2, 0, (2, 3, 1))}
        state = await cluster.state("t")
        assert (state.leader, state.leader_epoch, state.controller_epoch) == (2, 0, 1)

    clustered(tmp_path, test)


@pytest.mark.parametrize("dead", [1, 2])
def test_dead_leader_is_replaced_whether_or_not_it_was_the_controller(tmp_path: Path, dead: int) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (dead, 3))
        await cluster.leader_received(3, T0, dead, 0)
        await cluster.stop(dead)
        await cluster.leader_received(3, T0, 3, 1)
        state = await cluster.state("t")
        assert (state.leader, state.isr) == (3, (3,))
        received = cluster.received[NodeId(3)]
        await received.until(lambda: received.metadata[T0] == 3)
        await cluster.start(dead)  # it is back, as a follower
        await cluster.leader_received(dead, T0, 3, 1)
        assert await cluster.state("t") == state

    clustered(tmp_path, test)


def test_partition_is_offline_until_its_last_in_sync_replica_restarts(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("t", (2,))
        await cluster.leader_received(2, T0, 2, 0)
        await cluster.stop(2)
        received = cluster.received[NodeId(1)]
        await received.until(lambda: received.metadata.get(T0) == -1)
        assert (await cluster.state("t")).isr == (2,)
        await cluster.start(2)
        await cluster.leader_received(2, T0, 2, 2)

    clustered(tmp_path, test)


def test_unclean_election_happens_only_if_the_topic_allows_it(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        allowed = json.dumps({"version": 1, "config": {"unclean.leader.election.enable": "true"}})
        await cluster.received[NodeId(1)].until(lambda: cluster.received[NodeId(1)].live == {1, 2})
        await cluster.topic("u", (2, 1), config=allowed)
        await cluster.topic("c", (2, 1))
        unclean, clean = TopicPartition("u", 0), TopicPartition("c", 0)
        for tp in (unclean, clean):
            await cluster.leader_received(1, tp, 2, 0)
            data = json.dumps({"controller_epoch": 1, "leader": 2, "version": 1, "leader_epoch": 0, "isr": [2]})
            await cluster.any_client().set(f"/brokers/topics/{tp.topic}/partitions/0/state", data)
        await cluster.stop(2)
        await cluster.leader_received(1, unclean, 1, 1)
        assert (await cluster.state("u")).isr == (1,)
        await cluster.leader_received(1, clean, -1, 1)
        assert (await cluster.state("c")).isr == (2,)

    clustered(tmp_path, test)


def test_restart_within_one_session_timeout_counts_as_failure_and_start(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (3, 2))
        await cluster.leader_received(3, T0, 3, 0)
        older = cluster.nodes.pop(3)  # its session lives on
        before = cluster.received[NodeId(3)].broker_epoch
        await cluster.start(3)
        assert cluster.received[NodeId(3)].broker_epoch > before
        await cluster.leader_received(3, T0, 2, 1)
        assert cluster.received[NodeId(3)].leaders[T0] == (2, 1, (2,))
        await older.controller.stop()

    clustered(tmp_path, test)


def test_controller_decides_again_after_a_concurrent_isr_write_of_the_leader(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 1, 3))
        await cluster.leader_received(3, T0, 2, 0)
        # the leader shrinks to (2, 3); the controller does not know it yet when the leader dies
        state = await cluster.state("t")
        store = RegistryIsrStore(cluster.nodes[2].host, cluster.nodes[2].registry)
        version = await store.write_isr(
            T0, NodeId(2), LeaderEpoch(0), (NodeId(2), NodeId(3)), ControllerEpoch(1), state.version, {}
        )
        assert version == state.version + 1
        await cluster.stop(2)
        await cluster.leader_received(3, T0, 3, 1)  # not 1: it is first in AR, but not in sync
        assert (await cluster.state("t")).isr == (3,)

    clustered(tmp_path, test)


def test_isr_changes_are_sent_to_every_broker(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 1, 3))
        await cluster.leader_received(3, T0, 2, 0)
        client = cluster.nodes[2].registry
        store = RegistryIsrStore(cluster.nodes[2].host, client)
        args = (T0, NodeId(2), LeaderEpoch(0), (NodeId(2), NodeId(3)), ControllerEpoch(1))
        received = cluster.received[NodeId(1)]

        def known() -> bool:
            last = received.events[-1].topic_states
            return bool(last) and getattr(last[0].partition_states[0], "zk_version", 0) == 1

        assert await store.write_isr(*args, 0, {}) == 1
        assert await store.write_isr(*args, 0, {}) == 1  # its answer was lost: recognised
        assert await store.write_isr(*args[:3], (NodeId(2),), args[4], 0, {}) is None
        assert await store.write_isr(TopicPartition("none", 0), *args[1:], 0, {}) is None
        await received.until(known)
        heard = RecordedEvents()
        while await client.children("/isr_change_notification", watch=heard):
            await heard.next()

    clustered(tmp_path, test)


def test_an_isr_is_not_written_for_a_member_that_registered_again(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 1, 3))
        await cluster.leader_received(3, T0, 2, 0)
        client = cluster.nodes[2].registry
        store = RegistryIsrStore(cluster.nodes[2].host, client)
        args = (T0, NodeId(2), LeaderEpoch(0), (NodeId(2), NodeId(3)), ControllerEpoch(1))
        node = await client.exists("/brokers/ids/3")
        assert node is not None
        now, before = BrokerEpoch(node.czxid), BrokerEpoch(node.czxid - 1)
        with pytest.raises(IsrMemberChangedError, match="/brokers/ids/3"):
            await store.write_isr(*args, 0, {NodeId(3): before})
        with pytest.raises(IsrMemberChangedError, match="/brokers/ids/9"):
            await store.write_isr(*args, 0, {NodeId(9): now})
        assert (await cluster.state("t")).version == 0
        assert await store.write_isr(*args, 0, {NodeId(3): now}) == 1
        assert await store.write_isr(*args, 0, {NodeId(3): before}) == 1  # its answer was lost

    clustered(tmp_path, test)


def test_deletion_hides_topic_at_once_and_waits_for_dead_replicas(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 3), config='{"version":1,"config":{}}')
        await cluster.leader_received(3, T0, 2, 0)
        await cluster.stop(3)
        await cluster.leader_received(2, T0, 2, 1)
        client = cluster.nodes[1].registry
        await client.create("/admin/delete_topics/t")
        await client.create("/admin/delete_topics/never-was")
        received = cluster.received[NodeId(1)]
        await received.until(lambda: received.metadata.get(T0) == -2)
        assert await client.exists("/brokers/topics/t") is not None
        await deleted(client, "/admin/delete_topics/never-was")
        await cluster.start(3)
        await deleted(client, "/admin/delete_topics/t")
        assert cluster.received[NodeId(3)].stopped == {T0: True}
        assert T0 not in cluster.received[NodeId(3)].leaders
        assert await client.exists("/brokers/topics/t") is None
        assert await client.exists("/config/topics/t") is None
        await cluster.topic("t", (1,))  # the name is free again
        await cluster.leader_received(1, T0, 1, 0)

    clustered(tmp_path, test)


def test_controlled_shutdown_moves_leaders_before_the_broker_stops(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 3), (3, 2), (2,))
        await cluster.leader_received(3, T1, 3, 0)
        controller = cluster.nodes[1].controller
        epoch = cluster.nodes[2].controller.broker_epoch
        ask = controller._shut_down  # pyright: ignore[reportPrivateUsage] - the handler's body
        with pytest.raises(KafkaError) as raised:
            await ask(NodeId(2), BrokerEpoch(epoch - 1))
        assert raised.value.code is ErrorCode.stale_broker_epoch
        with pytest.raises(KafkaError) as raised:
            await cluster.nodes[3].controller._shut_down(NodeId(2), epoch)  # pyright: ignore[reportPrivateUsage] - the test is of it
        assert raised.value.code is ErrorCode.not_controller
        assert await ask(NodeId(2), epoch) == []  # a single replica is not waited for
        await cluster.leader_received(3, T0, 3, 1)
        await cluster.leader_received(3, T1, 3, 1)
        received = cluster.received[NodeId(2)]
        await received.until(lambda: received.stopped == {T1: False})
        assert [(await cluster.state("t", n)).isr for n in (0, 1, 2)] == [(3,), (3,), (2,)]

    clustered(tmp_path, test)


def test_rebalance_gives_leadership_back_to_preferred_leaders(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("t", (1, 2))
        await cluster.leader_received(1, T0, 1, 0)
        data = json.dumps({"controller_epoch": 1, "leader": 2, "version": 1, "leader_epoch": 1, "isr": [2, 1]})
        client = cluster.nodes[2].registry
        await client.set("/brokers/topics/t/partitions/0/state", data)
        note = json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0}]})
        await client.create("/isr_change_notification/isr_change_", note, sequential=True)
        await cluster.leader_received(1, T0, 1, 2)

    clustered(tmp_path, test, {"leader.imbalance.check.interval.seconds": 1})


def test_request_is_repeated_until_the_broker_responds(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        received = cluster.received[NodeId(2)]
        await received.until(lambda: received.live == {1, 2})
        cluster.unreachable.add(NodeId(2))
        await cluster.topic("t", (1, 2))
        await cluster.leader_received(1, T0, 1, 0)
        assert T0 not in received.leaders
        cluster.unreachable.clear()
        await cluster.leader_received(2, T0, 1, 0)

    clustered(tmp_path, test)


def test_many_partitions_are_written_in_chunks(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("many", *[(2, 1)] * 1200)
        last = TopicPartition("many", 1199)
        await cluster.leader_received(1, last, 2, 0)
        await cluster.stop(2)
        await cluster.leader_received(1, last, 1, 1)
        received = cluster.received[NodeId(1)]
        assert {row[:2] for row in received.leaders.values()} == {(1, 1)}

    clustered(tmp_path, test)


def test_concurrent_campaigns_elect_one_controller(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await asyncio.gather(*[cluster.start(number) for number in range(1, 8)])
        for received in cluster.received.values():
            await settled_view(received, 7)
        for epoch in range(1, 6):
            winner = cluster.active
            assert len(winner) == 1
            await cluster.stop(*winner)
            for number in cluster.nodes:
                received = cluster.received[NodeId(number)]
                await received.until(
                    lambda received=received, epoch=epoch: (  # type: ignore[misc]  # mypy cannot infer a default
                        received.controller_epoch == epoch + 1 and len(received.live) == 7 - epoch
                    )
                )

    async def settled_view(received: ReceivedRequests, count: int) -> None:
        await received.until(lambda: len(received.live) == count)

    clustered(tmp_path, test)


def test_an_unregistered_broker_loses_its_leaderships_and_registers_again_when_it_starts(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 3))
        await cluster.leader_received(3, T0, 2, 0)
        controller = cluster.nodes[1].controller
        await controller.run_event("unregister", lambda active: unregister(active, NodeId(2)))
        await cluster.leader_received(3, T0, 3, 1)
        for gone in (2, 9):
            with pytest.raises(KafkaError) as refused:
                await controller.run_event("again", lambda active, gone=gone: unregister(active, NodeId(gone)))  # type: ignore[misc]  # mypy cannot infer a default
            assert refused.value.code is ErrorCode.broker_id_not_registered
        await cluster.stop(2)
        await cluster.start(2)
        await cluster.leader_received(2, T0, 3, 1)

    clustered(tmp_path, test)
