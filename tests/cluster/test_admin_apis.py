"""Admin APIs on real brokers through the clients' admin classes: partitions, elections, reassignment (A4, C9, D4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import ElectionType, Producer
from confluent_kafka import TopicPartition as Place
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from harrow import Cluster
from kafka import errors
from kafka.admin import NewTopic
from kafka.structs import TopicPartition as Where
from kafka_python_admin import SOCKETS, admin_of
from load_on_cluster import Load
from topics_and_traces import create_placed
from waiting import until

pytestmark = SOCKETS


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    racks = {node: {"broker.rack": "north" if node < 3 else "south"} for node in range(1, 5)}
    config = {"min.insync.replicas": 1, "auto.leader.rebalance.enable": False}
    with Cluster(brokers=4, config=config, broker_config=racks) as cluster:
        yield cluster


@pytest.fixture
def admin(cluster: Cluster) -> Iterator[Any]:
    with admin_of(cluster) as client:
        yield client


def replicas_of(cluster: Cluster, topic: str) -> dict[int, tuple[int, ...]]:
    return {number: view.replicas for number, view in cluster.describe().topics[topic].items()}


def elected(cluster: Cluster, kind: ElectionType, topic: str) -> str | None:
    """Elects a leader of partition 0 and returns the error, if any."""
    client: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    place = Place(topic, 0)
    error = client.elect_leaders(kind, [place]).result(20)[place]
    return None if error is None else error.name()


def moved(admin: Any) -> bool:
    return not admin.list_partition_reassignments()


# ------------------------------------------------------------- CreatePartitions


def test_brokers_with_racks_report_them_and_replicas_spread_over_them(cluster: Cluster, admin: Any) -> None:
    racks = {row["broker_id"]: row["rack"] for row in admin.describe_cluster()["brokers"]}
    assert racks == {1: "north", 2: "north", 3: "south", 4: "south"}
    admin.create_topics([NewTopic("racked", 4, 2)])
    admin.create_partitions({"racked": 8})
    rows = replicas_of(cluster, "racked")
    assert sorted(rows) == list(range(8))
    assert all({racks[node] for node in row} == {"north", "south"} for row in rows.values())
    assert sorted(row[0] for row in rows.values()) == [1, 1, 2, 2, 3, 3, 4, 4]


def test_adding_partitions_makes_them_accept_records_at_once(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "grown", [1, 2])
    theirs: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    grown: Any = theirs.create_partitions([NewPartitions("grown", 2, [[4, 3]])])
    grown["grown"].result(20)
    assert replicas_of(cluster, "grown") == {0: (1, 2), 1: (4, 3)}
    for address in cluster.bootstrap_servers.split(","):  # UpdateMetadata may not have reached every broker
        of_one: Any = AdminClient({"bootstrap.servers": address, "log_level": 0})
        until(lambda: len(of_one.list_topics("grown").topics["grown"].partitions) == 2)  # noqa: B023
    landed: list[Any] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    producer.produce("grown", b"x", partition=1, on_delivery=lambda e, m: landed.append((e, m.offset())))
    assert producer.flush(20) == 0
    assert landed == [(None, 0)]


@pytest.mark.parametrize(
    ("asked", "refusal"),
    [
        ({"kept": 1}, "InvalidPartitions"),
        ({"kept": 2}, "InvalidPartitions"),
        ({"nowhere": 3}, "UnknownTopicOrPartition"),
        ({"kept": {"count": 3, "assignments": [[1, 2], [3, 4]]}}, "InvalidReplicationAssignment"),
        ({"kept": {"count": 3, "assignments": [[9, 1]]}}, "InvalidReplicationAssignment"),
        ({"kept": {"count": 3, "assignments": [[1]]}}, "InvalidReplicationAssignment"),
        ({"kept": {"count": 3, "assignments": [[1, 1]]}}, "InvalidReplicationAssignment"),
    ],
)
def test_adding_invalid_partitions_is_refused(cluster: Cluster, admin: Any, asked: Any, refusal: str) -> None:
    if "kept" not in cluster.describe().topics:
        create_placed(admin, "kept", [1, 2], [2, 3])
    with pytest.raises(errors.KafkaError) as error:
        admin.create_partitions(asked)
    assert refusal in type(error.value).__name__
    assert replicas_of(cluster, "kept") == {0: (1, 2), 1: (2, 3)}


def test_adding_partitions_with_validate_only_changes_nothing(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "dry", [1, 2])
    admin.create_partitions({"dry": 5}, validate_only=True)
    assert replicas_of(cluster, "dry") == {0: (1, 2)}


# ----------------------------------------------------------------- ElectLeaders


def test_a_preferred_election_restores_the_preferred_leader(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "preferred", [3, 1, 2], [1, 2, 3])
    cluster.brokers[3].restart()
    cluster.await_full_isr()
    assert cluster.leader("preferred", 0) == 1
    theirs: Any = AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    asked = [Place("preferred", 0), Place("preferred", 1), Place("preferred", 7)]
    done: Any = theirs.elect_leaders(ElectionType.PREFERRED, asked)
    results = done.result(20)
    outcome = {place.partition: error for place, error in results.items()}
    assert outcome[0] is None
    assert outcome[1].name() == "ELECTION_NOT_NEEDED"
    assert outcome[7].name() == "UNKNOWN_TOPIC_OR_PART"
    assert cluster.leader("preferred", 0) == 3
    # for all partitions: the result omits partitions that need no election
    done = theirs.elect_leaders(ElectionType.PREFERRED)
    assert not any(place.topic == "preferred" for place in done.result(20))


def test_an_unclean_election_elects_only_when_requested_and_without_a_live_isr(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "unclean", [4, 3])
    cluster.brokers[4].kill()
    until(lambda: cluster.isr("unclean", 0) == [3])
    assert elected(cluster, ElectionType.PREFERRED, "unclean") == "PREFERRED_LEADER_NOT_AVAILABLE"
    cluster.brokers[3].kill()
    until(lambda: cluster.leader("unclean", 0) is None)
    cluster.brokers[4].start()
    assert cluster.leader("unclean", 0) is None
    assert elected(cluster, ElectionType.UNCLEAN, "unclean") is None
    assert cluster.describe().topics["unclean"][0].isr == (4,)
    assert cluster.leader("unclean", 0) == 4
    assert elected(cluster, ElectionType.UNCLEAN, "unclean") == "ELECTION_NOT_NEEDED"
    cluster.brokers[3].start()
    cluster.await_full_isr()


# ---------------------------------------------------------------- reassignment


def test_reassigning_replicas_under_load_loses_and_duplicates_nothing(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "moving", [1, 2], [2, 1])
    with Load(cluster, "moving", partitions=2) as load:
        results = admin.alter_partition_reassignments({Where("moving", 0): [3, 4], Where("moving", 1): [4, 1, 3]})
        assert set(results.values()) == {None}
        until(lambda: moved(admin))
        load.more()
    view = cluster.describe().topics["moving"]
    assert {number: row.replicas for number, row in view.items()} == {0: (3, 4), 1: (4, 1, 3)}
    assert all(row.leader in row.replicas and set(row.isr) == set(row.replicas) for row in view.values())
    load.exactly_once()
    gone = cluster.folder / "broker-2" / "data"
    until(lambda: not (gone / "moving-0").exists() and not (gone / "moving-1").exists())
    cluster.await_converged()


def test_cancelling_a_listed_reassignment_leaves_no_trace(cluster: Cluster, admin: Any) -> None:
    create_placed(admin, "turned", [1, 2])
    where = Where("turned", 0)
    cluster.control(4, "links.block", peers=["broker 1", "broker 2"], direction="both")
    try:
        admin.alter_partition_reassignments({where: [1, 4]})
        listed = admin.list_partition_reassignments({"turned": [0]})[where]
        assert listed["replicas"] == [1, 4, 2]
        assert (listed["adding_replicas"], listed["removing_replicas"]) == ([4], [2])
        with pytest.raises(errors.KafkaError, match=r"ReassignmentInProgress|reassignment is in progress"):
            admin.create_partitions({"turned": 2})
        admin.alter_partition_reassignments({where: None})
        assert moved(admin)
        assert replicas_of(cluster, "turned") == {0: (1, 2)}
    finally:
        cluster.control(4, "links.heal", mode="deliver")
    until(lambda: not (cluster.folder / "broker-4" / "data" / "turned-0").exists())
    cluster.await_converged()


@pytest.mark.parametrize(
    ("replicas", "refusal"),
    [
        ([1, 1], "InvalidReplicationAssignment"),
        ([1, 9], "InvalidReplicationAssignment"),
        ([-1, 2], "InvalidReplicationAssignment"),
        (None, "NoReassignmentInProgress"),
    ],
)
def test_invalid_reassignments_are_refused(cluster: Cluster, admin: Any, replicas: Any, refusal: str) -> None:
    if "stays" not in cluster.describe().topics:
        create_placed(admin, "stays", [1, 2])
    result = admin.alter_partition_reassignments({Where("stays", 0): replicas})[Where("stays", 0)]
    assert refusal in type(result).__name__ + str(result)
    unknown = admin.alter_partition_reassignments({Where("stays", 5): [1, 2]})[Where("stays", 5)]
    assert "UnknownTopicOrPartition" in type(unknown).__name__ + str(unknown)
    assert replicas_of(cluster, "stays") == {0: (1, 2)}


def test_a_new_controller_finishes_a_reassignment_that_the_old_one_started(cluster: Cluster, admin: Any) -> None:
    controller = cluster.controller_id()
    assert controller is not None
    others = [node for node in cluster.brokers if node != controller]
    before, after = others[:2], [others[2], others[1]]
    create_placed(admin, "handed", before)
    with Load(cluster, "handed") as load:
        cluster.control(after[0], "links.block", peers=[f"broker {before[0]}"], direction="both")
        admin.alter_partition_reassignments({Where("handed", 0): after})
        cluster.brokers[controller].kill()
        until(lambda: cluster.controller_id() not in (None, controller))
        assert replicas_of(cluster, "handed") == {0: (*after, before[0])}
        cluster.control(after[0], "links.heal", mode="reset")
        until(lambda: replicas_of(cluster, "handed") == {0: tuple(after)})
        load.more()
    load.exactly_once()
    cluster.brokers[controller].start()
    cluster.await_converged()


def test_a_removed_replica_of_a_dead_broker_deletes_its_log_after_the_restart(cluster: Cluster, admin: Any) -> None:
    controller = cluster.controller_id()
    dead, kept, new = [node for node in cluster.brokers if node != controller]
    create_placed(admin, "left", [dead, kept])
    folder = cluster.folder / f"broker-{dead}" / "data" / "left-0"
    until(folder.exists)
    cluster.brokers[dead].kill()
    until(lambda: cluster.isr("left", 0) == [kept])
    admin.alter_partition_reassignments({Where("left", 0): [kept, new]})
    until(lambda: moved(admin))
    assert folder.exists()
    cluster.brokers[dead].start()
    until(lambda: not folder.exists())
    cluster.await_converged()
