"""The controller's requests equal those of Apache Kafka 3.9.1, byte for byte (C8).

The generated classes of kafka-clients 3.9.1 wrote the bytes below.
"""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.ids import BrokerEpoch, ControllerEpoch, LeaderEpoch, NodeId
from harrow.cluster.wire import internal, messages
from harrow.cluster.wire.headers import request_is_flexible, response_is_flexible
from harrow.cluster.wire.topic_ids import topic_id_of
from kio.schema.errors import ErrorCode

TOPIC_ID = topic_id_of("AQIDBAUGBwgREhMUFRYXGA")
CONTROLLER, EPOCH, BROKER_EPOCH = NodeId(1), ControllerEpoch(4), BrokerEpoch(77)


def nodes(*ids: int) -> tuple[NodeId, ...]:
    return tuple(NodeId(node_id) for node_id in ids)


LEADER_AND_ISR = internal.LeaderAndIsrRequest(
    controller_id=CONTROLLER,
    controller_epoch=EPOCH,
    broker_epoch=BROKER_EPOCH,
    type=internal.FULL,
    topic_states=(
        internal.LeaderAndIsrTopicState(
            topic_name="orders",
            topic_id=TOPIC_ID,
            partition_states=(
                internal.LeaderAndIsrPartitionState(
                    partition_index=3,
                    controller_epoch=EPOCH,
                    leader=NodeId(5),
                    leader_epoch=LeaderEpoch(6),
                    isr=nodes(5, 7),
                    partition_epoch=8,
                    replicas=nodes(5, 7, 9),
                    adding_replicas=nodes(9),
                    removing_replicas=nodes(7),
                    is_new=True,
                    leader_recovery_state=1,
                ),
            ),
        ),
    ),
    live_leaders=(internal.LeaderAndIsrLiveLeader(broker_id=NodeId(5), host_name="h", port=9092),),
)
LEADER_AND_ISR_ANSWER = internal.LeaderAndIsrResponse(
    error_code=ErrorCode.none,
    topics=(
        internal.LeaderAndIsrTopicError(
            topic_id=TOPIC_ID,
            partition_errors=(
                internal.LeaderAndIsrPartitionError(partition_index=3, error_code=ErrorCode.stale_controller_epoch),
            ),
        ),
    ),
)
STOP_REPLICA = internal.StopReplicaRequest(
    controller_id=CONTROLLER,
    controller_epoch=EPOCH,
    broker_epoch=BROKER_EPOCH,
    topic_states=(
        internal.StopReplicaTopicState(
            topic_name="orders",
            partition_states=(
                internal.StopReplicaPartitionState(
                    partition_index=3, leader_epoch=LeaderEpoch(-2), delete_partition=True
                ),
            ),
        ),
    ),
)
STOP_REPLICA_ANSWER = internal.StopReplicaResponse(
    error_code=ErrorCode.none,
    partition_errors=(
        internal.StopReplicaPartitionError(
            topic_name="orders", partition_index=3, error_code=ErrorCode.kafka_storage_error
        ),
    ),
)


def update_metadata(kind: int) -> internal.UpdateMetadataRequest:
    return internal.UpdateMetadataRequest(
        controller_id=CONTROLLER,
        type=kind,
        controller_epoch=EPOCH,
        broker_epoch=BROKER_EPOCH,
        topic_states=(
            internal.UpdateMetadataTopicState(
                topic_name="orders",
                topic_id=TOPIC_ID,
                partition_states=(
                    internal.UpdateMetadataPartitionState(
                        partition_index=3,
                        controller_epoch=EPOCH,
                        leader=NodeId(5),
                        leader_epoch=LeaderEpoch(6),
                        isr=nodes(5),
                        zk_version=8,
                        replicas=nodes(5, 7),
                        offline_replicas=nodes(7),
                    ),
                ),
            ),
        ),
        live_brokers=(
            internal.UpdateMetadataBroker(
                id=NodeId(5), endpoints=(internal.UpdateMetadataEndpoint(port=9092, host="h", listener="clients"),)
            ),
        ),
    )


_METADATA = (
    "000000010000000004000000000000004d02076f726465727301020304050607081112131415161718020000000300"
    "00000400000005000000060200000005000000080300000005000000070200000007000002000000050200002384"
    "026808636c69656e747300000000"
)
_LEADER_AND_ISR = (
    "000000010000000004000000000000004d0202076f7264657273010203040506070811121314151617180200000003"
    "0000000400000005000000060300000005000000070000000804000000050000000700000009020000000902000000"
    "070101000002000000050268000023840000"
)
KAFKA_WROTE: list[tuple[int, int, str, Any, str]] = [
    (4, 7, "request", LEADER_AND_ISR, _LEADER_AND_ISR),
    (4, 7, "response", LEADER_AND_ISR_ANSWER, "000002010203040506070811121314151617180200000003000b000000"),
    (5, 4, "request", STOP_REPLICA, "000000010000000004000000000000004d02076f72646572730200000003fffffffe01000000"),
    (5, 4, "response", STOP_REPLICA_ANSWER, "000002076f72646572730000000300380000"),
    (6, 8, "request", update_metadata(0), _METADATA + "0000"),
    (6, 8, "request", update_metadata(internal.FULL), _METADATA + "0001000102"),
    (6, 8, "response", internal.UpdateMetadataResponse(error_code=ErrorCode.stale_controller_epoch), "000b00"),
    (
        7,
        3,
        "request",
        internal.ControlledShutdownRequest(broker_id=NodeId(5), broker_epoch=BROKER_EPOCH),
        "00000005000000000000004d00",
    ),
    (
        7,
        3,
        "response",
        internal.ControlledShutdownResponse(
            error_code=ErrorCode.none,
            remaining_partitions=(internal.RemainingPartition(topic_name="orders", partition_index=3),),
        ),
        "000002076f7264657273000000030000",
    ),
]


@pytest.mark.parametrize(("api_key", "version", "kind", "entity", "kafkas"), KAFKA_WROTE)
def test_encoding_and_decoding_match_the_bytes_of_kafka_3_9_1(
    api_key: int, version: int, kind: str, entity: Any, kafkas: str
) -> None:
    expected = bytes.fromhex(kafkas)
    if kind == "request":
        assert messages.encode_request(api_key, version, entity) == expected
        read, end = messages.request_reader(api_key, version)(expected, 0)
    else:
        written = messages.encode(messages.response_writer(api_key, version), entity)
        assert written == expected
        read, end = messages.response_reader(api_key, version)(expected, 0)
    assert (read, end) == (entity, len(expected))


@pytest.mark.parametrize("key", sorted(internal.INTERNAL))
def test_controller_requests_have_schemas_like_any_other_request(key: tuple[int, int]) -> None:
    assert messages.has_schema(*key)
    assert messages.versions_known(key[0]) == (key[1],)
    assert request_is_flexible(*key)
    assert response_is_flexible(*key)
    root = messages.schema(*key, "response").root(error_code=ErrorCode.none)
    assert isinstance(root, internal.INTERNAL[key][1])
