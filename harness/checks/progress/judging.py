"""The table of faults and clients of a run, and its anomalies `stalled`.

A row of the table is about one fault and one subject, in the partition in which the subject stood still for longest:

    fault, label, client, kind, partition   what the row is about; `fault` is empty for a standstill without any fault
    without_progress_s                      how long it made no progress although there was work; 0: it went on
    recovered_s                             from the healing of the fault to the first progress; null: it had no work,
                                            or never made progress again (`recovered` is false)
    cluster_could_not_serve_s               of the time without progress: no leader, no full ISR, or no coordinator
    waited_for_members_s                    of it: the group waited for the timeout of a member that did not return
    stalled_s, stalled_from_s               the longest rest in one piece, and when it began

Seconds are rounded to milliseconds, times are relative to the start of the run.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from ..rows import AnomalyRow, OperationRow, ProgressRow
from .activity import GROUP, PRODUCER, READER, TRANSACTIONAL_ID, Track
from .availability import Availability, Disturbance, Place
from .findings import ProgressFindings
from .standstills import Standstill, needs, recovered_ns, standstill, touched, usual_ns

STALLED = "stalled"
REPORTED_NS = 10_000_000_000
"""From so long on a standstill is an anomaly where no bound is given."""
ROWS_MOST = 200
USUAL_TIMES = 2
Subject = tuple[str, str]
"""Kind and name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Bounds:
    """`recovers_within` in nanoseconds: of the verdict, and of faults whose chaos block has one of its own."""

    of_verdict_ns: int | None = None
    of_faults_ns: Mapping[str, int] = field(default_factory=dict[str, int])

    @property
    def are_given(self) -> bool:
        """Whether `stalled` is forbidden."""
        return self.of_verdict_ns is not None or bool(self.of_faults_ns)

    def of(self, fault: str) -> int | None:
        """Return the bound for a fault (empty: for standing still without a fault); None: it is not judged."""
        if not self.are_given:
            return REPORTED_NS
        return self.of_faults_ns.get(fault, self.of_verdict_ns)

    @property
    def given_ns(self) -> list[int]:
        """All bounds that were given, ascending."""
        of_verdict = [] if self.of_verdict_ns is None else [self.of_verdict_ns]
        return sorted({*self.of_faults_ns.values(), *of_verdict})

    def guarantee(self) -> dict[str, tuple[str, ...]]:
        """Return what the bounds add to the guarantees of the verdict; empty without bounds."""
        shown = [f"{bound / 1e9:g}" for bound in self.given_ns]
        return {f"recovery within {' or '.join(shown)} s": (STALLED,)} if shown else {}


@dataclass(kw_only=True)
class ProgressJudge:
    """Judges the tracks of a run."""

    tracks: Sequence[Track]
    availability: Availability
    coordinators: dict[Subject, Place]
    bounds: Bounds
    started_ns: int
    is_forwarded: Callable[[Standstill], bool] = lambda _: False
    """Whether a producer's waiting records have the timestamps of records that it read, which say nothing about it."""

    def judge(self) -> ProgressFindings:
        """Return the table, the longest standstills first, and the anomalies."""
        found = ProgressFindings()
        rows: list[tuple[int, int, ProgressRow]] = []
        stalled: dict[tuple[Subject, Place, int], tuple[Standstill, Disturbance | None]] = {}
        for subject, tracks in self._by_subject().items():
            of_subject = {id(track): self._standstills(track) for track in tracks}
            usual = self._usual_ns([row for rows in of_subject.values() for row in rows])
            for fault in [*self.availability.faults, None]:
                shown = self._row(subject, tracks, of_subject, fault)
                if shown is None:
                    continue
                rows.append((-shown[1].stalled_ns if shown[1] else 0, len(rows), shown[0]))
                bound = self.bounds.of(fault.id if fault else "")
                for row in self._of_fault(fault, [r for rows in of_subject.values() for r in rows]):
                    key = subject, row.track.place, row.gap.begin_ns
                    if bound is not None and row.stalled_ns > max(bound, USUAL_TIMES * usual):
                        stalled.setdefault(key, (row, fault))
        found.table = [row for _, _, row in sorted(rows, key=lambda entry: entry[:2])][:ROWS_MOST]
        found.anomalies = [
            self._anomaly(row, fault) for row, fault in sorted(stalled.values(), key=lambda pair: -pair[0].stalled_ns)
        ]
        return found

    def _by_subject(self) -> dict[Subject, list[Track]]:
        found: dict[Subject, list[Track]] = defaultdict(list)
        for track in self.tracks:
            found[track.kind, track.name].append(track)
        return found

    def _standstills(self, track: Track) -> list[Standstill]:
        if not track.gaps:
            return []
        serves = needs(track, self.availability, self.coordinators)
        judged = [standstill(track, gap, serves, self.availability.of_application) for gap in track.gaps]
        if track.kind != PRODUCER:
            return judged
        return [row for row in judged if not (row.stalled_ns and self.is_forwarded(row))]

    def _usual_ns(self, found: Sequence[Standstill]) -> int:
        first_ns = min((fault.begin_ns for fault in self.availability.faults), default=0)
        return usual_ns(found, first_ns)

    def _of_fault(self, fault: Disturbance | None, found: Sequence[Standstill]) -> list[Standstill]:
        """Return the standstills that belong to a fault; None: to no fault."""
        if fault is not None:
            return [row for row in found if touched(row.gap, fault)]
        return [
            row
            for row in found
            if not row.track.begins_with_faults
            and not any(touched(row.gap, other) for other in self.availability.faults)
        ]

    def _row(
        self,
        subject: Subject,
        tracks: Sequence[Track],
        found: Mapping[int, Sequence[Standstill]],
        fault: Disturbance | None,
    ) -> tuple[ProgressRow, Standstill | None] | None:
        """Return the row of the table; None for a subject that did nothing around the fault."""
        rows = self._of_fault(fault, [row for rows in found.values() for row in rows])
        worst = max(rows, key=lambda row: (row.stalled_ns, row.without_progress_ns), default=None)
        if worst is None and (fault is None or not _was_active(tracks, fault)):
            return None
        shown: ProgressRow = {
            "fault": fault.id if fault else "",
            "label": fault.label if fault else "",
            "client": subject[1],
            "kind": subject[0],
            "partition": "",
            "without_progress_s": 0.0,
            "recovered_s": None,
            "recovered": True,
            "cluster_could_not_serve_s": 0.0,
            "waited_for_members_s": 0.0,
            "stalled_s": 0.0,
            "stalled_from_s": None,
        }
        if worst is None:
            times = [recovered_ns(track, fault, ()) for track in tracks] if fault else []
            shown["recovered_s"] = min((_s(ns) for ns in times if ns is not None), default=None)
            return shown, None
        gaps = [row.gap for row in rows if row.track is worst.track]
        after = recovered_ns(worst.track, fault, gaps) if fault else None
        shown.update(
            {
                "partition": f"{worst.track.place[0]}-{worst.track.place[1]}",
                "without_progress_s": _s(worst.without_progress_ns),
                "recovered": worst.gap.recovered,
                "recovered_s": None if after is None else _s(after),
                "cluster_could_not_serve_s": _s(worst.could_not_serve_ns),
                "waited_for_members_s": _s(worst.waited_ns),
                "stalled_s": _s(worst.stalled_ns),
                "stalled_from_s": _s(worst.stalled[0] - self.started_ns) if worst.stalled_ns else None,
            }
        )
        return shown, worst

    # ---- anomalies ---------------------------------------------------------------------------

    def _anomaly(self, row: Standstill, fault: Disturbance | None) -> AnomalyRow:
        assert row.stalled_ns > 0, f"{row.track.kind} {row.track.name} was not stalled in {row.gap}"
        place = row.track.place
        operation: OperationRow = {
            "operation": "without progress",
            "topic": place[0],
            "partition": place[1],
            "invoked_ns": row.stalled[0],
            "completed_ns": row.stalled[1],
        }
        if row.track.kind in (PRODUCER, READER):
            operation["client"] = row.track.name
        if row.gap.offsets:
            operation["base_offset"], operation["last_offset"] = row.gap.offsets[0], row.gap.offsets[-1]
        return AnomalyRow(
            name=STALLED,
            topic=place[0],
            partition=place[1],
            offsets=list(dict.fromkeys(row.gap.offsets)),
            operations=[operation],
            explanation=self._explain(row, fault),
        )

    def _explain(self, row: Standstill, fault: Disturbance | None) -> str:
        begin, end = row.stalled
        text = (
            f"{row.track.kind} {row.track.name} made no progress for {_seconds(row.stalled_ns)}, from "
            f"{self._at(begin)} to {self._at(end)}, although {self._available(row)}; {_waiting(row)}"
        )
        if row.without_progress_ns > row.stalled_ns:
            text += f"; it had no progress for {_seconds(row.without_progress_ns)} altogether"
        if row.could_not_serve_ns:
            text += f", of which the cluster could not serve for {_seconds(row.could_not_serve_ns)}"
        if fault is not None:
            text += f"; fault {fault.id}, {fault.label}, {_fault_end(fault, row, self._at)}"
        if not row.gap.recovered:
            text += "; it made no progress until the end of the run"
        bound = self.bounds.of(fault.id if fault else "")
        if self.bounds.are_given and bound is not None:
            text += f"; recovers_within allows {bound / 1e9:g} s"
        return text

    def _available(self, row: Standstill) -> str:
        at_ns = row.stalled[0]
        known = self.availability.leader(row.track.place, at_ns)
        assert known is not None, "a partition that could serve had a leader"
        text = f"broker {known[0]} led the partition with the ISR {list(known[1])}"
        place = self.coordinators.get((row.track.kind, row.track.name))
        coordinator = self.availability.leader(place, at_ns) if place else None
        if coordinator is not None:
            text += f" and broker {coordinator[0]} was the coordinator"
        return text

    def _at(self, at_ns: int) -> str:
        return f"{(at_ns - self.started_ns) / 1e9:.2f} s"


def _was_active(tracks: Sequence[Track], fault: Disturbance) -> bool:
    """Whether a subject made progress before a fault was healed, and not only long before it began."""
    return any(begin <= fault.end_ns and end >= fault.begin_ns for track in tracks for begin, end in track.progress)


def _waiting(row: Standstill) -> str:
    """Say what the subject had to do."""
    offsets = row.gap.offsets
    shown = f"offsets {offsets[0]} to {offsets[-1]}" if offsets else ""
    if row.track.kind in (GROUP, READER):
        return f"the records with {shown} could be read"
    if row.track.kind == TRANSACTIONAL_ID:
        return "its transaction was decided and not completed"
    if shown:
        return f"its records that got {shown} later were waiting"
    return "its sends were refused by brokers that did not lead the partition"


def _fault_end(fault: Disturbance, row: Standstill, at: Callable[[int], str]) -> str:
    if fault.end_ns > row.gap.end_ns:
        return "lasted for longer"
    since = row.gap.end_ns - fault.end_ns
    return f"was healed at {at(fault.end_ns)}, {_seconds(since)} before the gap ended"


def _seconds(ns: int) -> str:
    return f"{ns / 1e9:.1f} s"


def _s(ns: int) -> float:
    return round(ns / 1e9, 3)
