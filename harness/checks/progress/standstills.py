"""What kept a subject from progress, gap by gap: the cluster, a member that did not return, or the subject itself.

A gap of a track becomes a `Standstill`. `standing` is the time with work in which neither a fault disturbed the
application nor the group rebalanced. Of it, `could_not_serve` is when a leader, its ISR or the coordinator was not
available, `waited` when the group waited for a member that did not return, and `stalled` is the longest rest in one
piece.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from .activity import GROUP, TRANSACTIONAL_ID, Gap, Track
from .availability import Availability, Disturbance, Place
from .spans import Span, Spans, both, longest, total, touches, without

TOUCH_NS = 1_000_000_000
"""A gap that begins so long after the healing of a fault still belongs to the fault."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Standstill:
    """One gap of one subject in one partition."""

    track: Track
    gap: Gap
    without_progress_ns: int
    """With work, whatever the reason."""
    could_not_serve_ns: int
    waited_ns: int
    """For members that did not return, within their timeouts."""
    stalled: Span
    """The longest time in one piece in which nothing but the subject itself explains it; (0, 0): none."""

    @property
    def stalled_ns(self) -> int:
        """How long it was stalled."""
        return self.stalled[1] - self.stalled[0]


def standstill(track: Track, gap: Gap, serves: Spans, of_application: Spans) -> Standstill:
    """Judge one gap. `serves`: when everything that the subject needs was available."""
    standing = without(gap.work, of_application)
    waits = both(standing, both(track.waits, [(gap.begin_ns, gap.end_ns)]))
    available = both(without(standing, waits), serves)
    work_ns, stalled_ns = total(gap.work), total(available)
    could_not_serve_ns, waited_ns = total(without(standing, serves)), total(waits)
    assert could_not_serve_ns + stalled_ns <= work_ns, (track.name, could_not_serve_ns, stalled_ns, gap.work)
    assert waited_ns + stalled_ns <= work_ns, (track.name, waited_ns, stalled_ns, gap.work)
    return Standstill(
        track=track,
        gap=gap,
        without_progress_ns=work_ns,
        could_not_serve_ns=could_not_serve_ns,
        waited_ns=waited_ns,
        stalled=longest(available),
    )


def needs(track: Track, availability: Availability, coordinators: dict[tuple[str, str], Place]) -> Spans:
    """Return when all that the subject needs was available."""
    serves = availability.serves(track.place)
    coordinator = coordinators.get((track.kind, track.name))
    if track.kind in (GROUP, TRANSACTIONAL_ID) and coordinator is not None:
        serves = both(serves, availability.serves(coordinator))
    return serves


def touched(gap: Gap, fault: Disturbance) -> bool:
    """Whether a gap belongs to a fault: it lasted while the fault did, or began soon after it."""
    return touches((gap.begin_ns, gap.end_ns), fault.begin_ns, fault.end_ns + TOUCH_NS)


def usual_ns(found: Sequence[Standstill], first_fault_ns: int) -> int:
    """Return the longest time that a subject stood still before any fault, although everything was available."""
    return max((row.stalled_ns for row in found if row.gap.end_ns <= first_fault_ns), default=0)


def recovered_ns(track: Track, fault: Disturbance, gaps: Sequence[Gap]) -> int | None:
    """Return the time from the healing of a fault to the first progress; None without work, or without progress."""
    spanning = [gap for gap in gaps if gap.begin_ns <= fault.end_ns < gap.end_ns]
    if spanning:
        return spanning[0].end_ns - fault.end_ns if spanning[0].recovered else None
    after = [max(begin - fault.end_ns, 0) for begin, end in track.progress if end > fault.end_ns]
    # without work for longer, it was idle
    return after[0] if after and after[0] <= TOUCH_NS else None
