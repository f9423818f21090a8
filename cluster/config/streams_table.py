"""The settings of streams groups that are about copies of tasks, and about the assignor (KIP-1071, KIP-1357).

Owns: `STREAMS_TASK_SETTINGS`. Kafka keeps those of offsets and of warm-up tasks as internal settings.
Source: Kafka's GroupCoordinatorConfig.
"""

from __future__ import annotations

from .setting import INT_MAX, LONG_MAX, Setting

__all__ = ["NO_WARMUPS", "STICKY", "STREAMS_TASK_SETTINGS"]

STICKY = "sticky"
"""The only assignor."""
NO_WARMUPS = "no coordinator makes warm-up tasks, as in Kafka 4.4"


def _internal(name: str, default: int, doc: str, low: int, high: int = INT_MAX, stored: str = "") -> Setting:
    return Setting(name=name, default=default, doc=doc, low=low, high=high, internal=True, stored=stored)


STREAMS_TASK_SETTINGS: tuple[Setting, ...] = (
    Setting(
        name="group.streams.assignors",
        default=STICKY,
        doc="the assignor of streams groups; only sticky",
        kind="list",
        only_default="an assignor of one's own is a Java class",
    ),
    _internal("group.streams.task.offset.interval.ms", 60_000, "how often such members send task offsets", 1),
    _internal("group.streams.min.task.offset.interval.ms", 15_000, "shortest such interval", 1),
    _internal("group.streams.acceptable.recovery.lag", 10_000, "lag of a warm-up task that is caught up", 0, LONG_MAX),
    _internal("group.streams.num.warmup.replicas", 2, f"without effect: {NO_WARMUPS}", 0, stored=NO_WARMUPS),
    _internal("group.streams.max.warmup.replicas", 20, "largest streams.num.warmup.replicas of a group", 0),
)
