"""What the reducers of a pipeline's checks yield: counts, and the first findings of each name.

A finding names records by their places; `pipeline_words.py` reads the records again and explains it. It leaves a task
as plain JSON.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple, TypedDict

MISSING, DUPLICATE, UNEXPECTED = "missing-output", "duplicate-output", "unexpected-output"
WRONG, LATE, OUT_OF_ORDER = "wrong-output", "commit-before-output", "out-of-order-output"
BOTH, WITHOUT_REASON = "output-and-dead-letter", "dead-letter-without-reason"
TOO_MANY, EARLY = "too-many-attempts", "attempt-before-due"
DUE_ORDER = "due-out-of-order"
SHOWN = 20
"""How many findings of each name a task reports."""


class Place(NamedTuple):
    """Where a row's record is."""

    chunk: int
    row: int
    part: int
    partition: int
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelineFinding:
    """Something that is wrong with inputs and outputs, and the places of the records that show it."""

    name: str
    input: Place | None = None
    output: Place | None = None
    after_input: Place | None = None
    """Of what is out of order: the later input, and the earlier output."""
    after_output: Place | None = None
    letter: Place | None = None
    """A dead letter."""
    retry: Place | None = None
    attempt: Place | None = None
    """What was written too early, or in the wrong order."""
    first: Place | None = None
    """The first of two equal records of a retry topic."""
    expected: str | None = None
    """The final output that was expected, as a text."""
    records: int = 0
    """Of a final output: its inputs; of attempts: the records of the retry topic."""
    reads: int = 0
    """How often clients were delivered the input."""
    by: str = ""
    """By what there are too many attempts: `header`, `records` or `begun again`."""
    early_ms: int = 0
    group: int = -1
    """The number of the group that committed before the output was there, with both times."""
    commit_ns: int = 0
    output_ns: int = 0

    @classmethod
    def from_json(cls, fields: Mapping[str, Any]) -> PipelineFinding:
        """Return the finding that a task yielded."""
        given: dict[str, Any] = {**fields}
        given |= {name: Place(*at) for name in PLACES if (at := given[name])}
        return cls(**given)


PLACES = ("input", "output", "after_input", "after_output", "letter", "retry", "attempt", "first")
"""The fields of a finding that are places."""


class Raised(NamedTuple):
    """Exceptions of a function of the user on one side of the join."""

    what: str
    """The argument and the type: "record_id raised KeyError"."""
    side: int
    records: int
    first: str
    """The first exception and its record."""


class Undecided(NamedTuple):
    """Keys whose final output cannot be judged: `kind` is `order` or `same id`."""

    kind: str
    keys: int
    first: str
    """The place of the first record."""


class OtherIds(NamedTuple):
    """Inputs whose outputs have another record id."""

    inputs: int
    first: str
    """The first input."""


class TaskResult(TypedDict, total=False):
    """What a stage yields besides frames, as plain JSON; each has some of the fields."""

    counts: Mapping[str, int]
    late: Sequence[int]
    findings: Sequence[Mapping[str, Any]]
    new_shapes: Sequence[Sequence[Any]]
    """Shapes of expected outputs that the join must be run with."""
    other_ids: OtherIds
    raised: Raised
    undecided: Undecided


class Findings:
    """Counts of a bucket, and the first findings of each name."""

    def __init__(self, groups: int) -> None:
        self.counts: Counter[str] = Counter()
        self.late = [0] * groups
        self.matched = 0
        self._shown: dict[tuple[str, int], list[PipelineFinding]] = {}

    def add(self, finding: PipelineFinding) -> None:
        """Count a finding, and keep it if it is among the first."""
        self.counts[finding.name] += 1
        self.show(finding)

    def show(self, finding: PipelineFinding) -> None:
        """Keep a finding if it is among the first of its name and group."""
        kept = self._shown.setdefault((finding.name, finding.group), [])
        if len(kept) < SHOWN:
            kept.append(finding)

    def result(self) -> TaskResult:
        """Return counts and findings as plain JSON."""
        findings = [asdict(finding) for kept in self._shown.values() for finding in kept]
        return {"counts": {**self.counts, "matched": self.matched}, "late": self.late, "findings": findings}
