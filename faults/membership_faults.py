"""Brokers that join and leave while the test runs (K7).

`add_broker`     a broker with a new node id starts, and takes over one replica of some partitions. Evidence: it is
                 registered, and its replicas are in the ISR. Healed: its replicas have moved away, it has shut down in
                 order, and the cluster has its former brokers
`remove_broker`  the replicas of a broker move to others, and it shuts down in order. Where every other broker has a
                 replica, the partition has one replica less meanwhile. Evidence: it has ended, and no partition has a
                 replica there. Healed: it runs, and has its former replicas

Requests to reassign go the way of an operator's, all partitions in one request, and again until they have taken effect.
The files of an added broker stay, and a verdict judges them with the others.
"""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from harrow.cluster.argument_types import checked
from harrow.cluster.view import ClusterView, PartitionView

from .cluster_faults import OperatorState
from .controls import DEAD, RUNNING
from .errors import TargetError
from .evidence import Evidence
from .process_faults import ProcessFault, ended, hit_once, running_again, shown, statuses
from .spec import Fault, FaultState, Injection, Seconds
from .system import ClusterSnapshot, System
from .targets import Target, TopicLike, all_brokers, as_target, leader

INTERNAL = "__"
MOVED_MOST = 2
"""So many partitions move a replica to an added broker."""

Move = tuple[str, int, list[int]]
"""Topic, partition, and its replicas."""


def not_in_effect(view: ClusterView, moves: Sequence[Move]) -> list[Move]:
    """Return the moves whose replicas are not assigned, or not in sync; a partition that is deleted has none."""
    found: list[Move] = []
    for topic, partition, replicas in moves:
        row = view.partition(topic, partition)
        if row is not None and (list(row.replicas) != list(replicas) or set(row.isr) != set(replicas)):
            found.append((topic, partition, list(replicas)))
    return found


def moves_of(raw: Sequence[Sequence[Any]]) -> list[Move]:
    """Read moves, as JSON has them."""
    return [(str(topic), int(partition), list(replicas)) for topic, partition, replicas in raw]


def hosted(view: ClusterView, node: int) -> list[tuple[str, int, PartitionView]]:
    """Return the partitions that have a replica on a broker, in order."""
    rows = ((tp.topic, tp.partition, row) for tp, row in view.partitions() if node in row.replicas)
    return sorted(rows, key=lambda row: row[:2])


def without(row: PartitionView, node: int, able: Sequence[int], rng: random.Random) -> list[int]:
    """Return the replicas of a partition with another broker in the place of `node`, or one replica less."""
    assert node in row.replicas, f"broker {node} has no replica of it"
    heirs = [other for other in able if other not in row.replicas]
    if not heirs:
        return [other for other in row.replicas if other != node]
    heir = rng.choice(heirs)
    replicas = [heir if other == node else other for other in row.replicas]
    assert len(set(replicas)) == len(set(row.replicas)), f"{row.replicas} without broker {node}: {replicas}"
    return replicas


@dataclass(slots=True, kw_only=True)
class AddedState(OperatorState):
    """The broker that was added; None before."""

    node: int | None = None


@dataclass(slots=True, kw_only=True)
class RemovedState(OperatorState):
    """Whether the replicas have moved away, and the broker was terminated."""

    left: bool = False


# -------------------------------------------------------------------------------------- a new broker


@dataclass(frozen=True, slots=True, kw_only=True)
class AddBroker(Fault):
    """One more broker, which gets replicas of some partitions."""

    kind: ClassVar[str] = "add_broker"
    words: ClassVar[str] = "was added"
    at_once: ClassVar[bool] = True
    needs: ClassVar[frozenset[str]] = frozenset({"more-brokers", "reassignments"})
    state_type: ClassVar[type[FaultState]] = AddedState
    has_fixed_target: ClassVar[bool] = True
    effect_timeout_ms: ClassVar[int] = 120_000
    target: Target = all_brokers
    seconds: Seconds | None = (0.0, 1.0)

    def __str__(self) -> str:
        given = [] if self.target.topic is None else [repr(self.target.topic)]
        given += [f"{name}={value!r}" for name, value in self.parameters().items()]
        return f"{self.kind}({', '.join(given)})"

    def brokers_at_once(self, brokers: int) -> int:
        """Only the new one, while it starts and leaves."""
        del brokers
        return 1

    def disturbed_nodes(self, injection: Injection) -> frozenset[int]:
        """Return the new broker: other faults leave it alone, because it leaves again."""
        node = AddedState.of(injection).node
        return frozenset(() if node is None else (node,))

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the partitions that move a replica, and the replicas that leave."""
        topic = self.target.topic
        rows = sorted(
            ((tp.topic, tp.partition, row) for tp, row in snapshot.view.partitions()), key=lambda row: row[:2]
        )
        able = [
            row
            for row in rows
            if (row[0] == topic if topic is not None else not row[0].startswith(INTERNAL))
            and set(row[2].isr) == set(row[2].replicas) <= snapshot.running
        ]
        if not able:
            raise TargetError(f"{self}: no partition has a full ISR at this moment")
        drawn = rng.sample(able, min(MOVED_MOST, len(able)))
        moves = [[name, number, list(row.replicas), rng.choice(row.replicas)] for name, number, row in drawn]
        duration_ms = self.draw_duration_ms(snapshot, rng)
        details = {"moves": moves, "seed": rng.getrandbits(32)}
        return Injection(id=id, fault=self, nodes=(), duration_ms=duration_ms, details=details)

    def inject(self, system: System, injection: Injection) -> None:
        """Begin to start the broker, once."""
        state = AddedState.of(injection)
        if state.node is None:
            state.node = system.membership.add_broker()

    def _moves(self, injection: Injection) -> list[Move]:
        node = AddedState.of(injection).node
        assert node is not None, "the broker was added at the injection"
        return [
            (topic, partition, [node if replica == leaving else replica for replica in replicas])
            for topic, partition, replicas, leaving in injection.details["moves"]
        ]

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """When the broker is registered, move the replicas; again until they are in sync."""
        state = AddedState.of(injection)
        view = system.describe()
        if state.node not in view.live:
            return
        assert state.node not in injection.nodes, f"broker {state.node} was there before"
        left = not_in_effect(view, self._moves(injection))
        if left and state.is_due(now_ms):
            system.operator.reassign(left)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the new broker is registered, and its replicas are in sync."""
        node = AddedState.of(injection).node
        if node is None:
            return Evidence(proved=False, facts={})
        view = system.describe()
        left = not_in_effect(view, self._moves(injection))
        facts = {"broker": node, "live": sorted(view.live), "moves_left": len(left)}
        has_replicas = bool(hosted(view, node))
        return Evidence(proved=node in view.live and has_replicas and not left, facts=facts)

    def heal(self, system: System, injection: Injection) -> None:
        """Move its replicas away, let it shut down, and remove it; sent again while it is there."""
        node = AddedState.of(injection).node
        if node is None or node not in system.nodes:
            return
        broker = system.broker(node)
        state = broker.status().state
        if state == DEAD:
            system.membership.remove_added_broker(node)
            return
        if not AddedState.of(injection).heals_now():
            return
        view = system.describe()
        left = hosted(view, node)
        if not left:
            end = broker.process.terminate if state == RUNNING else broker.process.kill
            end()
            return
        rng = random.Random(injection.details["seed"])  # noqa: S311 - repeatable, not secret
        former = {(t, p): list(replicas) for t, p, replicas, _ in injection.details["moves"]}
        able = sorted(view.live - {node})
        system.operator.reassign([(t, p, former.get((t, p)) or without(row, node, able, rng)) for t, p, row in left])

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the broker has left."""
        node = AddedState.of(injection).node
        live = sorted(system.describe().live)
        gone = node is None or (node not in system.nodes and node not in live)
        return Evidence(proved=gone, facts={"broker": node, "live": live})


# ------------------------------------------------------------------------------- a broker that leaves


@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveBroker(ProcessFault):
    """A broker whose replicas move away, and which shuts down in order."""

    kind: ClassVar[str] = "remove_broker"
    words: ClassVar[str] = "was removed"
    needs: ClassVar[frozenset[str]] = frozenset({"process", "reassignments"})
    state_type: ClassVar[type[FaultState]] = RemovedState
    effect_timeout_ms: ClassVar[int] = 120_000

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random, *, id: str = "1") -> Injection:  # noqa: A002 - the log's word
        """Draw the broker, and who takes over its replicas."""
        injection = ProcessFault.resolve(self, snapshot, rng, id=id)
        if len(injection.nodes) != 1:
            raise TargetError(f"{self}: expected one broker, not {list(injection.nodes)}")
        [node] = injection.nodes
        able = sorted(snapshot.running - snapshot.disturbed - {node})
        if not able:
            raise TargetError(f"{self}: no other broker runs at this moment")
        rows = hosted(snapshot.view, node)
        details = {
            "former": [[topic, number, list(row.replicas)] for topic, number, row in rows],
            "moves": [[topic, number, without(row, node, able, rng)] for topic, number, row in rows],
        }
        return Injection(id=id, fault=self, nodes=injection.nodes, duration_ms=injection.duration_ms, details=details)

    def inject(self, system: System, injection: Injection) -> None:
        """Note the incarnation; `advance` sends the requests."""
        hit_once(system, injection, lambda _broker: None)

    def advance(self, system: System, injection: Injection, now_ms: int) -> None:
        """Move the replicas away, again until they have moved; then let the broker shut down, once."""
        state = RemovedState.of(injection)
        if state.left:
            return
        left = not_in_effect(system.describe(), moves_of(injection.details["moves"]))
        if not left:
            state.left = True
            for node in injection.nodes:
                system.broker(node).process.terminate()
        elif state.is_due(now_ms):
            system.operator.reassign(left)

    def probe(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the broker has no replica of these partitions, and has ended."""
        if not RemovedState.of(injection).left:
            return Evidence(proved=False, facts=shown(statuses(system, injection)))
        dead = ended(system, injection)
        moved = {f"{t}-{p}": r for t, p, r in moves_of(injection.details["moves"])}
        return Evidence(proved=dead.proved, facts={**dead.facts, "replicas": moved})

    def heal(self, system: System, injection: Injection) -> None:
        """Start the broker, and give it its former replicas; sent again while it does not have them."""
        ProcessFault.heal(self, system, injection)
        state = RemovedState.of(injection)
        if not state.incarnations or not state.heals_now():
            return
        view = system.describe()
        if set(injection.nodes) <= view.live:
            system.operator.reassign(not_in_effect(view, moves_of(injection.details["former"])))

    def probe_healed(self, system: System, injection: Injection) -> Evidence:
        """Observe whether the broker runs, and the partitions have their former replicas."""
        running = running_again(system, injection)
        began = bool(FaultState.of(injection).incarnations)
        former = moves_of(injection.details["former"]) if began else []
        view = system.describe()
        other = [
            (topic, partition)
            for topic, partition, replicas in former
            if (row := view.partition(topic, partition)) is not None and list(row.replicas) != replicas
        ]
        return Evidence(proved=running.proved and not other, facts={**running.facts, "moves_left": len(other)})


@checked
def add_broker(topic: TopicLike | None = None, *, seconds: Seconds | None = (0.0, 1.0)) -> AddBroker:
    """Start one more broker, move a replica of up to two partitions (of `topic`) to it; it leaves after `seconds`."""
    target = all_brokers if topic is None else leader(topic)
    return AddBroker(target=target, seconds=seconds)


@checked
def remove_broker(target: Target | int, *, seconds: Seconds | None = None) -> RemoveBroker:
    """Move the replicas of a broker to others, and shut it down for `seconds`."""
    return RemoveBroker(target=as_target(target, RemoveBroker.kind), seconds=seconds)
