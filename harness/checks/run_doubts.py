"""Why a run proves too little: the reasons of `unknown`, and notes, from every check and from what was not recorded."""

from __future__ import annotations

from harrow.cluster.errors import HarrowError

from .. import run_folder
from ..histories.recordings import Recording, recordings_of
from .busy_machine import machine_notes
from .doubts import Doubts, count_doubts, empty_topics, partition_doubts
from .fault_windows import missed_faults, overlap_doubts
from .guarantees import unjudged
from .judged_run import HeldTo, RunFindings, RunToJudge
from .merged_results import MergedResults
from .needs import unjudged_anomalies
from .stuck_groups import STUCK_GROUP

ONLY_OPERATIONS = (
    "a history from elsewhere has only what clients did: the logs of replicas, leaders, coordinators and groups were "
    "not judged"
)
"""A note of a verdict on a history from elsewhere."""


def doubts_of_run(run: RunToJudge, found: RunFindings, held_to: HeldTo, plan_problems: list[str]) -> Doubts:
    """Return all of them. `plan_problems`: what kept a topic-partition from being judged."""
    counts, promised = found.merged.counts, found.promised
    doubts = Doubts(reasons=[*run.problems, *plan_problems], notes=[*run.imported.get("notes", [])])
    doubts.add(partition_doubts(found.results, held_to.forbidden, run.layout.clients, run.times, promised))
    doubts.add(count_doubts(counts, held_to.guarantees, empty_topics(found.results, run.topics), promised))
    reasons = [*promised.reasons, *promised.doubts_about(held_to.forbidden)]
    doubts.add(Doubts(reasons=reasons, notes=list(promised.notes)))
    doubts.add(Doubts(reasons=found.progress.doubts, notes=found.progress.notes))
    of_groups = doubts.reasons if STUCK_GROUP in held_to.forbidden else doubts.notes
    of_groups += found.groups.doubts
    doubts.notes += machine_notes(run.events, run.fault_times, run.times)
    doubts.add(Doubts(reasons=unjudged(held_to.guarantees, held_to.added)))
    doubts.add(_of_needs(run, found, held_to))
    if run.has_faults:
        doubts.add(_of_faults(run, found.merged))
    return doubts


def _of_needs(run: RunToJudge, found: RunFindings, held_to: HeldTo) -> Doubts:
    """Return which forbidden anomalies could not be judged, because their evidence is not in the run folder."""
    if run.imported and not run_folder.missing_data(run.folder):
        return Doubts(notes=[ONLY_OPERATIONS])
    partitions: dict[tuple[str, int], frozenset[Recording]] = {}
    for result in found.results:
        if result.topic:
            counts = result.operation_counts
            kinds = {Recording.FINAL_READ} if counts.get("final_reads") else set[Recording]()
            if counts.get("replica_logs"):
                kinds |= {Recording.LOG, Recording.REPLICA_LOGS}
            partitions[result.topic, result.partition] = frozenset(kinds)
    replaced = found.promised.replaces
    unjudged_ones = unjudged_anomalies(held_to.forbidden, recordings_of(run.folder), partitions, replaced=replaced)
    return Doubts(reasons=unjudged_ones.reasons, notes=unjudged_ones.notes)


def _of_faults(run: RunToJudge, found: MergedResults) -> Doubts:
    """Return whether the faults met operations: on the judged topics, or of any client of the run."""
    missed = missed_faults(run.windows, found.traffic)
    early = bool(found.counts["acknowledged_before_faults"]) or not run.windows
    touched: set[str] = set()
    try:
        if missed or not early:
            # numpy, which few verdicts need here
            from .touched import acknowledged_before, touched_faults

            touched = touched_faults(run.folder, missed, run.times.started_ns)
            early = early or acknowledged_before(run.folder, run.windows[0].start_ns)
    except (HarrowError, OSError) as error:
        return Doubts(reasons=[str(error)])
    reasons = overlap_doubts(run.windows, found.traffic, run.topics, run.times, touched)
    if not early:
        reasons = ["nothing was acknowledged before the first fault", *reasons]
    return Doubts(reasons=reasons)
