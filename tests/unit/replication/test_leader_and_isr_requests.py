"""LeaderAndIsr and StopReplica, offset lookups, followers, and failing disks, on whole brokers on a virtual clock."""

from __future__ import annotations

import errno
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, Offset, TopicPartition
from harrow.cluster.replication import Partition
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.internal import StopReplicaPartitionState, StopReplicaRequest, StopReplicaTopicState

from .sim_clients import Consumer, list_offset, result_of, three
from .simulation import Simulation

TP = TopicPartition("orders", 0)


def ends(sim: Simulation) -> list[int]:
    return [sim.partition(node, TP).log_end_offset for node in sim.brokers]


# --- offsets


def test_list_offsets_returns_latest_earliest_and_by_timestamp() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a", b"b"]))
    assert (list_offset(sim, -1).offset, list_offset(sim, -2).offset) == (2, 0)
    assert list_offset(sim, -3).offset in (0, 1)
    assert list_offset(sim, 1).offset == 0
    assert list_offset(sim, 2**62).offset == -1


@pytest.mark.parametrize(
    ("version", "expected"), [(4, ErrorCode.leader_not_available), (7, ErrorCode.offset_not_available)]
)
def test_list_offsets_latest_is_not_available_while_a_new_leader_is_behind(version: int, expected: ErrorCode) -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    result_of(sim, sim.produce(1, TP, [b"a"]))
    for node in (2, 3):
        sim.brokers[node].kill()
    sim.elect(TP, 1)
    sim.loop.run_for(10)
    partition: Partition = sim.partition(1, TP)
    partition.high_watermark = Offset(0)
    assert list_offset(sim, -1, version).error_code is expected


def test_offset_for_leader_epoch_returns_the_end_of_each_epoch() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    sim.elect(TP, 1)
    sim.loop.run_for(20)
    rows: list[tuple[int, int]] = []
    for epoch in (0, 1, 7):
        topic = {"topic": TP.topic, "partitions": [{"partition": 0, "leader_epoch": epoch}]}
        found = sim.call(1, *client_request(23, 4, topics=[topic]))
        response = found.topics[0].partitions[0]
        rows.append((response.leader_epoch, response.end_offset))
    assert rows == [(0, 1), (1, 1), (-1, -1)]


# --- requests of the controller (C8, D2, D6)


def test_leader_and_isr_of_an_older_controller_is_refused() -> None:
    sim = three()
    response = sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, controller_epoch=0, leader=2, leader_epoch=9))
    assert response.error_code is ErrorCode.stale_controller_epoch
    assert sim.partition(1, TP).is_leader


def test_leader_and_isr_for_another_registration_is_refused() -> None:
    sim = three()
    epoch = sim.brokers[1].epoch
    old = sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, broker_epoch=epoch - 1, leader=2, leader_epoch=9))
    assert old.error_code is ErrorCode.stale_broker_epoch
    later = sim.request(1, 4, 7, sim.leader_and_isr(TP, 1, broker_epoch=epoch + 9, leader_epoch=9))
    sim.loop.run_for(100)
    assert not later.done()  # the broker may be registering at this instant
    sim.brokers[1].replicas.broker_epoch = BrokerEpoch(epoch + 9)
    assert sim.loop.run_until(later.done, 100)
    assert sim.partition(1, TP).leader_epoch == 9


def test_older_leader_epoch_is_refused_and_the_same_epoch_changes_nothing() -> None:
    sim = three()
    sim.elect(TP, 1)
    sim.loop.run_for(20)
    generation = sim.partition(1, TP).leadership_generation
    response = sim.call(1, 4, 7, sim.leader_and_isr(TP, 1, leader_epoch=0, leader=2))
    assert response.topics[0].partition_errors[0].error_code is ErrorCode.stale_controller_epoch
    response = sim.call(1, 4, 7, sim.leader_and_isr(TP, 1))
    assert response.topics[0].partition_errors[0].error_code is ErrorCode.none
    assert sim.partition(1, TP).leadership_generation == generation
    assert sim.partition(1, TP).is_leader


def test_leadership_hooks_get_leaders_and_followers() -> None:
    sim = three()
    seen: list[tuple[list[int], list[int]]] = []
    sim.brokers[1].replicas.on_leadership.append(
        lambda leaders, followers: seen.append(
            ([partition.leader_epoch for partition in leaders], [partition.leader_epoch for partition in followers])
        )
    )
    sim.elect(TP, 2)
    sim.loop.run_for(20)
    sim.elect(TP, 1)
    sim.loop.run_for(20)
    assert seen == [([], [1]), ([2], [])]


def stop_replica(sim: Simulation, node: int, *, delete: bool) -> Any:
    row = StopReplicaPartitionState(partition_index=0, delete_partition=delete)
    topic = StopReplicaTopicState(topic_name=TP.topic, partition_states=(row,))
    return sim.call(
        node,
        5,
        4,
        StopReplicaRequest(
            controller_id=sim.brokers[1].node_id,
            controller_epoch=ControllerEpoch(1),
            broker_epoch=BrokerEpoch(sim.brokers[node].epoch),
            topic_states=(topic,),
        ),
    )


def test_stop_replica_deletes_the_log_and_fails_waiting_operations() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"])
    response = stop_replica(sim, 1, delete=True)
    assert response.partition_errors[0].error_code is ErrorCode.none
    assert results[0].error is ErrorCode.not_leader_or_follower
    assert sim.partition(1, TP) is None
    assert sim.brokers[1].logs.get(TP) is None


@pytest.mark.parametrize(
    ("topic_id", "leader_epoch", "stopped"),
    [("this", 1, True), ("this", 0, False), ("another", 1, False), (None, 1, False)],
)
def test_a_replica_that_is_assigned_elsewhere_under_a_newer_epoch_is_stopped_and_deleted(
    topic_id: str | None, leader_epoch: int, *, stopped: bool
) -> None:
    """A broker that was away when a reassignment ended gets no StopReplica: the metadata tells it."""
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"])
    ids = {"this": sim.partition(1, TP).topic_id, "another": UUID(int=7), None: None}
    sim.brokers[1].replicas.assigned_elsewhere(TP, ids[topic_id], leader_epoch)
    assert (sim.partition(1, TP) is None) == stopped
    assert (sim.brokers[1].logs.get(TP) is None) == stopped
    assert bool(results) == stopped
    if stopped:
        assert results[0].error is ErrorCode.not_leader_or_follower


def test_stopped_replica_keeps_its_high_watermark() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    stop_replica(sim, 1, delete=False)
    sim.elect(TP, 1)
    sim.loop.run_for(1)
    sim.loop.run_until(lambda: sim.partition(1, TP) is not None, 100)
    assert sim.partition(1, TP).high_watermark == 1


def test_new_topic_of_the_same_name_starts_with_an_empty_log() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"old"]))
    for broker in sim.brokers.values():
        broker.kill()
        broker.start()
    del sim.topic_ids[TP.topic]
    sim.create(TP, [1, 2, 3])
    sim.loop.run_for(50)
    assert ends(sim) == [0, 0, 0]


# --- followers


def test_partition_added_during_a_long_poll_is_fetched_at_once() -> None:
    sim = three(**{"replica.fetch.wait.max.ms": 5_000})
    other = TopicPartition("other", 0)
    sim.loop.run_for(200)
    sim.create(other, [1, 2, 3])
    sim.loop.run_for(20)
    assert result_of(sim, sim.produce(1, other, [b"x"]), 30).error is ErrorCode.none
    assert result_of(sim, sim.produce(1, TP, [b"x"]), 30).error is ErrorCode.none


def test_idle_fetchers_are_closed() -> None:
    sim = three()
    sim.elect(TP, 2)
    sim.loop.run_for(50)
    replicas = sim.brokers[3].replicas
    assert replicas.fetchers.leaders == [2]
    assert not sim.brokers[2].replicas.fetchers.leaders


def test_follower_behind_the_log_start_restarts_at_the_log_start() -> None:
    sim = three()
    sim.brokers[3].kill()
    for _ in range(3):
        sim.produce(1, TP, [b"a"], acks=1)
    sim.loop.run_for(3_000)
    sim.partition(1, TP).log.increment_log_start_offset(2)
    sim.brokers[3].start()
    sim.send_leader_and_isr(TP, [3])
    sim.loop.run_for(500)
    log = sim.partition(3, TP).log
    assert (log.log_start_offset, log.log_end_offset) == (2, 3)


def test_restarted_follower_leaves_and_rejoins_the_isr() -> None:
    sim = three(**{"replica.lag.time.max.ms": 300})
    sim.brokers[3].kill()
    result_of(sim, sim.produce(1, TP, [b"a"], timeout_ms=5_000))
    assert sim.registry.states[TP].isr == [1, 2]
    sim.brokers[3].start()
    sim.send_leader_and_isr(TP, [3])
    assert sim.loop.run_until(lambda: len(sim.registry.states[TP].isr) == 3, 1_000)
    sim.loop.run_for(20)
    causes = [row["cause"] for row in sim.brokers[1].traced("partition.isr")]
    assert causes == ["shrink", "expand"]


def test_isr_write_with_a_lost_response_is_repeated_until_its_result_is_known() -> None:
    sim = three(**{"replica.lag.time.max.ms": 300})
    sim.registry.lose_responses = 1
    sim.brokers[3].kill()
    assert result_of(sim, sim.produce(1, TP, [b"a"])).error is ErrorCode.none
    assert sim.partition(1, TP).version == sim.registry.states[TP].version == 1


def test_leader_without_registry_acknowledges_no_record_that_the_isr_lacks() -> None:
    sim = three(**{"replica.lag.time.max.ms": 200})
    sim.registry.unreachable_from.add(1)
    sim.brokers[2].kill()
    sim.brokers[3].kill()
    results = sim.produce(1, TP, [b"a"], timeout_ms=3_000)
    assert result_of(sim, results).error is ErrorCode.request_timed_out
    assert sim.partition(1, TP).high_watermark == 0


# --- disks (B11)


def test_failed_disk_takes_the_partition_offline() -> None:
    sim = three(**{"replica.lag.time.max.ms": 60_000})
    failed: list[object] = []
    sim.brokers[1].replicas.log_failures.on_failure.append(failed.append)
    sim.brokers[3].kill()
    waiting = sim.produce(1, TP, [b"a"])
    sim.brokers[1].machine.disk.refuses = errno.EIO
    assert sim.produce(1, TP, [b"b"])[0].error is ErrorCode.kafka_storage_error
    assert result_of(sim, waiting).error is ErrorCode.kafka_storage_error
    assert Consumer(sim).fetch(0).error == ErrorCode.kafka_storage_error
    assert failed == [sim.partition(1, TP)]


def test_failpoint_after_the_append_keeps_the_record_for_the_followers() -> None:
    sim = three()

    sim.brokers[1].host.control.call("rules.add", kind="failpoint", name="log.after-append", action="error")
    assert sim.produce(1, TP, [b"a"])[0].error is not ErrorCode.none
    sim.loop.run_for(100)
    assert ends(sim)[1] == 1


def test_state_returns_plain_data() -> None:
    sim = three()
    result_of(sim, sim.produce(1, TP, [b"a"]))
    (row,) = sim.brokers[1].replicas.state()
    assert (row["leo"], row["hw"], row["isr"], row["is_leader"]) == (1, 1, [1, 2, 3], True)


def test_high_watermark_trace_is_rate_limited_and_ends_with_the_last_value() -> None:
    sim = three(**{"harrow.trace.hw.interval.ms": 100})
    for _ in range(20):
        result_of(sim, sim.produce(1, TP, [b"a"]))
    sim.loop.run_for(200)
    rows = [row["hw"] for row in sim.brokers[1].traced("partition.hw")]
    assert len(rows) <= 5
    assert rows[-1] == 20


def test_a_failed_log_is_announced_as_one_that_is_led_no_more() -> None:
    """A coordinator that went on serving its memory would answer with older state than the next leader's."""
    sim = three()
    replicas, partition = sim.brokers[1].replicas, sim.partition(1, TP)
    announced: list[tuple[list[Partition], list[Partition]]] = []
    replicas.on_leadership.append(lambda leaders, others: announced.append((leaders, others)))
    replicas.log_failures.log_failed(partition, OSError(errno.EIO, "disk"))
    assert announced == [], "in the next turn: the failed append may be a coordinator's"
    sim.loop.run_for(1)
    assert announced == [([], [partition])]
