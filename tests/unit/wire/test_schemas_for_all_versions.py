"""A handler builds a response once, with the fields of all versions, and it encodes in each version."""

from __future__ import annotations

from datetime import timedelta

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages


@pytest.mark.parametrize("version", messages.versions_known(3))
def test_a_response_with_the_fields_of_all_versions_encodes_in_every_version(version: int) -> None:
    s = messages.schema(3, version, "response")
    entity = s.MetadataResponse(
        brokers=(s.MetadataResponseBroker(node_id=1, host="h", port=9, rack=None),),
        cluster_id="c",
        controller_id=1,
        topics=(
            s.MetadataResponseTopic(
                error_code=ErrorCode.none,
                name="orders",
                topic_id=None,
                is_internal=False,
                partitions=(s.MetadataResponsePartition(partition_index=0, leader_id=1),),
            ),
        ),
        cluster_authorized_operations=5,
    )
    read = messages.decode_response(3, version, messages.encode(messages.response_writer(3, version), entity))
    assert read == entity
    assert read.topics[0].partitions[0].leader_id == 1
    assert read.topics[0].partitions[0].error_code is ErrorCode.none


def test_fields_that_are_not_given_get_the_protocols_default() -> None:
    made = messages.schema(10, 2, "response").FindCoordinatorResponse(node_id=4)
    assert (made.error_code, made.error_message, made.host, made.port) == (ErrorCode.none, None, "", 0)
    assert made.throttle_time == timedelta(0)


def test_a_class_that_this_version_lacks_returns_none() -> None:
    s = messages.schema(1, 11, "response")
    assert s.LeaderIdAndEpoch(leader_id=1, leader_epoch=2) is None
    row = s.PartitionData(partition_index=0, current_leader=s.LeaderIdAndEpoch(leader_id=1))
    assert not hasattr(row, "current_leader")


def test_a_class_that_no_version_has_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="NoSuchThing"):
        messages.schema(1, 11, "response").NoSuchThing()


def test_converting_milliseconds_to_a_time_field_and_back_returns_them() -> None:
    for number in (-1, 0, 1, 60_000, 2**31 - 1):
        assert messages.to_milliseconds(messages.milliseconds(number)) == number


def test_preloading_builds_codecs_of_existing_versions() -> None:
    messages.preload()
