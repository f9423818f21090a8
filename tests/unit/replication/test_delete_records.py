"""DeleteRecords on its purgatory (B7, E5): low watermark over live replicas, refusals, lost leadership, deadline."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId, Offset
from harrow.cluster.replication import LeaderAndIsr, Partition
from harrow.cluster.replication.delete_records import DelayedDeleteRecords, DeleteRecordsResult, Results, delete_before
from harrow.cluster.replication.partition_directory import PartitionDirectory
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batches import build_batch
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.topic_ids import UUID
from storage_host import TP, StorageHost

from .sim_clients import result_of, three
from .simulation import ORDERS

ALL = [NodeId(1), NodeId(2), NodeId(3)]


class Leader:
    """Broker 1 leads a log of ten records on three replicas; replicas 2 and 3 fetch when the test calls `fetch`."""

    def __init__(self, folder: str, topic: dict[str, object] | None = None) -> None:
        log = StorageHost().open(folder, topic)
        self.dead: set[NodeId] = set()
        self.partition = Partition(
            TP,
            log,
            node_id=NodeId(1),
            topic_id=UUID(int=5),
            lag_time_max_ms=1_000,
            alive=lambda node: node not in self.dead,
        )
        self.lead(LeaderEpoch(1))
        log.append_as_leader(build_batch([(b"k", b"v", ())] * 10, timestamp_ms=1), LeaderEpoch(1))
        for node in ALL[1:]:
            self.fetch(node, 0)

    def state(self, epoch: LeaderEpoch, leader: NodeId) -> LeaderAndIsr:
        return LeaderAndIsr(
            leader=leader,
            leader_epoch=epoch,
            isr=tuple(ALL),
            version=epoch,
            replicas=tuple(ALL),
            controller_epoch=ControllerEpoch(1),
        )

    def lead(self, epoch: LeaderEpoch) -> None:
        self.partition.become_leader(self.state(epoch, NodeId(1)), 0)

    def fetch(self, node: NodeId, log_start: int) -> None:
        self.partition.follower_fetched(node, Offset(10), Offset(log_start), 0, BrokerEpoch(1))

    def delete(self, offset: int) -> tuple[DelayedDeleteRecords, list[Results]]:
        """Return the delete operation for `offset` after one attempt, and the list that receives its results."""
        required = delete_before(self.partition, offset)
        result = DeleteRecordsResult(
            error=ErrorCode.none, required=required, leadership_generation=self.partition.leadership_generation
        )
        manager = SimpleNamespace(partition={TP: self.partition}.get)
        responses: list[Results] = []
        operation = DelayedDeleteRecords(cast("PartitionDirectory", manager), 100, {TP: result}, responses.append)
        operation.try_complete()
        return operation, responses


def deletion_result(responses: list[Results]) -> tuple[ErrorCode, int]:
    (response,) = responses
    return response[TP].error, response[TP].low_watermark


@pytest.fixture
def leader(tmp_path: Path) -> Leader:
    return Leader(str(tmp_path / "orders-0"))


def test_delete_records_waits_for_every_live_replica(leader: Leader) -> None:
    operation, responses = leader.delete(6)
    assert leader.partition.log.log_start_offset == 6, "the leader deletes its own records at once"
    leader.fetch(NodeId(2), 6)
    assert not operation.try_complete()
    leader.fetch(NodeId(3), 5)
    assert not operation.try_complete()
    leader.fetch(NodeId(3), 7)
    assert operation.try_complete()
    assert deletion_result(responses) == (ErrorCode.none, 6)


def test_delete_records_does_not_wait_for_a_dead_replica(leader: Leader) -> None:
    operation, responses = leader.delete(6)
    leader.fetch(NodeId(2), 6)
    leader.dead.add(NodeId(3))
    assert operation.try_complete()
    assert deletion_result(responses) == (ErrorCode.none, 6)


def test_delete_records_times_out_while_a_replica_lags(leader: Leader) -> None:
    operation, responses = leader.delete(-1)
    assert leader.partition.log.log_start_offset == 10
    operation.expire()
    assert deletion_result(responses) == (ErrorCode.request_timed_out, -1)


@pytest.mark.parametrize("again", [False, True])
def test_delete_records_fails_when_leadership_is_lost(leader: Leader, again: bool) -> None:
    operation, responses = leader.delete(6)
    leader.partition.become_follower(leader.state(LeaderEpoch(2), NodeId(2)))
    if again:  # a new leadership generation: the log may have been truncated in between
        leader.lead(LeaderEpoch(3))
    assert operation.try_complete()
    assert deletion_result(responses) == (ErrorCode.not_leader_or_follower, -1)


@pytest.mark.parametrize("offset", [-2, 11])
def test_delete_records_above_the_high_watermark_is_refused(leader: Leader, offset: int) -> None:
    with pytest.raises(KafkaError) as refused:
        delete_before(leader.partition, offset)
    assert refused.value.code is ErrorCode.offset_out_of_range
    assert leader.partition.log.log_start_offset == 0


def test_delete_records_of_a_compacted_topic_is_refused(tmp_path: Path) -> None:
    leader = Leader(str(tmp_path / "orders-0"), {"cleanup.policy": "compact"})
    with pytest.raises(KafkaError) as refused:
        delete_before(leader.partition, 3)
    assert refused.value.code is ErrorCode.policy_violation


def test_delete_records_completes_when_metadata_lose_the_replica_that_lags() -> None:
    """The partition is idle and the dead broker was not in the ISR: no fetch and no LeaderAndIsr tries it again."""
    sim = three()
    result_of(sim, sim.produce(1, ORDERS, [b"a"]))
    sim.blocked |= {(3, 1), (1, 3)}
    sim.produce(1, ORDERS, [b"b"], acks=1)
    sim.loop.run_for(5_000)
    assert sim.registry.states[ORDERS].isr == [1, 2]
    topics = [{"name": "orders", "partitions": [{"partition_index": 0, "offset": 1}]}]
    deleted = sim.request(1, *client_request(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=60_000))
    sim.loop.run_for(5_000)
    assert not deleted.done()
    sim.missing_in_metadata.add(3)
    sim.brokers[1].replicas.metadata_updated()
    assert sim.loop.run_until(deleted.done, 100)
    answer = messages.decode_response(ApiKey.DELETE_RECORDS, 2, deleted.result())
    assert answer.topics[0].partitions[0].error_code is ErrorCode.none
