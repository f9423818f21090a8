"""The values that a group's state machine shares with its coordinator: members, requests, results, effects.

Owns: value types, without behaviour except look-ups.

A *token* is the coordinator's handle of a waiting request. The state machine never reads it, and returns it exactly
once, in a `SendResponse`.

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
    """One consumer of a group. Mutable: only the group's state machine changes it."""

    member_id: str
    group_instance_id: str | None
    client_id: str
    client_host: str
    rebalance_timeout_ms: int
    session_timeout_ms: int
    protocols: tuple[Protocol, ...]
    assignment: bytes | None = None
    """The last assignment that was committed, until the next one is; None: none yet, or a write failed."""
    is_new: bool = False
    """True until the response to its first JoinGroup: it cannot send heartbeats yet, so a long timeout removes it."""
    joining: object | None = None
    """Token of the JoinGroup that waits for the rebalance."""
    syncing: object | None = None
    """Token of the SyncGroup that waits for the leader's assignment."""
    session_deadline_ms: int | None = None
    """When the member is removed unless it sends a heartbeat; None while a waiting request keeps it alive."""

    def supports(self, name: str) -> bool:
        """True when `name` is among its protocols."""
        return any(protocol.name == name for protocol in self.protocols)

    def metadata(self, name: str | None) -> bytes:
        """Its subscription under protocol `name`; empty for a protocol that it does not support."""
        return next((p.metadata for p in self.protocols if p.name == name), b"")

    def vote(self, candidates: frozenset[str]) -> str | None:
        """Its favourite among `candidates`."""
        return next((p.name for p in self.protocols if p.name in candidates), None)


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinRequest:
    """A JoinGroup. `new_member_id` is used when `member_id` is empty, so that the state machine needs no randomness."""

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
    """v9 and newer: the response may let a restarted static leader skip the assignment (KIP-814)."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SyncRequest:
    """A SyncGroup; `assignments` (member id → bytes) counts only in the leader's request."""

    token: object
    member_id: str
    group_instance_id: str | None
    generation: int
    protocol_type: str | None
    protocol_name: str | None
    assignments: Mapping[str, bytes]


class JoinedMember(NamedTuple):
    """One member in the list that only the leader receives."""

    member_id: str
    group_instance_id: str | None
    metadata: bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinResult:
    """Result of a JoinGroup."""

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
    """Result of a SyncGroup."""

    error: ErrorCode = ErrorCode.none
    protocol_type: str | None = None
    protocol_name: str | None = None
    assignment: bytes = b""


@dataclass(frozen=True, slots=True, kw_only=True)
class SendResponse:
    """Effect: send `result` as the response to the request of `token`."""

    token: object
    result: JoinResult | SyncResult


@dataclass(frozen=True, slots=True, kw_only=True)
class WriteGroupMetadata:
    """Effect: write the group's metadata with these assignments, then call `Group.metadata_written(effect, …)`.

    `generation` shows whether the result of the write is still current. With `static` set the write stores a
    restarted static member of a stable group, and its JoinGroup waits for the result.
    """

    generation: int
    assignments: Mapping[str, bytes] = field(default_factory=dict[str, bytes])
    static: StaticReplacement | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StaticReplacement:
    """A static member that joined again under a new id while the group stayed stable (KIP-345)."""

    request: JoinRequest
    new_member_id: str
    old_leader: str


Effect = SendResponse | WriteGroupMetadata
