"""The checks of a pipeline whose outputs each depend on a single input (L5): the reducer `Compare`.

It receives all rows of a record id (`pipeline_mapper.py`). It yields counts and the first findings of each name, and
for the guarantee `ordered` the matched pairs, which `pipeline_order.py` checks.

How the units and outputs of an id are judged; `tests/support/oracle_of_pipelines.py` does the same in plain Python:

* Units with the same expected output form a class. An output is matched to a class whose text it has: first a class
  with a missing output, then a class that allows more, then any. Outputs that few classes have choose first.
* A class needs as many outputs as a single input requires, and allows as many as all its inputs together: with a record
  id, inputs with the same id and the same expected output may be copies, which the pipeline may process once. Without a
  record id (paired by value) it needs an output for each.
* A row of a table may have been overwritten by a later input with the same id: that is not missing.
* `wrong-output`: an output that no class has, with a missing unit of the id where there is one. `missing-output`: the
  units that are missing then. `duplicate-output`: outputs above what a class allows. `unexpected-output`: no input
  has the id.
* With dead letters (`retry_checks.py` has the rules): a class whose inputs were all written before a dead letter of
  theirs lacks no output. For the times below such a dead letter is an output.
* An input that a retry topic has (a record with its id, acknowledged before the commit) is not lost with the commit of
  its offset: such a commit does not count for `commit-before-output`. Its output is required as any other.
* `commit-before-output`, for each group: the k-th commit of a class's inputs against the k-th appearance of its
  outputs. An output that never appears is late if the group committed its input.

Findings are numbers; `pipeline_words.py` reads the records again and explains them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from ..histories.commits import NEVER
from .attempt_rules import judge_attempts, sent_between_topics
from .join import HASH
from .pipeline_findings import (
    DUPLICATE,
    LATE,
    MISSING,
    SHOWN,
    UNEXPECTED,
    WRONG,
    Findings,
    PipelineFinding,
    Place,
    TaskResult,
)
from .pipeline_mapper import ACTUAL, DEAD, EXPECTED, INPUT, RETRIED
from .pipeline_order import PAIR, dues_frame, pairs_frame, pairs_of
from .pipeline_rows import IdRows, LetterRow, OutputRow, RetryRow, UnitRow, rows_by_id
from .retries import RetryPromise
from .retry_checks import covers, judge_letters, last_retry, letters_of, sent_again
from .shapes import Shape

if TYPE_CHECKING:
    import polars as pl

UNKNOWN_TIME = 0
"""Of an output of which no tap has a row: such an output is never late."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Compare:
    """The reducer that compares all rows of an id."""

    shapes: tuple[Shape, ...]
    groups: int
    """How many groups committed offsets of the source."""
    by_value: bool
    may_overwrite: bool
    """Whether an output may replace an earlier one with the same id: rows of a table."""
    ordered: bool
    retry: RetryPromise | None = None

    def __call__(self, frame: pl.DataFrame) -> Generator[pl.DataFrame | TaskResult]:
        """Yield counts and findings, and the matched pairs if their order is checked."""
        findings = Findings(self.groups)
        pairs: list[pl.DataFrame] = []
        rest = self._simple(self._with_retries(frame), findings, pairs)
        slow: list[tuple[UnitRow, OutputRow]] = []
        dues: list[tuple[RetryRow, RetryRow]] = []
        for rows in rows_by_id(rest, shapes=len(self.shapes), groups=self.groups):
            slow += judge_id(self, rows, findings)
            dues += sent_between_topics(rows.retries) if self.ordered else []
        yield findings.result()
        if not self.ordered:
            return
        yield from (pair for pair in pairs if len(pair))
        if slow:
            yield pairs_frame(slow)
        if dues:
            yield dues_frame(dues)

    def _with_retries(self, frame: pl.DataFrame) -> pl.DataFrame:
        """Return the rows without a commit time of an input where a retry topic had it at that time.

        Inputs that require no output are left out where nothing else has their id.
        """
        import polars as pl

        if self.retry is None:
            return frame
        others = frame.filter(pl.col("side").is_in([RETRIED, DEAD])).select(HASH).unique()
        lone = frame.filter(pl.col("side") == INPUT).join(others, on=HASH, how="anti")
        if len(lone):
            kept = frame.filter(pl.col("side") == INPUT).join(others, on=HASH, how="semi")
            frame = pl.concat([frame.filter(pl.col("side") != INPUT), kept])
        retried = frame.filter(pl.col("side") == RETRIED)
        if not len(retried):
            return frame
        first = retried.group_by(HASH).agg(retried_ns=pl.col("time").min())
        joined = frame.join(first, on=HASH, how="left")
        assert len(joined) == len(frame), f"{len(frame)} rows became {len(joined)}: an id has two first retries"
        names = [f"commit_{at}" for at in range(self.groups)]
        commits = [
            pl.when((pl.col("side") == EXPECTED) & (pl.col("retried_ns") <= pl.col(name)))
            .then(NEVER)
            .otherwise(pl.col(name))
            .alias(name)
            for name in names
        ]
        return joined.with_columns(commits).drop("retried_ns")

    def _simple(self, frame: pl.DataFrame, findings: Findings, pairs: list[pl.DataFrame]) -> pl.DataFrame:
        """Judge the ids with one unit and one output, which is as expected, alone; return the rows of the others."""
        import polars as pl

        counted = frame.group_by(HASH).agg(
            units=(pl.col("side") == EXPECTED).sum(), outputs=(pl.col("side") == ACTUAL).sum(), rows=pl.len()
        )
        single = counted.filter((pl.col("units") == 1) & (pl.col("outputs") == 1) & (pl.col("rows") == 2)).select(HASH)
        units = frame.filter(pl.col("side") == EXPECTED).join(single, on=HASH, how="semi")
        outputs = frame.filter(pl.col("side") == ACTUAL).select(
            HASH,
            "time",
            "partition",
            "offset",
            "chunk",
            "row",
            "part",
            *(f"text_{at}" for at in range(len(self.shapes))),
        )
        both = units.join(outputs, on=HASH, suffix="_out")
        assert len(both) == len(single), f"{len(single)} ids have one unit and one output, {len(both)} were paired"
        equal = pl.lit(value=False)
        for at, shape in enumerate(self.shapes):
            same = pl.lit(value=True) if shape.kind == "any" else pl.col("text_0") == pl.col(f"text_{at}_out")
            equal = equal | ((pl.col("shape") == at) & same)
        good = both.filter(equal)
        findings.matched += len(good)
        for at in range(self.groups):
            late = good.filter(pl.col(f"commit_{at}") < pl.col("time_out"))
            findings.late[at] += len(late)
            first = late.sort("partition", "offset").head(SHOWN)
            for row in first.select(*PAIR, f"commit_{at}", "time_out").iter_rows():
                findings.show(
                    PipelineFinding(
                        name=LATE,
                        input=Place(*row[:5]),
                        output=Place(*row[5:10]),
                        group=at,
                        commit_ns=row[10],
                        output_ns=row[11],
                    )
                )
        pairs.append(pairs_of(good))
        return frame.join(good.select(HASH), on=HASH, how="anti")


def judge_id(compare: Compare, rows: IdRows, findings: Findings) -> list[tuple[UnitRow, OutputRow]]:
    """Judge all rows of one id; return the pairs whose order can be checked."""
    classes = _classes(compare.shapes, rows.units)
    matched, unmatched = _matched(compare, classes, rows.outputs)
    findings.matched += sum(map(len, matched))
    letters = [letters_of(members, rows) for members in classes]
    missing: list[list[UnitRow]] = []
    for at, members in enumerate(classes):
        lacking = max(0, _needed(compare, members) - len(matched[at]))
        excused = covers(letters[at], members) or (compare.may_overwrite and _overwritten(at, classes, matched))
        missing.append([] if excused or not lacking else list(members[-lacking:]))
        more_often = matched[at][len(members) :]
        again = sent_again(rows.retries) if more_often else (None, None)
        for output in more_often:
            findings.add(
                PipelineFinding(
                    name=DUPLICATE, input=members[0].place, output=output.place, first=again[0], retry=again[1]
                )
            )
    wrong = list(reversed(unmatched))
    retry = last_retry(rows.retries)
    for absent in missing:
        while absent and wrong:
            findings.add(PipelineFinding(name=WRONG, input=absent.pop().place, output=wrong.pop().place))
        for unit in absent:
            findings.add(PipelineFinding(name=MISSING, input=unit.place, reads=unit.reads, retry=retry))
    for output in reversed(wrong):
        first = classes[0][0].place if classes else None
        findings.add(PipelineFinding(name=WRONG if classes else UNEXPECTED, input=first, output=output.place))
    for at, members in enumerate(classes):
        _late(compare, members, [*matched[at], *letters[at]], len(missing[at]), findings)
    judge_letters(rows, classes, matched, letters, findings)
    if compare.retry is not None:
        judge_attempts(compare.retry, rows, findings)
    return [(members[0], output) for at, members in enumerate(classes) if len(members) == 1 for output in matched[at]]


def _needed(compare: Compare, members: Sequence[UnitRow]) -> int:
    return len(members) if compare.by_value else max(_by_input(members).values())


def _classes(shapes: Sequence[Shape], units: Sequence[UnitRow]) -> list[list[UnitRow]]:
    """Group the units by expected output, those with most fields first."""
    classes: dict[tuple[int, int], list[UnitRow]] = {}
    for unit in units:
        classes.setdefault((unit.shape, unit.text), []).append(unit)
    return sorted(classes.values(), key=lambda units: (-len(shapes[units[0].shape].fields), *units[0].place[3:]))


def _by_input(units: Iterable[UnitRow]) -> Counter[tuple[int, int]]:
    return Counter((unit.place.chunk, unit.place.row) for unit in units)


def _matched(
    compare: Compare, classes: list[list[UnitRow]], outputs: Sequence[OutputRow]
) -> tuple[list[list[OutputRow]], list[OutputRow]]:
    """Return the outputs of each class, and those that no class has."""
    choices = [[at for at, members in enumerate(classes) if _equal(compare, members[0], output)] for output in outputs]
    matched: list[list[OutputRow]] = [[] for _ in classes]
    needed = [_needed(compare, members) for members in classes]
    unmatched: list[OutputRow] = []
    for number in sorted(range(len(outputs)), key=lambda number: len(choices[number])):
        if not choices[number]:
            unmatched.append(outputs[number])
            continue
        best = min(
            choices[number], key=lambda at: (len(matched[at]) >= needed[at], len(matched[at]) >= len(classes[at]), at)
        )
        matched[best].append(outputs[number])
    return matched, unmatched


def _equal(compare: Compare, unit: UnitRow, output: OutputRow) -> bool:
    return compare.shapes[unit.shape].kind == "any" or unit.text == output.texts[unit.shape]


def _overwritten(at: int, classes: list[list[UnitRow]], matched: list[list[OutputRow]]) -> bool:
    """True when a matched class of the same id has an input after the class's last one."""
    last = classes[at][-1].place
    own = set(_by_input(classes[at]))
    return any(
        unit.place.partition != last.partition or unit.place.offset > last.offset
        for other, members in enumerate(classes)
        if other != at and matched[other]
        for unit in members
        if (unit.place.chunk, unit.place.row) not in own
    )


def _late(
    compare: Compare,
    units: Sequence[UnitRow],
    outputs: Sequence[OutputRow | LetterRow],
    missing: int,
    findings: Findings,
) -> None:
    """Count the units of a class that a group committed before their output, or their dead letter, appeared."""
    if not compare.groups:
        return
    found = sorted(output.time for output in outputs)
    spare = max(0, len(units) - len(found) - missing)
    first = found[0] if found else UNKNOWN_TIME
    times = ([first] * spare + found + [NEVER] * missing)[: len(units)]
    for group in range(compare.groups):
        by_time = sorted(units, key=lambda unit: unit.commits[group])
        for unit, time in zip(by_time, times, strict=True):
            if unit.commits[group] < time:
                findings.late[group] += 1
                output = next((output.place for output in outputs if output.time == time), None)
                commit_ns = unit.commits[group]
                findings.show(
                    PipelineFinding(
                        name=LATE, input=unit.place, output=output, group=group, commit_ns=commit_ns, output_ns=time
                    )
                )
