"""Checks of targets before a run: names that do not exist, and how many brokers a target hits at once.

Both are pure functions of the cluster's state when the faults are planned. A misspelt topic would otherwise be reported
only after the time that a step waits for a broker in its role. A consumer group may be created while the faults run, so
its name is checked when they have ended (`missing_groups`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from harrow.cluster.view import ClusterView

from .errors import ConfigError, nearest
from .spec import Fault
from .targets import Target

INTERNAL = "__"


def check_targets(faults: Iterable[Fault], view: ClusterView, nodes: Sequence[int]) -> None:
    """Raise ConfigError for a target whose topic, partition or broker the cluster does not have."""
    for fault in faults:
        for target in fault.targets():
            _check_topic(fault, target, view)
            node = target.node
            if node is not None and node not in nodes:
                raise ConfigError(
                    f"{fault}: the cluster has no broker {node}; it has {_listed(nodes)}"
                )


def _check_topic(fault: Fault, target: Target, view: ClusterView) -> None:
    topic, partition = target.topic, target.partition
    if topic is None:
        return
    if topic not in view.topics:
        known = sorted(name for name in view.topics if not name.startswith(INTERNAL))
        listed = f"it has {_listed(known)}" if known else "it has none"
        raise ConfigError(
            f"{fault}: the cluster has no topic {topic!r}{nearest(topic, known)}; {listed}. "
            f"Create the topic before the faults begin: harrow.topic({topic!r})"
        )
    partitions = view.topics[topic]
    if partition is not None and partitions and partition not in partitions:
        raise ConfigError(
            f"{fault}: topic {topic!r} has no partition {partition}; it has 0 to {max(partitions)}"
        )


def missing_groups(faults: Iterable[Fault], groups: Iterable[str]) -> list[str]:
    """Return a line for each target of a consumer group that does not exist after the run."""
    known = sorted(groups)
    return [
        f"{fault}: the cluster has no consumer group {fault.target.group!r}"
        f"{nearest(fault.target.group, known)}; it has {_listed(known) if known else 'none'}"
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


def _listed(values: Iterable[object]) -> str:
    rows = [str(value) for value in values]
    return ", ".join(rows[:10]) + (f" and {len(rows) - 10} more" if len(rows) > 10 else "")
