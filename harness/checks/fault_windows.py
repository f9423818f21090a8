"""The faults of a run as the verdict sees them: when each lasted, and whether operations met it (L6).

`read_fault_windows` reads `faults.jsonl`. A fault lasts from its injection to the proof of its healing; a fault of an
instant (a reset, a restart, a lost response) too. Only a fault whose effect was proved must have met an operation; the
others did not happen. `overlap_doubts` says for each fault that met none what it was and what to do.

Optional faults (random ones, and repetitions within a duration) fill the time of a block, and the last of them may be
injected when the application has just ended. It is no doubt when other faults met operations.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from ..histories.recorded_faults import fault_events
from ..run_folder import FAULTS, RunTimes, schedule_files
from .rows import PartitionTraffic

FOREVER_NS = 2**62
"""The end of a fault that was not healed."""
MET_NOTHING = "met no operation"
NAMED_FAULTS = 3
"""A doubt names this many faults."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FaultWindow:
    """One fault: its number in the schedule, the user's own words for it, the brokers, and its time."""

    id: str
    label: str
    kind: str = ""
    nodes: tuple[int, ...]
    start_ns: int
    end_ns: int
    took_effect: bool = True
    required: bool = True
    """False for a fault that the schedule may leave out."""


def read_fault_windows(run: Path) -> tuple[list[FaultWindow] | None, list[str]]:
    """Return the faults of a run by start, and the problems of the file; None when no faults were planned."""
    path = run / FAULTS
    if not path.exists():
        return None, []
    by_fault, problems = fault_events(path)
    windows: list[FaultWindow] = []
    optional = _optional_faults(run)
    for number, events in by_fault.items():
        if "inject" in events:
            window = replace(_window(number, events), required=number not in optional)
            if window.end_ns < window.start_ns:
                problems.append(
                    f"{path}: fault {number} was healed at {window.end_ns} ns, before its injection at "
                    f"{window.start_ns} ns"
                )
            else:
                windows.append(window)
    return sorted(windows, key=lambda window: (window.start_ns, window.end_ns)), problems


def _optional_faults(run: Path) -> set[str]:
    """Return the ids of the faults that are not required, by the schedules of the run."""
    found: set[str] = set()
    for path in schedule_files(run):
        try:
            steps = json.loads(path.read_text(encoding="utf-8"))["steps"]
            found |= {str(step["id"]) for step in steps if not step.get("required", True)}
        except (OSError, ValueError, KeyError, TypeError):
            continue  # without a schedule every fault counts as required
    return found


def _window(number: str, events: Mapping[str, dict[str, Any]]) -> FaultWindow:
    inject = events["inject"]
    over = events.get("healed") or events.get("heal")
    return FaultWindow(
        id=number,
        kind=str(inject.get("fault")),
        label=str(inject.get("label") or inject.get("fault")),
        nodes=tuple(inject.get("targets") or ()),
        start_ns=int(inject["t_ns"]),
        end_ns=FOREVER_NS if over is None else int(over["t_ns"]),
        took_effect="effect" in events,
    )


@dataclass(slots=True, kw_only=True)
class Traffic:
    """When the clients' operations on the judged topics began and ended, and how many met each fault."""

    began_ns: int | None = None
    ended_ns: int | None = None
    met: list[int] = field(default_factory=list[int])

    def add(self, partition: PartitionTraffic) -> None:
        """Add the traffic of one partition."""
        self.began_ns = partition.began_ns if self.began_ns is None else min(self.began_ns, partition.began_ns)
        self.ended_ns = partition.ended_ns if self.ended_ns is None else max(self.ended_ns, partition.ended_ns)
        met = partition.met
        assert not self.met or len(self.met) == len(met), "the partitions were judged with different faults"
        self.met = [a + b for a, b in zip(self.met or [0] * len(met), met, strict=True)]


def missed_faults(windows: Sequence[FaultWindow], traffic: Traffic) -> list[FaultWindow]:
    """Return the faults that took effect and met no operation on the judged topics."""
    met = traffic.met or [0] * len(windows)
    assert len(met) == len(windows), "a count for each fault"
    return [fault for fault, count in zip(windows, met, strict=True) if fault.took_effect and not count]


def overlap_doubts(
    windows: Sequence[FaultWindow],
    traffic: Traffic,
    topics: Iterable[str],
    times: RunTimes,
    touched: Collection[str] = (),
) -> list[str]:
    """Return why the faults of the run prove too little: each that met no operation, and what to do.

    `touched`: ids of faults that touched a client otherwise (`touched.py`).
    """
    if not windows:
        return ["no fault was injected, though faults were planned"]
    effective = [fault for fault in windows if fault.took_effect]
    if not effective:
        return ["no fault took effect, though faults were injected"]
    missed = [fault for fault in missed_faults(windows, traffic) if fault.id not in touched]
    if len(missed) < len(effective):
        missed = [fault for fault in missed if not _after_the_traffic(fault, traffic)]
    if not missed:
        return []
    doubts = [f"{describe(fault, times)}, met no operation" for fault in missed[:NAMED_FAULTS]]
    if len(missed) > NAMED_FAULTS:
        doubts.append(f"{len(missed) - NAMED_FAULTS} more faults met no operation")
    return [*doubts, _remedy(missed, traffic, ", ".join(topics), times)]


def are_of_missed_faults(reasons: Sequence[str]) -> bool:
    """Whether a verdict is unknown only because faults met no operation: `overlap_doubts` wrote all its reasons."""
    named = [reason.endswith(MET_NOTHING) for reason in reasons]
    return any(named) and named.count(False) == 1 and not named[-1]


def _after_the_traffic(fault: FaultWindow, traffic: Traffic) -> bool:
    """Whether an optional fault was injected when the application had ended."""
    ended_ns = traffic.ended_ns
    return not fault.required and ended_ns is not None and fault.start_ns > ended_ns


def describe(fault: FaultWindow, times: RunTimes) -> str:
    """Name a fault: "fault 2, pause(leader('orders', 0)) on broker 3, from 1.20 s to 1.70 s"."""
    brokers = ", ".join(map(str, fault.nodes))
    where = f" on broker{'s' * (len(fault.nodes) > 1)} {brokers}" if brokers else ""
    start = times.text(fault.start_ns)
    when = f"from {start} on" if fault.end_ns >= FOREVER_NS else f"from {start} to {times.text(fault.end_ns)}"
    return f"fault {fault.id}, {fault.label}{where}, {when}"


def _remedy(missed: Sequence[FaultWindow], traffic: Traffic, topics: str, times: RunTimes) -> str:
    first = min(fault.start_ns for fault in missed)
    if traffic.began_ns is None or traffic.ended_ns is None:
        return f"no client used {topics}: send or read while the faults last, for example `while chaos.running`"
    lasted = f"traffic on {topics} lasted from {times.text(traffic.began_ns)} to {times.text(traffic.ended_ns)}"
    if traffic.ended_ns < first:
        remedy = f"the first fault that met nothing began at {times.text(first)}: send for longer"
    elif traffic.began_ns > max(fault.end_ns for fault in missed):
        remedy = "the faults were over before: send from the beginning of the chaos block on"
    else:
        remedy = "with a pause in which these faults fell: send without long pauses, or give the faults more seconds"
    return f"{lasted} after the start of the run, {remedy}, for example `while chaos.running`"
