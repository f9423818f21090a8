"""What the application promised of topics: the checked arguments of `verify`, and the plan of their judgement.

`TopicPromise.of` checks the arguments. `JoinPlan` has the chunks of their judgement (`topic_results.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harrow.cluster.errors import ConfigError

from .. import run_folder
from ..checks.guarantees import parse
from ..histories.contents import Contents, ContentsChunk
from .expectations import Expectations, ExpectedChunk, check_expected
from .join import NumberedChunk, Reducer
from .record_ids import IdReader, IdSource, check_source
from .refused_ids import RefusedChunk
from .topic_checks import IdReducer, OrderReducer
from .topic_rows import TopicChunk, TopicMapper, sends_chunks


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPromise:
    """What the caller of `verify` said about the records of the topics."""

    record_id: IdReader | None = None
    expected: Iterable[object] | None = None
    order_key: IdReader | None = None
    judges_order: bool = False

    @classmethod
    def of(
        cls,
        *,
        guarantee: str | None,
        record_id: IdSource | None,
        expected: Iterable[object] | None,
        order_key: IdSource | None,
    ) -> TopicPromise | None:
        """Return the promise; None where there is none to judge. Raises ConfigError for a wrong argument."""
        for name, source in (("record_id", record_id), ("order_key", order_key)):
            if source is not None:
                check_source(name, source)
        if expected is not None:
            check_expected(expected)
            if record_id is None:
                raise ConfigError(
                    'expected= needs record_id=, by which its elements are found in the topics: record_id="order" '
                    "for a field of the JSON value, or record_id=lambda record: record.key for Kafka's record key"
                )
        if order_key is not None and guarantee is not None and "ordered" not in parse(guarantee):
            raise ConfigError(
                f"verify(guarantee={guarantee!r}, order_key=…): order_key= says which records have an order, and this "
                f"guarantee allows any order; write guarantee={guarantee + ',ordered'!r}, or leave out order_key="
            )
        ordered = order_key is not None or (guarantee is not None and "ordered" in parse(guarantee))
        if record_id is None and not ordered:
            return None
        return cls(
            record_id=None if record_id is None else IdReader("record_id", record_id),
            expected=expected,
            order_key=None if order_key is None else IdReader("order_key", order_key),
            judges_order=ordered,
        )


@dataclass(slots=True)
class JoinPlan:
    """The chunks and stages of the join of one promise."""

    folder: Path
    topics: list[str]
    promise: TopicPromise
    contents: Contents
    expectations: Expectations | None
    refused: RefusedChunk | None = None
    """The ids that brokers refused, where all are known and no expectation accounts for them."""

    @property
    def contents_chunks(self) -> list[ContentsChunk]:
        """The chunks of the topics' records."""
        return self.contents.chunks_of(self.topics)

    @property
    def expected_chunks(self) -> list[ExpectedChunk]:
        """The chunks of the expectation."""
        return [] if self.expectations is None else self.expectations.chunks

    @property
    def by_position(self) -> bool:
        """Whether the expectation says in which order the records were sent."""
        return self.expectations is not None and self.expectations.ordered

    def chunks(self) -> list[NumberedChunk[TopicChunk]]:
        """Return the chunks, those of records and of expected records numbered from 0 each."""
        judged: Sequence[Sequence[TopicChunk]] = [self.contents_chunks, self.expected_chunks]
        numbered: list[NumberedChunk[TopicChunk]] = [
            NumberedChunk(chunk=chunk, number=number) for chunks in judged for number, chunk in enumerate(chunks)
        ]
        if self.refused is not None:
            numbered.append(NumberedChunk(chunk=self.refused))
        if self.promise.judges_order and not self.by_position:
            files = run_folder.operation_files(self.folder / run_folder.HISTORY)
            numbered += [NumberedChunk(chunk=chunk) for chunk in sends_chunks(files)]
        return numbered

    def mapper(self) -> TopicMapper:
        """Return the mapper."""
        return TopicMapper(
            topics=tuple(self.topics),
            record_id=self.promise.record_id,
            order_key=self.promise.order_key,
            judges_order=self.promise.judges_order,
            by_position=self.by_position,
        )

    def reducers(self, limit: int) -> list[Reducer]:
        """Return the reducers."""
        ids = IdReducer(expects=self.expectations is not None, judges_order=self.promise.judges_order, limit=limit)
        return [ids, OrderReducer(limit=limit)] if self.promise.judges_order else [ids]
