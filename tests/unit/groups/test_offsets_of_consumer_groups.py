"""Offsets of consumer groups (KIP-848): commits in transactions, deletion, expiration (G2, G4, F6)."""

from __future__ import annotations

from typing import Any

import pytest
from consumer_group_requests import consumer_heartbeat, consumer_join, described
from coordinator_fakes import topic_id_of
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey

MINUTE_MS = 60_000
BEAT_MS = 5_000


@pytest.fixture
def bed() -> GroupTestBed:
    """Offsets are kept for a minute, and expired ones are looked for every second."""
    made = GroupTestBed(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1_000)
    made.cache.topics["parcels"] = 1
    made.lead(HOME)
    return made


def transactional_commit(bed: GroupTestBed, member_id: str, epoch: int, version: int = 5) -> ErrorCode:
    name = ApiKey.TXN_OFFSET_COMMIT
    row = {"partition_index": 0, "committed_offset": 5, "committed_metadata": ""}
    topic = {"name": "orders", "topic_id": topic_id_of("orders"), "partitions": (row,)}
    generation = "generation_id" if version < 6 else "generation_id_or_member_epoch"
    sent = bed.send(
        name,
        version,
        transactional_id="t",
        group_id=GROUP,
        producer_id=7,
        producer_epoch=0,
        topics=(topic,),
        member_id=member_id,
        **{generation: epoch},
    )
    return ErrorCode(sent.response.topics[0].partitions[0].error_code)


def delete(bed: GroupTestBed, topic: str) -> tuple[ErrorCode, list[ErrorCode]]:
    row = {"partition_index": 0}
    wanted = {"name": topic, "partitions": (row,)}
    response: Any = bed.send(ApiKey.OFFSET_DELETE, 0, group_id=GROUP, topics=(wanted,)).response
    rows = [found.error_code for name in response.topics for found in name.partitions]
    return response.error_code, rows


def test_a_commit_in_a_transaction_needs_the_present_member_epoch(bed: GroupTestBed) -> None:
    epoch = consumer_join(bed, "a").member_epoch
    assert transactional_commit(bed, "a", epoch) is ErrorCode.none
    assert transactional_commit(bed, "a", epoch + 1) is ErrorCode.illegal_generation
    assert transactional_commit(bed, "a", -1) is ErrorCode.illegal_generation
    assert transactional_commit(bed, "a", epoch + 1, version=6) is ErrorCode.stale_member_epoch, "KIP-1319"
    assert transactional_commit(bed, "stranger", epoch) is ErrorCode.unknown_member_id
    assert transactional_commit(bed, "", -1) is ErrorCode.none, "older versions name no member"
    consumer_heartbeat(bed, "a", -1)
    assert transactional_commit(bed, "", -1) is ErrorCode.none, "an Empty group"


def test_offsets_of_subscribed_topics_are_not_deleted(bed: GroupTestBed) -> None:
    epoch = consumer_join(bed, "a", regex="ord.*").member_epoch
    for topic in ("orders", "parcels"):
        commit(bed, 5, "a", epoch, topic=topic)
    assert delete(bed, "orders") == (ErrorCode.none, [ErrorCode.group_subscribed_to_topic])
    assert delete(bed, "parcels") == (ErrorCode.none, [ErrorCode.none])
    assert committed_offsets(bed) == {("orders", 0): 5}
    consumer_heartbeat(bed, "a", -1)
    assert delete(bed, "orders") == (ErrorCode.none, [ErrorCode.none])
    assert committed_offsets(bed) == {}


def test_offsets_that_no_member_subscribes_to_expire_and_an_empty_group_is_removed(bed: GroupTestBed) -> None:
    epoch = consumer_join(bed, "a").member_epoch
    for topic in ("orders", "parcels"):
        commit(bed, 5, "a", epoch, topic=topic)
    for _ in range(MINUTE_MS // BEAT_MS + 1):
        bed.host.advance(BEAT_MS)
        assert consumer_heartbeat(bed, "a", epoch).error_code is ErrorCode.none
    assert committed_offsets(bed) == {("orders", 0): 5}
    consumer_heartbeat(bed, "a", -1)
    bed.host.advance(2_000)
    assert committed_offsets(bed) == {}, "the commit is older than a minute"
    assert described(bed).error_code is ErrorCode.group_id_not_found
    bed.resign(HOME)
    bed.lead(HOME)
    assert described(bed).error_code is ErrorCode.group_id_not_found, "the log says the same"
