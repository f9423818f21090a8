"""Runs the checks of a pipeline on Spark: which stages, which shapes, and what all tasks found together (L5).

`check_pipeline` is given the chunks of both sides. The shapes of the expectations are found with a few inputs of the
first and the last chunk; when a task meets another shape the join is run again with it, at most `ROUNDS` times.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from ..engines import SPARK, Engine
from ..histories.commits import CommitTimes
from .chunk_records import OutputChunk, records_of
from .join import NumberedChunk, run_join
from .keyed_checks import FoldReducer, KeyedCompare, KeyedMapper
from .pairing import BY_ID, Pairing
from .pipeline_checks import Compare
from .pipeline_findings import LATE, OtherIds, PipelineFinding, Place, Raised, TaskResult, Undecided
from .pipeline_mapper import ACTUAL, DEAD, EXPECTED, RETRIED, PipelineMapper
from .pipeline_order import OrderCheck
from .record_ids import IdSource
from .relations import KeyedRelation
from .retry_columns import RetryColumns
from .shapes import Shape

if TYPE_CHECKING:
    from ..checks.spark_client import SparkHandle

ROUNDS = 6
SHAPES_MOST = 16
SAMPLED = 64
"""How many inputs of the first and the last chunk are tried for their shapes."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineInputs:
    """What the checks of one pipeline read."""

    pairing: Pairing
    source: Sequence[OutputChunk]
    sink: Sequence[OutputChunk]
    commits: Mapping[str, Mapping[int, CommitTimes]] = field(default_factory=dict[str, Mapping[int, CommitTimes]])
    """For each group that committed offsets of the source."""
    times: str = ""
    """The file with the times of the outputs; empty for a sink that is no topic."""
    ordered: bool = False
    retries: Sequence[OutputChunk] = ()
    """The records of the retry topics."""
    letters: Sequence[OutputChunk] = ()
    """The dead letters."""
    topic_times: Mapping[str, str] = field(default_factory=dict[str, str])
    """For each retry topic, the dead letters and the source: the file with the times of its records."""
    retry: RetryColumns | None = None
    """Of a pipeline with retry topics or dead letters."""
    reads: str = ""
    """The file with the deliveries of the inputs; empty when they are not known."""
    order_key: IdSource | None = None

    def chunks(self) -> list[NumberedChunk[OutputChunk]]:
        """Return the chunks of all sides, numbered."""
        sides = (
            [(EXPECTED, chunk) for chunk in self.source]
            + [(ACTUAL, chunk) for chunk in self.sink]
            + [(RETRIED, chunk) for chunk in self.retries]
            + [(DEAD, chunk) for chunk in self.letters]
        )
        return [NumberedChunk(number=number, side=side, chunk=chunk) for number, (side, chunk) in enumerate(sides)]


@dataclass(slots=True, kw_only=True)
class PipelineFindings:
    """What all tasks found."""

    counts: Counter[str] = field(default_factory=Counter[str])
    late: dict[str, int] = field(default_factory=dict[str, int])
    """For each group, how many outputs it committed before they came out."""
    findings: list[PipelineFinding] = field(default_factory=list[PipelineFinding])
    other_ids: list[OtherIds] = field(default_factory=list[OtherIds])
    """Of each task where there are retry topics or dead letters."""
    raised: list[Raised] = field(default_factory=list[Raised])
    undecided: list[Undecided] = field(default_factory=list[Undecided])
    problems: list[str] = field(default_factory=list[str])

    def group_of(self, finding: PipelineFinding) -> str:
        """Return the name of the group that a finding is about; empty for any other finding."""
        return [*self.late][finding.group] if finding.name == LATE else ""


def check_pipeline(
    inputs: PipelineInputs, *, folder: Path, spark: SparkHandle | None = None, engine: Engine = SPARK
) -> PipelineFindings:
    """Run the checks. `folder`: where the join may write files that the tasks read."""
    folder.mkdir(parents=True, exist_ok=True)
    if isinstance(inputs.pairing.relation, KeyedRelation):
        stages = (FoldReducer(pairing=inputs.pairing), KeyedCompare(pairing=inputs.pairing))
        mapper = KeyedMapper(pairing=inputs.pairing)
        found = run_join(inputs.chunks(), mapper, *stages, folder=folder, spark=spark, engine=engine)
        return _merged(cast("list[TaskResult]", found), [])
    shapes = _sampled_shapes(inputs)
    for _ in range(ROUNDS):
        problem = _too_many(shapes, inputs.pairing)
        if problem:
            return PipelineFindings(problems=[problem])
        rows = _run(inputs, shapes, folder, spark, engine)
        new = {_shape(given) for row in rows for given in row.get("new_shapes", ())}
        if not new:
            return _merged(rows, list(inputs.commits))
        shapes = tuple(sorted({*shapes, *new}))
    return PipelineFindings(problems=[_shapes_problem(shapes)])


def _run(
    inputs: PipelineInputs, shapes: tuple[Shape, ...], folder: Path, spark: SparkHandle | None, engine: Engine
) -> list[TaskResult]:
    mapper = PipelineMapper(
        pairing=inputs.pairing,
        shapes=shapes,
        commits=tuple(inputs.commits.values()),
        times=inputs.times,
        topic_times=inputs.topic_times,
        retry=inputs.retry,
        reads=inputs.reads,
        order_key=inputs.order_key,
    )
    compare = Compare(
        shapes=shapes,
        groups=len(inputs.commits),
        by_value=inputs.pairing.by_value,
        may_overwrite=inputs.pairing.rows.loose,
        ordered=inputs.ordered,
        retry=None if inputs.retry is None else inputs.retry.promise,
    )
    order = OrderCheck(tolerance_ms=0 if compare.retry is None else compare.retry.tolerance_ms)
    reducers = (compare, order) if inputs.ordered else (compare,)
    rows = run_join(inputs.chunks(), mapper, *reducers, folder=folder, spark=spark, engine=engine)
    return cast("list[TaskResult]", rows)


def _sampled_shapes(inputs: PipelineInputs) -> tuple[Shape, ...]:
    """Return the shapes of the expectations of a few inputs."""
    if inputs.pairing.relation is None:
        return (BY_ID,)
    found: set[Shape] = set()
    expected = inputs.pairing.expected
    for chunk in {id(chunk): chunk for chunk in (*inputs.source[:1], *inputs.source[-1:])}.values():
        for record in records_of(chunk, SAMPLED):
            try:
                found.update(unit.shape for unit in expected(record))
            except Exception:  # noqa: S112  (the task that has this record reports it)
                continue
    return tuple(sorted(found)) or (Shape("raw"),)


def _shape(given: Sequence[Any]) -> Shape:
    kind, fields, with_key = given
    return Shape(kind, tuple(fields), bool(with_key))


def _too_many(shapes: Sequence[Shape], pairing: Pairing) -> str:
    if pairing.by_value and len(shapes) > 1:
        return (
            "outputs cannot be paired by their whole value, because the relation's function returns values of "
            f"different shapes ({_shown(shapes)}): give record_id="
        )
    return _shapes_problem(shapes) if len(shapes) > SHAPES_MOST else ""


def _shapes_problem(shapes: Sequence[Shape]) -> str:
    return (
        f"the relation's function returns mappings with more than {SHAPES_MOST} different sets of fields "
        f"({_shown(shapes)}, …): return always the same fields"
    )


def _shown(shapes: Sequence[Shape]) -> str:
    return " and ".join(
        f"fields {', '.join(shape.fields)}" if shape.kind == "object" else shape.kind for shape in shapes[:2]
    )


def _merged(results: Iterable[TaskResult], groups: Sequence[str]) -> PipelineFindings:
    merged = PipelineFindings(late=dict.fromkeys(groups, 0))
    for result in results:
        merged.counts.update(result.get("counts", {}))
        for group, count in zip(groups, result.get("late", ()), strict=False):
            merged.late[group] += count
        merged.findings += map(PipelineFinding.from_json, result.get("findings", ()))
        if "other_ids" in result:
            merged.other_ids.append(OtherIds(*result["other_ids"]))
        if "raised" in result:
            merged.raised.append(Raised(*result["raised"]))
        if "undecided" in result:
            merged.undecided.append(Undecided(*result["undecided"]))
    nowhere = Place(-1, -1, -1, -1, -1)
    merged.findings.sort(
        key=lambda found: (found.name, merged.group_of(found), found.input or nowhere, found.output or nowhere)
    )
    return merged
