"""`Harrow`: the cluster, the chaos blocks and the verdicts of one test. The `harrow` fixture yields it.

It also works without pytest:

```python
with Harrow("out/run-1", seed=7) as harrow:
    orders = harrow.topic("orders", partitions=3)
    with harrow.chaos(kill(leader(orders))):
        place_orders(harrow.bootstrap_servers)
    print(harrow.verify(orders, guarantee="no-loss"))
```

The cluster starts at the first use of a topic, an address or a client. All random values derive from `seed`. The
folder `folder` holds everything that the verdict and the report read (the run folder, `run_folder.py`).
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from harrow.cluster.argument_types import checked
from harrow.cluster.convergence import CONVERGE_TIMEOUT_S
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.faults.schedule import Schedule
from harrow.faults.spec import Fault

from .. import run_folder
from ..backends.clusters import OwnCluster, failed_tasks, trace_ends
from ..chaos.blocks import REACHED_WITHIN_S, Chaos
from ..chaos.plan import ChaosRequest, injectable_kinds
from ..checks.guarantees import GUARANTEE_OF_SIMULATIONS, Guarantees
from ..errors import VerdictError
from ..programs.dependencies import Dependencies
from ..programs.of_run import RunningPrograms
from ..promises.record_ids import IdSource
from ..run_settings import ORDERS, RunSettings, fields_of_producer
from ..seeds import child_seed
from ..terminal_notes import show_on_stderr
from ..topics import Topic, check_topic, consumer_groups, create_topic, topic_exists
from ..user_spark import UserSpark
from ..verdict.endings import VerdictsOfFailures
from ..verdict.made import MadeVerdicts
from ..verdict.other_topics import check_existing
from ..verdict.verifier import RunVerifier
from ..waits import Waits
from .pipelines import PipelineVerifier
from .recording import RecordingClients
from .recovery import least_isr_of, progress_facts, recovery_bound
from .values import Values, seeded_faker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping, Sequence

    from faker import Faker

    from ..backends.clusters import ClusterSource
    from ..checks import SparkHandle, Verdict
    from ..promises.pipeline_promise import PipelinePromise
    from ..promises.topic_promise import TopicPromise
    from ..running_cluster import RunningCluster

AFTER_FAULTS_S = 2.0
"""A recorded run goes on for so long after its last fault."""


@checked
class Harrow(
    MadeVerdicts, RecordingClients, RunningPrograms, Dependencies, PipelineVerifier, VerdictsOfFailures, Waits
):
    """A cluster, faults that break it, and verdicts on what the clients did meanwhile."""

    def __init__(
        self,
        folder: str | Path,
        *,
        seed: int = 0,
        seed_names: Sequence[str] = (),
        brokers: int = 3,
        config: Mapping[str, object] | None = None,
        plants: Sequence[str] = (),
        spark: Callable[[], SparkHandle] | UserSpark | str = "",
        name: str = "harrow",
        repeat: str = "",
        engine: str = "",
        early_spark: bool = True,
        clusters: ClusterSource | None = None,
        converge_timeout_s: float | None = None,
    ) -> None:
        """`seed_names`: random values derive from the seed and these names; the plugin gives the test's node id.

        `engine`: what judges (`engines.py`), Spark by default. `converge_timeout_s`: how long each verdict waits for
        the cluster to converge, a minute by default.
        """
        RecordingClients.__init__(self)
        RunningPrograms.__init__(self)
        Dependencies.__init__(self)
        MadeVerdicts.__init__(self)
        VerdictsOfFailures.__init__(self)
        Waits.__init__(self)
        show_on_stderr()
        self.folder = Path(folder).absolute()
        self.seed = seed
        self._seed = child_seed(seed, *seed_names) if seed_names else seed
        self.name = name
        self.brokers = brokers
        self._config = dict(config or {})
        self._plants = tuple(plants)
        self._early_spark = early_spark
        self._source = OwnCluster() if clusters is None else clusters
        self.backend = self._source.backend
        """Where the brokers run: `local`, `apache`, …"""
        self._verifier = RunVerifier(
            self.folder,
            spark,
            seed=seed,
            repeat=repeat,
            engine=engine,
            converge_timeout_s=converge_timeout_s or CONVERGE_TIMEOUT_S,
        )
        self._cluster: RunningCluster | None = None
        self._traced: dict[Path, int] = {}
        self._topics: dict[str, Topic] = {}
        self._chaos: Chaos | None = None
        self._blocks = 0
        self._bounds: dict[str, float] = {}
        """`recovers_within` of chaos blocks in seconds, by the number of the fault."""
        self._steps = 0
        self._topics_of_test: set[str] = set()
        self._before_test = (0, 0)
        """How many chaos blocks and verdicts there were when the running test began."""
        self.workload = ORDERS
        """What a recorded schedule says that the clients did (`RunSettings.workload`)."""
        self.schedule = Schedule(seed=seed)
        """The schedule of the last chaos block with its resolved targets; its JSON form can be replayed."""
        self.schedules: list[Schedule] = []
        """The schedules of all chaos blocks of the running test, resolved."""
        self.replays: Mapping[int, Schedule] = {}
        """What chaos blocks of the running test run instead of their own schedules: the first block is 0."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        failures = self.close()
        if failures and error is not None:
            error.add_note(f"harrow: {'; '.join(failures)}")
        elif failures:
            raise HarrowError("; ".join(failures))

    def __repr__(self) -> str:
        state = "running" if self._cluster is not None else "not started"
        return f"<Harrow {self.folder.name} seed={self.seed} brokers={self.brokers} {state}>"

    @property
    def repeat(self) -> str:
        """The command that repeats the run; failures and the report show it."""
        return self._verifier.repeat

    @repeat.setter
    def repeat(self, command: str) -> None:
        self._verifier.repeat = command

    def begin_test(self, *seed_names: str) -> None:
        """Begin another test on the same cluster: random values from now on derive from `seed_names`."""
        self._seed = child_seed(self.seed, *seed_names)
        self._before_test = (self._blocks, len(self.verdicts))
        self._topics_of_test.clear()
        if self._cluster is not None:
            self.forget_requests()
        self._bounds.clear()
        self.schedules.clear()
        for name in ("random", "faker"):
            self.__dict__.pop(name, None)

    # ---------------------------------------------------------------------------------- cluster

    @property
    def cluster(self) -> RunningCluster:
        """The cluster; the first access starts it."""
        if self._cluster is None:
            from ..running_cluster import unrecorded_by

            started_ns = time.monotonic_ns()
            self.folder.mkdir(parents=True, exist_ok=True)
            run_folder.remove_data(self.folder)  # left by an earlier run in the same folder
            run_folder.remove_results(self.folder)
            self._cluster = self._source.acquire(
                self.folder, brokers=self.brokers, config=self._config, seed=self._seed, plants=self._plants
            )
            self.brokers = len(self._cluster.brokers)  # of an external cluster, as many as it has
            self._traced = trace_ends(self._cluster.folder)
            run_folder.write_run(
                self.folder,
                seed=self.seed,
                brokers=self.brokers,
                config=self._config,
                log_dirs=self._cluster.log_dirs(),
                started_ns=started_ns,
                unrecorded=unrecorded_by(self._cluster),
            )
            if self._source.shared:
                self.forget_requests()
        return self._cluster

    @property
    def bootstrap_servers(self) -> str:
        """The `bootstrap.servers` setting for any Kafka client; the first access starts the cluster."""
        return self.cluster.bootstrap_servers

    def topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
    ) -> Topic:
        """Create a topic and wait for its leaders. Default replication factor: 3, at most the number of brokers.

        A topic that was deleted may be created again, with other arguments, too.
        On the cluster of `harrow_session`, a call with the arguments of an earlier test returns that test's topic.
        """
        unique = f"{name}-{child_seed(self._seed, self.folder.name, name) % 16**6:06x}" if self._source.shared else name
        brokers = len(self.cluster.brokers)
        replicas = min(3, brokers) if replication_factor is None else replication_factor
        topic = Topic(name=unique, partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        check_topic(topic, brokers)
        existing = self._topics.get(name)
        if existing is not None and not topic_exists(self.cluster.bootstrap_servers, existing.name):
            existing = None  # the test deleted it
        if existing is not None and (name in self._topics_of_test or topic != existing):
            raise ConfigError(
                f"topic {name!r} already exists with {existing.partitions} partitions and replication factor "
                f"{existing.replication_factor}; use the Topic that the first call returned"
            )
        if existing is None:
            create_topic(self.cluster, topic)
        self._topics[name] = existing or topic
        self._topics_of_test.add(name)
        return self._topics[name]

    # ----------------------------------------------------------------------------------- values

    @cached_property
    def faker(self) -> Faker:
        """A Faker whose values depend only on the seed; it needs the extra `faker`."""
        return seeded_faker(child_seed(self._seed, "faker"))

    @cached_property
    def values(self) -> Values:
        """Values for records, such as names, products and amounts, that depend only on the seed."""
        return Values(child_seed(self._seed, "values"))

    @cached_property
    def random(self) -> random.Random:
        """Random numbers that depend only on the seed."""
        return random.Random(child_seed(self._seed, "random"))  # noqa: S311 - repeatable, not secret

    # ----------------------------------------------------------------------------------- faults

    def chaos(
        self,
        *faults: Fault,
        duration: float | None = None,
        cap: int | None = None,
        kinds: Sequence[str] | Mapping[str, int] | None = None,
        schedule: Schedule | None = None,
        reached_within: float = REACHED_WITHIN_S,
        recovers_within: float | None = None,
    ) -> Chaos:
        """Return a block that injects `faults` into the cluster, in sequence and in the background.

        Use it with `with` or, so that the end of the block does not stop an event loop, with `async with`; a test that
        makes a block and does not enter it fails. The first fault waits for the first traffic, and each later one until
        the earlier one is healed.

        * `faults`: such as `kill(leader("orders"))`. Each must take effect, else the block raises NemesisError. Without
          faults: random ones of the kinds `kinds`, for 5 s.
        * `duration`: seconds after the first traffic. The faults are injected once in the given order, and again in
          random orders while the block lasts and the duration has not passed.
        * `kinds`: names as in a schedule file (`harrow.faults.planning.RANDOM_FAULTS`: kill, pause, isolate, …), those
          of extensions too; `{"kill": 3, "pause": 1}` draws kills three times as often. Default: kill, pause and
          isolate, as far as the backend can inject them.
        * `cap`: the maximum number of brokers that are disturbed at the same time. Default: as many as may fail while
          every topic accepts acks=all, and at least what a named target such as `majority` needs.
        * `reached_within`: a fault that acts at a request, a call or a place in the code fails when none was reached in
          so many seconds in which there was traffic.
        * `schedule`: a recorded schedule to replay, `Schedule.from_json(text)`; it has its own duration and cap.
        * `recovers_within`: seconds; a client that makes no progress for longer because of a fault of this block,
          although the cluster could serve it, makes the verdict invalid (`stalled`). Default: it is reported.

        ConfigError for an argument that cannot be used, such as a topic that the cluster does not have.
        """
        if self._chaos is not None:
            unused = self._chaos.never_entered
            raise ConfigError(unused or "a chaos block is already active; give all faults to one block")
        request = ChaosRequest.of(faults, duration, cap, kinds, schedule, reached_within)
        bound = recovery_bound("chaos", recovers_within)
        cluster = self.cluster
        system = self._source.system(cluster)
        system.programs = self.program_controls
        system.dependencies = self.dependency_controls
        block = self._blocks - self._before_test[0]
        planned = request.plan(
            cluster,
            system.capabilities,
            list(self._topics.values()),
            first_id=self._steps + 1,
            seed=child_seed(self._seed, "chaos", str(block)),
        )
        planned = self.replays.get(block, planned)
        if bound is not None:
            self._bounds.update((step.id, bound) for step in planned.steps)
        if self._early_spark:
            self._verifier.prepare()
        self._chaos = Chaos(
            system,
            planned,
            self.folder,
            groups=partial(consumer_groups, cluster.bootstrap_servers),
            on_error=self._attach_verdict,
            on_end=self._chaos_ended,
            reached_within=reached_within,
            must_inject=block not in self.replays,
        )
        self._blocks += 1
        self._steps += len(planned.steps)
        return self._chaos

    def possible_kinds(self, kinds: Sequence[str]) -> tuple[str, ...]:
        """Return those of the kinds of random faults that the backend can inject; the first call starts the cluster.

        Where it can inject none of them: all that it can. CapabilityError without any.
        """
        return injectable_kinds(kinds, self._source.system(self.cluster).capabilities)

    def _chaos_ended(self, schedule: Schedule) -> None:
        self._chaos = None
        self.schedule = schedule if schedule.run else replace(schedule, run=self._describe(schedule))
        self.schedules.append(self.schedule)
        run_folder.note(self.folder, chaos_blocks=self._blocks)
        file = self.folder / run_folder.schedule_name(self._blocks)
        file.write_text(self.schedule.to_json(), encoding="utf-8")

    def _describe(self, schedule: Schedule) -> dict[str, Any]:
        """What a schedule ran on, so that its file alone repeats it; empty without a topic."""
        topic = next(iter(self._topics.values()), None)
        if topic is None:
            return {}
        ends_ms = [(step.fired_ms or 0) + (step.duration_ms or 0) for step in schedule.steps]
        made = fields_of_producer(self._produced_with)
        return RunSettings(
            seed=self._seed,
            brokers=self.brokers,
            seconds=max(ends_ms, default=0) / 1000 + AFTER_FAULTS_S,
            config=self.cluster.config.overrides(),
            topic=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_config=topic.config,
            plants=self._plants,
            workload=self.workload,
            guarantee=GUARANTEE_OF_SIMULATIONS if made["idempotent"] else "no-loss",
            **made,
        ).to_json()

    # ---------------------------------------------------------------------------------- verdict

    def verify(
        self,
        *topics: Topic | str,
        guarantee: Guarantees | None = None,
        record_id: IdSource | None = None,
        expected: Iterable[object] | None = None,
        order_key: IdSource | None = None,
        recovers_within: float | None = None,
    ) -> Verdict:
        """Wait for convergence, do the final read and judge on Spark; raise VerdictError unless the verdict is valid.

        `guarantee`: best-effort, no-loss, at-least-once, at-most-once, exactly-once, ordered, or several with commas.
        None derives it from the producer settings that were observed. Without topics: all topics of this test.

        `record_id`: by what the application recognises a record: a field path of the JSON value (`"customer.id"`), or a
        function of the `Record`. `expected`: the ids (or records) that the application believes that it sent; a list
        also says in which order. `order_key`: field path or function; records with the same key have an order. By
        default it is Kafka's record key. It adds `ordered` to a derived guarantee; an explicit one must name it.

        `recovers_within`: seconds. A client, group or transactional id that makes no progress for longer, although it
        has work and the cluster can serve it, makes the verdict invalid (`stalled`). None: it is reported.
        """
        __tracebackhide__ = True  # so pytest shows the caller's line
        from ..promises.topic_promise import TopicPromise

        promise = TopicPromise.of(guarantee=guarantee, record_id=record_id, expected=expected, order_key=order_key)
        bound = recovery_bound("verify", recovers_within)
        verdict = self._judged(topics, guarantee, promise, bound)
        if not verdict.valid:
            raise VerdictError(self._explain(verdict), verdict)
        return verdict

    def _judged(
        self,
        topics: Iterable[Topic | str],
        guarantee: str | None = None,
        promise: TopicPromise | PipelinePromise | None = None,
        recovers_within: float | None = None,
    ) -> Verdict:
        if self._chaos is not None:
            raise ConfigError(
                self._chaos.never_entered
                or "call verify() after the chaos block: the block heals the cluster when it ends"
            )
        names = [str(topic) for topic in topics] or [str(topic) for topic in self._topics.values()]
        if not names:
            raise ConfigError("verify(): no topic was given, and this test has created none")
        check_existing(self.cluster, names, {topic.name for topic in self._topics.values()})
        with self._making_a_verdict():
            notes = self._await_sends()
            least_isr = least_isr_of(self._topics.values())
            progress = progress_facts(least_isr, recovers_within, self._bounds, had_faults=self._blocks > 0)
            run_folder.note_progress(self.folder, progress)
            self.record_program_ends()
            verdict = self._verifier.judge(self.cluster, names, guarantee, promise, notes, self._next_number)
        return self._publish(verdict)

    def _judged_without_spark(self, reason: str) -> Verdict:
        names = [topic.name for topic in self._topics.values()]
        return self._publish(self._verifier.end_unjudged(names, reason, self._next_number))

    @property
    def _needs_no_verdict(self) -> bool:
        blocks, verdicts = self._before_test
        return len(self.verdicts) > verdicts or self._blocks == blocks or not self._topics

    # ------------------------------------------------------------------------------------- end

    def take_unused(self) -> list[str]:
        """Return what was made and never used, so that the test met no fault: chaos blocks and programs. Once each."""
        unused = self.take_unstarted_programs()
        if self._chaos is not None and self._chaos.never_entered:
            unused.append(self._chaos.never_entered)
            self._chaos = None
        return unused

    def _abandon_block(self) -> list[str]:
        """Heal a block that was entered and never left; return why its test must fail."""
        block, self._chaos = self._chaos, None
        return [] if block is None else block.abandon()

    def close(self) -> list[str]:
        """Stop everything; return the reasons for which the test must fail."""
        unused = [*self.take_unused(), *self._abandon_block()]
        cluster, self._cluster = self._cluster, None
        failures: list[str] = []
        try:
            self.end_programs()
            self.end_dependencies()
            self._close_clients()
        finally:
            if cluster is not None:
                try:
                    self._source.release(cluster)
                finally:
                    failures = failed_tasks(cluster.folder, self._traced)
        return unused + failures

    def remove_data(self) -> None:
        """Remove the large files. Verdict, report, schedule and faults stay; an empty folder is removed."""
        run_folder.remove_data(self.folder)
        with contextlib.suppress(OSError):  # the folder is not empty, or does not exist
            self.folder.rmdir()
