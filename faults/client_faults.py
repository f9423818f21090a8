"""Faults of clients: what the user's own clients meet when another client, or their own network, misbehaves (K).

`hijack_transactional_id`  a client of Harrow's sends InitProducerId for the user's transactional id, as a second
                           instance with that id does: the user's producer is fenced, its open transaction aborted
`rebalance_storm`          a client of Harrow's joins a consumer group and leaves it again and again
`stuck_consumer`           a member of Harrow's is assigned partitions, sends heartbeats, and neither reads nor commits
`stuck_share_consumer`     a member of Harrow's in a share group acquires records, acknowledges none, and dies
`expire_lock`              the leaders end the locks of a share group, or of one of its members, before their time
`isolate_client`           no byte passes between the brokers and the clients whose `client.id` matches, in both
                           directions; afterwards what was held back is delivered

The backend runs the clients (`System.clients`). A group or a transactional id may come into being while the faults
run: the client waits for it, and the fault fails when it does not come in time. Evidence: the epoch of the producer
grew; the group's generation (KIP-848: its epoch) grew; partitions were assigned; bytes are held back. Healed: no
member and no transaction of Harrow's is left, no rule holds anything.
"""

from __future__ import annotations

import abc
import random
from collections.abc import Iterable
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked

from .controls import RUNNING
from .errors import ConfigError, nearest
from .evidence import Evidence
from .network_faults import MODES
from .outside import OutsideFault
from .process_faults import is_over
from .rule_kinds import ArmedRule, HijackRule, RebalanceRule, Rule, StuckMemberRule, StuckShareMemberRule
from .spec import FaultState, Injection, Seconds, amount_within, least_and_most
from .system import ClusterSnapshot, System
from .targets import Target, all_brokers

STORM_S = (0.1, 0.5)
"""Between joining and leaving: time for the members to rejoin, and little time to work."""
STORM_S_LEAST, STORM_S_MOST = 0.01, 600.0


def checked_name(value: object, kind: str, field: str) -> None:
    """Raise ConfigError unless `value` can be the name of a group, an id or a client."""
    if not isinstance(value, str) or not value:
        raise ConfigError(f"{kind}({field}={value!r}): expected a name, such as 'billing'")


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedFault(OutsideFault):
    """A fault of something with a name, which is its first argument."""

    has_fixed_target: ClassVar[bool] = True
    touches_programs: ClassVar[bool] = False
    named_by: ClassVar[str]
    """The field with the name."""
    target: Target = all_brokers

    def __post_init__(self) -> None:
        OutsideFault.__post_init__(self)
        if self.target != all_brokers:
            raise ConfigError(f"{self.kind}(target={self.target}): it has no target")

    def __str__(self) -> str:
        given = self.parameters()
        name = given.pop(self.named_by, None)
        words = [] if name is None else [repr(name)]
        words += [f"{field}={value!r}" for field, value in given.items()]
        return f"{self.kind}({', '.join(words)})"


@dataclass(slots=True, kw_only=True)
class ClientState(FaultState):
    """The client that was begun."""

    client: ArmedRule | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientFault(NamedFault):
    """A fault that a client of Harrow's causes; it acts until the fault is healed."""

    state_type: ClassVar[type[FaultState]] = ClientState
    needs: ClassVar[frozenset[str]] = frozenset({"client-requests"})
    effect_timeout_ms: ClassVar[int] = 30_000
    """A group may need a rebalance, a coordinator an election."""

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        checked_name(getattr(self, self.named_by), self.kind, self.named_by)

    @abc.abstractmethod
    def rule(self, injection: Injection) -> Rule:
        """Return what the client is to do."""

    def inject(self, system: System, injection: Injection) -> None:
        """Begin the client, once."""
        state = ClientState.of(injection)
        if state.client is None:
            state.client = system.clients.arm(self.rule(injection))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe what the client achieved."""
        del system
        client = ClientState.of(injection).client
        if client is None:
            return Evidence(proved=False)
        status = client.status()
        return Evidence(proved=status.fired > 0, facts=status.facts, failed=status.failed)

    def heal(self, system: System, injection: Injection) -> None:
        """Let the client end."""
        del system
        client = ClientState.of(injection).client
        if client is not None:
            client.disarm()

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether nothing of the client is left."""
        del system
        client = ClientState.of(injection).client
        if client is None:
            return Evidence(proved=True)
        status = client.status()
        return Evidence(proved=not status.armed, facts=status.facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class HijackTransactionalId(ClientFault):
    """A second producer with the user's transactional id, which fences the first one."""

    kind: ClassVar[str] = "hijack_transactional_id"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "transactional_id"
    seconds: Seconds | None = 0.0
    transactional_id: str

    def rule(self, injection: Injection) -> Rule:
        """Return the second producer."""
        del injection
        return HijackRule(transactional_id=self.transactional_id)


@dataclass(frozen=True, slots=True, kw_only=True)
class RebalanceStorm(ClientFault):
    """A member that joins the group and leaves it, again and again."""

    kind: ClassVar[str] = "rebalance_storm"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "group"
    group: str
    every_s: Seconds = STORM_S

    def __post_init__(self) -> None:
        ClientFault.__post_init__(self)
        where = "rebalance_storm(every_s"
        checked = amount_within(self.every_s, STORM_S_MOST, where, "seconds", least=STORM_S_LEAST)
        object.__setattr__(self, "every_s", tuple(map(float, least_and_most(checked))))

    def draw_details(self, snapshot: ClusterSnapshot, rng: random.Random) -> dict[str, Any]:
        """Draw the seed of its times."""
        del snapshot
        return {"seed": rng.getrandbits(32)}

    def rule(self, injection: Injection) -> Rule:
        """Return the member that comes and goes."""
        least, most = (round(1000 * bound) for bound in least_and_most(self.every_s))
        seed = int(injection.details.get("seed", 0))
        return RebalanceRule(group=self.group, every_ms=(least, most), seed=seed)


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckConsumer(ClientFault):
    """A member that holds partitions and does nothing with them."""

    kind: ClassVar[str] = "stuck_consumer"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "group"
    group: str

    def rule(self, injection: Injection) -> Rule:
        """Return the member."""
        del injection
        return StuckMemberRule(group=self.group)


@dataclass(frozen=True, slots=True, kw_only=True)
class StuckShareConsumer(ClientFault):
    """A member of a share group that holds records and dies with them."""

    kind: ClassVar[str] = "stuck_share_consumer"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "group"
    group: str

    def rule(self, injection: Injection) -> Rule:
        """Return the member."""
        del injection
        return StuckShareMemberRule(group=self.group)


@dataclass(slots=True, kw_only=True)
class LockState(FaultState):
    """How many records were locked, by broker."""

    ended: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireLock(NamedFault):
    """The locks of a share group end before their time: others get what its members still work on."""

    kind: ClassVar[str] = "expire_lock"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "group"
    needs: ClassVar[frozenset[str]] = frozenset({"share-locks"})
    state_type: ClassVar[type[FaultState]] = LockState
    effect_timeout_ms: ClassVar[int] = 30_000
    """The group may have no records yet."""
    seconds: Seconds | None = 0.0
    group: str
    member: str = ""
    """Its member id; empty: all members."""

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        checked_name(self.group, self.kind, "group")

    def inject(self, system: System, injection: Injection) -> None:
        """End what is locked on the brokers that run, until something was."""
        ended = LockState.of(injection).ended
        if ended:
            return
        for node in system.nodes:
            broker = system.broker(node)
            if broker.status().state == RUNNING and (records := broker.shares.end_locks(self.group, self.member)):
                ended[str(node)] = records

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether records were locked."""
        del system
        ended = LockState.of(injection).ended
        return Evidence(proved=bool(ended), facts={"records": dict(ended)})

    def heal(self, system: System, injection: Injection) -> None:
        """Do nothing: the records are free, or given up after the last delivery that the limit allows."""
        del system, injection

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """There is nothing to heal."""
        del system, injection
        return Evidence(proved=True)


@dataclass(frozen=True, slots=True, kw_only=True)
class IsolateClient(NamedFault):
    """No byte passes between the brokers and the clients whose `client.id` matches `client`."""

    kind: ClassVar[str] = "isolate_client"
    drawable: ClassVar[bool] = False
    named_by: ClassVar[str] = "client"
    needs: ClassVar[frozenset[str]] = frozenset({"client-links"})
    client: str
    heals_by: str = "deliver"

    def __post_init__(self) -> None:
        NamedFault.__post_init__(self)
        checked_name(self.client, self.kind, "client")
        if self.heals_by not in MODES:
            raise ConfigError(f"isolate_client(heals_by={self.heals_by!r}): expected {' or '.join(MODES)}")

    @property
    def peers(self) -> str:
        """The pattern of these clients, as brokers name them."""
        return f"client {self.client}"

    def inject(self, system: System, injection: Injection) -> None:
        """Set the rule on every broker that runs, once in each incarnation."""
        blocked = FaultState.of(injection).incarnations
        for node in system.nodes:
            broker = system.broker(node)
            status = broker.status()
            if status.state == RUNNING and blocked.get(node) != status.incarnation:
                broker.links.block([self.peers], "both")
                blocked[node] = status.incarnation

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Set the rule on brokers that were started since."""
        del now_ms
        self.inject(system, injection)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether bytes of these clients are held back on a broker."""
        held: dict[str, int] = {}
        others: set[str] = set()
        for node in self._rule_holders(system, injection):
            for peer, count in system.broker(node).links.status().held_by_peer.items():
                if fnmatchcase(peer, self.peers):
                    held[peer] = held.get(peer, 0) + count
                elif peer.startswith("client "):
                    others.add(peer.removeprefix("client "))
        facts: dict[str, Any] = {"held_bytes": held}
        if not held:
            hint = nearest(self.client, others)
            facts["clients"] = f"no client {self.client!r} is connected{hint}; connected: {listed(others)}"
        return Evidence(proved=sum(held.values()) > 0, facts=facts)

    def heal(self, system: System, injection: Injection) -> None:
        """Remove the rule; a broker that ended has lost it."""
        for node in self._rule_holders(system, injection):
            if self.peers in system.broker(node).links.status().patterns:
                system.broker(node).links.heal(self.heals_by, [self.peers])

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether no broker has the rule."""
        left = [
            node
            for node in self._rule_holders(system, injection)
            if self.peers in system.broker(node).links.status().patterns
        ]
        return Evidence(proved=not left, facts={"blocking": left})

    def _rule_holders(self, system: System, injection: Injection) -> list[int]:
        """Return the brokers whose incarnation has the rule."""
        blocked = FaultState.of(injection).incarnations
        return [node for node, incarnation in blocked.items() if not is_over(system.broker(node).status(), incarnation)]


def listed(names: Iterable[str]) -> str:
    """Return names for an error message."""
    return ", ".join(repr(name) for name in sorted(names)) or "none"


@checked
def hijack_transactional_id(transactional_id: str, *, seconds: Seconds | None = 0.0) -> HijackTransactionalId:
    """Fence the producer that has this transactional id, as a second instance of the application does."""
    return HijackTransactionalId(transactional_id=transactional_id, seconds=seconds)


@checked
def rebalance_storm(group: str, *, every_s: Seconds = STORM_S, seconds: Seconds | None = None) -> RebalanceStorm:
    """Let a member of Harrow's join the group and leave it again and again, for `seconds`.

    It stays, and stays away, for times from `every_s`, which the seed draws. In a classic group it subscribes to
    nothing, so that the user's members get all partitions. In a group of the new protocol (KIP-848) such a member
    would disturb no other one: it subscribes to the group's topics, and partitions move to it and back.
    """
    return RebalanceStorm(group=group, every_s=every_s, seconds=seconds)


@checked
def stuck_consumer(group: str, *, seconds: Seconds | None = None) -> StuckConsumer:
    """Let a member of Harrow's hold partitions of the group for `seconds` without reading or committing."""
    return StuckConsumer(group=group, seconds=seconds)


@checked
def stuck_share_consumer(group: str, *, seconds: Seconds | None = None) -> StuckShareConsumer:
    """Let a member of Harrow's acquire records of the share group for `seconds`, acknowledge none, and die.

    Its connections end without a word; the brokers give back what it held at once, or when the locks end (KIP-932).
    """
    return StuckShareConsumer(group=group, seconds=seconds)


@checked
def expire_lock(group: str, *, member: str = "") -> ExpireLock:
    """Let the leaders end the locks of the share group now, or those of the member with this id (KIP-932).

    Other members get the records, and what the member says of them afterwards is refused. On Harrow's brokers only.
    """
    return ExpireLock(group=group, member=member)


@checked
def isolate_client(client: str, *, seconds: Seconds | None = None, heals_by: str = "deliver") -> IsolateClient:
    """Let no byte pass between the brokers and the clients whose `client.id` matches, for `seconds`.

    `client`: a pattern such as `"orders-*"`. Afterwards what was held back is delivered, as from a zombie whose
    requests arrive late; `heals_by="reset"`: its connections are reset.
    """
    return IsolateClient(client=client, seconds=seconds, heals_by=heals_by)
