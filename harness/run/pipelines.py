"""`verify_pipeline`: the part of `Harrow` that judges a pipeline from a source topic to a sink (L5)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..checks.guarantees import Guarantees
from ..errors import VerdictError
from ..promises.record_ids import IdSource
from ..promises.relations import Relation
from ..promises.retries import ATTEMPTS_HEADER, DUE_HEADER
from ..topics import Topic
from .recovery import recovery_bound

if TYPE_CHECKING:
    from collections.abc import Iterable

    from ..checks import Verdict
    from ..promises.pipeline_promise import PipelinePromise
    from ..promises.topic_promise import TopicPromise


class PipelineVerifier:
    """The method `verify_pipeline` of `Harrow`."""

    def verify_pipeline(
        self,
        source: Topic | str,
        sink: Any,
        *,
        guarantee: Guarantees | None = None,
        record_id: IdSource | None = None,
        relation: Relation | str | None = None,
        group: str | None = None,
        retry_topics: Topic | str | Iterable[Topic | str] = (),
        dead_letters: Topic | str | None = None,
        attempts: int | None = None,
        order_key: IdSource | None = None,
        attempts_header: str = ATTEMPTS_HEADER,
        due_header: str = DUE_HEADER,
        recovers_within: float | None = None,
    ) -> Verdict:
        """Judge what came out of a pipeline for what went in; raise VerdictError unless the verdict is valid.

        Call it when the job has finished or was stopped. It waits for convergence, reads the topics, judges on Spark.

        `sink`: a topic, `table(url_or_connection, query)`, `files(path)`, a pandas, polars, Arrow or Spark frame, or an
        iterable of rows. `relation`: what an input requires: `identity`, `mapped(f)`, `filtered(f)`, `flat_mapped(f)`,
        `folded(f, initial)`, `windowed(seconds, f)`, or the name of an extension's; without it, an output with the same
        record id. `record_id`: by what outputs and inputs belong together: a field path of the JSON value or row, or a
        function of the `Record`.
        `guarantee`: no-loss, at-least-once (the default), at-most-once, exactly-once, ordered, or several with commas.
        `group`: the pipeline's consumer group, where others commit offsets of the source too.
        `retry_topics`: the topics to which the job sends an input that it works on again later, with the same record
        id. The offset of an input that such a topic has may be committed before its output is there.
        `dead_letters`: the topic of the inputs that the job gave up: each input has its output or lies there.
        `attempts`: how often the job tries an input, the first attempt included.
        `order_key`: by what inputs have an order: a field path or a function of the `Record`; by default it is Kafka's
        record key. It adds `ordered` to the default guarantee; an explicit one must name it.
        `attempts_header`, `due_header`: the headers of a record in a retry topic with the number of attempts that were
        made, and with the time of the next one in milliseconds since 1970.

        `recovers_within`: seconds. A job that makes no progress for longer, although the cluster can serve it, makes
        the verdict invalid (`stalled`).

        An input that the job has not processed yet is a missing output; the message says how far the job has committed.
        """
        __tracebackhide__ = True  # so pytest shows the caller's line
        from ..promises.pipeline_promise import PipelinePromise, forbids_duplicates, guarantee_of
        from ..promises.retries import RetryPromise

        bound = recovery_bound("verify_pipeline", recovers_within)
        guarantee = guarantee_of(guarantee, order_key)
        retry = RetryPromise.of(
            retry_topics=retry_topics,
            dead_letters=dead_letters,
            attempts=attempts,
            attempts_header=attempts_header,
            due_header=due_header,
            once=forbids_duplicates(guarantee),
        )
        promise = PipelinePromise.of(
            source,
            sink,
            guarantee=guarantee,
            record_id=record_id,
            relation=relation,
            group=group,
            retry=retry,
            order_key=order_key,
        )
        verdict = self._judged(promise.topics, guarantee, promise, bound)
        if not verdict.valid:
            raise VerdictError(self._explain(verdict), verdict)
        return verdict

    def _judged(
        self,
        topics: Iterable[Topic | str],
        guarantee: str | None,
        promise: TopicPromise | PipelinePromise | None,
        recovers_within: float | None,
    ) -> Verdict:
        raise NotImplementedError  # Harrow has it

    def _explain(self, verdict: Verdict) -> str:
        raise NotImplementedError  # Harrow has it
