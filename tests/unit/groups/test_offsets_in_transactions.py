"""Offsets in transactions at the group coordinator: pending until the marker, dropped by an abort (F6)."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest
from coordinator_fakes import Sent, topic_id_of
from group_fakes import GroupTestBed
from group_requests import GROUP, HOME, commit, committed_offsets, joined
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import OFFSET_COMMITTED, OFFSET_SENT, Committer
from harrow.cluster.ids import TopicPartition
from harrow.cluster.transactions.marker_sender import Marker
from harrow.cluster.wire.api_keys import ApiKey

PRODUCER = 77
ORDERS = ("orders", 0)


@pytest.fixture
def bed() -> GroupTestBed:
    made = GroupTestBed()
    made.lead(HOME)
    return made


def commit_in_transaction(
    bed: GroupTestBed,
    offset: int,
    *,
    version: int = 3,
    producer: int = PRODUCER,
    topic_of_id: str = "orders",
    **member: Any,
) -> Sent:
    row = {"partition_index": 0, "committed_offset": offset, "committed_metadata": "m"}
    topic = {"name": "orders", "topic_id": topic_id_of(topic_of_id), "partitions": (row,)}
    return bed.send(
        ApiKey.TXN_OFFSET_COMMIT,
        version,
        transactional_id="payments",
        group_id=GROUP,
        producer_id=producer,
        producer_epoch=0,
        topics=(topic,),
        **member,
    )


def error_of(sent: Sent) -> ErrorCode:
    return ErrorCode(sent.response.topics[0].partitions[0].error_code)


def end(bed: GroupTestBed, *, commit: bool, producer: int = PRODUCER) -> list[ErrorCode]:
    """The marker of the transaction; its result, once there is one."""
    results: list[ErrorCode] = []
    marker = Marker(
        producer_id=producer,
        producer_epoch=1,
        coordinator_epoch=3,
        commit=commit,
        client_version=2,
        partitions=(TopicPartition("__consumer_offsets", HOME),),
    )
    bed.coordinator.end_transaction(HOME, marker, 5, results.append)
    bed.host.run_due()
    return results


def stable(bed: GroupTestBed) -> tuple[ErrorCode, int]:
    topic = {"name": "orders", "partition_indexes": (0,)}
    sent = bed.send(ApiKey.OFFSET_FETCH, 7, group_id=GROUP, topics=(topic,), require_stable=True)
    row = sent.response.topics[0].partitions[0]
    return row.error_code, row.committed_offset


@pytest.mark.parametrize("version", range(7))
def test_an_offset_is_pending_until_the_commit_marker(bed: GroupTestBed, version: int) -> None:
    commit(bed, 3)
    assert error_of(commit_in_transaction(bed, 9, version=version)) is ErrorCode.none
    assert bed.replicas.transaction_checks.asked == [("payments", PRODUCER, 0, version >= 5)]
    assert committed_offsets(bed) == {ORDERS: 3}
    assert stable(bed) == (ErrorCode.unstable_offset_commit, -1)
    assert end(bed, commit=True) == [ErrorCode.none]
    assert committed_offsets(bed) == {ORDERS: 9}
    assert stable(bed) == (ErrorCode.none, 9)


def test_an_abort_marker_drops_the_offset(bed: GroupTestBed) -> None:
    commit(bed, 3)
    commit_in_transaction(bed, 9)
    assert end(bed, commit=False) == [ErrorCode.none]
    assert committed_offsets(bed) == {ORDERS: 3}
    assert stable(bed) == (ErrorCode.none, 3)


def listed(bed: GroupTestBed) -> list[tuple[str, str]]:
    groups = bed.send(ApiKey.LIST_GROUPS, 5, states_filter=(), types_filter=()).response.groups
    return [(row.group_id, row.group_state) for row in groups]


def test_a_group_of_an_aborted_transaction_stays_until_the_look_for_expired_offsets() -> None:
    bed = GroupTestBed(offsets_retention_check_interval_ms=1_000)
    bed.lead(HOME)
    commit_in_transaction(bed, 9)
    end(bed, commit=False)
    assert listed(bed) == [(GROUP, "Empty")]
    bed.host.advance(1_001)
    assert listed(bed) == []


def test_a_marker_ends_only_the_transaction_of_its_producer(bed: GroupTestBed) -> None:
    commit_in_transaction(bed, 9)
    commit_in_transaction(bed, 20, producer=78)
    end(bed, commit=True)
    assert committed_offsets(bed) == {ORDERS: 9}
    assert stable(bed)[0] is ErrorCode.unstable_offset_commit
    end(bed, commit=False, producer=78)
    assert stable(bed) == (ErrorCode.none, 9)


def test_a_later_plain_commit_is_not_replaced_by_the_transaction(bed: GroupTestBed) -> None:
    commit_in_transaction(bed, 9)
    commit(bed, 12)
    end(bed, commit=True)
    assert committed_offsets(bed) == {ORDERS: 12}, "its record is later in the log (G4)"


@pytest.mark.parametrize("result", [True, False])
def test_pending_offsets_survive_a_new_coordinator(bed: GroupTestBed, result: bool) -> None:
    commit_in_transaction(bed, 9)
    bed.resign(HOME)
    bed.lead(HOME)
    assert stable(bed)[0] is ErrorCode.unstable_offset_commit
    end(bed, commit=result)
    assert committed_offsets(bed) == ({ORDERS: 9} if result else {})
    bed.resign(HOME)
    bed.lead(HOME)
    assert committed_offsets(bed) == ({ORDERS: 9} if result else {}), "so says the log, too"


def test_deleting_an_offset_drops_what_is_pending(bed: GroupTestBed) -> None:
    commit(bed, 3)
    commit_in_transaction(bed, 9)
    sent = bed.send(ApiKey.DELETE_GROUPS, 2, groups_names=(GROUP,))
    assert sent.response.results[0].error_code is ErrorCode.none
    end(bed, commit=True)
    assert committed_offsets(bed) == {}
    bed.resign(HOME)
    bed.lead(HOME)
    assert committed_offsets(bed) == {}


def test_a_marker_is_refused_while_the_group_coordinator_is_not_here(bed: GroupTestBed) -> None:
    bed.resign(HOME)
    assert end(bed, commit=True) == [ErrorCode.not_leader_or_follower]


def test_a_marker_whose_append_fails_changes_nothing(bed: GroupTestBed) -> None:
    commit_in_transaction(bed, 9)
    bed.replicas.next_error = ErrorCode.not_enough_replicas
    assert end(bed, commit=True) == [ErrorCode.not_enough_replicas]
    assert stable(bed)[0] is ErrorCode.unstable_offset_commit
    assert end(bed, commit=True) == [ErrorCode.none]
    assert stable(bed) == (ErrorCode.none, 9)


def test_only_members_of_the_present_generation_may_commit(bed: GroupTestBed) -> None:
    member, generation = joined(bed)
    mine: dict[str, Any] = {"member_id": member, "generation_id": generation}
    assert error_of(commit_in_transaction(bed, 1, **mine)) is ErrorCode.none
    old: dict[str, Any] = {**mine, "generation_id": generation - 1}
    assert error_of(commit_in_transaction(bed, 2, **old)) is ErrorCode.illegal_generation
    stranger: dict[str, Any] = {**mine, "member_id": "stranger"}
    assert error_of(commit_in_transaction(bed, 3, **stranger)) is ErrorCode.unknown_member_id
    static: dict[str, Any] = {**mine, "group_instance_id": "static"}
    assert error_of(commit_in_transaction(bed, 4, **static)) is ErrorCode.unknown_member_id
    assert error_of(commit_in_transaction(bed, 5)) is ErrorCode.none, "no member is named"


def test_a_generation_of_a_group_that_does_not_exist_is_refused(bed: GroupTestBed) -> None:
    refused = commit_in_transaction(bed, 1, member_id="m", generation_id=4)
    assert error_of(refused) is ErrorCode.illegal_generation
    refused = commit_in_transaction(bed, 1, version=6, member_id="m", generation_id_or_member_epoch=4)
    assert error_of(refused) is ErrorCode.group_id_not_found


def test_an_id_of_no_topic_is_refused_and_comes_back(bed: GroupTestBed) -> None:
    """KIP-1319: from version 6 on topics have ids only."""
    refused = commit_in_transaction(bed, 1, version=6, topic_of_id="gone")
    assert error_of(refused) is ErrorCode.unknown_topic_id
    assert [row.topic_id for row in refused.response.topics] == [topic_id_of("gone")]
    assert not bed.replicas.logs[HOME].batches


@pytest.mark.parametrize(
    ("error", "version", "wanted"),
    [
        (ErrorCode.network_exception, 3, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.not_coordinator, 5, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.concurrent_transactions, 4, ErrorCode.coordinator_load_in_progress),
        (ErrorCode.concurrent_transactions, 5, ErrorCode.concurrent_transactions),
        (ErrorCode.transaction_abortable, 3, ErrorCode.invalid_txn_state),
        (ErrorCode.transaction_abortable, 4, ErrorCode.transaction_abortable),
        (ErrorCode.producer_fenced, 4, ErrorCode.invalid_producer_epoch),
    ],
)
def test_what_the_transaction_coordinator_refuses_is_not_written(
    bed: GroupTestBed, error: ErrorCode, version: int, wanted: ErrorCode
) -> None:
    bed.replicas.transaction_checks.error = error
    assert error_of(commit_in_transaction(bed, 9, version=version)) is wanted
    assert not bed.replicas.logs[HOME].batches


def test_the_tap_has_an_offset_when_its_marker_makes_it_valid(bed: GroupTestBed) -> None:
    rows: list[tuple[str, int, int]] = []
    sent: list[int] = []

    def committed(
        group: str,
        offsets: Iterable[tuple[TopicPartition, int]],
        *,
        error: int,
        invoked_ns: int,
        by: Committer,
        kind: int = OFFSET_COMMITTED,
    ) -> None:
        assert by.producer_id >= 0
        if kind == OFFSET_SENT:
            sent.extend(offset for _, offset in offsets)
        else:
            rows.extend((group, offset, error) for _, offset in offsets)

    tap: Any = SimpleNamespace(enabled=True, committed=committed)
    bed.host.tap = tap
    commit_in_transaction(bed, 9)
    assert rows == []
    end(bed, commit=False)
    assert rows == []
    commit_in_transaction(bed, 10)
    end(bed, commit=True)
    assert rows == [(GROUP, 10, 0)]
    assert sent == [9, 10]
