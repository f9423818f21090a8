"""Controls: the parts of a broker and of a cluster that a backend may have, each a small protocol.

    part of a broker   of                                      part of a system   of
    -----------------  --------------------------------------  -----------------  -----------------------------------
    `process`          `ProcessControl`                        `registry`         `RegistryControl`
    `links`            `LinkControl`                           `operator`         `OperatorControl`
    `disk`             `DiskControl`                           `membership`       `MembershipControl`
    `rules`            `RuleControl`                           `clients`          `RuleControl`
    `shares`           `ShareControl`                          `credentials`      `CredentialControl`
                                                               `programs`         `ProgramControl` by name
                                                               `dependencies`     `LinkControl` by name

A backend that cannot do a thing does not have the part, or does not name it in the part (`LinkControl.peers`; `kinds`
of disks, rules and credentials). A part that is not there is a CapabilityError, raised here and nowhere else.

Rules of every implementation:

* An action begins something and returns at once; it never waits for its effect. A later observation (`status`,
  `changed`, `ArmedRule.status`) shows whether it took effect. Repeating an action that has taken effect does nothing.
* An observation that cannot be made (the process is dead or paused) raises ClusterError; the nemesis tries again later.
"""

from __future__ import annotations

import enum
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, Self, TypeVar, overload

from .errors import CapabilityError
from .rule_kinds import ArmedRule, Rule

DEAD, STARTING, RUNNING, PAUSED = "dead", "starting", "running", "paused"


class PeerKind(enum.StrEnum):
    """Kinds of peers of a link. Peers are named by patterns: `broker 2`, `registry`, `client *`, `client orders-*`."""

    BROKER = "broker"
    REGISTRY = "registry"
    CLIENT = "client"


PartT = TypeVar("PartT")


class Part(Generic[PartT]):
    """An attribute that is there only where the backend has set it; reading it elsewhere is a CapabilityError."""

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, owner: None, kind: type) -> Self: ...

    @overload
    def __get__(self, owner: object, kind: type) -> PartT: ...

    def __get__(self, owner: object | None, kind: type) -> Self | PartT:
        if owner is None:
            return self
        try:
            found: PartT = vars(owner)[self.name]
        except KeyError:
            raise CapabilityError(f"{owner} has no part {self.name!r} on this backend") from None
        return found

    def __set__(self, owner: object, part: PartT) -> None:
        vars(owner)[self.name] = part


def has_part(owner: object, part: Part[Any]) -> bool:
    """Whether a broker or a system has a part: `has_part(broker, Broker.disk)`."""
    return part.name in vars(owner)


# ------------------------------------------------------------------------------------- processes


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """One process at one moment."""

    state: str
    """`starting`, `running`, `paused` or `dead`."""
    incarnation: int
    """How often it has been started: it grows by 1 with each start, so that a restart can be proved."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Details of the backend, such as a pid: for reports."""

    def __post_init__(self) -> None:
        assert self.state in (DEAD, STARTING, RUNNING, PAUSED), f"a process is in the state {self.state!r}"
        assert self.incarnation >= 0, f"a process was started {self.incarnation} times"

    def to_json(self) -> dict[str, Any]:
        """Return plain values."""
        return {"state": self.state, "incarnation": self.incarnation, **self.facts}


class ProcessControl(Protocol):
    """One process: the registry's, or a broker's."""

    def status(self) -> ProcessStatus:
        """Return its state now."""
        ...

    def kill(self) -> None:
        """Kill the process (SIGKILL): its memory is lost, its page cache is not."""
        ...

    def terminate(self) -> None:
        """Send SIGTERM: a broker then performs a controlled shutdown."""
        ...

    def pause(self) -> None:
        """Pause the process (SIGSTOP)."""
        ...

    def resume(self) -> None:
        """Let a paused process continue (SIGCONT)."""
        ...

    def start(self) -> None:
        """Start it; nothing happens while it is alive."""
        ...


class ProgramControl(ProcessControl, Protocol):
    """One program of the user's: `harrow.program(name, command)`."""

    def last_words(self) -> str:
        """Return how the program ended (its exit code), and the last lines of its output."""
        ...


class RegistryControl(ProcessControl, Protocol):
    """The registry: its process, and what an operator does to its sessions and nodes."""

    def expire_session(self, node: int) -> int:
        """End the sessions of a broker; return how many there were."""
        ...

    def depose_controller(self) -> None:
        """Remove the node `/controller`, where there is one."""
        ...


class ShareControl(Protocol):
    """The share-partitions that a broker leads (KIP-932)."""

    def end_locks(self, group: str, member: str) -> int:
        """End the locks of a member, or of every member for an empty name; return how many records were locked."""
        ...


# ----------------------------------------------------------------------------------------- links


@dataclass(frozen=True, slots=True, kw_only=True)
class LinkStatus:
    """The link rules of one broker, and what they did since they were set."""

    rules: int
    """How many are in force."""
    held: int = 0
    """How much a rule holds back at this moment: bytes, and connections that wait to be opened."""
    delayed: int = 0
    """How much left late: bytes or frames, more than 0 where anything did."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])
    held_by_peer: Mapping[str, int] = field(default_factory=dict[str, int])
    """Bytes held back on the open links, by peer: 0 for a peer from which nothing is held back. Empty where a backend
    does not know it."""
    patterns: tuple[str, ...] = ()
    """The patterns of peers of the rules in force."""


class LinkControl(Protocol):
    """The links of one process: a broker's, or those of the relay in front of a dependency."""

    @property
    def peers(self) -> frozenset[PeerKind]:
        """The kinds of peers whose links pass here."""
        ...

    def block(self, peers: Sequence[str], direction: str) -> None:
        """Hold back what these peers send ("in"), what they are sent ("out"), or both."""
        ...

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late to these peers."""
        ...

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Send no more than `bytes_per_s` to all these peers together."""
        ...

    def heal(self, mode: str, peers: Sequence[str] | None = None) -> None:
        """Remove every rule, or those of `peers`: "deliver" what was held back, or "reset" its connections."""
        ...

    def reset(self, peers: Sequence[str]) -> int:
        """Reset the connections with these peers; return how many there were."""
        ...

    def freeze(self, peers: Sequence[str]) -> int:
        """Hold back everything on the connections that are open now with these peers; return how many there were.

        `heal` releases them.
        """
        ...

    def status(self) -> LinkStatus:
        """Return the rules and what they did."""
        ...


# ----------------------------------------------------------------------------------------- disks


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskChange:
    """Base of what may happen to the disk of a broker that ends, before it starts again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiskPowerLoss(DiskChange):
    """Unsynced writes are lost, as many as `seed` draws; the facts are the counts of what was lost."""

    seed: str


@dataclass(frozen=True, slots=True, kw_only=True)
class PartialPowerLoss(DiskPowerLoss):
    """Of the unsynced writes the disk keeps about `kept_fraction`."""

    kept_fraction: float


@dataclass(frozen=True, slots=True, kw_only=True)
class EmptyFolders(DiskChange):
    """The data folders are empty; the facts have `removed_files`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FileDamage(DiskChange):
    """A replica of one of `partitions` ("orders-0") is damaged; the facts are `damage`, `partition` and `files`.

    The first of `damages` (`damage_faults.py`) that finds a file is done, in the first of `partitions` that has such
    a file; `seed` draws the place.
    """

    damages: tuple[str, ...]
    partitions: tuple[str, ...]
    seed: str


class DiskControl(Protocol):
    """The disk of one broker."""

    @property
    def kinds(self) -> frozenset[type[DiskChange]]:
        """The changes that can be made."""
        ...

    def end_with(self, change: DiskChange, *, clean: bool = False) -> None:
        """Kill the broker (`clean`: terminate it) and change its disk before it starts again."""
        ...

    def changed(self, kind: type[DiskChange]) -> Mapping[str, Any] | None:
        """Return the facts of the last change of this kind; None until it is made."""
        ...


# ----------------------------------------------------------------------------- rules and operators


class RuleControl(Protocol):
    """What arms rules."""

    @property
    def kinds(self) -> frozenset[type[Rule]]:
        """The classes of the rules that it can arm."""
        ...

    def arm(self, rule: Rule) -> ArmedRule:
        """Arm a rule of one of `kinds`."""
        ...


class OperatorControl(Protocol):
    """Requests of an operator. A request that is lost or refused changes nothing: the caller looks, and asks again."""

    def reassign(self, moves: Sequence[tuple[str, int, Sequence[int]]]) -> None:
        """Begin to reassign partitions (topic, number, replicas) by one request."""
        ...

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Begin a preferred election, or an unclean one."""
        ...


class MembershipControl(Protocol):
    """Brokers that come and go."""

    def add_broker(self) -> int:
        """Begin to start one more broker; return its node id. It has no replica."""
        ...

    def remove_added_broker(self, node: int) -> None:
        """Forget an added broker that has ended; its files stay."""
        ...


# ------------------------------------------------------------------------------------ credentials


@dataclass(frozen=True, slots=True, kw_only=True)
class CredentialChange:
    """Base of what may happen to users, ACLs and certificates."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PasswordChange(CredentialChange):
    """`user` has another password, for SCRAM and for PLAIN."""

    user: str
    password: str


@dataclass(frozen=True, slots=True, kw_only=True)
class AclRevocation(CredentialChange):
    """`user` may no longer do `operation` to the resource, all by Kafka's names: `WRITE`, `TOPIC`, `orders`."""

    user: str
    operation: str
    type: str
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CertificateChange(CredentialChange):
    """A broker shows another certificate to new connections, with the same names."""

    node: int
    expired: bool = False
    trusted: bool = True
    """Whether the authority that clients trust has signed it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChangeStatus:
    """How far a change has come."""

    made: bool
    """Whether every running broker decides by it."""
    undone: bool
    """Whether its undoing was begun, and every running broker decides as before."""
    failed: str = ""
    """Why it cannot be made."""
    facts: Mapping[str, Any] = field(default_factory=dict[str, Any])


class BegunChange(Protocol):
    """The handle of a change that was begun."""

    def status(self) -> ChangeStatus:
        """Return how far it has come; ClusterError when a broker does not respond."""
        ...

    def undo(self) -> None:
        """Begin to undo it, whether it was made or not."""
        ...


class CredentialControl(Protocol):
    """Users, ACLs and certificates of the cluster."""

    @property
    def kinds(self) -> frozenset[type[CredentialChange]]:
        """The changes that can be made."""
        ...

    def check(self, change: CredentialChange) -> None:
        """Raise ConfigError for a change that cannot have an effect, such as for a user that there is not."""
        ...

    def begin(self, change: CredentialChange) -> BegunChange:
        """Begin a change."""
        ...

    def close_connections(self, node: int, user: str | None) -> int:
        """End the connections of a user at one broker; None: of all clients with TLS. Return how many there were."""
        ...
