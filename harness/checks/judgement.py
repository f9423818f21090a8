"""`judge`: the verdict on one run folder.

Lays out what was recorded (`histories/layout.py`), plans one job a topic-partition with its replicas' logs, has
Spark run the kernels, and merges: invalid when something forbidden was found, else unknown when anything stood in
the way of judging, else valid. Writes `verdict.json` into the folder; reads nothing outside it.

Unknown (L6): nothing acknowledged; nothing read; faults were planned and none overlapped traffic; a file or a log
that could not be read; replicas that had not converged, or an ISR that is not full; a check that crashed.
"""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from .. import run_folder
from ..histories.layout import Layout, PartitionFiles, lay_out
from . import guarantees as words
from .kernels.inputs import PartitionJob
from .sources import pack
from .spark_client import SparkHandle
from .traces import leadership, planted_bugs
from .verdict import Anomaly, Status, Verdict

FOREVER_NS = 2**62
ROW_BYTES = 80
Replicas = Mapping[tuple[str, int], "PartitionReplicas | Sequence[int]"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionReplicas:
    """Where a partition's replicas are, and which of them were in sync when the run ended."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]


def judge(
    folder: str | Path, *, topics: Sequence[str], guarantee: str | None = None, spark: SparkHandle | None = None,
    replicas: Replicas | None = None, engine: Literal["spark", "local"] = "spark", limit: int = 20,
) -> Verdict:  # fmt: skip
    """Judge `topics` of the run in `folder`.

    `guarantee`: "no-loss", "at-least-once", "exactly-once", "ordered", "best-effort" or several with commas; None
    derives it from what was seen. `spark`: by default the Spark of this folder's run. `replicas`: node ids of each
    (topic, partition); by default every broker folder that holds it. `engine="local"` runs the kernels in this
    process, for tests of theirs. ConfigError for a guarantee that is none; SparkError when Spark does not answer.
    """
    began = time.perf_counter()
    asked = words.parse(guarantee) if guarantee is not None else None
    layout = lay_out(Path(folder).absolute(), topics)
    return judge_laid_out(
        folder, layout, topics=topics, guarantees=asked, spark=spark, replicas=replicas, engine=engine, limit=limit,
        began=began,
    )  # fmt: skip


def judge_laid_out(
    folder: str | Path, layout: Layout, *, topics: Sequence[str], guarantees: Sequence[str] | None = None,
    spark: SparkHandle | None = None, replicas: Replicas | None = None, engine: Literal["spark", "local"] = "spark",
    limit: int = 20, began: float | None = None,
) -> Verdict:  # fmt: skip
    """Judge a history that is laid out already; `guarantees` are parsed, None derives them. `began`: of its clock."""
    began = time.perf_counter() if began is None else began
    place = Path(folder).absolute()
    windows, fault_problem = fault_windows(place / run_folder.FAULTS)
    jobs, reasons = _plan(place, layout, topics, replicas, windows or [], limit)
    reasons = [*layout.problems, *reasons]
    results = _run(layout.folder, jobs, spark or SparkHandle.of_run(place.parent), engine)
    counts: Counter[str] = Counter()
    totals: Counter[str] = Counter()
    found: list[dict[str, Any]] = leadership(place, set(topics))
    totals.update(row["name"] for row in found)
    for result in results:
        counts.update(result["counts"])
        totals.update(result["totals"])
        found += result["anomalies"]
        reasons += result["unknown"]
    promised, why = (guarantees, None) if guarantees is not None else _derive(layout, counts)
    reasons += _doubts(counts, promised, windows, fault_problem)
    status, notes = _weigh(totals, promised, reasons)
    if not counts["replica_logs"]:
        notes.append("no replica's log was at hand: what the brokers' disks hold was not judged")
    if counts["responses_lost"]:
        notes.append(f"{counts['responses_lost']} responses were lost on the way to a producer")
    verdict = Verdict(
        status=status, guarantees=tuple(promised), derived=why, counts=dict(counts), totals=dict(totals),
        anomalies=_anomalies(found, layout, words.forbidden(promised)), reasons=tuple(reasons), notes=tuple(notes),
        planted=planted_bugs(place), elapsed_ms=round((time.perf_counter() - began) * 1000, 1),
    )  # fmt: skip
    verdict.write(place / run_folder.VERDICT)
    return verdict


def fault_windows(path: Path) -> tuple[list[tuple[int, int]] | None, str | None]:
    """From each inject to its heal, nanoseconds; None when there is no file, that is, no faults were planned."""
    if not path.exists():
        return None, None
    opened: dict[Any, int] = {}
    windows: list[tuple[int, int]] = []
    problem: str | None = None
    for line in path.read_text(errors="replace").splitlines():
        try:
            row = json.loads(line)
        except ValueError:
            problem = f"{path} has a line that is no JSON: {line[:80]!r}"
            continue
        if row.get("event") == "inject":
            opened[row.get("id")] = int(row["t_ns"])
        elif row.get("event") in {"heal", "healed"} and row.get("id") in opened:
            windows.append((opened.pop(row.get("id")), int(row["t_ns"])))
    return [*windows, *((start, FOREVER_NS) for start in opened.values())], problem


def _plan(
    folder: Path, layout: Layout, topics: Sequence[str], replicas: Replicas | None, windows: list[tuple[int, int]],
    limit: int,
) -> tuple[list[PartitionJob], list[str]]:  # fmt: skip
    """One job for each topic-partition that anything is known of."""
    reasons: list[str] = []
    data = run_folder.replica_folders(folder)
    kept = _kept(data, topics)
    known = (
        {place for place in layout.partitions if place[1] >= 0} | set(kept) | set(replicas or ())
    )
    jobs: list[PartitionJob] = []
    for topic, partition in sorted(place for place in known if place[0] in topics):
        logs = kept.get((topic, partition), {})
        if replicas is not None and (topic, partition) in replicas:
            chosen = replicas[topic, partition]
            if not isinstance(chosen, PartitionReplicas):
                chosen = PartitionReplicas(replicas=tuple(chosen), isr=tuple(chosen))
            if set(chosen.isr) != set(chosen.replicas):
                reasons.append(
                    f"the ISR of {topic}-{partition} is not full: {sorted(chosen.isr)} of {list(chosen.replicas)}"
                )
            logs = {node: _log_folder(data, node, topic, partition) for node in chosen.replicas}
        files = layout.partitions.get((topic, partition)) or PartitionFiles(
            topic=topic, partition=partition
        )
        jobs.append(
            PartitionJob(
                topic=topic, partition=partition, ops=files.ops, pending=layout.pending.get(topic, []),
                batches=files.batches, logs={str(node): path for node, path in sorted(logs.items())},
                windows=windows, limit=limit, size=files.rows * ROW_BYTES + sum(map(_size, logs.values())),
            )
        )  # fmt: skip
    nothing = sorted(set(topics) - {job.topic for job in jobs})
    reasons += [f"nothing is known of topic {topic!r}" for topic in nothing]
    return jobs, reasons


def _log_folder(data: Mapping[int, Sequence[Path]], node: int, topic: str, partition: int) -> str:
    """Where a replica's log is; where no data folder of its broker holds it, where the first one would."""
    name = f"{topic}-{partition}"
    places = [folder / name for folder in data.get(node, [Path(f"broker-{node}")])]
    return str(next((place for place in places if place.is_dir()), places[0]))


def _kept(
    data: Mapping[int, Sequence[Path]], topics: Sequence[str]
) -> dict[tuple[str, int], dict[int, str]]:
    """Which brokers' data folders hold which partitions."""
    kept: dict[tuple[str, int], dict[int, str]] = {}
    for node, folder in ((node, folder) for node, folders in data.items() for folder in folders):
        for log in folder.iterdir() if folder.is_dir() else ():
            topic, dash, number = log.name.rpartition("-")
            if dash and number.isdigit() and topic in topics and log.is_dir():
                kept.setdefault((topic, int(number)), {})[node] = str(log)
    return kept


def _size(folder: str) -> int:
    if not os.path.isdir(folder):
        return 0
    # headers and CRCs only: a byte of a segment costs a fraction of a byte of history
    return (
        sum(entry.stat().st_size for entry in os.scandir(folder) if entry.name.endswith(".log"))
        // 4
    )


def _run(
    folder: Path, jobs: list[PartitionJob], spark: SparkHandle, engine: str
) -> list[dict[str, Any]]:
    if not jobs:
        return []
    if engine == "local":
        from .kernels import judge_task

        return list(judge_task(jobs))
    plan = folder / "plan.json"
    plan.write_text(json.dumps(pack(jobs)))
    results = spark.collect(plan)
    judged = {(row["topic"], row["partition"]) for row in results}
    missing = [job for job in jobs if (job.topic, job.partition) not in judged]
    for job in missing:
        doubt = f"{job.topic}-{job.partition}: no answer from Spark"
        results.append({"counts": {}, "totals": {}, "anomalies": [], "unknown": [doubt]})
    return results


def _derive(layout: Layout, counts: Counter[str]) -> tuple[list[str], str]:
    if layout.taps and counts["batches_acknowledged"]:
        acks = [
            ack for ack, name in ((0, "0"), (1, "1"), (-1, "all")) if counts[f"batches_acks_{name}"]
        ]
        return words.derive(acks, [not counts["batches_without_producer_id"]])
    return words.derive(
        [acks for acks, _ in layout.producers], [idempotent for _, idempotent in layout.producers]
    )


def _doubts(
    counts: Counter[str],
    promised: Sequence[str],
    windows: list[tuple[int, int]] | None,
    problem: str | None,
) -> list[str]:
    reasons = [problem] if problem else []
    if not counts["acknowledged"] and not counts["batches_acknowledged"]:
        reasons.append("nothing was acknowledged: no operation was seen that could have been lost")
    if not counts["final_reads"] and not counts["read"] and not counts["batches_delivered"]:
        reasons.append("nothing was read: there is no final read to compare with")
    if windows is not None and not windows:
        reasons.append("no fault was injected, though faults were planned")
    elif windows:
        if not counts["acknowledged_before_faults"]:
            reasons.append("nothing was acknowledged before the first fault")
        if not counts["operations_during_faults"]:
            reasons.append("no operation overlapped a fault")
    if (
        "ordered" in promised
        and counts["batches_without_producer_id"]
        and not counts["acknowledged"]
    ):
        reasons.append(
            "order was asked for, but producers without idempotence carry no sequences: "
            "use idempotent producers or Harrow's recording Producer"
        )
    return reasons


def _weigh(
    totals: Counter[str], promised: Sequence[str], reasons: list[str]
) -> tuple[Status, list[str]]:
    forbidden = words.forbidden(promised)
    broken = [name for name in totals if name in forbidden]
    promise = ", ".join(promised)
    allowed = [
        f"{count} {name} found, which {promise} allows"
        for name, count in totals.items()
        if name not in forbidden
    ]
    if broken:
        return Status.INVALID, allowed
    return (Status.UNKNOWN if reasons else Status.VALID), allowed


def _anomalies(
    found: list[dict[str, Any]], layout: Layout, forbidden: frozenset[str]
) -> tuple[Anomaly, ...]:
    """Forbidden ones first; clients by name."""

    def told(row: dict[str, Any]) -> dict[str, Any]:
        client = row.get("client")
        named = (
            layout.clients[client]
            if isinstance(client, int) and client < len(layout.clients)
            else client
        )
        return {
            **{k: v for k, v in row.items() if v is not None},
            **({"client": named} if client is not None else {}),
        }

    ordered = sorted(
        found,
        key=lambda row: (row["name"] not in forbidden, row["name"], row["topic"], row["partition"]),
    )
    return tuple(
        Anomaly(
            name=row["name"], topic=row["topic"], partition=row["partition"], offsets=tuple(row["offsets"]),
            operations=tuple(told(operation) for operation in row["operations"]), explanation=row["explanation"],
        )
        for row in ordered
    )  # fmt: skip
