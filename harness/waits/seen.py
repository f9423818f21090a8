"""What a wait looks at, as plain values: groups, offsets, records, requests, leaders; `ClusterSeen` has them.

    from_taps.py         Harrow's own brokers: what they wrote into their taps, logs and control sockets
    from_responses.py    other brokers: requests, again and again

A look sends no request of the protocol to Harrow's own brokers, so that a wait inside of a chaos block takes no request
away from a fault (`lose_response("Fetch")`). What may fail: HarrowError where something cannot be seen at this moment.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from harrow.cluster.ids import TopicPartition

if TYPE_CHECKING:
    from harrow.cluster.view import ClusterView

    from ..histories.live_taps import GroupSeen
    from ..histories.request_rows import RequestCount


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetsSeen:
    """Where a partition begins and ends for a consumer that reads committed data."""

    start: int
    end: int
    """The last stable offset: equal to the high watermark where no transaction is open."""


class ClusterSeen(Protocol):
    """The cluster at the moment of each call."""

    pace_s: float
    """How long to pause between two looks."""

    def view(self) -> ClusterView:
        """The registry's or the controller's state: brokers, leaders, ISRs."""
        ...

    def group_names(self) -> Collection[str]:
        """The consumer groups that exist."""
        ...

    def group(self, name: str) -> GroupSeen | None:
        """One group; None where there is none."""
        ...

    def committed(self, group: str, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        """The committed offsets of a group; a partition without one is left out."""
        ...

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, OffsetsSeen]:
        """Where the partitions begin and end; one whose leader does not respond is left out."""
        ...

    def readable(self, where: TopicPartition, first: int, end: int) -> int:
        """Count the records from offset `first` up to `end`, without markers and records of aborted transactions."""
        ...

    def requests(self) -> Sequence[RequestCount]:
        """How often each client asked which API since the brokers began to record."""
        ...

    def close(self) -> None:
        """Release what the looks needed."""
        ...


def newest_leaders(
    state: Mapping[int, Sequence[Mapping[str, Any]]], partitions: Collection[TopicPartition]
) -> dict[TopicPartition, tuple[int, Mapping[str, Any]]]:
    """Return the leader and its row of `RunningCluster.state()`; an isolated leader of an older epoch is left out."""
    found: dict[TopicPartition, tuple[int, Mapping[str, Any]]] = {}
    for node, rows in state.items():
        for row in rows:
            where = TopicPartition(str(row["topic"]), int(row["partition"]))
            if where not in partitions or not row["is_leader"]:
                continue
            known = found.get(where)
            if known is None or known[1]["leader_epoch"] < row["leader_epoch"]:
                found[where] = node, row
    return found
