"""The lanes of what stands beside the brokers: dependencies, such as a store, and programs of the test.

Owns: `lanes_beside`. A dependency or a program has a lane when a fault hit it, or when it ended by itself. What has one
name has one lane: `kill(dependency("store"))` is a fault of the program `store`. Whether a service worked between its
faults is not known, so that a lane has no state there. Lanes are bounded, and so are the spans of each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from ..histories.program_ends import ITSELF, ProgramEnd
from ..histories.recorded_faults import RecordedFault
from .page_model import LaneBeside

LANES_MOST = 20
SPANS_MOST = 200


def lanes_beside(
    faults: Iterable[RecordedFault], ends: Sequence[ProgramEnd], seconds: Callable[[int], float], end_s: float
) -> list[LaneBeside]:
    """Return the lanes.

    `seconds` converts monotonic nanoseconds; `end_s` is the end of the run.
    """
    lanes: dict[str, LaneBeside] = {}
    for fault in faults:
        if fault.beside is None or fault.skipped is not None:
            continue
        lane = _lane(lanes, *fault.beside)
        begin_ns = fault.begin_ns if fault.effect_ns is None else fault.effect_ns
        kind = fault.says
        if kind.at_once and kind.lane_words:
            lane["marks"].append({"t": seconds(begin_ns), "text": kind.lane_words})
        elif kind.holds is not None and len(lane["spans"]) < SPANS_MOST:
            end = end_s if fault.end_ns is None else seconds(fault.end_ns)
            text = kind.lane_words or kind.holds.value
            lane["spans"].append({"s": seconds(begin_ns), "e": end, "state": kind.holds.value, "text": text})
    for ended in ends:
        if ended.by == ITSELF and ended.ended_ns:
            lane = _lane(lanes, "program", ended.name)
            at, text = seconds(ended.ended_ns), f"ended with exit code {ended.exit_code}"
            lane["marks"].append({"t": at, "text": text})
            if not ended.started_again:
                lane["spans"].append({"s": at, "e": end_s, "state": "dead", "text": "ended"})
    ordered = sorted(lanes.values(), key=lambda lane: (lane["kind"], lane["name"]))
    return ordered[:LANES_MOST]


def _lane(lanes: dict[str, LaneBeside], kind: str, name: str) -> LaneBeside:
    lane = lanes.setdefault(name, {"name": name, "kind": kind, "spans": [], "marks": []})
    if kind == "dependency":
        lane["kind"] = kind
    return lane
