"""What is known about share groups beside the rows of the taps (KIP-932): limits, resets, and what a test claims.

Owns: `ShareSettings`. The limit of deliveries is a setting of the brokers. On Harrow's brokers, as in Kafka 4.2, it
does not change while they run. A later Kafka has one for each group, too (KIP-1240): there the limit is not known after
a client changed settings, of whatever they were; nor is it on brokers that the run did not start. A client that
moves the offsets of a share group, or deletes it, has records delivered again, or not at all: `resets` says when.
Nothing is read of a run without share groups.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Self

from .. import run_folder
from ..histories.coordinator_rows import SHARES
from ..histories.layout import Layout
from ..histories.recordings import Recording
from ..histories.request_rows import api_name, read_requests

LIMIT = "group.share.delivery.count.limit"
LIMIT_DEFAULT = 5
CHANGES_SETTINGS = (33, 44)
"""AlterConfigs, IncrementalAlterConfigs."""
RESETS = (42, 91, 92)
"""DeleteGroups, AlterShareGroupOffsets, DeleteShareGroupOffsets."""
UNKNOWN_GROUP = 0xFFFF_FFFF
"""The number of a group of which no row is in any tap."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareSettings:
    """The settings of one run."""

    delivery_limit: int = 0
    """0: not known."""
    resets: list[int] = field(default_factory=list[int])
    consumed_by: Mapping[str, Sequence[int]] = field(default_factory=dict[str, Sequence[int]])
    """By topic, the numbers of the groups that must have consumed it."""

    @classmethod
    def read(cls, folder: Path, layout: Layout) -> Self:
        """Read run.json and the requests of clients; OSError, or HarrowError, where a file cannot be read."""
        facts = run_folder.read_run(folder)
        claimed: Mapping[str, Sequence[str]] = facts.get("consumed_by", {})
        if not claimed and not any(place.coordinators.get(SHARES) for place in layout.partitions.values()):
            return cls()
        changing, resetting = (frozenset(map(api_name, keys)) for keys in (CHANGES_SETTINGS, RESETS))
        requests = read_requests(folder, changing | resetting)
        changed = any(row.api in changing for row in requests.rows) or bool(requests.cut)
        changed &= Recording.BROKER_EVENTS in facts.get("unrecorded", ())  # else the brokers are Harrow's
        resets = sorted(row.invoked_ns for row in requests.rows if row.api in resetting)
        numbers = {name: number for number, name in enumerate(layout.clients)}
        return cls(
            delivery_limit=0 if changed else _limit(facts),
            resets=resets,
            consumed_by={
                topic: [numbers.get(group, UNKNOWN_GROUP) for group in groups] for topic, groups in claimed.items()
            },
        )

    def groups_of(self, topic: str) -> list[int]:
        """Return the numbers of the groups that must have consumed a topic."""
        return list(self.consumed_by.get(topic, ()))


def _limit(facts: Mapping[str, Any]) -> int:
    given: Mapping[str, Any] = facts.get("config", {})
    if LIMIT in given:
        return int(given[LIMIT])
    return LIMIT_DEFAULT if facts.get("log_dirs") else 0
