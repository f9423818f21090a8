"""A cluster with a real ZooKeeper as its registry: elections, session expiry, ZooKeeper's restart (D1, D3, D4, D5)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harrow import Cluster
from harrow.cluster.errors import ClusterError
from harrow.cluster.view import ClusterView
from kafka.admin import NewTopic
from kafka.errors import InvalidReplicationFactorError
from kafka_python_admin import SOCKETS, admin_of
from load_on_cluster import Load
from topics_and_traces import broker_epochs, create_placed
from waiting import until
from zookeeper_server import ZooKeeperServer, needs_zookeeper

pytestmark = [needs_zookeeper, SOCKETS]
CONFIG = {"zookeeper.session.timeout.ms": 5_000, "auto.leader.rebalance.enable": False}

TOO_FEW_NOW = (InvalidReplicationFactorError,)
"""On a busy machine a session may expire, and then its broker is missing until it registers again."""


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
        create_placed(admin, name, *replicas)


def test_killing_the_controller_elects_another_and_loses_nothing(cluster: Cluster) -> None:
    before = until(lambda: stable_view(cluster))
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


def test_killing_zookeeper_keeps_brokers_serving_until_it_returns(cluster: Cluster, zookeeper: ZooKeeperServer) -> None:
    placed(cluster, "without", [1, 2, 3])
    before, view = broker_epochs(cluster), cluster.describe()
    with Load(cluster, "without") as load:
        zookeeper.kill()
        load.more(400)
        zookeeper.start()
        until(lambda: is_stable(cluster))
        load.more(400)
    cluster.await_full_isr()
    # A session resumes if its client reconnects in time; on a busy machine it may expire and start again.
    again, after = cluster.describe(), broker_epochs(cluster)
    assert again.controller_epoch >= view.controller_epoch
    assert all(after[node] >= before[node] for node in before)
    if (after, again.controller_epoch, again.live) == (before, view.controller_epoch, view.live):
        assert again.topics == view.topics, "without an expired session there must be no election"
    load.exactly_once()


def stable_view(cluster: Cluster) -> ClusterView | None:
    """Returns the view when all brokers are live and one of them is the controller; None otherwise."""
    try:
        view = cluster.describe()
    except ClusterError:
        return None
    return view if set(view.live) == {1, 2, 3} and view.controller in view.live else None


def is_stable(cluster: Cluster) -> bool:
    return stable_view(cluster) is not None


def test_pausing_a_broker_past_its_session_registers_it_again(cluster: Cluster) -> None:
    placed(cluster, "paused", [1, 2, 3])
    controller = until(lambda: stable_view(cluster)).controller
    assert controller is not None
    before = broker_epochs(cluster)
    others = [node for node in cluster.brokers if node != controller]
    stale = {"socket.timeout.ms": 2_000, "request.timeout.ms": 1_500}
    with Load(cluster, "paused", **stale) as load:
        cluster.brokers[controller].pause()
        until(lambda: controller not in cluster.describe().live, "the session expires")
        until(lambda: cluster.controller_id() in others)
        cluster.brokers[controller].resume()
        until(lambda: is_stable(cluster) and set(cluster.isr("paused", 0)) == {1, 2, 3})
        load.more(50)
    assert broker_epochs(cluster)[controller] > before[controller]
    assert cluster.controller_id() in others
    load.exactly_once()
    cluster.await_converged()


def test_creating_changing_and_deleting_topics_works_over_zookeeper(cluster: Cluster) -> None:
    with admin_of(cluster) as admin:
        until(lambda: admin.create_topics([NewTopic("temporary", 4, 3)]), amid=TOO_FEW_NOW)
        until(lambda: admin.create_partitions({"temporary": 6}), amid=TOO_FEW_NOW)
        assert list(cluster.describe().topics["temporary"]) == [0, 1, 2, 3, 4, 5]
        admin.delete_topics(["temporary"])
        until(lambda: "temporary" not in cluster.describe().topics)
        admin.create_topics([NewTopic("temporary", 1, 1)])
        assert list(cluster.describe().topics["temporary"]) == [0]


def test_a_cluster_without_a_reachable_zookeeper_reports_it(tmp_path: Path) -> None:
    config = CONFIG | {"zookeeper.connect": "127.0.0.1:1", "zookeeper.connection.timeout.ms": 500}
    with pytest.raises(ClusterError, match="ZooKeeper did not respond within 500 ms"):
        Cluster(brokers=1, config=config, folder=tmp_path / "c").start()
