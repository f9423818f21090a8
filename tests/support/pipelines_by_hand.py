"""Pipelines without a cluster: records in memory, their chunks as files, and both judges."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from harrow.harness.checks import SparkHandle
from harrow.harness.checks.record import Record
from harrow.harness.histories.commits import Commit, commit_times
from harrow.harness.promises.chunk_records import OutputChunk
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineFindings, PipelineInputs, check_pipeline
from harrow.harness.promises.retries import RetryPromise
from harrow.harness.promises.retry_columns import RetryColumns
from harrow.harness.promises.sink_rows import SinkWriter
from oracle_of_pipelines import Judgement

ANOMALIES = (
    "missing-output",
    "duplicate-output",
    "unexpected-output",
    "wrong-output",
    "out-of-order-output",
    "output-and-dead-letter",
    "dead-letter-without-reason",
    "too-many-attempts",
    "uncertain-attempts",
    "attempt-before-due",
    "due-out-of-order",
)


def record(
    value: Any,
    *,
    partition: int = 0,
    offset: int = 0,
    key: str | None = None,
    timestamp_ms: int = 0,
    topic: str = "in",
    headers: Mapping[str, Any] | None = None,
) -> Record:
    """Return a record; a value that is not bytes becomes JSON."""
    return Record(
        topic=topic,
        partition=partition,
        offset=offset,
        timestamp_ms=timestamp_ms,
        key=None if key is None else key.encode(),
        value=value if value is None or isinstance(value, bytes) else json.dumps(value).encode(),
        headers=tuple((name, str(text).encode()) for name, text in (headers or {}).items()),
    )


def chunks_of(records: Sequence[Record], folder: Path, per_chunk: int) -> list[OutputChunk]:
    """Write records into chunks of the size `per_chunk`."""
    folder.mkdir(parents=True, exist_ok=True)
    writer = SinkWriter(folder)
    for start in range(0, len(records), per_chunk):
        writer.records(records[start : start + per_chunk])
    return writer.chunks


def checked(
    inputs: Sequence[Record],
    outputs: Sequence[Record],
    pairing: Pairing,
    folder: Path,
    *,
    commits: Sequence[Commit] = (),
    times: str = "",
    retries: Sequence[Record] = (),
    letters: Sequence[Record] = (),
    topic_times: Mapping[str, str] | None = None,
    reads: str = "",
    promise: RetryPromise | None = None,
    ordered: bool = True,
    per_chunk: int = 3,
    spark: SparkHandle | None = None,
    before: Callable[[], None] = lambda: None,
) -> PipelineFindings:
    """Judge a pipeline by the stages, in this process unless `spark` is given."""
    source = chunks_of(inputs, folder / "source", per_chunk)
    sink = chunks_of(outputs, folder / "sink", per_chunk)
    by_topic: dict[str, list[Record]] = {}
    for given in retries:
        by_topic.setdefault(given.topic, []).append(given)
    retried = [chunk for topic, records in by_topic.items() for chunk in chunks_of(records, folder / topic, per_chunk)]
    dead = chunks_of(letters, folder / "letters", per_chunk)
    before()
    return check_pipeline(
        PipelineInputs(
            pairing=pairing,
            source=source,
            sink=sink,
            commits=commit_times(commits),
            times=times,
            ordered=ordered,
            retries=retried,
            letters=dead,
            topic_times=topic_times or {},
            reads=reads,
            retry=None if promise is None else RetryColumns(promise=promise),
        ),
        folder=folder,
        spark=spark,
        engine="inline" if spark is None else "spark",
    )


def anomalies(found: PipelineFindings | Judgement) -> Counter[str]:
    """Return the counts of the anomalies, without zeros."""
    return +Counter({name: found.counts[name] for name in ANOMALIES})
