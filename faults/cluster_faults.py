"""Operations on the cluster as faults (K7): forced elections, moved leaders, reassignments, lost sessions, zombies.

They go the way of an operator: requests of the Kafka protocol to any broker, or the registry. A request that has not
taken effect is sent again (`AGAIN_MS`), because its response may be lost.

`elect_controller`   the node `/controller` is removed from the registry. Evidence: a later controller epoch
`zombie_controller`  the controller is paused until another broker is the controller, and for `seconds` more: it
                     resumes and does not know. Evidence: it is paused, and another controller is elected
`expire_session`     the registry ends the broker's session, although the broker lives. Evidence: the registry's count;
                     healed: the broker is registered again
`move_leader`        the partition's leader moves to another member of the ISR, by a reassignment to the same brokers in
                     another order and a preferred election. Evidence: that broker leads; healed: the former order
`reassign`           one replica of the partition moves to a broker that has none. Evidence: the new replicas are
                     assigned and in the ISR; healed: the former brokers have the replicas again

Reassignments need a broker without a replica: more brokers than the topic's replication factor.
"""

from __future__ import annotations

import abc
import random
from dataclasses import dataclass, field
from typing import ClassVar

from harrow.cluster.argument_types import checked

from .errors import ConfigError, TargetError
from .evidence import Evidence
from .process_faults import Pause, running_again
from .spec import TICK_MS, Fault, FaultState, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import Target, TopicLike, as_target, controller, leader

AGAIN_MS = 1_000
ZOMBIE_S = (0.0, 1.0)


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorFault(Fault):
    """A fault that takes no broker down."""

    effect_timeout_ms: ClassVar[int] = 60_000

    @property
    def disturbs(self) -> bool:
        """False: every broker continues to serve."""
        return False


@dataclass(slots=True, kw_only=True)
class OperatorState(FaultState):
    """When the requests of an operator were sent."""

    sent_ms: dict[str, int] = field(default_factory=dict[str, int])
    """By what was asked for: when last."""
    heal_turns: int = 0
    """How often healing was asked to go on."""

    def is_due(self, now_ms: int, what: str = "reassignment") -> bool:
        """Whether a request is to be sent now: for the first time, or again after `AGAIN_MS`; then it is noted."""
        last_ms = self.sent_ms.get(what)
        assert last_ms is None or last_ms <= now_ms, f"the {what} was sent at {last_ms}, after now ({now_ms})"
        if last_ms is not None and now_ms < last_ms + AGAIN_MS:
            return False
        self.sent_ms[what] = now_ms
        return True

    def heals_now(self) -> bool:
        """Whether a healing is to send its request in this turn: at first, and again after `AGAIN_MS`."""
        self.heal_turns += 1
        return (self.heal_turns - 1) % (AGAIN_MS // TICK_MS) == 0


@dataclass(slots=True, kw_only=True)
class ElectionState(FaultState):
    """The epoch of the controller that was removed."""

    epoch: int | None = None


@dataclass(slots=True, kw_only=True)
class SessionState(FaultState):
    """How many sessions were ended, by broker."""

    ended: dict[str, int] = field(default_factory=dict[str, int])


@dataclass(slots=True, kw_only=True)
class PartitionState(OperatorState):
    """Whether the requests have begun."""

    begun: bool = False


# ------------------------------------------------------------------------- controller and sessions


@dataclass(frozen=True, slots=True, kw_only=True)
class ElectController(OperatorFault):
    """A forced election of the controller; the same broker may win it."""

    kind: ClassVar[str] = "elect_controller"
    words: ClassVar[str] = "took part in an election of the controller"
    at_once: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"registry"})
    state_type: ClassVar[type[FaultState]] = ElectionState
    has_fixed_target: ClassVar[bool] = True
    target: Target = controller()  # noqa: RUF009 - a frozen value
    seconds: Seconds | None = 0.0

    def inject(self, system: System, injection: Injection) -> None:
        """Remove the controller's node once."""
        state = ElectionState.of(injection)
        if state.epoch is None:
            state.epoch = system.describe().controller_epoch
            system.registry.depose_controller()

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether there is a controller of a later epoch."""
        view = system.describe()
        before = ElectionState.of(injection).epoch
        elected = before is not None and view.controller_epoch > before
        facts = {"controller": view.controller, "controller_epoch": view.controller_epoch}
        return Evidence(proved=elected and view.controller is not None, facts=facts)

    def heal(self, system: System, injection: Injection) -> None:
        """Do nothing: the brokers elect a controller by themselves."""
        del system, injection

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether there is a controller."""
        del injection
        view = system.describe()
        return Evidence(proved=view.controller is not None, facts={"controller": view.controller})


@dataclass(frozen=True, slots=True, kw_only=True)
class ZombieController(Pause):
    """A controller that is paused until another is elected, and resumes."""

    kind: ClassVar[str] = "zombie_controller"
    words: ClassVar[str] = "was paused while it was the controller"
    has_fixed_target: ClassVar[bool] = True
    effect_timeout_ms: ClassVar[int] = 60_000
    target: Target = controller()  # noqa: RUF009 - a frozen value
    seconds: Seconds | None = ZOMBIE_S

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether it is paused, and whether another broker is the controller."""
        paused = Pause.probe(self, system, injection)
        if not paused.proved:
            return paused
        now = system.describe().controller
        replaced = now is not None and now not in injection.nodes
        return Evidence(proved=replaced, facts={**paused.facts, "controller": now})


@dataclass(frozen=True, slots=True, kw_only=True)
class ExpireSession(Fault):
    """A broker that lives and loses its session; in a step that overlaps others, also the session of a dead broker."""

    kind: ClassVar[str] = "expire_session"
    words: ClassVar[str] = "lost its session"
    at_once: ClassVar[bool] = True
    moves_leaders: ClassVar[bool] = True
    reaches_dead: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"registry", "process"})
    state_type: ClassVar[type[FaultState]] = SessionState
    seconds: Seconds | None = 0.0

    def inject(self, system: System, injection: Injection) -> None:
        """End the session of each broker once."""
        ended = SessionState.of(injection).ended

        for node in injection.nodes:
            if str(node) not in ended:
                ended[str(node)] = system.registry.expire_session(node)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the registry ended a session of each broker."""
        del system
        ended = SessionState.of(injection).ended
        proved = bool(ended) and all(ended.values())
        return Evidence(proved=proved, facts={"sessions_ended": dict(ended)})

    def heal(self, system: System, injection: Injection) -> None:
        """Do nothing: a broker opens a new session by itself."""
        del system, injection

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers are registered again; a broker that another fault ended is left to it."""
        running = running_again(system, injection)
        live = sorted(system.describe().live)
        proved = running.proved and set(injection.nodes) <= set(live)
        return Evidence(proved=proved, facts={**running.facts, "live": live})


# -------------------------------------------------------------------------------------- partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionFault(OperatorFault):
    """A fault that changes the assignment of one partition, and changes it back."""

    state_type: ClassVar[type[FaultState]] = PartitionState
    needs: ClassVar[frozenset[str]] = frozenset({"reassignments"})
    seconds: Seconds | None = 0.0

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.target.topic is None:
            raise ConfigError(f"{self.kind}({self.target}): expected a topic, as in {self.kind}('orders', 0)")

    def __str__(self) -> str:
        partition = "" if self.target.partition is None else f", {self.target.partition}"
        given = [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.kind}({', '.join([repr(self.target.topic) + partition, *given])})"

    @abc.abstractmethod
    def draw_replicas(
        self,
        snapshot: ClusterSnapshot,
        leader_now: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        rng: random.Random,
    ) -> list[int]:
        """Draw the new replicas, the preferred leader first; TargetError where there are none at this moment."""

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the partition, and its new replicas."""
        partitions = snapshot.view.topics.get(self.target.topic or "", {})
        given = self.target.partition
        if not partitions or (given is not None and given not in partitions):
            raise TargetError(f"{self}: there is no such partition now")
        number = rng.choice(sorted(partitions)) if given is None else given
        row = partitions[number]
        if row.leader not in snapshot.running or set(row.isr) != set(row.replicas):
            raise TargetError(f"{self}: partition {number} has no full ISR at this moment")
        details = {
            "partition": number,
            "former": list(row.replicas),
            "replicas": self.draw_replicas(snapshot, row.leader, row.isr, row.replicas, rng),
        }
        duration_ms = self.draw_duration_ms(snapshot, rng)
        return Injection(id=id, fault=self, nodes=(), duration_ms=duration_ms, details=details)

    def inject(self, system: System, injection: Injection) -> None:
        """Note that it has begun; `advance` sends the requests."""
        del system
        PartitionState.of(injection).begun = True

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Send the requests again until they have taken effect."""
        if PartitionState.of(injection).is_due(now_ms) and not self.probe(system, injection).proved:
            self.assign(system, injection, "replicas")

    def heal(self, system: System, injection: Injection) -> None:
        """Give the partition its former replicas; sent again while it does not have them."""
        state = PartitionState.of(injection)
        if state.heals_now() and state.begun:
            self.assign(system, injection, "former")

    def assign(self, system: System, injection: Injection, name: str) -> None:
        """Begin a reassignment to `replicas` or to the `former` ones."""
        topic = str(self.target.topic)
        system.operator.reassign([(topic, int(injection.details["partition"]), injection.details[name])])

    def replicas_now(self, system: System, injection: Injection) -> tuple[int, tuple[int, ...], tuple[int, ...]]:
        """Return leader, ISR and replicas of the partition at this moment."""
        row = system.describe().partition(str(self.target.topic), int(injection.details["partition"]))
        return (-1, (), ()) if row is None else (row.leader, row.isr, row.replicas)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the partition has its former replicas, in their order."""
        now, isr, replicas = self.replicas_now(system, injection)
        facts = {"leader": now, "isr": list(isr), "replicas": list(replicas)}
        return Evidence(proved=list(replicas) == injection.details["former"], facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class MoveLeader(PartitionFault):
    """Let another member of the ISR lead the partition."""

    kind: ClassVar[str] = "move_leader"
    drawable: ClassVar[bool] = False

    def draw_replicas(
        self,
        snapshot: ClusterSnapshot,
        leader_now: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        rng: random.Random,
    ) -> list[int]:
        """Draw a member of the ISR that runs, and put it before the other replicas."""
        able = sorted((set(isr) & snapshot.running) - snapshot.disturbed - {leader_now})
        if not able:
            raise TargetError(f"{self}: no other member of the ISR runs at this moment")
        heir = rng.choice(able)
        found = [heir, *(node for node in replicas if node != heir)]
        assert sorted(found) == sorted(replicas), f"{self}: the order {found} has other brokers than {replicas}"
        return found

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """When the new order is assigned, let the preferred leader be elected; both again until it leads."""
        now, _, replicas = self.replicas_now(system, injection)
        wanted: list[int] = injection.details["replicas"]
        if now == wanted[0] or list(replicas) != wanted:
            PartitionFault.advance(self, system, injection, now_ms)
        elif PartitionState.of(injection).is_due(now_ms, "election"):
            system.operator.elect(str(self.target.topic), int(injection.details["partition"]))

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the drawn broker leads."""
        now, isr, replicas = self.replicas_now(system, injection)
        facts = {"leader": now, "isr": list(isr), "replicas": list(replicas)}
        proved = PartitionState.of(injection).begun and now == injection.details["replicas"][0]
        return Evidence(proved=proved, facts=facts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Reassign(PartitionFault):
    """Move one replica of the partition to a broker that has none."""

    kind: ClassVar[str] = "reassign"
    drawable: ClassVar[bool] = False

    def draw_replicas(
        self,
        snapshot: ClusterSnapshot,
        leader_now: int,
        isr: tuple[int, ...],
        replicas: tuple[int, ...],
        rng: random.Random,
    ) -> list[int]:
        """Draw a broker that has no replica, and the replica that it takes over: any, the leader's too."""
        del leader_now, isr
        able = sorted(snapshot.running - snapshot.disturbed - set(replicas))
        if not able:
            raise TargetError(
                f"{self}: no running broker is without a replica of it; start more brokers than its replication factor"
            )
        heir, leaving = rng.choice(able), rng.choice(replicas)
        found = [heir if node == leaving else node for node in replicas]
        assert len(set(found) - set(replicas)) == 1, f"{self}: {found} moves not one replica of {replicas}"
        return found

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the new replicas are assigned, and in the ISR."""
        now, isr, replicas = self.replicas_now(system, injection)
        facts = {"leader": now, "isr": list(isr), "replicas": list(replicas)}
        wanted: list[int] = injection.details["replicas"]
        proved = list(replicas) == wanted and set(isr) == set(wanted)
        return Evidence(proved=proved, facts=facts)


def elect_controller() -> ElectController:
    """Force an election of the controller; any broker may win it."""
    return ElectController()


@checked
def zombie_controller(*, seconds: Seconds | None = ZOMBIE_S) -> ZombieController:
    """Pause the controller until another one is elected, and for `seconds` more; then it resumes as a zombie."""
    return ZombieController(seconds=seconds)


@checked
def expire_session(target: Target | int) -> ExpireSession:
    """Let the registry end the session of a broker that lives; the broker opens a new one."""
    return ExpireSession(target=as_target(target, ExpireSession.kind))


@checked
def move_leader(topic: TopicLike, partition: int | None = None, *, seconds: Seconds | None = 0.0) -> MoveLeader:
    """Move the leader of a partition to another member of its ISR; without a number the seed draws the partition."""
    return MoveLeader(target=leader(topic, partition), seconds=seconds)


@checked
def reassign(topic: TopicLike, partition: int | None = None, *, seconds: Seconds | None = 0.0) -> Reassign:
    """Move one replica of a partition to another broker, and back after `seconds`."""
    return Reassign(target=leader(topic, partition), seconds=seconds)
