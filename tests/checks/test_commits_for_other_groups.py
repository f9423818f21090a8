"""Offsets that were committed for a group that does not read the partition; who may do so, and who may not (L2)."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from harrow.harness.checks.guarantees import FORBIDDEN
from transaction_histories import GROUP, PartitionHistory

Story = Callable[[PartitionHistory], None]
NAME = "commit-for-other-group"
A, B = 1, 2
OTHER, PRODUCER = 91, 79
"""Another group, and the client id of a transactional producer."""


def offsets_in_the_transaction_of_the_reading_group(h: PartitionHistory) -> None:
    h.owns(A)
    h.transaction()
    h.read()
    h.offset(2, A, kind=2, client=PRODUCER, producer=7)
    h.offset(2, A, kind=1, client=PRODUCER, producer=7)


def offsets_of_a_reader_with_assign_beside_another_group(h: PartitionHistory) -> None:
    """It reads its own offset when it starts; the other group commits nothing."""
    h.owns(A, group=OTHER)
    h.transaction()
    h.read()
    h.offset(0, kind=3, generation=-1)
    h.offset(2, kind=2, generation=-1, client=PRODUCER, producer=7)


def offsets_of_a_reader_with_assign_that_never_reads_them(h: PartitionHistory) -> None:
    """Another client than the owner of the other group fetched the records."""
    h.owns(A, group=OTHER)
    h.transaction()
    h.read()
    h.read(client=PRODUCER)
    h.offset(2, kind=2, generation=-1, client=PRODUCER, producer=7)


def an_administrator_sets_the_offset_of_a_group(h: PartitionHistory) -> None:
    h.owns(A, group=OTHER)
    h.transaction()
    h.read()
    h.offset(2, A, group=OTHER)
    h.offset(0, generation=-1, client=PRODUCER)


def offsets_for_two_groups(h: PartitionHistory) -> None:
    """A job that moves from one group to the other commits for both."""
    h.owns(A)
    h.transaction()
    h.read()
    h.offset(2, A, kind=2, client=PRODUCER, producer=7)
    h.offset(2, generation=-1, kind=2, client=PRODUCER, producer=7, group=OTHER)


def offsets_before_the_group_has_an_owner(h: PartitionHistory) -> None:
    h.transaction()
    h.offset(2, B, kind=2, client=PRODUCER, producer=7, group=OTHER)
    h.owns(A)


def offsets_with_the_metadata_of_another_group(h: PartitionHistory) -> None:
    h.owns(A)
    h.transaction()
    h.read()
    h.offset(2, B, kind=2, client=PRODUCER, producer=7, group=OTHER)
    h.offset(2, B, kind=1, client=PRODUCER, producer=7, group=OTHER)


def offsets_in_a_transaction_for_a_group_without_members(h: PartitionHistory) -> None:
    h.owns(A)
    h.transaction()
    h.read()
    h.offset(2, generation=-1, kind=2, client=PRODUCER, producer=7, group=OTHER)


def offsets_that_the_owner_commits_for_another_group(h: PartitionHistory) -> None:
    h.owns(A)
    h.transaction()
    h.read()
    h.offset(2, generation=-1, group=OTHER)


CORRECT: tuple[Story, ...] = (
    offsets_in_the_transaction_of_the_reading_group,
    offsets_of_a_reader_with_assign_beside_another_group,
    offsets_of_a_reader_with_assign_that_never_reads_them,
    an_administrator_sets_the_offset_of_a_group,
    offsets_for_two_groups,
    offsets_before_the_group_has_an_owner,
)
WRONG: tuple[Story, ...] = (
    offsets_with_the_metadata_of_another_group,
    offsets_in_a_transaction_for_a_group_without_members,
    offsets_that_the_owner_commits_for_another_group,
)


@pytest.mark.parametrize("story", CORRECT, ids=lambda story: str(story.__name__))
def test_offsets_of_a_correct_application_are_no_anomaly(story: Story) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == set()


@pytest.mark.parametrize("story", WRONG, ids=lambda story: str(story.__name__))
def test_offsets_for_a_group_that_does_not_read_are_named(story: Story) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == {NAME}
    (anomaly,) = history.found().result().anomalies
    assert "after a restart its members read these records again" in str(anomaly.explanation)
    assert anomaly.offsets == [2]
    (commit,) = anomaly.operations
    assert (commit["group"], commit["reading_group"]) == (OTHER, GROUP)
    assert commit.get("producer_id", -1) == (-1 if "owner" in story.__name__ else 7)


def test_only_exactly_once_forbids_it() -> None:
    assert {name for name, kinds in FORBIDDEN.items() if NAME in kinds} == {"exactly-once"}


def test_without_the_tap_of_a_coordinator_nothing_is_claimed() -> None:
    history = PartitionHistory()
    offsets_with_the_metadata_of_another_group(history)
    assert history.found(untapped=(2,)).result().anomalies == []
