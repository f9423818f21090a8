"""What the application promised of a pipeline: the arguments of `verify_pipeline`, checked, and their judgement."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ConfigError

from .. import run_folder
from ..checks.guarantees import forbidden, parse
from ..checks.promise_findings import PromiseFindings
from ..checks.traced_changes import created_again
from ..checks.traces import judged_events
from ..engines import SPARK, Engine
from ..histories.commits import NEVER, CommitTimes, commit_times, read_commits
from ..histories.contents import Contents, read_contents
from ..histories.origin import started_ns
from ..topics import Topic
from .output_times import produced_batches, rewritten, since
from .pairing import Pairing
from .pipeline_join import PipelineInputs, check_pipeline
from .pipeline_results import PipelineResults, PipelineRun
from .pipeline_words import PipelineWords
from .record_ids import IdSource, check_source
from .relations import KeyedRelation, Relation, added_relations, identity
from .retries import RetryPromise
from .retry_columns import RetryColumns, deliveries
from .retry_words import RetryWords
from .shapes import Rows
from .sinks import Files, StagedSink, Table, stage, topic_of

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..checks.spark_client import SparkHandle

DEFAULT_GUARANTEE = "at-least-once"
EXPECTED_RELATIONS = "identity, mapped(f), filtered(f), flat_mapped(f), folded(f, initial), windowed(seconds, f)"
SINK_FOLDER = "sink"
OUTPUT_TIMES = "output-times.npy"
TOPIC_TIMES = "topic-times-{}.npy"
DELIVERIES = "deliveries.npy"
NO_RETRIES = RetryPromise()


def guarantee_of(given: str | None, order_key: object) -> str:
    """Return the guarantee of a pipeline. Raises ConfigError where an order key is given and any order is allowed."""
    if order_key is None:
        return given or DEFAULT_GUARANTEE
    if given is not None and "ordered" not in parse(given):
        raise ConfigError(
            f"verify_pipeline(guarantee={given!r}, order_key=…): order_key= says which inputs have an order, and this "
            f"guarantee allows any order; write guarantee={given + ',ordered'!r}, or leave out order_key="
        )
    return given or f"{DEFAULT_GUARANTEE},ordered"


def forbids_duplicates(guarantee: str) -> bool:
    """True where each input must have one fate."""
    return "duplicate-output" in forbidden(parse(guarantee))


def named_relation(name: str) -> Relation:
    """Return the relation that an extension added under a name, or `identity`."""
    if name == "identity":
        return identity
    added = added_relations()
    if name not in added:
        more = f" or the name of an extension's ({', '.join(added)})" if added else ""
        raise ConfigError(f"verify_pipeline(relation={name!r}): expected {EXPECTED_RELATIONS}{more}")
    return added[name]


@dataclass(frozen=True, slots=True, kw_only=True)
class PipelinePromise:
    """What the caller of `verify_pipeline` said."""

    source: str
    sink: Any
    sink_topic: str | None
    record_id: IdSource | None
    relation: Relation | None
    group: str | None
    ordered: bool
    retry: RetryPromise = NO_RETRIES
    order_key: IdSource | None = None
    given_ns: int = field(default_factory=time.monotonic_ns)
    """Monotonic; when the caller gave the sink."""

    @classmethod
    def of(
        cls,
        source: object,
        sink: object,
        *,
        guarantee: str | None,
        record_id: IdSource | None,
        relation: Relation | str | None,
        group: str | None,
        retry: RetryPromise = NO_RETRIES,
        order_key: IdSource | None = None,
    ) -> PipelinePromise:
        """Return the promise. Raises ConfigError for a wrong argument."""
        if not isinstance(source, (str, Topic)):
            raise ConfigError(f"verify_pipeline(source={source!r:.80}): expected a topic")
        if isinstance(relation, str):
            relation = named_relation(relation)
        if relation is not None and not isinstance(relation, Relation):  # pyright: ignore[reportUnnecessaryIsInstance]
            raise ConfigError(f"verify_pipeline(relation={relation!r:.80}): expected {EXPECTED_RELATIONS}")
        sink_topic = topic_of(sink)
        if sink_topic == str(source):
            raise ConfigError(f"verify_pipeline(): source and sink are the same topic {sink_topic!r}")
        if order_key is not None:
            check_source("order_key", order_key)
        ordered = "ordered" in parse(guarantee or DEFAULT_GUARANTEE)
        if ordered and (sink_topic is None or isinstance(relation, KeyedRelation)):
            what = "rows have no order"
            if isinstance(relation, KeyedRelation):
                what = f"{relation.name.lower()} compares final states"
            raise ConfigError(f"verify_pipeline(guarantee={guarantee!r}): {what}; leave out 'ordered'")
        promise = cls(
            source=str(source),
            sink=sink,
            sink_topic=sink_topic,
            record_id=record_id,
            relation=relation,
            group=group,
            ordered=ordered,
            retry=retry,
            order_key=order_key,
        )
        promise.pairing(loose=isinstance(sink, (Table, Files)))
        promise._check_retries()
        return promise

    def _check_retries(self) -> None:
        """Raise ConfigError for retry topics and dead letters whose records cannot be compared with the inputs."""
        if not self.retry:
            return
        self.retry.check_topics(self.source, self.sink_topic)
        if self.record_id is None or isinstance(self.relation, KeyedRelation):
            name = "retry_topics" if self.retry.topics else "dead_letters"
            raise ConfigError(
                f"verify_pipeline({name}=…) needs record_id=, by which a record of a retry topic or a dead letter and "
                "an input are compared, and a relation of single records"
            )

    @property
    def topics(self) -> list[str]:
        """The topics that the verdict is about."""
        return [self.source, *([self.sink_topic] if self.sink_topic else []), *self.retry.all_topics]

    def pairing(self, *, loose: bool) -> Pairing:
        """Return how outputs are paired. Raises ConfigError where they could not be."""
        field = self.record_id if isinstance(self.record_id, str) else None
        pairing = Pairing(relation=self.relation, record_id=self.record_id, rows=Rows(loose=loose, id_field=field))
        pairing.check()
        return pairing

    def judge(
        self, folder: Path, *, spark: SparkHandle | None = None, engine: Engine = SPARK, limit: int = 20
    ) -> PromiseFindings:
        """Judge the pipeline by what the final read kept in `folder`, the rows of the sink, and the brokers' taps.

        Raises ContentsError without a complete final read, ConfigError for a sink that cannot be read, and
        NotPicklableError for a function that Spark's workers cannot receive.
        """
        return _Judge(self, folder).run(spark, engine, limit)


class _Judge:
    """Judges one pipeline."""

    def __init__(self, promise: PipelinePromise, folder: Path) -> None:
        self._promise = promise
        self._folder = folder
        self._work = folder / run_folder.PROMISES
        self._work.mkdir(parents=True, exist_ok=True)
        self._contents = read_contents(folder / run_folder.DRAIN)
        self.rewritten: list[str] = []
        """Partitions of which offsets were written twice."""
        self._created_ns: dict[str, int] = {}
        """When topics were deleted and created again: what happened earlier is not about their records."""

    def run(self, spark: SparkHandle | None, engine: Engine, limit: int) -> PromiseFindings:
        """Run the join and explain what it found."""
        promise, contents = self._promise, self._contents
        until_ns = self._sink_read_ns()
        sink = self._sink(contents)
        pairing = promise.pairing(loose=sink.loose)
        batches = self._batches()
        commits = self._commits(until_ns)
        wall_ns = time.time_ns() - time.monotonic_ns()
        inputs = PipelineInputs(
            pairing=pairing,
            source=contents.chunks_of([promise.source]),
            sink=sink.chunks,
            commits=commits,
            times=self._times(promise.sink_topic, OUTPUT_TIMES, batches),
            ordered=promise.ordered,
            order_key=promise.order_key,
        )
        inputs = self._with_retries(inputs, batches, wall_ns)
        found = check_pipeline(inputs, folder=self._work, spark=spark, engine=engine)
        partitions = contents.partitions_of([promise.source])
        words = PipelineWords(
            pairing=pairing,
            source=promise.source,
            sink=sink.name,
            commits=commits,
            partitions=partitions,
            chunks=[numbered.chunk for numbered in inputs.chunks()],
            order_key=promise.order_key,
            retries=RetryWords(
                promise=promise.retry,
                sink=sink.name,
                wall_ns=wall_ns,
                started_ns=started_ns(self._folder),
                asked_ns=min((part.asked_ns for part in partitions if part.asked_ns), default=0),
                commits={topic: self._commits(until_ns, topic) for topic in promise.retry.topics},
            ),
        )
        run = PipelineRun(
            pairing=pairing,
            source=promise.source,
            sink=sink.name,
            sink_note=sink.note,
            commits=commits,
            source_partitions=partitions,
            ordered=promise.ordered,
            group=promise.group,
            rewritten=self.rewritten,
            retry=promise.retry,
            retry_partitions=contents.partitions_of(promise.retry.all_topics),
            sink_partitions=contents.partitions_of([promise.sink_topic] if promise.sink_topic else []),
        )
        return PipelineResults(run, found, words, limit).findings()

    def _with_retries(
        self, inputs: PipelineInputs, batches: Mapping[str, npt.NDArray[np.int64]], wall_ns: int
    ) -> PipelineInputs:
        """Return the inputs with what the join reads of retry topics and dead letters."""
        promise, contents = self._promise.retry, self._contents
        if not promise:
            return inputs
        source = self._promise.source
        return replace(
            inputs,
            retries=contents.chunks_of(promise.topics),
            letters=contents.chunks_of([promise.dead_letters] if promise.dead_letters else []),
            topic_times={
                topic: self._times(topic, TOPIC_TIMES.format(number), batches)
                for number, topic in enumerate([source, *promise.all_topics])
            },
            retry=RetryColumns(promise=promise, wall_ns=wall_ns),
            reads=self._deliveries(source),
        )

    def _deliveries(self, source: str) -> str:
        """Write what clients were delivered of the source before the final read; return the file, or "" for nothing."""
        import numpy as np

        asked = [part.asked_ns for part in self._contents.partitions_of([source])]
        taps = run_folder.tap_files(self._folder / run_folder.CLUSTER)
        found = deliveries(taps, source, min(asked, default=0))
        if not len(found) or source in self._created_ns:
            return ""
        path = self._work / DELIVERIES
        np.save(path, found)
        return str(path)

    def _sink_read_ns(self) -> int:
        """Return the time from which on the job may have written outputs that were not read.

        A commit after it may cover such an output, so it is no evidence that an output is missing.
        """
        topic = self._promise.sink_topic
        if topic is not None:
            asked = [part.asked_ns for part in self._contents.partitions_of([topic])]
            return min((ns for ns in asked if ns), default=NEVER)
        if isinstance(self._promise.sink, (Table, Files)):
            return time.monotonic_ns()
        return self._promise.given_ns

    def _sink(self, contents: Contents) -> StagedSink:
        topic = self._promise.sink_topic
        if topic is not None:
            return StagedSink(name=topic, chunks=[*contents.chunks_of([topic])], loose=False)
        return stage(self._promise.sink, self._work / SINK_FOLDER)

    def _commits(self, until_ns: int, topic: str | None = None) -> dict[str, dict[int, CommitTimes]]:
        """Return the commits on the source until a time, since it was created again where that has happened.

        With `topic` those of all groups on a retry topic.
        """
        topic, group = topic or self._promise.source, None if topic else self._promise.group
        created_ns = self._created_ns.get(topic, 0)
        found = read_commits(self._folder / run_folder.CLUSTER, topic)
        chosen = [
            commit
            for commit in found
            if group in (None, commit.group) and created_ns <= commit.completed_ns <= until_ns
        ]
        return {group: dict(partitions) for group, partitions in commit_times(chosen).items()}

    def _batches(self) -> dict[str, npt.NDArray[np.int64]]:
        """Return the batches of each topic; remember where times of offsets are not those of records."""
        taps = run_folder.tap_files(self._folder / run_folder.CLUSTER)
        found = {topic: produced_batches(taps, topic) for topic in self._promise.topics}
        twice = {topic: rewritten(batches) for topic, batches in found.items()}
        if any(twice.values()):
            self._created_ns = created_again(judged_events(self._folder), found)
        for topic, created_ns in self._created_ns.items():
            found[topic] = since(found[topic], created_ns)
            twice[topic] = rewritten(found[topic])
        for topic, partitions in twice.items():
            self.rewritten += [f"{topic}-{partition}" for partition in partitions]
        return found

    def _times(self, topic: str | None, name: str, batches: Mapping[str, npt.NDArray[np.int64]]) -> str:
        """Write when the records of a topic were acknowledged; return the file, or "" where no batch is known."""
        import numpy as np

        if topic is None or not len(batches[topic]):
            return ""
        path = self._work / name
        np.save(path, batches[topic])
        return str(path)
