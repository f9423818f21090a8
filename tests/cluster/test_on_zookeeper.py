"""A cluster whose registry is a real ZooKeeper: elections, expiry, its death and coming back (D1, D3, D4, D5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harrow import Cluster
from harrow.cluster.errors import ClusterError
from harrow.cluster.view import ClusterView
from kafka.admin import NewTopic
from kafka.errors import InvalidReplicationFactorError
from load_on_cluster import SOCKETS, Load, admin_of
from waiting import until
from zookeeper_server import ZooKeeperServer, needs_zookeeper

pytestmark = [needs_zookeeper, SOCKETS]
CONFIG = {"zookeeper.session.timeout.ms": 5_000, "auto.leader.rebalance.enable": False}

TOO_FEW_NOW = (InvalidReplicationFactorError,)
"""A session that expires on a busy machine takes its broker away for a moment."""


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperServer]:
    with ZooKeeperServer(tmp_path_factory.mktemp("zookeeper")) as server:
        yield server


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperServer) -> Iterator[Cluster]:
    config = CONFIG | {"zookeeper.connect": f"{zookeeper.connect}/harrow"}
    with Cluster(brokers=3, config=config) as cluster:
        yield cluster


def placed(cluster: Cluster, name: str, *replicas: list[int]) -> None:
    with admin_of(cluster) as admin:
        admin.create_topics([NewTopic(name, replica_assignments=dict(enumerate(replicas)))])


def epochs(cluster: Cluster) -> dict[int, int]:
    return {node: int(cluster.control(node, "state")["broker_epoch"]) for node in cluster.brokers}


def test_a_controller_that_leads_is_killed_and_comes_back(cluster: Cluster) -> None:
    before = until(lambda: settled(cluster))
    controller = before.controller
    assert controller is not None
    others = [node for node in cluster.brokers if node != controller]
    placed(cluster, "killed", [controller, *others])
    with Load(cluster, "killed") as load:
        cluster.brokers[controller].kill()
        until(lambda: cluster.controller_id() in others)
        until(lambda: cluster.leader("killed", 0) in others)
        load.more(100)
        cluster.brokers[controller].start()
        cluster.await_full_isr()
    assert cluster.describe().controller_epoch > before.controller_epoch
    load.exactly_once()
    cluster.await_converged()


def test_zookeeper_dies_and_comes_back_and_brokers_serve_all_the_while(
    cluster: Cluster, zookeeper: ZooKeeperServer
) -> None:
    placed(cluster, "without", [1, 2, 3])
    before, view = epochs(cluster), cluster.describe()
    with Load(cluster, "without") as load:
        zookeeper.kill()
        load.more(400)
        zookeeper.start()
        until(lambda: answers(cluster))
        load.more(400)
    cluster.await_full_isr()
    # a session resumes if its client is back in time; on a busy machine one may expire and begin anew
    again, after = cluster.describe(), epochs(cluster)
    assert again.controller_epoch >= view.controller_epoch
    assert all(after[node] >= before[node] for node in before)
    if (after, again.controller_epoch, again.live) == (before, view.controller_epoch, view.live):
        assert again.topics == view.topics, "nothing expired, nobody was elected"
    load.exactly_once()


def settled(cluster: Cluster) -> ClusterView | None:
    """All brokers live, one of them the controller; None while that is not so or nobody answers."""
    try:
        view = cluster.describe()
    except ClusterError:
        return None
    return view if set(view.live) == {1, 2, 3} and view.controller in view.live else None


def answers(cluster: Cluster) -> bool:
    return settled(cluster) is not None


def test_a_paused_broker_expires_and_registers_anew(cluster: Cluster) -> None:
    placed(cluster, "paused", [1, 2, 3])
    controller = until(lambda: settled(cluster)).controller
    assert controller is not None
    before = epochs(cluster)
    others = [node for node in cluster.brokers if node != controller]
    stale = {"socket.timeout.ms": 2_000, "request.timeout.ms": 1_500}
    with Load(cluster, "paused", **stale) as load:
        cluster.brokers[controller].pause()
        until(lambda: controller not in cluster.describe().live, "its session is over")
        until(lambda: cluster.controller_id() in others)
        cluster.brokers[controller].resume()
        until(lambda: answers(cluster) and set(cluster.isr("paused", 0)) == {1, 2, 3})
        load.more(50)
    assert epochs(cluster)[controller] > before[controller]
    assert cluster.controller_id() in others
    load.exactly_once()
    cluster.await_converged()


def test_topics_and_settings_come_and_go(cluster: Cluster) -> None:
    with admin_of(cluster) as admin:
        until(lambda: admin.create_topics([NewTopic("temporary", 4, 3)]), amid=TOO_FEW_NOW)
        until(lambda: admin.create_partitions({"temporary": 6}), amid=TOO_FEW_NOW)
        assert list(cluster.describe().topics["temporary"]) == [0, 1, 2, 3, 4, 5]
        admin.delete_topics(["temporary"])
        until(lambda: "temporary" not in cluster.describe().topics)
        admin.create_topics([NewTopic("temporary", 1, 1)])
        assert list(cluster.describe().topics["temporary"]) == [0]


def test_where_no_zookeeper_answers_brokers_say_so(tmp_path: Path) -> None:
    config = CONFIG | {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": 500}
    with pytest.raises(ClusterError, match="ZooKeeper did not respond within 500 ms"):
        Cluster(brokers=1, config=config, folder=tmp_path / "c").start()
