"""Judges what the application promised of topics: counts, anomalies in the user's words, and doubts (L6).

`judge_topics` writes the expectation into files, plans the chunks, runs the join on Spark, and merges what the reducers
found.

What is not said:

* Records that were removed from a topic (retention, compaction, DeleteRecords) and records whose id could not be read
  may be the ones that are missing. Their number is known: the offsets without a record, and the problems. While not
  more records are missing than that, none is called missing, and the verdict says why it is unknown.
* Records that were removed may also have been duplicates, or out of order: a doubt for guarantees that forbid these.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, cast

from .. import run_folder
from ..checks.promise_findings import PromiseFindings, RefusedIds
from ..checks.rows import AnomalyRow
from ..engines import SPARK, Engine
from ..histories.contents import FinalRead, read_contents
from ..wording import counted
from .expectations import write_expectations
from .join import run_join
from .refused_ids import write_refused_ids
from .topic_checks import RefusedRows, TopicFinding, TopicResult
from .topic_promise import JoinPlan, TopicPromise
from .topic_rows import TopicProblem
from .topic_words import TopicWords

if TYPE_CHECKING:
    from ..checks.spark_client import SparkHandle

PARTITIONS_SHOWN = 3
PROBLEMS_SHOWN = 3
REFUSED_SHOWN = 5


def judge_topics(
    folder: Path,
    topics: Sequence[str],
    promise: TopicPromise,
    *,
    spark: SparkHandle | None = None,
    engine: Engine = SPARK,
    limit: int = 20,
) -> PromiseFindings:
    """Judge the records that the final read kept in `folder`.

    Raises ContentsError without a complete final read, ExpectationError for an expected element without an id, and
    NotPicklableError for a function that Spark's workers cannot receive.
    """
    topics = list(dict.fromkeys(topics))
    contents = read_contents(folder / run_folder.DRAIN)
    work = folder / run_folder.PROMISES
    work.mkdir(parents=True, exist_ok=True)
    expectations = None
    if promise.expected is not None:
        assert promise.record_id is not None
        expectations = write_expectations(promise.expected, promise.record_id, work)
    refused = None
    if promise.record_id is not None and expectations is None:
        refused = write_refused_ids(folder, topics, promise.record_id, work)
    plan = JoinPlan(folder, topics, promise, contents, expectations, refused)
    results = run_join(plan.chunks(), plan.mapper(), *plan.reducers(limit), folder=work, spark=spark, engine=engine)
    words = TopicWords(
        topics=topics,
        contents=plan.contents_chunks,
        expected=plan.expected_chunks,
        id_reader=promise.record_id,
        key_reader=promise.order_key,
    )
    return MergedResults(plan, cast("list[TopicResult]", results), words, limit).findings()


class MergedResults:
    """Merges the results of the join into findings."""

    def __init__(self, plan: JoinPlan, results: Sequence[TopicResult], words: TopicWords, limit: int) -> None:
        self._plan = plan
        self._words = words
        self._limit = limit
        self._counts: Counter[str] = Counter()
        self._anomalies: Counter[str] = Counter()
        self._first: list[TopicFinding] = []
        self._problems: list[TopicProblem] = []
        self._refused: list[RefusedRows] = []
        for result in results:
            self._counts.update(result.get("counts", {}))
            self._anomalies.update(result.get("anomalies", {}))
            self._first += (TopicFinding(**found) for found in result.get("first", ()))
            self._problems += result.get("problems", [])
            self._refused += (RefusedRows(**found) for found in result.get("refused", ()))
        partitions = plan.contents.partitions_of(plan.topics)
        self._removed = sum(partition.removed for partition in partitions)
        self._removed_of = [partition for partition in partitions if partition.removed]

    def findings(self) -> PromiseFindings:
        """Return the findings."""
        reasons = [*self._problem_reasons(), *self._empty_reasons()]
        doubts = self._removal_doubts()
        notes = self._notes()
        self._withhold_missing(doubts, notes)
        promise = self._plan.promise
        order_known = promise.judges_order and not self._counts["records_in_unknown_order"]
        return PromiseFindings(
            operation_counts=self._operation_counts(),
            anomaly_counts=dict(self._anomalies),
            anomalies=self._shown(),
            reasons=reasons,
            doubts=doubts,
            notes=notes,
            replaces=frozenset({"duplicate"}) if promise.record_id is not None else frozenset(),
            demands=self._demands(),
            accounts_for_sends=self._plan.expectations is not None,
            refused_ids=self._refused_ids(),
            knows_order=order_known and not self._counts["problems_of_order_key"],
        )

    def _refused_ids(self) -> dict[str, RefusedIds]:
        """Return which refused ids the topics have, of topics of which every record and every id is known."""
        chunk = self._plan.refused
        if chunk is None or self._counts["problems_of_record_id"]:
            return {}
        removed = {partition.topic for partition in self._removed_of}
        texts = chunk.ids()
        found: dict[str, RefusedIds] = {}
        for number, topic in enumerate(self._plan.topics):
            rows = [row for row in self._refused if row.topic == number]
            if rows and topic not in removed:
                lacking = sorted(at for row in rows for at in row.lacking)
                found[topic] = RefusedIds(
                    ids=sum(row.ids for row in rows),
                    lacking=len(lacking),
                    shown=[texts[at] for at in lacking[:REFUSED_SHOWN]],
                )
        return found

    def _operation_counts(self) -> dict[str, int]:
        shown = ("expected", "matched", "record_ids", "records_with_order_key")
        return {name: self._counts[name] for name in shown if name in self._counts}

    def _demands(self) -> dict[str, str]:
        demands: dict[str, str] = {}
        if self._plan.expectations is not None:
            demands["no-loss"] = "expected= says which records must be there"
        if self._plan.promise.order_key is not None:
            demands["ordered"] = "order_key= says which records have an order"
        return demands

    def _shown(self) -> list[AnomalyRow]:
        """Return the first anomalies of each name in the whole run."""
        shown: list[AnomalyRow] = []
        for name in sorted(self._anomalies):
            ranked = sorted((row for row in self._first if row.name == name), key=lambda row: [*row.rank])
            assert len(ranked) <= self._anomalies[name], f"{len(ranked)} {name} shown, {self._anomalies[name]} counted"
            shown += [self._words.anomaly(row) for row in ranked[: self._limit]]
        return shown

    def _problem_reasons(self) -> list[str]:
        reasons: list[str] = []
        self._problems.sort(key=lambda row: (row["chunk"], row["row"]))
        for name in ("record_id", "order_key"):
            count = self._counts[f"problems_of_{name}"]
            if count:
                texts = [row["text"] for row in self._problems if row["name"] == name]
                where = ", ".join(self._plan.topics)
                reasons.append(
                    f"{name}= could not be read from {counted(count, 'record')} of {where}: "
                    + "; ".join(dict.fromkeys(texts[:PROBLEMS_SHOWN]))
                )
        return reasons

    def _empty_reasons(self) -> list[str]:
        reasons: list[str] = []
        expectations = self._plan.expectations
        if expectations is not None and not expectations.count:
            reasons.append("expected= is empty: the application believes that it sent nothing")
        read = Counter[str]()
        for chunk in self._plan.contents_chunks:
            read[chunk.topic] += chunk.rows
        reasons += [
            f"topic {topic} is empty: it has no record that could be judged"
            for topic in self._plan.topics
            if not read[topic]
        ]
        skipped = self._counts["records_without_record_id"]
        if skipped and skipped == self._counts["records"]:
            reasons.append(f"record_id= returned None for all {skipped} records: no record was judged by its id")
        return reasons

    def _removal_doubts(self) -> dict[str, str]:
        if not self._removed:
            return {}
        where = ", ".join(map(_read, self._removed_of[:PARTITIONS_SHOWN]))
        text = (
            f"{counted(self._removed, 'record')} had been removed by retention, compaction or DeleteRecords before "
            f"the final read, from {where}; what they were cannot be judged: verify a topic that keeps its records"
        )
        judged = {"duplicate", "unexpected"} if self._plan.promise.record_id is not None else set[str]()
        if self._plan.promise.judges_order:
            judged |= {"out-of-order", "split-key"}
        return dict.fromkeys(sorted(judged), text)

    def _withhold_missing(self, doubts: dict[str, str], notes: list[str]) -> None:
        """Call records missing only when more are missing than can have been removed, or have an unreadable id."""
        missing = self._counts["missing_records"]
        hidden = self._removed + self._counts["problems_of_record_id"]
        if not missing or not hidden:
            return
        causes = [f"{counted(self._removed, 'record')} had been removed from the topic"] if self._removed else []
        if self._counts["problems_of_record_id"]:
            causes.append(f"the id of {counted(self._counts['problems_of_record_id'], 'record')} could not be read")
        if missing > hidden:
            notes.append(f"up to {hidden} of the {missing} missing records may have been there: {' and '.join(causes)}")
            return
        del self._anomalies["missing"]
        doubts["missing"] = (
            f"{counted(missing, 'expected record')} of {self._counts['expected']} cannot be found, but "
            f"{' and '.join(causes)}: whether they are lost cannot be judged"
        )

    def _notes(self) -> list[str]:
        notes: list[str] = []
        skipped = self._counts["records_without_record_id"]
        if skipped:
            notes.append(f"record_id= returned None for {counted(skipped, 'record')}, which were not judged by an id")
        unknown = self._counts["records_in_unknown_order"]
        if unknown:
            notes.append(
                f"it is not known when {counted(unknown, 'record')} of keys with several records were sent: their "
                "order was judged by the sequences of each producer only; a list as expected= judges it across them"
            )
        return notes


def _read(partition: FinalRead) -> str:
    return (
        f"{partition.topic}-{partition.partition} (log start offset {partition.low}, high watermark "
        f"{partition.high}, {counted(partition.records, 'record')})"
    )
