"""How far the retries of an input got, in the user's words: part of `pipeline_words.py`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ..checks.record import Record, text_of
from ..checks.rows import OperationRow
from ..histories.commits import CommitTimes
from ..run_folder import RunTimes
from ..wording import counted
from .pipeline_findings import PipelineFinding
from .retries import REASON_HEADERS, RetryPromise, reason_of

NS_PER_MS = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RetryWords:
    """Describes records of retry topics, and their absence."""

    promise: RetryPromise = field(default_factory=RetryPromise)
    sink: str = ""
    wall_ns: int = 0
    """What a monotonic time and this are together is the time since 1970."""
    started_ns: int = 0
    """Monotonic; when the run began."""
    asked_ns: int = 0
    """Monotonic; when the final read began. 0: not known."""
    commits: Mapping[str, Mapping[str, Mapping[int, CommitTimes]]] = field(
        default_factory=dict[str, Mapping[str, Mapping[int, CommitTimes]]]
    )
    """By retry topic, group and partition: the commits of offsets."""

    def without_fate(self, name: str, retry: Record | None) -> tuple[str, str]:
        """Return that an input has no output (and no dead letter), and how far its retries got."""
        dead = self.promise.dead_letters
        lacking = f"{self.sink} has no output for {name}"
        if dead is not None:
            lacking += f", and {dead} no dead letter"
        if not self.promise.topics:
            return lacking, ""
        if retry is None:
            return lacking, f"; {' and '.join(self.promise.topics)} never had it"
        return lacking, f"; its last retry is {retry.place}{self.state(retry)}"

    def state(self, retry: Record) -> str:
        """Return what the headers of a record in a retry topic say."""
        attempts = self.promise.attempts_of(retry.headers)
        due_ms = self.promise.due_ms_of(retry.headers)
        text = "" if attempts is None else f", with {counted(attempts, 'attempt')}"
        return text + ("" if due_ms is None else f", due at {self.at(due_ms)}{self._too_late(due_ms)}")

    def again(self, first: Record, retry: Record) -> str:
        """Return that a retry topic has a retry again."""
        return f"{retry.place} is the same retry as {first.place}{self.state(retry)}: it was sent again"

    def row(self, retry: Record) -> OperationRow:
        """Return what a record of a retry topic adds to its row in a finding: `attempts`, and `due_ns`, monotonic.

        `due_after_read` is there, and true, where it was due after the final read.
        """
        due_ms = self.promise.due_ms_of(retry.headers)
        due_ns = None if due_ms is None else due_ms * NS_PER_MS - self.wall_ns
        row: OperationRow = {"attempts": self.promise.attempts_of(retry.headers), "due_ns": due_ns}
        if due_ms is not None and self._too_late(due_ms):
            row["due_after_read"] = True
        return row

    def taken(self, retry: Record) -> tuple[str, list[OperationRow]]:
        """Return which groups committed a record of a retry topic, so that it is not read again."""
        rows: list[OperationRow] = []
        for group, partitions in self.commits.get(retry.topic, {}).items():
            times = partitions.get(retry.partition, CommitTimes())
            at = next((n for n, offset in enumerate(times.offsets) if offset > retry.offset), None)
            if at is not None:
                rows.append(
                    {
                        "operation": "commit",
                        "topic": retry.topic,
                        "partition": retry.partition,
                        "offset": times.offsets[at],
                        "group": group,
                        "completed_ns": times.times_ns[at],
                    }
                )
        if not rows:
            return "", []
        groups = " and ".join(f"{row['group']} has committed offset {row['offset']}" for row in rows)
        return f", and group {groups} of {retry.topic}: it will not be read again", rows

    def lacking(self, name: str, letter: Record, given: Record | None) -> str:
        """Return what a dead letter lacks."""
        lacks: list[str] = []
        if not reason_of(letter.headers):
            lacks.append(f"no reason (a header {' or '.join(REASON_HEADERS)})")
        if given is not None and letter.key != given.key:
            lacks.append(f"the key {text_of(letter.key)}, and its input has {text_of(given.key)}")
        if given is not None and letter.value != given.value:
            lacks.append(f"another value than its input {given.place}")
        return f"the dead letter {letter.place} of {name} has {' and '.join(lacks)}"

    def early(self, name: str, retry: Record, attempt: Record, early_ms: int) -> str:
        """Return how much too early an attempt was."""
        due_ms = self.promise.due_ms_of(retry.headers)
        due = "" if due_ms is None else f" at {self.at(due_ms)}"
        return (
            f"the next attempt for {name} was due{due} ({retry.place}), and {attempt.place} was written "
            f"{early_ms / 1000:.3f} s before"
        )

    def too_many(self, name: str, record: Record, finding: PipelineFinding) -> str:
        """Return by what an input was tried too often."""
        allowed = f"attempts={self.promise.attempts} allows"
        if finding.by == "records":
            return (
                f"{record.topic} has {name} {finding.records} times, more often than {allowed}; its records have no "
                f"header {self.promise.attempts_header!r}"
            )
        attempts = self.promise.attempts_of(record.headers)
        if finding.by == "header":
            return f"{record.place} says {attempts} attempts for {name}, more than {allowed}"
        return (
            f"the attempts of {name} are counted from the beginning again: {record.place} says {attempts}, written "
            "after the first retry was due, by another producer, and no client was delivered the input again; the job "
            "may count in memory"
        )

    def due(self, retry: Record) -> str:
        """Return when a record of a retry topic was due."""
        due_ms = self.promise.due_ms_of(retry.headers)
        return "a time that is not known" if due_ms is None else self.at(due_ms)

    def at(self, wall_ms: int) -> str:
        """Return a time since 1970 as one since the start of the run: "0.14 s"."""
        return RunTimes(self.started_ns).text(wall_ms * NS_PER_MS - self.wall_ns)

    def _too_late(self, due_ms: int) -> str:
        if not self.asked_ns or due_ms * NS_PER_MS - self.wall_ns < self.asked_ns:
            return ""
        return f", after the final read at {RunTimes(self.started_ns).text(self.asked_ns)}: wait longer in the test"


NO_RETRIES = RetryWords()
