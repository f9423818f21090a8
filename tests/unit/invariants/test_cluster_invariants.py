"""Each invariant of `cluster/invariants` is raised by a state that breaks it, and by no state that is allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from harrow.cluster.broker import Broker
from harrow.cluster.host.simulated import SimHost
from harrow.cluster.ids import ControllerEpoch, LeaderEpoch, NodeId, Offset, TopicPartition
from harrow.cluster.invariants import InvariantViolation
from harrow.cluster.invariants.leader_completeness import within
from harrow.cluster.invariants.registry_invariants import RegistryInvariants
from harrow.cluster.metadata import NewTopic
from harrow.cluster.registry.tree_rows import Changes, NodeRow, SessionRow
from harrow.cluster.replication.isr_state import IsrProposal
from harrow.cluster.replication.leader_and_isr import LeaderAndIsrHandler
from harrow.cluster.replication.partition import Partition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.storage.leader_epochs import EpochEntry
from harrow.cluster.wire.internal import FULL, UpdateMetadataRequest
from raw_kafka import batch

TP = TopicPartition("orders", 0)
RECORDS = 6


def host_of(cluster: SimulatedCluster, node: int) -> SimHost:
    host = cluster.brokers[node].machine.host
    assert host is not None
    return host


def replica(cluster: SimulatedCluster, node: int) -> Partition:
    found = cluster.broker(node).replicas.partition(TP)
    assert found is not None
    return found


def leader_of(cluster: SimulatedCluster) -> int:
    leaders = [
        node
        for node, process in cluster.brokers.items()
        if process.ready and (found := cluster.broker(node).replicas.partition(TP)) and found.is_leader
    ]
    return max(leaders, key=lambda node: replica(cluster, node).leader_epoch, default=-1)


def followers_of(cluster: SimulatedCluster) -> list[int]:
    leader = leader_of(cluster)
    return [node for node in cluster.brokers if node != leader]


def isr_size(cluster: SimulatedCluster) -> int:
    leader = leader_of(cluster)
    return len(replica(cluster, leader).isr) if leader > 0 else 0


def create_topic(cluster: SimulatedCluster, **config: str) -> None:
    admin = cluster.broker(1).topic_admin
    topic = NewTopic(name=TP.topic, partitions=1, replication_factor=3, config=config)
    host_of(cluster, 1).tasks.spawn(admin.create(admin.plan(topic)), name="create")

    def replicated() -> bool:
        rows = [row for rows in cluster.states().values() for row in rows]
        return len(rows) == 3 and any(row["is_leader"] for row in rows)

    assert cluster.run_until(replicated, 5_000)


def append(cluster: SimulatedCluster, count: int = RECORDS) -> None:
    """Append records through the leader and wait until every live replica has the high watermark."""
    manager = cluster.broker(leader_of(cluster)).replicas
    acknowledged: list[object] = []
    records = {TP: batch([f"{number}" for number in range(count)])}
    manager.append(records, acks=-1, timeout_ms=5_000, done=acknowledged.append)
    end = replica(cluster, leader_of(cluster)).log_end_offset

    def replicated() -> bool:
        return all(
            replica(cluster, node).high_watermark == end for node, process in cluster.brokers.items() if process.ready
        )

    assert cluster.run_until(replicated, 5_000)


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    config = {"zookeeper.session.timeout.ms": 600, "replica.lag.time.max.ms": 400}
    with SimulatedCluster(brokers=3, seed=11, config=config) as made:
        made.start()
        create_topic(made)
        append(made)
        yield made


# ---------------------------------------------------------------- replicas


def raise_high_watermark_above_log(cluster: SimulatedCluster) -> None:
    found = replica(cluster, followers_of(cluster)[0])
    found.high_watermark = Offset(found.log_end_offset + 1)


def lower_log_end_below_recovery_point(cluster: SimulatedCluster) -> None:
    found = replica(cluster, followers_of(cluster)[0])
    found.log.flush()
    found.log.log_end_offset = found.high_watermark = Offset(RECORDS - 1)


def lower_leader_epoch(cluster: SimulatedCluster) -> None:
    found = replica(cluster, followers_of(cluster)[0])
    found.leader_epoch = LeaderEpoch(found.leader_epoch - 1)


def lower_version(cluster: SimulatedCluster) -> None:
    replica(cluster, followers_of(cluster)[0]).version -= 1


def lower_leader_high_watermark(cluster: SimulatedCluster) -> None:
    replica(cluster, leader_of(cluster)).high_watermark = Offset(RECORDS - 1)


def lead_twice_in_one_epoch(cluster: SimulatedCluster) -> None:
    replica(cluster, followers_of(cluster)[0]).is_leader = True


def change_committed_isr(cluster: SimulatedCluster) -> None:
    replica(cluster, leader_of(cluster)).isr_state.committed = (NodeId(leader_of(cluster)),)


def propose_as_follower(cluster: SimulatedCluster) -> None:
    found = replica(cluster, followers_of(cluster)[0])
    found.isr_state.proposal = proposal_of(found, found.isr[:1])


def propose_without_the_leader(cluster: SimulatedCluster) -> None:
    found = replica(cluster, leader_of(cluster))
    found.isr_state.proposal = proposal_of(found, tuple(node for node in found.isr if node != found.node_id))


def proposal_of(found: Partition, isr: tuple[NodeId, ...]) -> IsrProposal:
    return IsrProposal(
        isr=isr,
        leader_epoch=found.leader_epoch,
        controller_epoch=found.controller_epoch,
        expected_version=found.version,
        cause="by hand",
    )


def propose_an_expired_broker(cluster: SimulatedCluster) -> None:
    gone = followers_of(cluster)[0]
    cluster.brokers[gone].kill()
    leader = replica(cluster, leader_of(cluster))
    assert cluster.run_until(lambda: gone not in leader.isr, 5_000)
    leader.isr_state.proposal = proposal_of(leader, (*leader.isr, NodeId(gone)))


def lose_a_record_in_sync(cluster: SimulatedCluster) -> None:
    found = replica(cluster, followers_of(cluster)[0])
    found.log.log_end_offset = found.high_watermark = Offset(RECORDS - 1)


def forget_epochs(cluster: SimulatedCluster) -> None:
    replica(cluster, followers_of(cluster)[0]).log.epochs.clear()
    cluster.invariants.check_everything()


def elect_a_leader_without_committed_records(cluster: SimulatedCluster) -> None:
    """The next leader loses its records while no invariant is checked."""
    old = leader_of(cluster)
    successor = next(node for node in replica(cluster, old).replicas if node != old)
    check, cluster.world.loop.after_event = cluster.world.loop.after_event, None
    replica(cluster, successor).truncate_to(0)
    cluster.brokers[old].kill()
    loop = cluster.world.loop
    assert loop.run_until(lambda: leader_of(cluster) == successor, 5_000, every_ms=0.01)
    loop.after_event = check


# -------------------------------------------------------------- controllers


def control_twice_in_one_epoch(cluster: SimulatedCluster) -> None:
    active = cluster.controller_id()
    assert active is not None
    other = next(node for node in cluster.brokers if node != active)
    elected, imposter = (cluster.broker(node).controller for node in (active, other))
    vars(imposter)["_active"] = vars(elected)["_active"]


def leader_and_isr_handler(broker: Broker) -> LeaderAndIsrHandler:
    handlers: LeaderAndIsrHandler = vars(broker.replicas)["_leader_and_isr"]
    return handlers


def know_a_controller_epoch_that_nobody_won(cluster: SimulatedCluster) -> None:
    broker: Broker = cluster.broker(2)
    leader_and_isr_handler(broker).controller_epoch = ControllerEpoch(9)


def lower_known_controller_epoch(cluster: SimulatedCluster) -> None:
    broker: Broker = cluster.broker(2)
    leader_and_isr_handler(broker).controller_epoch = ControllerEpoch(0)


def send_a_complete_update_without_topics(cluster: SimulatedCluster) -> None:
    """As a controller that has not loaded the topics."""
    cache = cluster.broker(2).cache
    request = UpdateMetadataRequest(
        controller_id=cache.controller_id,
        type=FULL,
        controller_epoch=cache.controller_epoch,
        topic_states=(),
        live_brokers=(),
    )
    cache.update(request)


def seat_another_broker(cluster: SimulatedCluster) -> None:
    """The registry names another controller; its next transaction shows that."""
    active = cluster.controller_id()
    assert active is not None
    other = next(node for node in cluster.brokers if node != active)
    cluster.invariants.registry.controller_id = other
    third = next(node for node in cluster.brokers if node not in (active, other))
    cluster.brokers[third].kill()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        ("log-bounds", raise_high_watermark_above_log),
        ("log-bounds", lower_log_end_below_recovery_point),
        ("replica-order", lower_leader_epoch),
        ("replica-order", lower_version),
        ("high-watermark-order", lower_leader_high_watermark),
        ("one-leader-per-epoch", lead_twice_in_one_epoch),
        ("committed-isr", change_committed_isr),
        ("proposal-by-leader", propose_as_follower),
        ("proposal-by-leader", propose_without_the_leader),
        ("isr-admission", propose_an_expired_broker),
        ("in-sync-prefix", lose_a_record_in_sync),
        ("epoch-agreement", forget_epochs),
        ("leader-completeness", elect_a_leader_without_committed_records),
        ("one-controller-per-epoch", control_twice_in_one_epoch),
        ("one-controller-per-epoch", seat_another_broker),
        ("known-topics", send_a_complete_update_without_topics),
        ("controller-epoch-order", know_a_controller_epoch_that_nobody_won),
        ("controller-epoch-order", lower_known_controller_epoch),
    ],
)
def test_damaged_cluster_violates_invariant(
    cluster: SimulatedCluster, name: str, damage: Callable[[SimulatedCluster], None]
) -> None:
    def damage_and_run() -> None:
        damage(cluster)
        cluster.run_for(2_000)

    with pytest.raises(InvariantViolation) as raised:
        damage_and_run()
    assert raised.value.name == name, str(raised.value)


def test_violation_names_the_state_of_the_replica(cluster: SimulatedCluster) -> None:
    lower_leader_high_watermark(cluster)
    with pytest.raises(InvariantViolation, match=r"orders-0.*\n.*'leo': 6"):
        cluster.run_for(2_000)


def test_invariants_switched_off_raise_nothing() -> None:
    with SimulatedCluster(brokers=3, seed=11, invariants=False) as cluster:
        cluster.start()
        create_topic(cluster)
        append(cluster)
        replica(cluster, leader_of(cluster)).version += 5
        cluster.run_for(100)


def test_planted_truncation_to_the_high_watermark_violates_an_invariant() -> None:
    """KIP-101, first case: after a leader change an ISR member removes records that were committed."""
    plants = ["harrow.faults.zoo.kip_101"]
    with SimulatedCluster(brokers=3, seed=11, plants=plants, invariants=True) as cluster:
        cluster.start()
        create_topic(cluster)
        leader = leader_of(cluster)
        manager = cluster.broker(leader).replicas
        manager.append({TP: batch(["0"])}, acks=-1, timeout_ms=5_000, done=lambda _results: None)
        committed = lambda: replica(cluster, leader).high_watermark == 1  # noqa: E731
        assert cluster.world.loop.run_until(committed, 5_000, every_ms=0.01)
        # no follower has received the high watermark yet
        assert {replica(cluster, node).high_watermark for node in followers_of(cluster)} == {0}
        cluster.brokers[leader].kill()
        with pytest.raises(InvariantViolation) as raised:
            cluster.run_for(20_000)
        assert raised.value.name == "in-sync-prefix", str(raised.value)


# ------------------------------------------------------- what Kafka allows


def test_unclean_election_that_loses_committed_records_violates_nothing() -> None:
    config = {"zookeeper.session.timeout.ms": 600, "replica.lag.time.max.ms": 400}
    with SimulatedCluster(brokers=3, seed=11, config=config) as cluster:
        cluster.start()
        create_topic(cluster, **{"unclean.leader.election.enable": "true"})
        append(cluster)
        late = followers_of(cluster)[0]
        cluster.brokers[late].kill()
        leader = replica(cluster, leader_of(cluster))
        assert cluster.run_until(lambda: late not in leader.isr, 5_000)
        append(cluster)
        for node in [node for node in cluster.brokers if node != late]:
            cluster.brokers[node].kill()
        cluster.brokers[late].begin()
        assert cluster.run_until(lambda: leader_of(cluster) == late, 10_000)
        assert replica(cluster, late).log_end_offset == RECORDS
        cluster.invariants.check_everything()


def test_old_and_new_leader_of_different_epochs_violate_nothing(cluster: SimulatedCluster) -> None:
    old = leader_of(cluster)
    machine = cluster.world.machines[f"broker-{old}"]
    assert machine.host is not None
    machine.host.knobs.block(["broker *", "registry", "client *"], "both")
    assert cluster.run_until(lambda: leader_of(cluster) != old, 5_000)
    assert replica(cluster, old).is_leader
    assert replica(cluster, leader_of(cluster)).is_leader
    machine.host.knobs.heal("deliver")
    assert cluster.run_until(lambda: not replica(cluster, old).is_leader, 5_000)


def test_restarted_brokers_violate_nothing(cluster: SimulatedCluster) -> None:
    for node in cluster.brokers:
        cluster.brokers[node].kill()
        cluster.run_for(50)
        cluster.brokers[node].begin()
        assert cluster.run_until(lambda: all(p.ready for p in cluster.processes()), 20_000)
    assert cluster.run_until(lambda: isr_size(cluster) == 3, 10_000)
    cluster.invariants.check_everything()


# ---------------------------------------------------------------- registry


def row(path: str, data: object, version: int = 0, owner: int = 0) -> NodeRow:
    text = data if isinstance(data, str) else json.dumps(data)
    return NodeRow(path, text, version, 1, 1, 1, 0, owner)


def state(leader: int, isr: list[int], *, epoch: int = 0, version: int = 0, controller: int = 1) -> NodeRow:
    data = {"controller_epoch": controller, "leader": leader, "version": 1, "leader_epoch": epoch, "isr": isr}
    return row("/brokers/topics/orders/partitions/0/state", data, version)


TOPIC = row("/brokers/topics/orders", {"partitions": {"0": [1, 2, 3]}})
FIRST = state(1, [1, 2])


def commit(*transactions: tuple[NodeRow, ...]) -> RegistryInvariants:
    registry = RegistryInvariants()
    for rows in transactions:
        registry.committed(Changes(zxid=1, put=rows))
    return registry


@pytest.mark.parametrize(
    ("name", "next_state"),
    [
        ("state-shape", state(1, [], version=1)),
        ("state-shape", state(1, [1, 1], version=1)),
        ("state-shape", state(1, [1, 4], version=1)),
        ("state-shape", state(3, [1, 2], epoch=1, version=1)),
        ("state-order", state(2, [1, 2], version=1)),
        ("state-order", state(1, [1, 2], version=2)),
        ("state-order", state(1, [1, 2], version=1, epoch=-1)),
        ("state-order", state(1, [1, 2], version=1, controller=0)),
        ("isr-by-controller", state(1, [1, 2, 3], version=1, epoch=1)),
    ],
)
def test_state_that_breaks_a_rule_is_refused(name: str, next_state: NodeRow) -> None:
    with pytest.raises(InvariantViolation) as raised:
        commit((TOPIC, FIRST), (next_state,))
    assert raised.value.name == name


@pytest.mark.parametrize(
    "next_state",
    [
        state(1, [1, 2, 3], version=1),
        state(1, [1], version=1),
        state(2, [2], version=1, epoch=1),
        state(-1, [2], version=1, epoch=1),
        state(3, [3], version=1, epoch=1),
    ],
)
def test_state_that_kafka_allows_is_accepted(next_state: NodeRow) -> None:
    registry = commit((TOPIC, FIRST), (next_state,))
    found = registry.state_at(TP, 1)
    assert found is not None
    assert found.isr == tuple(json.loads(next_state.data)["isr"])


def test_unclean_election_is_reported_with_its_epoch() -> None:
    registry = RegistryInvariants()
    found: list[tuple[TopicPartition, int]] = []
    registry.on_unclean_election = lambda tp, epoch: found.append((tp, epoch))
    registry.committed(Changes(zxid=1, put=(TOPIC, FIRST)))
    registry.committed(Changes(zxid=2, put=(state(3, [3], version=1, epoch=7),)))
    assert found == [(TP, 7)]


def test_lower_controller_epoch_is_refused() -> None:
    with pytest.raises(InvariantViolation, match="controller-epoch-order"):
        commit((row("/controller_epoch", "4"),), (row("/controller_epoch", "3", 1),))


def test_ephemeral_node_of_an_ended_session_is_refused() -> None:
    registry = RegistryInvariants()
    session = SessionRow(5, "broker 1", 1_000)
    seat = row("/brokers/ids/1", "{}", owner=5)
    registry.committed(Changes(zxid=6, put=(seat,), sessions_put=(session,)))
    with pytest.raises(InvariantViolation, match="live-owner"):
        registry.committed(Changes(zxid=7, sessions_drop=(5,)))


# ------------------------------------------------------------------ epochs


@pytest.mark.parametrize(
    ("low", "end", "expected"),
    [
        (0, 30, [(1, 0), (3, 10), (7, 25)]),
        (4, 30, [(1, 4), (3, 10), (7, 25)]),
        (10, 30, [(3, 10), (7, 25)]),
        (0, 25, [(1, 0), (3, 10)]),
        (12, 20, [(3, 12)]),
        (20, 20, []),
        (0, 0, []),
    ],
)
def test_epochs_within_a_range_begin_at_its_start(low: int, end: int, expected: list[tuple[int, int]]) -> None:
    epochs = [EpochEntry(LeaderEpoch(e), Offset(at)) for e, at in ((1, 0), (3, 10), (7, 25))]
    assert within(epochs, low, end) == expected
