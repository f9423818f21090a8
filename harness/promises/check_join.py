"""Runs the checks of extensions on Spark: records are brought together by their group, and judged there (L5).

The mapper calls `RecordCheck.group` for each record of the final read, the reducer `RecordCheck.findings` for each
group. Only counts, the first findings of each anomaly and exceptions leave the tasks.

What is not said: nothing is called valid by a check that met no record, that raised, or that cannot know what
retention, compaction or DeleteRecords removed.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypedDict, cast

from .. import run_folder
from ..checks.promise_findings import PromiseFindings
from ..checks.record import Record, text_of
from ..checks.record_check import Finding, RecordCheck
from ..checks.rows import AnomalyRow, OperationRow
from ..engines import SPARK, Engine
from ..histories.contents import Contents, ContentsChunk, read_contents
from ..wording import counted
from .chunk_records import rows_of_table
from .join import HASH, NumberedChunk, run_join
from .record_ids import canonical

if TYPE_CHECKING:
    import polars as pl

    from ..checks.spark_client import SparkHandle

GROUP_SEED = 4
PROBLEMS_MOST = 3
RECORDS_SHOWN = 10
LIMIT = 20
GROUP, TOPIC = "group", "topic"


class CheckResult(TypedDict, total=False):
    """What a stage yields besides frames, as plain JSON; each has some of the fields."""

    records: int
    """How many records were judged."""
    groups: int
    counts: Mapping[str, int]
    anomalies: Sequence[Mapping[str, Any]]
    """Of `AnomalyRow`."""
    raised: int
    problems: Sequence[str]
    """The first exceptions."""


def judge_checks(
    folder: Path,
    topics: Sequence[str],
    checks: Mapping[str, RecordCheck],
    *,
    spark: SparkHandle | None = None,
    engine: Engine = SPARK,
    limit: int = LIMIT,
) -> PromiseFindings:
    """Judge what the final read kept in `folder`. Raises ContentsError without a complete final read."""
    contents = read_contents(folder / run_folder.DRAIN)
    work = folder / run_folder.PROMISES
    work.mkdir(parents=True, exist_ok=True)
    findings = PromiseFindings()
    for name, check in checks.items():
        chunks = [NumberedChunk(chunk=chunk) for chunk in contents.chunks_of(topics)]
        rows = run_join(
            chunks,
            CheckMapper(check=check),
            CheckReducer(check=check, limit=limit),
            folder=work,
            spark=spark,
            engine=engine,
        )
        findings = with_findings(
            findings, _findings(name, check, cast("list[CheckResult]", rows), contents, topics, limit)
        )
    return findings


def with_findings(first: PromiseFindings | None, second: PromiseFindings) -> PromiseFindings:
    """Return the findings of promises with those of checks; they have no anomaly in common."""
    if first is None:
        return second
    return replace(
        first,
        operation_counts={**first.operation_counts, **second.operation_counts},
        anomaly_counts={**first.anomaly_counts, **second.anomaly_counts},
        anomalies=[*first.anomalies, *second.anomalies],
        reasons=[*first.reasons, *second.reasons],
        notes=[*first.notes, *second.notes],
        added_guarantees={**first.added_guarantees, **second.added_guarantees},
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckMapper:
    """Makes a row of each record that the check judges."""

    check: RecordCheck

    def __call__(self, numbered: NumberedChunk[ContentsChunk]) -> Generator[pl.DataFrame | CheckResult]:
        """Yield the rows of a chunk, and its counts and exceptions."""
        import polars as pl

        chunk, problems = numbered.chunk, list[str]()
        table = chunk.table()
        groups: list[str | None] = []
        raised = 0
        for record in rows_of_table(chunk.topic, table).records():
            try:
                value = self.check.group(record)
                groups.append(None if value is None else canonical(value))
            except Exception as error:
                raised += 1
                groups.append(None)
                if len(problems) < PROBLEMS_MOST:
                    problems.append(f"group() raised {error!r} on {record}")
        frames: Any = pl
        frame: pl.DataFrame = frames.from_arrow(table)
        hashes = pl.Series(groups, dtype=pl.String).hash(GROUP_SEED).reinterpret(signed=True)
        yield frame.with_columns(
            hashes.alias(HASH), pl.Series(GROUP, groups, dtype=pl.String), pl.lit(chunk.topic).alias(TOPIC)
        ).filter(pl.col(GROUP).is_not_null())
        judged = len(groups) - groups.count(None)
        yield {"records": judged, "raised": raised, "problems": problems}


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckReducer:
    """Calls the check for each group of its rows."""

    check: RecordCheck
    limit: int = LIMIT

    def __call__(self, frame: pl.DataFrame) -> Generator[CheckResult]:
        """Yield one dict: counts, the first anomalies of each name, exceptions."""
        known = {kind.name for kind in self.check.anomalies}
        counts, shown = Counter[str](), Counter[str]()
        anomalies: list[AnomalyRow] = []
        problems: list[str] = []
        raised = groups = 0
        for group, records in _groups(frame):
            groups += 1
            try:
                found = [_checked(finding, known) for finding in self.check.findings(group, records)]
            except Exception as error:
                raised += 1
                if len(problems) < PROBLEMS_MOST:
                    problems.append(f"findings() raised {error!r} on the group {group}")
                continue
            for finding in found:
                counts[finding.anomaly] += finding.count
                shown[finding.anomaly] += 1
                if shown[finding.anomaly] <= self.limit:
                    anomalies.append(_anomaly(finding, group, records))
        yield {
            "groups": groups,
            "counts": dict(counts),
            "anomalies": [anomaly.to_json() for anomaly in anomalies],
            "raised": raised,
            "problems": problems,
        }


def _groups(frame: pl.DataFrame) -> Iterable[tuple[str, list[Record]]]:
    """Return the records of each group, by topic, partition and offset."""
    import polars as pl

    found: list[tuple[str, Record]] = []
    for topic in sorted(frame[TOPIC].unique().to_list()):
        part = frame.filter(pl.col(TOPIC) == topic).sort("partition", "offset")
        records = rows_of_table(topic, part.to_arrow()).records()
        found += zip(part[GROUP].to_list(), records, strict=True)
    found.sort(key=lambda row: row[0])  # stable: the order of a group's records stays
    for group, rows in itertools.groupby(found, key=lambda row: row[0]):
        yield group, [record for _, record in rows]


def _checked(finding: object, known: set[str]) -> Finding:
    if not isinstance(finding, Finding):
        raise TypeError(f"{finding!r} is not a Finding")
    if finding.anomaly not in known:
        raise ValueError(f"the check has no anomaly {finding.anomaly!r}; it has {', '.join(sorted(known))}")
    if finding.count < 1:
        raise ValueError(f"the finding {finding.explanation!r} has the count {finding.count}, expected 1 or more")
    return finding


def _anomaly(finding: Finding, group: str, records: Sequence[Record]) -> AnomalyRow:
    shown = list(finding.records or records)
    places = {(record.topic, record.partition) for record in shown}
    topic, partition = places.pop() if len(places) == 1 else (", ".join(sorted({t for t, _ in places})), -1)
    return AnomalyRow(
        name=finding.anomaly,
        topic=topic,
        partition=partition,
        records=finding.count,
        offsets=[record.offset for record in shown] if partition >= 0 else [],
        operations=[_shown(record, group) for record in shown[:RECORDS_SHOWN]],
        explanation=finding.explanation,
    )


def _shown(record: Record, group: str) -> OperationRow:
    return {
        "operation": "record",
        "topic": record.topic,
        "partition": record.partition,
        "offset": record.offset,
        "timestamp_ms": record.timestamp_ms,
        "key": text_of(record.key),
        "value": text_of(record.value),
        "record_id": group,
    }


def _findings(
    name: str, check: RecordCheck, rows: Sequence[CheckResult], contents: Contents, topics: Sequence[str], limit: int
) -> PromiseFindings:
    """Merge what the tasks yielded for one check."""
    counts, first = Counter[str](), list[AnomalyRow]()
    for row in rows:
        counts.update(row.get("counts", {}))
        first += map(AnomalyRow.from_json, row.get("anomalies", ()))
    anomalies: list[AnomalyRow] = []
    for kind in check.anomalies:
        found = [row for row in first if row.name == kind.name]
        anomalies += sorted(found, key=lambda row: (row.topic, row.partition, row.offsets))[:limit]
    judged = sum(row.get("records", 0) for row in rows)
    return PromiseFindings(
        operation_counts={f"records_judged_by_{name}": judged},
        anomaly_counts=dict(counts),
        anomalies=anomalies,
        reasons=list(_reasons(name, rows, judged, contents, topics)),
        added_guarantees={name: tuple(kind.name for kind in check.anomalies)},
    )


def _reasons(
    name: str, rows: Sequence[CheckResult], judged: int, contents: Contents, topics: Sequence[str]
) -> Iterable[str]:
    raised = sum(row.get("raised", 0) for row in rows)
    if raised:
        texts = [text for row in rows for text in row.get("problems", ())]
        yield f"the check {name} failed {counted(raised, 'time')}: {'; '.join(texts[:PROBLEMS_MOST])}"
    elif not judged:
        yield f"the check {name} found no record to judge in {', '.join(topics)}"
    removed = sum(partition.removed for partition in contents.partitions_of(topics))
    if removed:
        yield (
            f"the check {name} cannot judge {counted(removed, 'record')} that retention, compaction or DeleteRecords "
            "had removed before the final read: verify a topic that keeps its records"
        )
