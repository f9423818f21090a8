"""One member of a streams group.

Owns: frozen values, without behaviour except look-ups. Source: Kafka's StreamsGroupMember, MemberState.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from .tasks import NOTHING_HELD, HeldTasks

JOIN_EPOCH, LEAVE_EPOCH, LEAVE_STATIC_EPOCH = 0, -1, -2


class MemberState(IntEnum):
    """Where a member is on its way to the target assignment; the numbers are those of the record."""

    STABLE = 1
    UNREVOKED_TASKS = 2
    """The member must revoke tasks before its epoch rises."""
    UNRELEASED_TASKS = 3
    """The member is at the assignment epoch and waits for tasks that others have not given up yet."""
    UNKNOWN = 127


class Endpoint(NamedTuple):
    """Where the application of a member answers interactive queries."""

    host: str
    port: int


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberMetadata:
    """What a member says about itself: the value of its metadata record."""

    instance_id: str | None = None
    rack_id: str | None = None
    client_id: str = ""
    client_host: str = ""
    rebalance_timeout_ms: int = -1
    topology_epoch: int = -1
    process_id: str = ""
    """The instance of the application; its threads are members of one process."""
    endpoint: Endpoint | None = None
    client_tags: tuple[tuple[str, str], ...] = ()
    """Sorted by key."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CurrentAssignment:
    """What a member has: the value of its record of the current assignment."""

    epoch: int = JOIN_EPOCH
    previous_epoch: int = JOIN_EPOCH
    state: MemberState = MemberState.STABLE
    assigned: HeldTasks = NOTHING_HELD
    revoking: HeldTasks = NOTHING_HELD


@dataclass(frozen=True, slots=True, kw_only=True)
class StreamsMember:
    """One member."""

    member_id: str
    metadata: MemberMetadata = MemberMetadata()
    current: CurrentAssignment = CurrentAssignment()

    @property
    def epoch(self) -> int:
        """The member epoch."""
        return self.current.epoch

    @property
    def process_id(self) -> str:
        """The process of the member."""
        return self.metadata.process_id

    def is_reconciled_to(self, assignment_epoch: int) -> bool:
        """True when nothing is left to do for this member."""
        return self.current.state is MemberState.STABLE and self.epoch == assignment_epoch
