"""Which brokers are hit: targets by role, as plain values (K).

A target is resolved against a `ClusterSnapshot` when its fault fires, with the schedule's random numbers, to the
node ids of brokers that run at that moment. `leader(orders)` is the leader of a random partition, `leader(orders,
0)` the leader of partition 0. `TargetError` when no broker plays the role now (an election is going on).

Roles are a table (`ROLES`); each is a pure function (target, snapshot, random) → node ids. Extensions add roles
(`Role`). Source: Jepsen's nemesis targets. A group's coordinator leads the partition of `__consumer_offsets` that
`internal_topics.partition_for` computes.
"""

from __future__ import annotations

import difflib
import random
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, ClassVar, Protocol, runtime_checkable

from harrow.cluster.argument_types import checked, json_object
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, partition_for

from .errors import ConfigError, FaultError, TargetError
from .extensions import EXTENSIONS, name_of
from .system import ClusterSnapshot


@runtime_checkable
class NamedTopic(Protocol):
    """Anything with a name, such as `harrow.Topic`."""

    @property
    def name(self) -> str:
        """The topic's name."""
        ...


TopicLike = Annotated[str | NamedTopic, "a topic or its name"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A role, and what it is a role in."""

    IN_WORDS: ClassVar[str] = "a target such as leader('orders') or one"

    role: str
    topic: str | None = None
    partition: int | None = None
    group: str | None = None
    node: int | None = None
    transactional_id: str | None = None
    name: str | None = None
    """What a role of an extension is a role in, such as the name of a service."""

    def __str__(self) -> str:
        named = (self.topic, self.group, self.transactional_id, self.name)
        given = [repr(v) for v in named if v is not None]
        given += [str(v) for v in (self.partition, self.node) if v is not None]
        return self.role if self.role in PLAIN else f"{self.role}({', '.join(given)})"

    def resolve(self, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
        """Return the node ids, sorted, at least one; TargetError when no broker plays the role now."""
        nodes = _role(self.role)(self, snapshot, rng)
        if not nodes:
            raise TargetError(f"{self}: no running broker plays this role at this moment")
        assert set(nodes) <= snapshot.running - snapshot.disturbed, f"{self} drew a broker that cannot be hit: {nodes}"
        assert len(nodes) <= brokers_at_once(self, len(snapshot.brokers)), f"{self} drew too many brokers: {nodes}"
        return tuple(sorted(nodes))

    def to_json(self) -> dict[str, Any]:
        """Return the given fields only."""
        given = ((row.name, getattr(self, row.name)) for row in fields(self))
        return {name: value for name, value in given if value is not None}

    @classmethod
    def from_json(cls, raw: Mapping[str, Any]) -> Target:
        """Read what `to_json` wrote; ConfigError for a role or field that does not exist."""
        values = dict(raw) if isinstance(raw, Mapping) else json_object(raw, cls)  # pyright: ignore[reportUnnecessaryIsInstance] - the border
        role = str(values.get("role"))
        _role(role)
        known = [row.name for row in fields(cls)]
        for name in values:
            if name not in known:
                near = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                raise ConfigError(f"target {role}: no field {name!r}{hint}")
        json_object(values, cls)
        return cls(**values)


def _no_broker(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> Iterable[int]:
    del target, snapshot, rng
    return ()


def _one_broker(brokers: int) -> int:
    del brokers
    return 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Role:
    """What an extension adds so that a target names brokers, or things, by what they do at that moment (J4).

    def resolve(target, snapshot, rng):              # the arguments of the functions of `ROLES`
        return [node for node in snapshot.brokers if node % 2 == int(target.name)]

    Role(name="rack", resolve=resolve)               → Target(role="rack", name="1"), also in a schedule file
    """

    name: str
    resolve: Callable[[Target, ClusterSnapshot, random.Random], Iterable[int]] = _no_broker
    """Node ids of the brokers in this role; by default none, for a role of things that are no brokers. Those that do
    not run, or that another fault disturbs, are left out; with none left the nemesis tries again."""
    most: Callable[[int], int] = _one_broker
    """How many of so many brokers it returns at most: the cap of a chaos block follows from it."""

    def nodes(self, target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
        """Return the brokers that a fault can hit now; FaultError for what no cluster can have."""
        try:
            found = set(self.resolve(target, snapshot, rng))
        except FaultError:
            raise
        except Exception as error:
            raise FaultError(f"{target}: the function of this role raised {error!r}") from error
        unknown = sorted(found - set(snapshot.brokers), key=str)
        if unknown:
            raise FaultError(
                f"{target}: the function of this role returned {unknown}, which are no brokers; "
                f"there are {list(snapshot.brokers)}"
            )
        return tuple(sorted(found & snapshot.running - snapshot.disturbed))


def extension_roles() -> Mapping[str, Role]:
    """Return the roles of extensions, by name; the first call loads all extensions."""

    def read(found: Any) -> Iterable[tuple[str, Role]]:
        for role in found:
            if not isinstance(role, Role):
                raise TypeError(f"{role!r} is not a harrow.faults.Role")
            yield name_of(role, "name"), role

    return EXTENSIONS.table("harrow_targets", read, ROLES)


def _role(name: str) -> Callable[[Target, ClusterSnapshot, random.Random], tuple[int, ...]]:
    """Return the function of a role; ConfigError for a role that does not exist."""
    if name in ROLES:
        return ROLES[name]
    added = extension_roles()
    if name not in added:
        known = [*ROLES, *added]
        near = difflib.get_close_matches(name, known, n=1)
        hint = f"; did you mean {near[0]}?" if near else ""
        raise ConfigError(
            f"target role {name!r}{hint}: expected one of {', '.join(known)}; a role of an extension needs its "
            "distribution"
        )
    return added[name].nodes


def topic_name(topic: object, role: str) -> str:
    """Return the name of a topic that a role or an event names; ConfigError says what to write instead."""
    if isinstance(topic, str) and topic:
        return topic
    if isinstance(topic, NamedTopic):
        return str(topic.name)
    raise ConfigError(f"{role}({topic!r}): expected a topic or its name")


def _in_partition(role: str, topic: TopicLike, partition: int | None) -> Target:
    if partition is not None and (not isinstance(partition, int) or partition < 0):  # pyright: ignore[reportUnnecessaryIsInstance] - the border
        raise ConfigError(f"{role}({topic!r}, {partition!r}): expected a partition from 0 up")
    return Target(role=role, topic=topic_name(topic, role), partition=partition)


@checked
def leader(topic: TopicLike, partition: int | None = None) -> Target:
    """The leader of this partition; without a number, of a partition that the seed draws when the fault fires."""
    return _in_partition("leader", topic, partition)


@checked
def follower(topic: TopicLike, partition: int | None = None) -> Target:
    """A replica of the partition that does not lead it."""
    return _in_partition("follower", topic, partition)


@checked
def isr_member(topic: TopicLike, partition: int | None = None) -> Target:
    """A member of the partition's ISR, the leader among them."""
    return _in_partition("isr_member", topic, partition)


@checked
def next_leader(topic: TopicLike, partition: int | None = None) -> Target:
    """The follower that is elected when the leader dies: the first broker of the assignment that is in the ISR."""
    return _in_partition("next_leader", topic, partition)


def controller() -> Target:
    """The broker that is the controller."""
    return Target(role="controller")


@checked
def group_coordinator(group: str) -> Target:
    """The broker that coordinates this consumer group."""
    return Target(role="group_coordinator", group=group)


@checked
def txn_coordinator(transactional_id: str) -> Target:
    """The broker that coordinates the transactions of this transactional id."""
    return Target(role="txn_coordinator", transactional_id=transactional_id)


@checked
def broker(node_id: int) -> Target:
    """Return exactly this broker."""
    return Target(role="broker", node=node_id)


one = Target(role="one")
"""Any single broker, drawn by the seed."""
minority = Target(role="minority")
"""The most brokers that are less than half."""
majority = Target(role="majority")
"""The fewest brokers that are more than half."""
all_brokers = Target(role="all_brokers")
"""Every broker that runs and that no other fault holds."""
DEPENDENCY = "dependency"
"""The role of a target that is no broker."""
REGISTRY = Target(role="registry")
"""The registry: no broker plays this role."""

PLAIN = ("one", "minority", "majority", "all_brokers")


@checked
def dependency(name: str) -> Target:
    """The service of `harrow.dependency(name, address)`: for faults of its links, and of its program."""
    if not name:
        raise ConfigError(f"dependency({name!r}): expected the name of a dependency, such as 'store'")
    return Target(role=DEPENDENCY, name=name)


def dependency_of(target: object) -> str:
    """Return the name of the dependency that a target is; empty for any other target."""
    if isinstance(target, Target) and target.role == DEPENDENCY:
        return target.name or ""
    return ""


def registry() -> Target:
    """The registry (Harrow's ZooKeeper): for `kill`, `pause` and `isolate`, and the peer of `disconnect`."""
    return REGISTRY


def brokers_at_once(target: Target, brokers: int) -> int:
    """Return how many of `brokers` a target hits at most."""
    some = {"minority": (brokers - 1) // 2, "majority": brokers // 2 + 1, "all_brokers": brokers}
    if target.role not in ROLES:
        return extension_roles()[target.role].most(brokers)
    return some.get(target.role, 1)


def as_target(value: object, where: str) -> Target:
    """Take a Target, or a node id for that broker; ConfigError says what to write instead."""
    if isinstance(value, Target):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return broker(value)
    name = getattr(value, "__name__", "")
    if name in ROLES:
        raise ConfigError(f"{where}: {name} is a function; write {name}(…)")
    raise ConfigError(f"{where}: expected a target such as leader('orders') or one, got {value!r}")


# ------------------------------------------------------------------------------------------- roles


def _pick(nodes: Sequence[int], snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    able = sorted(set(nodes) & snapshot.running - snapshot.disturbed)
    return (rng.choice(able),) if able else ()


def _partition(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> Any:
    assert target.topic is not None
    partitions = snapshot.view.topics.get(target.topic)
    if not partitions:
        raise TargetError(f"{target}: topic {target.topic!r} has no partitions now")
    number = rng.choice(sorted(partitions)) if target.partition is None else target.partition
    if number not in partitions:
        raise TargetError(f"{target}: {target.topic!r} has no partition {number}")
    assert set(partitions[number].isr) <= set(partitions[number].replicas), f"{target}: its ISR has a stranger"
    return partitions[number]


def _leader(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _pick([_partition(target, snapshot, rng).leader], snapshot, rng)


def _follower(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    found = _partition(target, snapshot, rng)
    return _pick([node for node in found.replicas if node != found.leader], snapshot, rng)


def _next_leader(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    found = _partition(target, snapshot, rng)
    able = snapshot.running - snapshot.disturbed - {found.leader}
    return tuple(node for node in found.replicas if node in found.isr and node in able)[:1]


def _isr_member(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _pick(_partition(target, snapshot, rng).isr, snapshot, rng)


def _controller(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _pick([] if snapshot.view.controller is None else [snapshot.view.controller], snapshot, rng)


def _group_coordinator(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    count = len(snapshot.view.topics.get(OFFSETS.name, {})) or snapshot.offsets_partitions
    number = partition_for(target.group or "", count)
    found = snapshot.view.partition(OFFSETS.name, number)
    return _pick([] if found is None else [found.leader], snapshot, rng)


def _txn_coordinator(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    count = len(snapshot.view.topics.get(TRANSACTIONS.name, {}))
    if not count:  # the first producer with a transactional id creates the topic
        return ()
    number = partition_for(target.transactional_id or "", count)
    found = snapshot.view.partition(TRANSACTIONS.name, number)
    return _pick([] if found is None else [found.leader], snapshot, rng)


def _broker(target: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    if target.node not in snapshot.brokers:
        known = ", ".join(map(str, snapshot.brokers))
        raise TargetError(f"{target}: no such broker; there are {known}")
    return _pick([target.node], snapshot, rng)


def _one(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _pick(snapshot.brokers, snapshot, rng)


def _some(count: int, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    able = sorted(snapshot.running - snapshot.disturbed)
    assert count <= len(snapshot.brokers), f"{count} of {len(snapshot.brokers)} brokers"
    return tuple(rng.sample(able, count)) if 0 < count <= len(able) else ()


def _minority(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _some((len(snapshot.brokers) - 1) // 2, snapshot, rng)


def _majority(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    return _some(len(snapshot.brokers) // 2 + 1, snapshot, rng)


def _all(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    del rng
    return tuple(sorted(snapshot.running - snapshot.disturbed))


def _registry(_: Target, snapshot: ClusterSnapshot, rng: random.Random) -> tuple[int, ...]:
    del snapshot, rng
    return ()


ROLES: Mapping[str, Callable[[Target, ClusterSnapshot, random.Random], tuple[int, ...]]] = {
    "leader": _leader,
    "follower": _follower,
    "next_leader": _next_leader,
    "isr_member": _isr_member,
    "controller": _controller,
    "group_coordinator": _group_coordinator,
    "txn_coordinator": _txn_coordinator,
    "broker": _broker,
    "one": _one,
    "minority": _minority,
    "majority": _majority,
    "all_brokers": _all,
    "registry": _registry,
}
