"""Many changed partitions reach a broker in several LeaderAndIsr requests, in order (C8)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

from harrow.cluster.controller.requests import LEADER_AND_ISR_MOST, RequestBatch
from harrow.cluster.controller.state_node import LeaderAndIsr
from harrow.cluster.controller.topic_node import ReplicaAssignment
from harrow.cluster.ids import ControllerEpoch, LeaderEpoch, NodeId, TopicPartition
from harrow.cluster.wire.api_keys import ApiKey

ONE, TWO = NodeId(1), NodeId(2)


def test_a_broker_gets_each_changed_partition_once_in_requests_of_bounded_size() -> None:
    count = 2 * LEADER_AND_ISR_MOST + 1
    partitions = [TopicPartition("orders", number) for number in range(count)]
    state = LeaderAndIsr(leader=ONE, leader_epoch=LeaderEpoch(0), isr=(ONE,), controller_epoch=ControllerEpoch(1))
    endpoint = SimpleNamespace(host="localhost", port=1)

    def endpoint_of(_listener: str) -> SimpleNamespace:
        return endpoint

    def assignment_of(_tp: TopicPartition) -> ReplicaAssignment:
        return ReplicaAssignment(replicas=(ONE, TWO))

    broker = SimpleNamespace(node_id=ONE, epoch=5, endpoint=endpoint_of, endpoints=(), rack=None)
    context = SimpleNamespace(
        brokers={ONE: broker},
        partitions=dict.fromkeys(partitions, state),
        assignments=dict.fromkeys(partitions, (ONE, TWO)),
        topics={"orders": None},
        assignment=assignment_of,
    )
    sent: list[tuple[NodeId, int, Any]] = []
    batch = RequestBatch(
        cast("Any", context),
        ONE,
        ControllerEpoch(1),
        lambda node, api, _version, entity: sent.append((node, api, entity)),
        "BROKERS",
    )
    batch.leader_and_isr(partitions, new=True)
    batch.flush()
    assert [(node, api) for node, api, _ in sent] == [(ONE, ApiKey.LEADER_AND_ISR)] * 3
    rows = [
        [row.partition_index for topic in entity.topic_states for row in topic.partition_states]
        for _, _, entity in sent
    ]
    assert [len(part) for part in rows] == [LEADER_AND_ISR_MOST, LEADER_AND_ISR_MOST, 1]
    assert [number for part in rows for number in part] == list(range(count))
    assert all(len(entity.live_leaders) == 1 for _, _, entity in sent)
