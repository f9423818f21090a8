"""What goes into and comes out of a group's state machine: members, requests, results, effects.

Owns: the value types that `membership.Group` shares with the coordinator. No behaviour but look-ups.

A *token* is the coordinator's own handle of a waiting request; the machine never looks inside it and
hands it back, exactly once, in an `Answer`.

Source: Kafka's ClassicGroupMember, JoinGroupResult, SyncGroupResult.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ..errors import ErrorCode

NO_GENERATION = -1
NO_MEMBER = ""


class Protocol(NamedTuple):
    """One assignor that a member supports, with its subscription in the client's own encoding."""

    name: str
    metadata: bytes


@dataclass(slots=True, kw_only=True)
class Member:
    """One consumer of a group. Mutable: the machine that owns it is the only writer."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes | None = None
    """None until a generation's assignment was persisted; b"" when its leader gave it nothing."""
    is_new: bool = False
    """Has not been answered yet, so it cannot heartbeat; expires by a long timeout even while it waits."""
    joining: object | None = None
    """Token of the JoinGroup that waits for the rebalance."""
    syncing: object | None = None
    """Token of the SyncGroup that waits for the leader's assignment."""
    session_deadline_ms: int | None = None
    """When it is given up without a heartbeat; None while a waiting request proves it alive."""

    def supports(self, name: str) -> bool:
        """True when `name` is among its protocols."""
        return any(protocol.name == name for protocol in self.protocols)

    def metadata(self, name: str | None) -> bytes:
        """Its subscription under protocol `name`; empty where it has none."""
        return next((p.metadata for p in self.protocols if p.name == name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """Its favourite among `candidates`."""
        return next((p.name for p in self.protocols if p.name in candidates), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup. `new_member_id` is used when `member_id` is empty, so the machine needs no randomness."""

    token: object
    member_id: str
    new_member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: tuple[Protocol, ...]
    member_id_required: bool
    """v4 and newer: a dynamic member without id gets MEMBER_ID_REQUIRED first (KIP-394)."""
    can_skip_assignment: bool
    """v9 and newer: a restarted static leader may be told to skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup; `assignments` (member id → bytes) counts only when the leader sends it."""

    token: object
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class JoinedMember(NamedTuple):
    """A row of the member list that only the leader gets."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Answer to a JoinGroup."""

    error: ErrorCode = ErrorCode.none
    member_id: str = NO_MEMBER
    generation: int = NO_GENERATION
    protocol_type: str | None = None
    protocol_name: str | None = None
    leader: str = NO_MEMBER
    skip_assignment: bool = False
    members: tuple[JoinedMember, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncResult:
    """Answer to a SyncGroup."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """Effect: send `result` to the request behind `token`."""

    token: object
    result: JoinResult | SyncResult


@dataclass(frozen=True, slots=True, kw_only=True)
class Persist:
    """Effect: append the group's metadata with these assignments, then call `Group.persisted(effect, …)`.

    `generation` tells a late answer of the log from a current one. With `static` set it stores a
    restarted static member of a stable group and `static.token` waits for it.
    """

    generation: int
    assignments: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    static: StaticReplacement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReplacement:
    """A static member that came back under a new id while the group stayed stable (KIP-345)."""

    request: JoinRequest
    old: Member
    new_member_id: str
    old_leader: str


Effect = Answer | Persist
