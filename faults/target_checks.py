"""Checks of targets: names that do not exist, roles that no broker can play, how many brokers a target hits at once.

`check_targets` and `cap_for` are pure functions of the cluster's state when the faults are planned. A misspelt topic
would otherwise be reported only after the time that a step waits for a broker in its role. A consumer group or a
transactional id may be created while the faults run: a step waits for it, too (`check_created`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.view import ClusterView

from .errors import ConfigError, TargetError, absent, listed
from .spec import Fault
from .system import GROUPS, TRANSACTIONAL_IDS, System
from .targets import Target

INTERNAL = "__"


def check_targets(faults: Iterable[Fault], view: ClusterView, nodes: Sequence[int]) -> None:
    """Raise ConfigError for a target whose topic, partition or broker the cluster does not have."""
    for fault in faults:
        for target in fault.targets():
            _check_topic(fault, target, view)
            _check_followers(fault, target, view)
            node = target.node
            if node is not None and node not in nodes:
                raise ConfigError(f"{fault}: the cluster has no broker {node}; it has {listed(nodes)}")


def _check_topic(fault: Fault, target: Target, view: ClusterView) -> None:
    topic, partition = target.topic, target.partition
    if topic is None:
        return
    if topic not in view.topics:
        known = sorted(name for name in view.topics if not name.startswith(INTERNAL))
        raise ConfigError(
            f"{fault}: {absent('topic', topic, known)}. "
            f"Create the topic before the faults begin: harrow.topic({topic!r})"
        )
    partitions = view.topics[topic]
    if partition is not None and partitions and partition not in partitions:
        raise ConfigError(f"{fault}: topic {topic!r} has no partition {partition}; it has 0 to {max(partitions)}")


def _check_followers(fault: Fault, target: Target, view: ClusterView) -> None:
    """Raise ConfigError for a follower where each partition has one replica."""
    if target.role not in ("follower", "next_leader") or target.topic is None:
        return
    partitions = view.topics[target.topic]
    rows = partitions.values() if target.partition is None else [partitions[target.partition]]
    if rows and all(len(row.replicas) == 1 for row in rows):
        raise ConfigError(
            f"{fault}: topic {target.topic!r} has replication factor 1, so its leader has no follower. Create it with "
            f"harrow.topic({target.topic!r}, replication_factor=2), which needs two brokers "
            f"(@pytest.mark.harrow(brokers=2)), or target leader({target.topic!r})"
        )


def check_created(fault: Fault, system: System) -> None:
    """Raise TargetError while a consumer group or a transactional id of a target does not exist.

    A coordinator is computed from the name alone, so that the fault would hit a broker that coordinates nothing yet.
    """
    for target in fault.targets():
        for kind, name in ((GROUPS, target.group), (TRANSACTIONAL_IDS, target.transactional_id)):
            known = None if name is None else system.created(kind)
            if name is not None and known is not None and name not in known:
                raise TargetError(absent(kind, name, known))


def missing_groups(faults: Iterable[Fault], groups: Iterable[str]) -> list[str]:
    """Return a line for each target of a consumer group that does not exist after the run."""
    known = sorted(groups)
    return [
        f"{fault}: {absent(GROUPS, fault.target.group, known)}"
        for fault in faults
        if fault.target.group is not None and fault.target.group not in known
    ]


def cap_for(faults: Iterable[Fault], brokers: int, cap: int | None, default: int) -> int:
    """Return the cap of a block with these faults.

    Without a cap of the caller's, a target that the caller names is honoured: `kill(majority)` raises the default.
    ConfigError where the caller's own cap is lower than a target needs.
    """
    needed = {fault: fault.brokers_at_once(brokers) for fault in faults if fault.disturbs}
    if cap is None:
        return max([default, *needed.values()])
    for fault, count in needed.items():
        if count > cap:
            raise ConfigError(
                f"{fault} disturbs {count} of {brokers} brokers at once, and cap={cap} does not allow it; "
                f"give cap={count}, or leave cap= out"
            )
    return cap
