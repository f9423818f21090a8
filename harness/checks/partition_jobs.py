"""The jobs of a verdict: one for each topic-partition, with its rows, its replicas' logs and the times of the faults.

`plan_jobs` takes the partitions from three sources, so that none is forgotten: the laid-out history, the brokers' data
folders, and the replicas that the caller knows. It returns with the jobs what prevents judging: an ISR that is not
full, and a topic without any operation or log. `plans.py` packs jobs into tasks.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from .. import run_folder
from ..histories.coordinator_rows import MEMBERS, OFFSETS, SHARES, TRANSACTIONS, WATERMARKS
from ..histories.format import FINAL_READ_CLIENT
from ..histories.layout import PartitionFiles
from ..histories.recordings import untapped_brokers
from .judged_run import RunToJudge
from .log_changes import LogChanges
from .plans import PartitionJob
from .share_settings import ShareSettings
from .traced_changes import log_changes
from .whole_taps import brokers_with_whole_taps

ROW_BYTES = 80
Replicas = Mapping[tuple[str, int], "PartitionReplicas | Sequence[int]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """The brokers that have replicas of a partition, and those that were in the ISR when the run ended."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def write_replicas(folder: Path, replicas: Mapping[tuple[str, int], PartitionReplicas]) -> None:
    """Keep in `run.json` where replicas were when the run ended: `harrow check` misses a log that was removed."""
    body = {
        f"{topic}-{partition}": {"replicas": list(of.replicas), "isr": list(of.isr)}
        for (topic, partition), of in sorted(replicas.items())
    }
    known: dict[str, object] = run_folder.read_run(folder).get("replicas", {})
    run_folder.note(folder, replicas={**known, **body})


def read_replicas(folder: Path, topics: Sequence[str]) -> dict[tuple[str, int], PartitionReplicas]:
    """Return what `write_replicas` kept of these topics; empty for a run that ended before its verdict."""
    found: dict[tuple[str, int], PartitionReplicas] = {}
    for name, of in run_folder.read_run(folder).get("replicas", {}).items():
        topic, _, partition = name.rpartition("-")
        if topic in topics:
            found[topic, int(partition)] = PartitionReplicas(replicas=tuple(of["replicas"]), isr=tuple(of["isr"]))
    return found


def plan_jobs(run: RunToJudge, replicas: Replicas | None, limit: int) -> tuple[list[PartitionJob], list[str]]:
    """Return one job for each topic-partition of the history, the brokers' folders and `replicas`, and the doubts.

    A broker with a whole tap counts in the partitions in whose ISR it is when the run ends.
    """
    folder, layout, topics = run.folder, run.layout, run.topics
    changes, whole_taps = log_changes(run.events, topics), set(brokers_with_whole_taps(folder, run.events))
    reasons: list[str] = []
    data = run_folder.replica_folders(folder)
    stored = _stored_logs(data, topics)
    places = {place for place in layout.partitions if place[1] >= 0} | set(stored) | set(replicas or ())
    untapped = untapped_brokers(folder)
    own_clients = [n for n, name in enumerate(layout.clients) if name == FINAL_READ_CLIENT]
    shares = ShareSettings.read(folder, layout)
    jobs: list[PartitionJob] = []
    for topic, partition in sorted(place for place in places if place[0] in topics):
        logs = stored.get((topic, partition), {})
        in_isr: set[int] = set()
        if replicas is not None and (topic, partition) in replicas:
            assigned = replicas[topic, partition]
            if not isinstance(assigned, PartitionReplicas):
                assigned = PartitionReplicas(replicas=tuple(assigned), isr=tuple(assigned))
            in_isr = set(assigned.isr)
            if set(assigned.isr) != set(assigned.replicas):
                reasons.append(
                    f"the ISR of {topic}-{partition} is not full: it has brokers {sorted(assigned.isr)}, "
                    f"expected {sorted(assigned.replicas)}"
                )
            logs = {node: _log_folder(data, node, topic, partition) for node in assigned.replicas}
        changed = changes.get((topic, partition), LogChanges())
        files = layout.partitions.get((topic, partition)) or PartitionFiles(topic=topic, partition=partition)
        jobs.append(
            PartitionJob(
                topic=topic, partition=partition, ops=files.ops, pending=layout.pending.get(topic, []),
                batches=files.batches, transactions=files.coordinators.get(TRANSACTIONS, []),
                offsets=files.coordinators.get(OFFSETS, []), members=files.coordinators.get(MEMBERS, []),
                watermarks=files.coordinators.get(WATERMARKS, []), shares=files.coordinators.get(SHARES, []),
                delivery_limit=shares.delivery_limit, share_resets=shares.resets,
                consuming_groups=shares.groups_of(topic),
                logs={str(node): path for node, path in sorted(logs.items())},
                windows=run.fault_times, started_ns=run.times.started_ns,
                own_clients=own_clients, untapped=untapped,
                created_ns=changed.created_ns, cleaned_end=changed.cleaned_end,
                deleted_heads={str(node): base for node, base in changed.deleted_heads.items()},
                removals=changed.removals, cleanings=changed.cleanings, leaderships=changed.leaderships,
                unclean_epochs=changed.unclean_epochs, wrong_clocks=changed.wrong_clocks, limit=limit,
                whole_taps=sorted(in_isr & whole_taps), all_sends=bool(run.imported.get("complete", False)),
                reads_committed=bool(run.imported.get("reads_committed", True)),
                size=files.rows * ROW_BYTES + sum(map(_size, logs.values())),
            )
        )  # fmt: skip
    missing = sorted(set(topics) - {job.topic for job in jobs})
    reasons += [f"the run folder has no operation and no log of topic {topic!r}" for topic in missing]
    return jobs, reasons


def _log_folder(data: Mapping[int, Sequence[Path]], node: int, topic: str, partition: int) -> str:
    """Where a replica's log is; where no data folder of its broker holds it, where the first one would."""
    name = f"{topic}-{partition}"
    places = [folder / name for folder in data.get(node, [Path(f"broker-{node}")])]
    return str(next((place for place in places if place.is_dir()), places[0]))


def _stored_logs(data: Mapping[int, Sequence[Path]], topics: Sequence[str]) -> dict[tuple[str, int], dict[int, str]]:
    """Return the folder of each partition's log by broker, for all brokers' data folders."""
    stored: dict[tuple[str, int], dict[int, str]] = {}
    for node, folder in ((node, folder) for node, folders in data.items() for folder in folders):
        for log in folder.iterdir() if folder.is_dir() else ():
            topic, dash, number = log.name.rpartition("-")
            if dash and number.isdigit() and topic in topics and log.is_dir():
                stored.setdefault((topic, int(number)), {})[node] = str(log)
    return stored


def _size(folder: str) -> int:
    if not os.path.isdir(folder):
        return 0
    # a check reads headers and CRCs only: a byte of a segment costs less than a byte of history
    return sum(entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(".log")) // 4
