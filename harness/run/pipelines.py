"""What `verify_pipeline` promises: a pipeline from a source topic to a sink (L5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..promises.record_ids import IdSource
from ..promises.relations import Relation
from ..topics import Topic

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..promises.pipeline_promise import PipelinePromise


def pipeline_promise(
    source: Topic | str,
    sink: Any,
    *,
    guarantee: str,
    record_id: IdSource | None,
    relation: Relation | str | None,
    group: str | None,
    retry_topics: Topic | str | Iterable[Topic | str],
    dead_letters: Topic | str | None,
    attempts: int | None,
    order_key: IdSource | None,
    attempts_header: str,
    due_header: str,
) -> PipelinePromise:
    """Return what `Harrow.verify_pipeline` promises; its arguments are described there."""
    from ..promises.pipeline_promise import PipelinePromise, forbids_duplicates
    from ..promises.retries import RetryPromise

    retry = RetryPromise.of(
        retry_topics=retry_topics,
        dead_letters=dead_letters,
        attempts=attempts,
        attempts_header=attempts_header,
        due_header=due_header,
        once=forbids_duplicates(guarantee),
    )
    return PipelinePromise.of(
        source,
        sink,
        guarantee=guarantee,
        record_id=record_id,
        relation=relation,
        group=group,
        retry=retry,
        order_key=order_key,
    )
