"""What coordinators write to the tap of a group when the group moves from one to the other (J6)."""

from __future__ import annotations

from collections.abc import Iterable

import pytest
from consumer_group_requests import consumer_join
from group_fakes import GroupTestBed
from group_requests import HOME
from harrow.cluster.host.tap import NoTap
from harrow.cluster.ids import TopicPartition


class ListedTap(NoTap):
    """A tap that stores its rows about members and groups."""

    enabled = True

    def __init__(self) -> None:
        self.owners: list[tuple[str, int, int, int]] = []

    def member(
        self, group: str, member: str, client: str, *, generation: int, partitions: Iterable[TopicPartition],
        leader_epoch: int = -1, instance: str | None = None,
    ) -> None:  # fmt: skip
        """One call."""
        del group, client, instance
        self.owners.append((member, generation, len(list(partitions)), leader_epoch))


@pytest.fixture
def tap(bed: GroupTestBed) -> ListedTap:
    made = bed.host.tap = ListedTap()
    return made


def test_a_new_coordinator_reports_the_owners_of_a_consumer_group(
    bed: GroupTestBed, tap: ListedTap
) -> None:
    consumer_join(bed, "a")
    assert tap.owners == [("a", 1, 3, 1)]
    bed.resign(HOME)
    bed.lead(HOME)
    assert tap.owners[1:] == [("a", 1, 3, 2)]
