"""The results of a cluster benchmark: values by figure and peer, the goals, and the table.

A figure may have a goal (`GOALS`): a ratio to Apache Kafka in the same run, or a limit in the figure's own unit. Where
a peer could not be measured, the table shows the reason, and the figure is not tried again for this peer.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

from peers import HARROW, KAFKA, MOCK

PEERS = (HARROW, KAFKA, MOCK)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """`limit` in the figure's unit, or as a ratio to Apache Kafka's value; `least`: larger values are better."""

    limit: float
    of_kafka: bool = False
    least: bool = False

    def __str__(self) -> str:
        return f"{'>=' if self.least else '<='} {self.limit:g}{'x' if self.of_kafka else ''}"

    def met(self, value: float) -> bool:
        """True when a value, or a ratio, meets the goal."""
        return value >= self.limit if self.least else value <= self.limit


AS_FAST = Goal(limit=1.0, of_kafka=True, least=True)
GOALS = {
    "start: ready, ms": Goal(limit=150),
    "start: `harrow up` ready, ms": Goal(limit=1000),
    "produce 100 B acks=all, msg/s": AS_FAST,
    "produce 1 KiB acks=all, msg/s": AS_FAST,
    "consume 100 B, msg/s": AS_FAST,
    "consume 1 KiB, msg/s": AS_FAST,
    "one at a time p50, ms": Goal(limit=0.5, of_kafka=True),
    "one at a time p99, ms": Goal(limit=0.2, of_kafka=True),
    "transactions of 1 records, /s": AS_FAST,
    "transactions of 100 records, /s": AS_FAST,
    "transactions of 10,000 records, /s": AS_FAST,
    "commits, /s": AS_FAST,
    "rebalance from 2 to 3 members, ms": Goal(limit=1.0, of_kafka=True),
    "rebalance of 50 members, ms": Goal(limit=1.0, of_kafka=True),
    "PSS of a broker after the run, MiB": Goal(limit=160),
    "failover: session's end to leaders, ms": Goal(limit=100),
    "failover: session's end to ack, ms": Goal(limit=500),
}


@dataclass(slots=True)
class Figures:
    """The values of a run, in the order in which the figures were first added."""

    values: dict[str, dict[str, list[float]]] = field(default_factory=dict[str, dict[str, list[float]]])
    reasons: dict[tuple[str, str], str] = field(default_factory=dict[tuple[str, str], str])

    def add(self, figure: str, peer: str, value: float) -> None:
        """Adds a value."""
        self.values.setdefault(figure, {}).setdefault(peer, []).append(value)

    def skip(self, figures: Sequence[str], peer: str, reason: str) -> None:
        """Notes why a peer has no more values for these figures."""
        for figure in figures:
            self.values.setdefault(figure, {})
            self.reasons.setdefault((figure, peer), reason)

    def skipped(self, figures: Sequence[str], peer: str) -> bool:
        """True when one of these figures has failed before."""
        return any((figure, peer) in self.reasons for figure in figures)

    def report(self) -> list[str]:
        """Prints the table; returns the missed goals."""
        heads = "".join(f"{name:>16}" for name in PEERS)
        print(f"\n{'figure':<48}{heads}{'to Kafka':>10}{'goal':>10}")
        missed: list[str] = []
        for figure, by_peer in self.values.items():
            middle = {name: median(found) for name, found in by_peer.items()}
            ours, theirs = middle.get(HARROW), middle.get(KAFKA)
            ratio = ours / theirs if ours is not None and theirs else None
            goal = GOALS.get(figure)
            judged = ratio if goal is not None and goal.of_kafka else ours
            end = ""
            if goal is not None and judged is not None:
                end = "  met" if goal.met(judged) else "  MISSED"
                missed += [] if goal.met(judged) else [f"{figure}: {judged:.2f}, goal {goal}"]
            cells = "".join(f"{self._cell(figure, name, middle):>16}" for name in PEERS)
            ratio_text = "-" if ratio is None else f"{ratio:.2f}x"
            print(f"{figure:<48}{cells}{ratio_text:>10}{'-' if goal is None else str(goal):>10}{end}")
        for (figure, peer), reason in self.reasons.items():
            print(f"skipped: {figure} of {peer}: {reason}")
        return missed

    def _cell(self, figure: str, peer: str, middle: dict[str, float]) -> str:
        if peer not in middle:
            return "skipped" if (figure, peer) in self.reasons else "-"
        value = middle[peer]
        return f"{value:,.2f}" if abs(value) < 100 else f"{value:,.0f}"
