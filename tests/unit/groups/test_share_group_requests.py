"""Share groups answer each request as Apache Kafka 4.4 did, which `kafka_files/share_group_answers.json` has (KIP-932).

`conformance/test_share_groups_as_kafka.py` sends the same requests to Apache Kafka, and records them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from coordinator_fakes import topic_id_of
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME
from harrow.cluster.errors import ErrorCode
from harrow.cluster.groups.share.share_state import ShareGroupState
from harrow.cluster.groups.share_offsets_api import ShareOffsetsApi
from harrow.cluster.ids import Offset, TopicPartition
from harrow.cluster.share_coordinator.values import SharePartition
from harrow.cluster.wire.api_keys import ApiKey
from share_group_scripts import ANSWERS, SCRIPTS, ShareScript, make_classic
from share_requests import ModelShareMember, share_heartbeat, share_state

ORDERS = topic_id_of("orders")


class EmptyTopics:
    """The leaders of topics without records."""

    async def end_offset(self, tp: TopicPartition) -> Offset:
        """Every log ends where it begins."""
        del tp
        return Offset(0)


@pytest.mark.parametrize("name", SCRIPTS)
def test_each_request_is_answered_as_by_apache_kafka(name: str) -> None:
    bed = GroupTestBed()
    for number in range(50):
        bed.lead(number)
    api = ShareOffsetsApi(bed.coordinator.service, EmptyTopics())
    key = int(ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS)
    bed.handlers[key] = replace(bed.handlers[key], handler=api.describe_offsets)

    def ask(api: ApiKey, version: int, fields: Mapping[str, Any]) -> Any:
        return bed.send(int(api), version, **fields).response

    assert make_classic(ask, "classic-group", "orders")
    script = ShareScript(ask, "share-group", "classic-group", "orders", ORDERS, "never")
    SCRIPTS[name](script)
    expected = json.loads(ANSWERS.read_text())[name]
    for answer, wanted in zip(script.notes, expected, strict=True):
        assert json.loads(json.dumps(answer)) == wanted


def test_a_group_is_full_at_its_maximum() -> None:
    bed = GroupTestBed(group_share_max_size=1)
    bed.lead(HOME)
    share_heartbeat(bed, "a", 0, "orders")
    refused = share_heartbeat(bed, "b", 0, "orders")
    assert refused.error_code is ErrorCode.group_max_size_reached
    assert refused.error_message == "The share group has reached its maximum capacity of 1 members."
    assert share_heartbeat(bed, "a", 0, "orders").error_code is ErrorCode.none


def test_a_member_without_heartbeats_loses_its_membership_after_the_session_timeout(bed: GroupTestBed) -> None:
    for member in ("a", "b"):
        share_heartbeat(bed, member, 0, "orders")
    bed.host.advance(30_000)
    epoch = max(share_heartbeat(bed, "a", number).member_epoch for number in (1, 2, 3))
    bed.host.advance(20_000)
    assert list(share_state(bed)[3]) == ["a"]
    assert share_heartbeat(bed, "b", 2).error_code is ErrorCode.unknown_member_id
    assert share_heartbeat(bed, "a", epoch).member_epoch > epoch, "the group has a new epoch"


def test_after_a_refusal_of_the_persister_the_next_heartbeat_tries_again(bed: GroupTestBed) -> None:
    bed.persister.errors = [ErrorCode.coordinator_not_available]
    assert share_heartbeat(bed, "a", 0, "orders").error_code is ErrorCode.none, "the answer does not wait"
    assert share_state(bed)[5].initializing == {}
    member = ModelShareMember(bed, "a")
    member.beat()
    member.beat()
    assert len(member.assigned) == 3


def test_a_deleted_topic_is_forgotten_and_a_grown_one_is_assigned(bed: GroupTestBed) -> None:
    member = ModelShareMember(bed, "a", "orders", "more")
    bed.cache.change(more=1)
    for _ in range(2):
        member.beat()
    assert ("more", 0) in member.assigned
    bed.cache.change(more=0, orders=4)
    assert set(share_state(bed)[5].initialized) == {ORDERS}
    for _ in range(2):
        member.beat()
    assert member.assigned == {("orders", number) for number in range(4)}


def test_a_group_whose_states_are_not_deleted_stays(bed: GroupTestBed) -> None:
    ModelShareMember(bed, "a").beat()
    share_heartbeat(bed, "a", -1)
    bed.persister.errors = [ErrorCode.not_coordinator]
    (row,) = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response.results
    assert row.error_code is ErrorCode.not_coordinator
    assert set(share_state(bed)[5].deleting) == {ORDERS}
    (row,) = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,)).response.results
    assert row.error_code is ErrorCode.none
    assert not bed.persister.states
    bed.resign(HOME)
    bed.lead(HOME)
    assert bed.coordinator.service.find(GROUP)[1] is None, "its records have tombstones"


def test_an_altered_offset_is_what_the_persister_keeps(bed: GroupTestBed) -> None:
    topics = ({"topic_name": "orders", "partitions": ({"partition_index": 2, "start_offset": 9},)},)
    bed.send(ApiKey.ALTER_SHARE_GROUP_OFFSETS, 0, group_id=GROUP, topics=topics)
    assert bed.persister.states[SharePartition(GROUP, ORDERS, 2)].start_offset == 9
    _, hosted = bed.coordinator.service.find(GROUP)
    assert hosted is not None
    assert hosted.share is not None
    assert hosted.share.state is ShareGroupState.EMPTY
    bed.host.advance(700_000)  # an Empty share group stays, as in Kafka
    assert bed.coordinator.service.find(GROUP)[1] is hosted
