"""Controllers, sessions and registrations on real processes, under load (D1, D2, D3, D4, D5, D6)."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow import Cluster
from harrow.cluster.registry import RegistryClient
from harrow.cluster.view import PartitionView
from kafka.errors import KafkaError
from kafka_python_admin import SOCKETS, admin_of
from load_on_cluster import ONE_IN_FLIGHT, Load
from raw_kafka import RawKafka
from registry_in_process import RecordedEvents
from registry_visitor import visit
from topics_and_traces import broker_epochs, create_placed, trace_events
from waiting import until

SESSION_MS = 1_000
CONFIG = {
    "zookeeper.session.timeout.ms": SESSION_MS,
    "auto.leader.rebalance.enable": False,
    "replica.lag.time.max.ms": 1_000,
}


STALE = {"request.timeout.ms": 1_500, "socket.timeout.ms": 2_000, "topic.metadata.refresh.interval.ms": 500}
"""Client settings for a stale leader: the client finds the new leader through another broker."""

pytestmark = SOCKETS


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(brokers=3, config=CONFIG, folder=tmp_path_factory.mktemp("c")) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Any]:
    with admin_of(cluster) as client:
        yield client
    # also after a failed test: the next test needs all brokers
    for node, broker in cluster.brokers.items():
        broker.resume()
        broker.start() if broker.state == "dead" else cluster.control(node, "links.heal", mode="deliver")
    until(lambda: set(cluster.describe().live) == {1, 2, 3})


def partition(cluster: Cluster, topic: str, number: int = 0) -> PartitionView:
    return cluster.describe().topics[topic][number]


def controller_of(cluster: Cluster) -> int:
    found = cluster.controller_id()
    assert found is not None
    return found


# ---------------------------------------------------------------------- zombies


def test_resuming_a_controller_after_its_session_expired_changes_nothing(cluster: Cluster, admin: Any) -> None:
    zombie = controller_of(cluster)
    others = [node for node in cluster.brokers if node != zombie]
    create_placed(admin, "paused", [zombie, *others])
    epoch = cluster.describe().controller_epoch
    with Load(cluster, "paused", **STALE) as load:
        # The controller is paused while a request for it is queued, and other brokers register again.
        cluster.brokers[zombie].pause()
        until(lambda: cluster.controller_id() in others)
        until(lambda: partition(cluster, "paused").leader in others)
        load.more(100)
        view = cluster.describe()
        assert view.controller_epoch > epoch
        before = partition(cluster, "paused")
        resigned = len(trace_events(cluster, zombie, "controller.resigned"))
        cluster.brokers[zombie].resume()
        until(lambda: len(trace_events(cluster, zombie, "controller.resigned")) > resigned)
        until(lambda: set(cluster.isr("paused", 0)) == {1, 2, 3})
        load.more(100)
    after = partition(cluster, "paused")
    assert (after.leader, after.leader_epoch) == (before.leader, before.leader_epoch + 1) or (
        after.leader,
        after.leader_epoch,
    ) == (before.leader, before.leader_epoch)
    assert cluster.describe().controller_epoch == view.controller_epoch
    assert cluster.controller_id() == view.controller
    load.exactly_once()


def test_a_controller_isolated_from_the_registry_decides_nothing(cluster: Cluster, admin: Any) -> None:
    """The controller runs, but is isolated from the registry, and still receives requests to elect and to reassign."""
    zombie = controller_of(cluster)
    other, third = [node for node in cluster.brokers if node != zombie]
    create_placed(admin, "cut", [other, third])
    zombies = f"127.0.0.1:{cluster.brokers[zombie].port}"
    before = partition(cluster, "cut")
    with admin_of(zombies, request_timeout_ms=4_000) as asking:
        assert asking.describe_cluster()["controller_id"] == zombie
        cluster.control(zombie, "links.block", peers=["registry"], direction="both")
        try:
            cluster.brokers[other].pause()
            with pytest.raises(KafkaError):
                asking.create_partitions({"cut": 3}, timeout_ms=500)
            until(lambda: controller_of_or_0(cluster) == third)
            cluster.brokers[other].resume()
            until(lambda: set(partition(cluster, "cut").isr) == {other, third})
        finally:
            cluster.brokers[other].resume()
            cluster.control(zombie, "links.heal", mode="deliver")
    until(lambda: set(cluster.describe().live) == {1, 2, 3})
    assert controller_of(cluster) == third
    assert list(cluster.describe().topics["cut"]) == [0]
    assert partition(cluster, "cut").leader_epoch >= before.leader_epoch
    cluster.await_converged()
    assert {row["controller"] for row in states(cluster)} == {True, False}
    assert sum(row["controller"] for row in states(cluster)) == 1


def states(cluster: Cluster) -> list[dict[str, Any]]:
    return [cluster.control(node, "state") for node in cluster.brokers]


def controller_of_or_0(cluster: Cluster) -> int:
    return cluster.controller_id() or 0


# --------------------------------------------------------------------- registry


def test_stopping_the_registry_keeps_brokers_serving_and_sessions_resume(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "unregistered", [1, 2, 3], [2, 3, 1], [3, 1, 2])
    before, view = broker_epochs(cluster), cluster.describe()
    with Load(cluster, "unregistered", partitions=3) as load:
        cluster.registry.kill()
        load.more(2 * SESSION_MS * 400 // 1_000)  # for longer than a session timeout
        cluster.registry.start()
        load.more(200)
        until(lambda: set(cluster.describe().live) == {1, 2, 3})
        load.more(SESSION_MS * 400 // 1_000)
    assert broker_epochs(cluster) == before  # no session expired, and no broker registered again
    again = cluster.describe()
    assert (again.controller, again.controller_epoch) == (view.controller, view.controller_epoch)
    assert again.topics == view.topics
    load.exactly_once()


def test_a_broker_that_died_without_a_registry_expires_when_the_registry_returns(cluster: Cluster, admin: Any) -> None:
    controller = controller_of(cluster)
    dead, other = [node for node in cluster.brokers if node != controller]
    create_placed(admin, "expires", [dead, other, controller])
    with Load(cluster, "expires") as load:
        cluster.registry.kill()
        cluster.brokers[dead].kill()
        cluster.registry.start()
        until(lambda: partition(cluster, "expires").leader not in (-1, dead))
        load.more(100)
    assert cluster.describe().live == {controller, other}
    load.exactly_once()
    cluster.brokers[dead].start()
    cluster.await_converged()


def test_expiring_the_session_of_a_running_broker_registers_it_again(cluster: Cluster, admin: Any) -> None:
    controller = controller_of(cluster)
    cut, other = [node for node in cluster.brokers if node != controller]
    create_placed(admin, "expired", [cut, other, controller])
    create_placed(admin, "expired-fresh", [cut, other, controller])
    before = broker_epochs(cluster)
    with Load(cluster, "expired", **STALE) as load:
        cluster.control(cut, "links.block", peers=["registry"], direction="both")
        until(lambda: cluster.leader("expired", 0) == cluster.leader("expired-fresh", 0) == other)
        with RawKafka(cluster.brokers[other].port) as raw:
            until(lambda: raw.metadata("expired-fresh").topics[0].partitions[0].leader_id == other)
        # `load` only contacts the leader that it knows; a new client gets the new leader from the metadata.
        bootstrap = f"127.0.0.1:{cluster.brokers[other].port}"
        with Load(cluster, "expired-fresh", 1, bootstrap) as fresh:
            fresh.more(100)
        cluster.control(cut, "links.heal", mode="deliver")
        until(lambda: set(cluster.isr("expired", 0)) == {1, 2, 3})
        load.more(100)
    after = broker_epochs(cluster)
    assert after[cut] > before[cut]
    assert {node: after[node] for node in (other, controller)} == {node: before[node] for node in (other, controller)}
    load.exactly_once()
    fresh.exactly_once()


# -------------------------------------------------------------------- elections


def test_ten_controller_elections_have_ten_controller_epochs(cluster: Cluster, admin: Any, tmp_path: Path) -> None:
    """Deletes the controller node as soon as a broker has won the election: ten elections in a row."""
    create_placed(admin, "elections", [1, 2, 3])

    async def unseat(client: RegistryClient) -> list[int]:
        seen: list[int] = []
        for _ in range(10):
            while await client.exists("/controller", watch=(heard := RecordedEvents())) is None:
                await heard.next()
            seen.append(int((await client.get("/controller_epoch"))[0]))
            await client.delete_tree("/controller")
        return seen

    first = cluster.describe().controller_epoch
    with Load(cluster, "elections") as load:
        seen = visit(cluster, tmp_path, unseat)
        until(lambda: cluster.controller_id() is not None)
        load.more(100)
    assert seen == list(range(first, first + 10))
    assert cluster.describe().controller_epoch == first + 10
    until(lambda: sum(row["controller"] for row in states(cluster)) == 1)
    load.exactly_once()
    create_placed(admin, "after-elections", [3, 1, 2])  # the last elected controller works
    cluster.await_converged()
    for node in cluster.brokers:
        elected = [row["epoch"] for row in trace_events(cluster, node, "controller.elected")]
        assert len(elected) == len(set(elected))


def test_electing_ten_leaders_in_a_row_loses_nothing(cluster: Cluster, admin: Any) -> None:
    """Makes preferred elections as fast as the controller answers them, under load."""
    create_placed(admin, "leaders", [1, 2, 3])
    from kafka.structs import TopicPartition

    first = partition(cluster, "leaders").leader_epoch
    with Load(cluster, "leaders") as load:
        for turn in range(10):
            order = [(turn + shift) % 3 + 1 for shift in range(1, 4)]
            admin.alter_partition_reassignments({TopicPartition("leaders", 0): order})
            admin.elect_leaders(0, {"leaders": [0]}, raise_errors=False)
            if partition(cluster, "leaders").leader != order[0]:
                cluster.await_full_isr()
                admin.elect_leaders(0, {"leaders": [0]})
            assert partition(cluster, "leaders").leader == order[0]
        load.more(100)
    assert partition(cluster, "leaders").leader_epoch >= first + 10
    load.exactly_once()
    cluster.await_converged()


# -------------------------------------------------------- failures and restarts


def test_killing_and_starting_all_brokers_at_once_loses_nothing(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "all", [1, 2, 3], [2, 3, 1])
    with Load(cluster, "all", partitions=2, **ONE_IN_FLIGHT) as load:
        load.more(200)
        before = dict(load.delivered)
        for broker in cluster.brokers.values():
            broker.kill()
        for broker in cluster.brokers.values():
            broker.begin()
        for broker in cluster.brokers.values():
            broker.wait_ready()
        cluster.await_full_isr()
        load.more(200)
    assert before.items() <= load.delivered.items()
    load.exactly_once()
    cluster.await_converged()


def test_restarting_a_broker_within_its_session_timeout_loses_nothing(cluster: Cluster, admin: Any) -> None:
    """It is a failure and a start: a new broker epoch, another leader, and the broker returns to the ISR (D6)."""
    bounced = next(node for node in cluster.brokers if node != controller_of(cluster))
    others = [node for node in cluster.brokers if node != bounced]
    create_placed(admin, "bounced", [bounced, *others])
    before, view = broker_epochs(cluster), partition(cluster, "bounced")
    assert view.leader == bounced
    with Load(cluster, "bounced") as load:
        cluster.brokers[bounced].kill()
        cluster.brokers[bounced].start()
        until(lambda: partition(cluster, "bounced").leader_epoch > view.leader_epoch)
        until(lambda: set(cluster.isr("bounced", 0)) == {1, 2, 3})
        load.more(100)
    assert broker_epochs(cluster)[bounced] > before[bounced]
    assert partition(cluster, "bounced").leader in others
    load.exactly_once()
    cluster.await_converged()


def test_a_starting_broker_serves_no_client_before_it_has_metadata(cluster: Cluster) -> None:
    controller = controller_of(cluster)
    late = controller % 3 + 1
    cluster.brokers[late].kill()
    cluster.control(controller, "links.block", peers=[f"broker {late}"], direction="out")
    registered = len(trace_events(cluster, late, "broker.registered"))
    try:
        cluster.brokers[late].begin()
        until(lambda: len(trace_events(cluster, late, "broker.registered")) > registered)
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection(("127.0.0.1", cluster.brokers[late].port), 10).close()
    finally:
        cluster.control(controller, "links.heal", mode="deliver")
        cluster.brokers[late].wait_ready()
    socket.create_connection(("127.0.0.1", cluster.brokers[late].port), 10).close()
    cluster.await_converged()


@pytest.mark.parametrize("who", ["leader", "controller"])
def test_a_controlled_shutdown_under_load_fails_no_record(cluster: Cluster, admin: Any, who: str) -> None:
    """The leaderships move before the process ends, and no client gets an error (D4)."""
    name = f"leaving-{who}"
    controller = controller_of(cluster)
    leaving = controller if who == "controller" else controller % 3 + 1
    others = [node for node in cluster.brokers if node != leaving]
    create_placed(admin, name, [leaving, *others], [others[0], leaving, others[1]])
    with Load(cluster, name, partitions=2) as load:
        cluster.brokers[leaving].terminate()
        assert partition(cluster, name).leader in others
        load.more(100)
        cluster.brokers[leaving].start()
        until(lambda: set(cluster.isr(name, 0)) == {1, 2, 3})
        load.more(50)
    load.exactly_once()
    cluster.await_converged()


def test_automatic_rebalancing_restores_the_preferred_leader() -> None:
    """auto.leader.rebalance.enable, checked each second (D4)."""
    config = CONFIG | {"auto.leader.rebalance.enable": True, "leader.imbalance.check.interval.seconds": 1}
    with Cluster(brokers=2, config=config) as cluster:
        with admin_of(cluster) as admin:
            create_placed(admin, "balanced", [1, 2], [2, 1])
        with Load(cluster, "balanced", partitions=2) as load:
            cluster.brokers[1].restart()
            until(lambda: cluster.leader("balanced", 0) == 1)
            load.more(50)
        load.exactly_once()
