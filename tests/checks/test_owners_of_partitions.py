"""Owners of a partition, at one coordinator and at two: which histories have `two-owners`, and which have not (L2).

The rows of a history are in the order of time; `epoch` is the leader epoch of the coordinator that wrote a row.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from transaction_histories import PartitionHistory

Story = Callable[[PartitionHistory], None]
A, B = 1, 2


def a_static_member_that_restarts_while_its_coordinator_is_deposed(h: PartitionHistory) -> None:
    h.owns(A, epoch=1, instance=7)
    h.owns(B, epoch=2, instance=7)  # the next coordinator found it in the log
    h.releases(A, epoch=1)
    h.owns(B, epoch=1, instance=7)  # late rows of the coordinator that was deposed


def a_static_member_whose_coordinator_dies_before_its_row(h: PartitionHistory) -> None:
    h.owns(A, epoch=1, instance=7)
    h.owns(B, epoch=2, instance=7)
    h.releases(B, epoch=2)


def a_release_that_its_coordinator_writes_late(h: PartitionHistory) -> None:
    h.owns(A, epoch=1)
    h.owns(B, epoch=2)
    h.releases(A, epoch=1)


GOOD = (
    a_static_member_that_restarts_while_its_coordinator_is_deposed,
    a_static_member_whose_coordinator_dies_before_its_row,
    a_release_that_its_coordinator_writes_late,
)


@pytest.mark.parametrize("story", GOOD, ids=lambda story: str(story.__name__))
def test_what_one_coordinator_writes_late_makes_no_second_owner(story: Story) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == set()


def two_members_of_one_generation(h: PartitionHistory) -> None:
    h.owns(A)
    h.owns(B)


def two_coordinators_that_give_one_generation_twice(h: PartitionHistory) -> None:
    h.owns(A, epoch=1)
    h.owns(B, epoch=2)


def two_static_members_of_one_generation(h: PartitionHistory) -> None:
    h.owns(A, epoch=1, instance=7)
    h.owns(B, epoch=2, instance=8)


def a_static_member_and_its_next_incarnation_at_one_coordinator(h: PartitionHistory) -> None:
    h.owns(A, instance=7)
    h.owns(B, instance=7)


WRONG = (
    two_members_of_one_generation,
    two_coordinators_that_give_one_generation_twice,
    two_static_members_of_one_generation,
    a_static_member_and_its_next_incarnation_at_one_coordinator,
)


@pytest.mark.parametrize("story", WRONG, ids=lambda story: str(story.__name__))
def test_two_members_of_one_generation_are_two_owners(story: Story) -> None:
    history = PartitionHistory()
    story(history)
    assert history.judge() == {"two-owners"}
