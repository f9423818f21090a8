"""Elections of the controller, and controllers that were replaced or cannot load the cluster (D1, D2)."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from pathlib import Path

import pytest
from controlled_cluster import ControlledCluster, clustered, embedded_only
from harrow.cluster.controller.active_controller import ActiveController
from harrow.cluster.controller.controller_context import ControllerContext
from harrow.cluster.controller.controller_election import ControllerMovedError, WonElection
from harrow.cluster.controller.partition_writer import PartitionWriter
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from harrow.cluster.registry import Create, Delete, DeleteTree, Set
from registry_in_process import RecordedEvents

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


pytestmark = pytest.mark.usefixtures("registry_kind")


def test_a_controller_that_cannot_load_the_cluster_gives_its_seat_up(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (2, 3))
        await cluster.leader_received(2, T0, 2, 0)
        client = cluster.nodes[3].registry
        readable, _ = await client.get("/brokers/topics/t")
        await client.set("/brokers/topics/t", "{")
        gave_up = RecordedEvents()
        await client.exists("/controller", watch=gave_up)
        await cluster.stop(1)  # it was the controller
        await gave_up.next()
        while not (seat := await client.exists("/controller", watch=gave_up)):
            await gave_up.next()
        # until the second controller has given its seat up; an event may be that of the seat's creation
        while (now := await client.exists("/controller", watch=gave_up)) and now.czxid == seat.czxid:
            await gave_up.next()
        received = cluster.received[NodeId(2)]
        assert received.controller_epoch == 1, "a controller without topics sent a request"
        await client.set("/brokers/topics/t", readable)
        await received.until(lambda: received.controller_epoch > 2)
        await cluster.leader_received(2, T0, 2, 0)
        assert received.live == {2, 3}
        assert len(cluster.active) == 1

    clustered(tmp_path, test)


def test_zombie_controller_changes_nothing(tmp_path: Path) -> None:
    embedded_only("link faults do not reach a ZooKeeper's connection")

    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, timeout_ms=300)
        await cluster.start(2, 3)
        await cluster.topic("t", (2, 3, 1))
        await cluster.leader_received(1, T0, 2, 0)
        zombie = cluster.nodes[1]
        zombie.registry.on_expired.append(expired := RecordedEvents())
        zombie.host.network.block(["registry"])  # type: ignore[attr-defined] # a fault injection point of the real host
        received = cluster.received[NodeId(3)]
        await received.until(lambda: received.controller_epoch == 2 and received.live == {2, 3})
        state = await cluster.state("t")
        assert (state.leader, state.isr, state.controller_epoch) == (2, (2, 3), 2)
        # it is still active and sends requests; the brokers refuse them by the controller epoch
        assert zombie.controller.is_active
        active = zombie.controller._active  # pyright: ignore[reportPrivateUsage] - the zombie's own state
        assert active is not None
        batch = active.core.new_batch()
        batch.leader_and_isr([T0])
        batch.metadata([T0])
        batch.flush()
        await received.until(lambda: ErrorCode.stale_controller_epoch in received.refused)
        zombie.host.network.heal("deliver")  # type: ignore[attr-defined]  # a fault injection point of the real host
        await expired.next()
        await zombie.controller.session_expired()
        assert not zombie.controller.is_active
        assert await cluster.state("t") == state

    clustered(tmp_path, test)


def test_newer_controller_makes_the_older_one_resign(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        received = cluster.received[NodeId(2)]
        await received.until(lambda: received.live == {1, 2})
        usurper = await cluster.registry.client("broker 9")
        seat = Create("/controller", '{"brokerid":9}', ephemeral=True)
        await usurper.multi([Delete("/controller"), seat, Set("/controller_epoch", "2", 1)])
        await usurper.close()
        await received.until(lambda: received.controller_epoch == 3)
        assert len(cluster.active) == 1

    clustered(tmp_path, test)


def test_writes_of_an_earlier_controller_epoch_are_refused(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("t", (1, 2))
        await cluster.leader_received(2, T0, 1, 0)
        before = await cluster.nodes[1].registry.read_tree("/")
        known = ControllerContext()
        known.partitions[T0] = state = await cluster.state("t")
        # /controller_epoch has version 1 now
        stale = WonElection(epoch=ControllerEpoch(0), version=0)
        writer = PartitionWriter(cluster.any_client(), stale, known)
        with pytest.raises(ControllerMovedError):
            await writer.change([T0], lambda _, found: replace(found, leader=NodeId(2), leader_epoch=LeaderEpoch(1)))
        with pytest.raises(ControllerMovedError):
            await writer.create({T1: state})
        with pytest.raises(ControllerMovedError):
            await writer.remove([DeleteTree("/brokers/topics/t")])
        assert await cluster.nodes[1].registry.read_tree("/") == before

    clustered(tmp_path, test)


def test_registry_restart_causes_no_election(tmp_path: Path) -> None:
    embedded_only("the ZooKeeper is shared; see tests/cluster/test_on_zookeeper.py")

    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("t", (1, 2))
        await cluster.leader_received(2, T0, 1, 0)
        states = RecordedEvents()
        cluster.nodes[1].registry.on_state.append(states)
        await cluster.registry.stop()
        await states.until(lambda: "disconnected" in states.events)
        assert cluster.active == [1]
        await cluster.registry.start()
        for node in cluster.nodes.values():
            await node.registry.until_connected()
        await cluster.topic("u", (2, 1))
        await cluster.leader_received(1, TopicPartition("u", 0), 2, 0)
        assert cluster.active == [1]
        assert (await cluster.state("t")).leader_epoch == 0

    clustered(tmp_path, test)


def test_broker_that_restarted_during_a_registry_outage_may_lead(tmp_path: Path) -> None:
    """It had asked to shut down in its life before; simulated seed 102509 was left without a leader."""

    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2)
        await cluster.topic("t", (2, 1))
        await cluster.leader_received(2, T0, 2, 0)
        controller = cluster.nodes[1].controller
        epoch = BrokerEpoch(cluster.received[NodeId(2)].broker_epoch)
        assert await controller._shut_down(NodeId(2), epoch) == []  # pyright: ignore[reportPrivateUsage]
        begun, back = asyncio.Event(), asyncio.Event()

        async def reload(active: ActiveController) -> None:  # as after an outage: nobody has said that it bounced
            begun.set()
            await back.wait()
            await active.load()

        async def electable(active: ActiveController) -> set[NodeId]:
            return active.context.electable()

        outage = asyncio.create_task(controller.run_event("outage", reload))
        await begun.wait()
        await cluster.stop(2)
        await cluster.start(2)
        back.set()
        await outage
        assert await controller.run_event("electable", electable) == {1, 2}

    clustered(tmp_path, test)


def test_first_broker_is_elected_and_its_end_elects_another(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await asyncio.gather(*(cluster.start(number) for number in (1, 2, 3)))
        for received in cluster.received.values():
            await received.until(lambda received=received: received.live == {1, 2, 3})  # type: ignore[misc]  # mypy cannot infer a default
        (first,) = cluster.active
        left = {1, 2, 3} - {first}
        client = cluster.nodes[min(left)].registry
        assert (await client.get("/controller_epoch"))[0] == "1"
        await cluster.stop(first)
        received = cluster.received[NodeId(min(left))]
        await received.until(lambda: received.live == left and received.controller_epoch == 2)
        assert len(cluster.active) == 1
        assert json.loads((await client.get("/controller"))[0])["brokerid"] == cluster.active[0]

    clustered(tmp_path, test)


def test_restart_that_no_controller_noticed_counts_as_failure(tmp_path: Path) -> None:
    async def test(cluster: ControlledCluster) -> None:
        await cluster.start(1, 2, 3)
        await cluster.topic("t", (3, 2))
        await cluster.leader_received(3, T0, 3, 0)
        for node in cluster.nodes.values():
            await node.controller.stop()  # nobody watches
        older = cluster.nodes.pop(3)
        await cluster.start(3)
        await older.registry.close()
        await cluster.stop(1)  # which held the seat
        await cluster.leader_received(3, T0, 2, 1)

    clustered(tmp_path, test)
