"""From the end of a run to its verdict: converge, final read, judge, draw the report (J7).

When the cluster does not converge, a topic cannot be read or a checker crashes, the verdict is `unknown`, never
valid. `judge` itself checks that the faults overlapped traffic.
"""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from harrow.cluster.convergence import CONVERGE_TIMEOUT_S
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.cluster.internal_topics import TRANSACTIONS
from harrow.cluster.wait_notes import noted

from .. import run_folder
from ..engines import SPARK, engine_for, needs_spark_from_the_start
from ..topics import not_running
from ..user_spark import HARROWS_OWN, UserSpark, chosen_engine
from .other_topics import elsewhere

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from harrow.cluster.view import ClusterView

    from ..checks import SparkHandle, Verdict
    from ..checks.partition_jobs import PartitionReplicas
    from ..checks.promise_findings import PromiseFindings
    from ..checks.record_check import RecordCheck
    from ..engines import Engine
    from ..promises.pipeline_promise import PipelinePromise
    from ..promises.topic_promise import TopicPromise
    from ..running_cluster import RunningCluster

    Promise = TopicPromise | PipelinePromise

REST_TRIES = 5
"""How often a verdict waits for full ISRs, where one of them shrinks in the moment after."""
DRAIN_TIMEOUT_S = 60.0


class RunVerifier:
    """Produces verdicts on one run folder; each call of `judge` makes a new verdict, with files of its number."""

    def __init__(
        self,
        folder: Path,
        spark: Callable[[], SparkHandle] | UserSpark | str,
        *,
        seed: int,
        repeat: str,
        engine: str = "",
        converge_timeout_s: float = CONVERGE_TIMEOUT_S,
    ) -> None:
        """`engine`: one of `engines.CHOICES`, by default what `spark` says. Raises ConfigError for another."""
        self._folder = folder
        chosen = UserSpark(spark) if isinstance(spark, str) else spark
        self._start_spark: Callable[[], SparkHandle] = (
            (lambda: spark_of_run(folder.parent, chosen)) if isinstance(chosen, UserSpark) else chosen
        )
        self._choice = chosen_engine(engine, chosen)
        self._engine: Engine = SPARK
        """What judges the verdict that is being made."""
        self._seed = seed
        self.repeat = repeat
        """The command that repeats the run; the report shows it."""
        self.converge_timeout_s = converge_timeout_s
        """How long a verdict waits for the cluster to converge."""
        self._view: ClusterView | None = None
        """The cluster at rest, of the verdict that is being made."""
        self.draws_valid = True
        """Whether a valid verdict has a page too."""

    def prepare(self) -> None:
        """Start Spark in the background when it is needed: a verdict will be requested."""
        if needs_spark_from_the_start(self._choice):
            self._start_spark().request()

    def _spark(self) -> SparkHandle | None:
        return self._start_spark() if self._engine == SPARK else None

    def judge(
        self,
        cluster: RunningCluster,
        topics: Sequence[str],
        guarantee: str | None,
        promise: Promise | None = None,
        notes: Sequence[str] = (),
        number: int = 1,
    ) -> Verdict:
        """Return the verdict on `topics`, write it to verdict.json and draw report.html.

        `promise`: what the application promised of the topics; the caller has checked it. `notes`: what the verdict
        also says. `number`: of the verdict among those on this run, from 1 up; the second one is in verdict-2.json.
        """
        if guarantee is not None:
            from ..checks.guarantees import parse

            parse(guarantee)
        from ..checks.guarantees import checks_for
        from ..checks.promise_findings import write_findings

        checks = checks_for(guarantee)
        run_folder.add_topics(self._folder, topics)
        histories = len(run_folder.operation_files(self._folder / run_folder.HISTORY))
        run_folder.note(self._folder, histories=histories)
        run_folder.note_verdict(self._folder, number, topics, promised=promise is not None)
        contents = promise is not None or bool(checks)
        reasons = self._bring_to_rest(cluster, topics, contents=contents)
        self._engine = engine_for(self._choice, self._folder, topics)
        promised = None
        if promise is not None and not reasons:
            promised = self._judge_promise(topics, promise)
        if checks and not reasons:
            promised = self._judge_checks(topics, checks, promised)
        write_findings(self._folder, topics, promised, number=number)
        verdict = self._ask(cluster, topics, guarantee, promised, number)
        if reasons:
            verdict = _with_reasons(verdict, reasons)
        if lost := elsewhere(cluster, topics):
            verdict = _with_sentence(verdict, lost)
        return self._written(replace(verdict, notes=(*verdict.notes, *notes)), number)

    def end_unjudged(self, topics: Sequence[str], reason: str, number: int = 1) -> Verdict:
        """Return the verdict unknown, write it to verdict.json and draw report.html; the cluster is not asked."""
        run_folder.add_topics(self._folder, topics)
        run_folder.note_verdict(self._folder, number, topics, promised=False)
        return self._written(_unknown(reason, None, self._folder), number)

    def _written(self, verdict: Verdict, number: int) -> Verdict:
        verdict.write(self._folder / run_folder.numbered(run_folder.VERDICT, number))
        return verdict if verdict.valid and not self.draws_valid else self._draw(verdict, number)

    def _bring_to_rest(self, cluster: RunningCluster, topics: Sequence[str], *, contents: bool) -> list[str]:
        """Wait for convergence and do the final read; return the reasons of a failure."""
        shutil.rmtree(self._folder / run_folder.DRAIN, ignore_errors=True)
        (self._folder / run_folder.GROUPS).unlink(missing_ok=True)
        reasons: list[str] = []
        self._view = None
        try:
            if contents and TRANSACTIONS.name in cluster.describe().topics:
                _await_ended_transactions(cluster)
            view = self._view = self._await_rest(cluster, topics)
            existing = view.topics
            reasons += [_deleted(topic) for topic in topics if topic not in existing]
            with noted("the final read of all records", most_s=DRAIN_TIMEOUT_S):
                self._read_finally(cluster, view, [topic for topic in topics if topic in existing], contents=contents)
        except HarrowError as error:
            reasons.append(f"{error}{not_running(cluster)}")
        return reasons

    def _await_rest(self, cluster: RunningCluster, topics: Sequence[str]) -> ClusterView:
        """Wait for full ISRs of equal logs; return the view in which the ISRs of the topics are full.

        A broker that was paused may leave the ISR although it has everything: its session has ended a moment ago.
        """
        tries = REST_TRIES
        while True:
            cluster.await_replicated(self.converge_timeout_s, topics)
            view, tries = cluster.describe(), tries - 1
            judged = (row for where, row in view.partitions() if where.topic in topics)
            if not tries or all(set(row.isr) == set(row.replicas) for row in judged):
                return view

    def _read_finally(
        self, cluster: RunningCluster, view: ClusterView, topics: Sequence[str], *, contents: bool
    ) -> None:
        """Read the topics, and write what state the groups are in."""
        from ..histories.group_states import write_groups
        from ..running_cluster import own_requests_of

        folder = self._folder / run_folder.DRAIN
        if (own := own_requests_of(cluster)) is not None:
            own.read_all(topics, folder, contents=contents)
            write_groups(self._folder, own.list_groups())
            return
        from ..clients.final_read import read_all
        from ..requests.final_groups import record_groups

        logs = _leaders_logs(self._folder, view, topics) if contents else None
        read_all(cluster.own_servers, topics, folder, timeout_s=DRAIN_TIMEOUT_S, contents=contents, logs=logs)
        record_groups(self._folder, cluster.own_servers)

    def _judge_promise(self, topics: Sequence[str], promise: Promise) -> PromiseFindings:
        """Judge what the application promised; what prevents it is a reason."""
        from ..checks.promise_findings import PromiseFindings
        from ..promises.pipeline_promise import PipelinePromise
        from ..promises.topic_results import judge_topics

        try:
            if isinstance(promise, PipelinePromise):
                return promise.judge(self._folder, spark=self._spark(), engine=self._engine)
            return judge_topics(self._folder, topics, promise, spark=self._spark(), engine=self._engine)
        except ConfigError:
            raise
        except HarrowError as error:
            return PromiseFindings(reasons=(str(error),))
        except Exception as error:
            return PromiseFindings(reasons=(f"the checks of the promises crashed: {error!r}",))

    def _judge_checks(
        self, topics: Sequence[str], checks: Mapping[str, RecordCheck], promised: PromiseFindings | None
    ) -> PromiseFindings:
        """Judge the checks of extensions; what prevents it is a reason."""
        from ..checks.promise_findings import PromiseFindings
        from ..promises.check_join import judge_checks, with_findings

        try:
            found = judge_checks(self._folder, topics, checks, spark=self._spark(), engine=self._engine)
        except HarrowError as error:
            found = PromiseFindings(reasons=(str(error),))
        except Exception as error:
            found = PromiseFindings(reasons=(f"the checks of extensions crashed: {error!r}",))
        return with_findings(promised, found)

    def _ask(
        self,
        cluster: RunningCluster,
        topics: Sequence[str],
        guarantee: str | None,
        promised: PromiseFindings | None,
        number: int,
    ) -> Verdict:
        from ..checks import judge
        from ..checks.partition_jobs import write_replicas

        try:
            replicas = _replicas(cluster, self._view or cluster.describe(), topics)
            write_replicas(self._folder, replicas)
            return judge(
                self._folder,
                topics=list(topics),
                guarantee=guarantee,
                spark=self._spark(),
                engine=self._engine,
                replicas=replicas,
                promised=promised,
                number=number,
            )
        except ConfigError:
            raise
        except Exception as error:
            why = str(error) if isinstance(error, HarrowError) else f"the checker crashed: {error!r}"
            return _unknown(why, guarantee, self._folder)

    def _draw(self, verdict: Verdict, number: int) -> Verdict:
        try:
            from ..reports.picture import write_picture

            write_picture(self._folder, seed=self._seed, command=self.repeat, number=number)
        except Exception as error:  # a report that cannot be drawn must not lose the verdict
            verdict = replace(verdict, notes=(*verdict.notes, f"report.html could not be drawn: {error!r}"))
        return verdict


def _deleted(topic: str) -> str:
    return f"topic {topic!r} does not exist when the run ends: it was deleted, and its records cannot be judged"


def _replicas(
    cluster: RunningCluster, cluster_view: ClusterView, topics: Sequence[str]
) -> dict[tuple[str, int], PartitionReplicas]:
    from ..checks.partition_jobs import PartitionReplicas

    everywhere = cluster.has_replica_logs
    return {
        (where.topic, where.partition): PartitionReplicas(
            replicas=view.replicas if everywhere else (view.leader,), isr=view.isr if everywhere else (view.leader,)
        )
        for where, view in cluster_view.partitions()
        if where.topic in topics
    }


def _await_ended_transactions(cluster: RunningCluster) -> None:
    from ..requests.ending_transactions import await_ended, ending_transactions
    from ..running_cluster import own_requests_of

    own = own_requests_of(cluster)
    await_ended(partial(ending_transactions, cluster.own_servers) if own is None else own.ending_transactions)


def _leaders_logs(folder: Path, view: ClusterView, topics: Sequence[str]) -> dict[tuple[str, int], str]:
    """The log folder of each partition's leader, for the final read; none in a cluster without transactions."""
    if TRANSACTIONS.name not in view.topics:
        # the first producer with a transactional id creates it
        return {}
    data = run_folder.replica_folders(folder)
    found: dict[tuple[str, int], str] = {}
    for where, partition in view.partitions():
        name = f"{where.topic}-{where.partition}"
        for log in (parent / name for parent in data.get(partition.leader, ())):
            if where.topic in topics and log.is_dir():
                found[where.topic, where.partition] = str(log)
    return found


def _with_reasons(verdict: Verdict, reasons: list[str]) -> Verdict:
    """Add reasons, which explain the others: a valid verdict becomes unknown, an invalid verdict stays invalid."""
    from ..checks import Status

    status = Status.INVALID if verdict.status is Status.INVALID else Status.UNKNOWN
    return replace(verdict, status=status, reasons=(*reasons, *verdict.reasons))


def _with_sentence(verdict: Verdict, sentence: str) -> Verdict:
    """Add a sentence that explains an unknown verdict: a reason of it, and a note of another one."""
    from ..checks import Status

    if verdict.status is Status.UNKNOWN:
        return replace(verdict, reasons=(*verdict.reasons, sentence))
    return replace(verdict, notes=(*verdict.notes, sentence))


def _unknown(reason: str, guarantee: str | None, folder: Path) -> Verdict:
    from ..checks import Status, Verdict
    from ..checks.traces import planted_bugs

    return Verdict(
        status=Status.UNKNOWN, guarantees=(guarantee or "derived",), reasons=(reason,), planted=planted_bugs(folder)
    )


def spark_of_run(folder: Path, spark: UserSpark = HARROWS_OWN, *, controller: int | None = None) -> SparkHandle:
    """Return this process's handle of the Spark server for the run in `folder`.

    Where `spark` is no Connect address, a server is started for the run and ends with the process `controller`.
    """
    from ..checks import SparkHandle

    return SparkHandle.of_run(folder, controller=controller, master=spark.master, remote=spark.remote, data=spark.data)
