"""An unclean election as a fault (K7): a replica outside the ISR becomes the leader, and acknowledged records are lost.

`unclean_election`  one follower of the partition is killed until it is outside the ISR, and for `behind_s` more, in
                    which records are acknowledged without it. Then the members of the ISR are killed, the follower is
                    started, and an operator asks for an unclean election (ElectLeaders, KIP-460), again until it leads.
                    Evidence: a broker leads that was outside the last ISR, in a later leader epoch
                    Healed: the former members of the ISR run, and follow the new leader

Kafka promises nothing of the records that the follower lacked: a verdict that finds them lost is right, and names the
election as the cause. The topic's `unclean.leader.election.enable` may be false: an operator may always ask. A topic
whose `min.insync.replicas` is as large as its number of replicas acknowledges nothing meanwhile, and loses nothing.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.view import PartitionView

from .cluster_faults import OperatorState
from .controls import DEAD
from .errors import ConfigError, TargetError
from .evidence import Evidence
from .process_faults import ProcessFault, hit_once, restarted
from .spec import Fault, FaultState, Injection, Seconds, amount_within, least_and_most
from .system import ClusterSnapshot, System
from .targets import TopicLike, leader

BEHIND_S = (0.3, 1.0)
BEHIND_S_MOST = 60.0
LEADS_S = (0.3, 1.5)
REPLICAS_LEAST = 2


@dataclass(slots=True, kw_only=True)
class UncleanState(OperatorState):
    """How far the election has come."""

    outside_ms: int | None = None
    """When the follower was first seen outside the ISR."""
    isr: list[int] | None = None
    """The ISR without the follower, which is killed; None until it is behind."""
    epoch: int = -1
    """The leader epoch of that ISR."""


@dataclass(frozen=True, slots=True, kw_only=True)
class UncleanElection(ProcessFault):
    """Let a replica outside the ISR lead the partition."""

    kind: ClassVar[str] = "unclean_election"
    words: ClassVar[str] = "took part in an unclean election"
    moves_leaders: ClassVar[bool] = True
    drawable: ClassVar[bool] = False
    needs: ClassVar[frozenset[str]] = frozenset({"process", "reassignments"})
    state_type: ClassVar[type[FaultState]] = UncleanState
    effect_timeout_ms: ClassVar[int] = 120_000
    seconds: Seconds | None = LEADS_S
    behind_s: Seconds = BEHIND_S

    def __post_init__(self) -> None:
        Fault.__post_init__(self)
        if self.target.topic is None:
            raise ConfigError(f"{self.kind}({self.target}): expected a topic, as in {self.kind}('orders', 0)")
        where = f"{self.kind}(behind_s"
        checked = amount_within(self.behind_s, BEHIND_S_MOST, where, "seconds", least=0)
        object.__setattr__(self, "behind_s", checked)

    def __str__(self) -> str:
        partition = "" if self.target.partition is None else f", {self.target.partition}"
        given = [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.kind}({', '.join([repr(self.target.topic) + partition, *given])})"

    def brokers_at_once(self, brokers: int) -> int:
        """Every broker may have a replica."""
        return brokers

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the partition, and the follower that is to lead."""
        partitions = snapshot.view.topics.get(str(self.target.topic), {})
        given = self.target.partition
        if not partitions or (given is not None and given not in partitions):
            raise TargetError(f"{self}: there is no such partition now")
        number = rng.choice(sorted(partitions)) if given is None else given
        row = partitions[number]
        if len(row.replicas) < REPLICAS_LEAST:
            raise TargetError(f"{self}: partition {number} has no follower; give it more replicas")
        undisturbed = snapshot.running - snapshot.disturbed
        if set(row.isr) != set(row.replicas) or not set(row.replicas) <= undisturbed:
            raise TargetError(f"{self}: partition {number} has no full ISR at this moment")
        heir = rng.choice([node for node in row.replicas if node != row.leader])
        behind_ms = round(1000 * rng.uniform(*least_and_most(self.behind_s)))
        return Injection(
            id=id,
            fault=self,
            nodes=tuple(sorted(row.replicas)),
            duration_ms=self.draw_duration_ms(snapshot, rng),
            details={"partition": number, "heir": heir, "behind_ms": behind_ms},
        )

    def inject(self, system: System, injection: Injection) -> None:
        """Kill the follower once."""
        self._kill(system, injection, [int(injection.details["heir"])])

    def _kill(self, system: System, injection: Injection, nodes: Sequence[int]) -> None:
        hit_once(system, injection, lambda broker: broker.process.kill(), nodes)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Kill the ISR when the follower is behind, start the follower, ask for the election."""
        heir = int(injection.details["heir"])
        state = UncleanState.of(injection)
        if state.isr is None:
            row = self._partition(system, injection)
            if row is None or heir in row.isr or row.leader not in row.isr:
                return
            if state.outside_ms is None:
                state.outside_ms = now_ms
            if now_ms < state.outside_ms + injection.details["behind_ms"]:
                return
            state.isr, state.epoch = sorted(row.isr), row.leader_epoch
        self._kill(system, injection, state.isr)
        if any(system.broker(node).status().state != DEAD for node in state.isr):
            return
        system.broker(heir).process.start()
        topic, number = str(self.target.topic), int(injection.details["partition"])
        view = system.describe()
        row = view.partition(topic, number)
        leaderless = row is not None and row.leader not in view.live
        if leaderless and heir in view.live and state.is_due(now_ms, "election"):
            system.operator.elect(topic, number, unclean=True)

    def _partition(self, system: System, injection: Injection) -> PartitionView | None:
        number = int(injection.details["partition"])
        return system.describe().partition(str(self.target.topic), number)

    def is_done(self, injection: Injection) -> bool:
        """Whether the ISR was killed, so that the election could follow."""
        return UncleanState.of(injection).isr is not None

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the follower leads, and was outside the last ISR."""
        row = self._partition(system, injection)
        state = UncleanState.of(injection)
        isr = state.isr
        facts: dict[str, Any] = {"partition": injection.details.get("partition"), "last_isr": isr}
        if row is None or isr is None:
            return Evidence(proved=False, facts=facts)
        facts |= {"leader": row.leader, "leader_epoch": row.leader_epoch}
        later = row.leader_epoch > state.epoch
        proved = row.leader == injection.details["heir"] and row.leader not in isr and later
        return Evidence(proved=proved, facts=facts)

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the brokers run, in later incarnations than those that were killed."""
        return restarted(system, injection)


@checked
def unclean_election(
    topic: TopicLike, partition: int | None = None, *, behind_s: Seconds = BEHIND_S, seconds: Seconds | None = LEADS_S
) -> UncleanElection:
    """Let a replica outside the ISR lead a partition; without a number the seed draws the partition.

    The replica lacks what is acknowledged in `behind_s`, and leads alone for `seconds`: records may be lost, legally.
    """
    return UncleanElection(target=leader(topic, partition), behind_s=behind_s, seconds=seconds)
