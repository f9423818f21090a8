"""`HarrowRun`: one run of a `Harrow`: its cluster, its chaos blocks, its verdicts, and how it ends.

The user's object is `Harrow` (`harrow.py`), which shows what a test needs. The plugin, the workloads and the commands
use the run behind it (`run_of`). A run is made of parts, each with its own state: the recording clients
(`recording.py`), the programs and dependencies (`harness/programs/`), the waits (`harness/waits/`), the verdicts that
were made (`harness/verdict/made.py`), and the verdict of a run whose test failed (`harness/verdict/endings.py`).

The cluster starts at the first use of a topic, an address or a client. All random values derive from `seed`. The folder
`folder` holds everything that the verdict and the report read (the run folder, `run_folder.py`).
"""

from __future__ import annotations

import contextlib
import random
import time
from dataclasses import replace
from functools import cached_property, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harrow.cluster.convergence import CONVERGE_TIMEOUT_S
from harrow.cluster.errors import ConfigError
from harrow.faults.background import BackgroundNemesis
from harrow.faults.controls import PeerKind
from harrow.faults.runs import ORDERS
from harrow.faults.schedule import Schedule

from .. import run_folder
from ..backends.clusters import OwnCluster, failed_tasks, trace_ends
from ..chaos.blocks import Chaos
from ..chaos.plan import ChaosRequest, injectable_kinds
from ..checks.guarantees import GUARANTEE_OF_SIMULATIONS
from ..errors import VerdictError
from ..mutant_rows import note_run
from ..programs.dependencies import Dependencies
from ..programs.of_run import RunningPrograms
from ..run_settings import RunSettings, fields_of_producer
from ..security.choice import APP, INSECURE, Security
from ..seeds import child_seed
from ..terminal_notes import show_on_stderr
from ..topics import Topic, check_topic, consumer_groups, create_topic, topic_exists
from ..user_spark import UserSpark
from ..verdict.endings import VerdictsOfFailures
from ..verdict.made import MadeVerdicts
from ..verdict.other_topics import check_existing
from ..verdict.verifier import RunVerifier
from ..waits import Waits
from .credentials import RunCredentials
from .recording import RecordingClients
from .recovery import least_isr_of, progress_facts
from .share_claims import note_consumed_by
from .sizes import BROKERS, RunSizes
from .values import Values, seeded_faker

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence

    from faker import Faker

    from ..backends.clusters import ClusterSource
    from ..checks import SparkHandle, Verdict
    from ..programs.service_process import ServiceProcess
    from ..programs.services import Main, Restart, Service
    from ..promises.pipeline_promise import PipelinePromise
    from ..promises.topic_promise import TopicPromise
    from ..running_cluster import RunningCluster

AFTER_FAULTS_S = 2.0
"""A recorded run goes on for so long after its last fault."""


class HarrowRun:
    """The cluster of a `Harrow`, the faults that break it, and the verdicts."""

    def __init__(
        self,
        folder: str | Path,
        *,
        seed: int,
        seed_names: Sequence[str],
        brokers: int,
        config: Mapping[str, object] | None,
        plants: Sequence[str],
        spark: Callable[[], SparkHandle] | UserSpark | str,
        name: str,
        repeat: str,
        engine: str,
        early_spark: bool,
        clusters: ClusterSource | None,
        converge_timeout_s: float | None,
        security: Security,
    ) -> None:
        """The arguments are those of `Harrow`."""
        show_on_stderr()
        self.folder = Path(folder).absolute()
        self.seed = seed
        self._seed = child_seed(seed, *seed_names) if seed_names else seed
        self.name = name
        self.sizes = RunSizes()
        self.brokers = self.sizes.brokers(brokers)
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
        self.credentials = RunCredentials(
            security, self.folder, lambda: self.cluster, backend=self.backend, shared=self._source.shared
        )
        self.clients = RecordingClients(self.folder, self.credentials.client_config)
        self.programs = RunningPrograms(self.folder, self.credentials.access)
        self.dependencies = Dependencies(self.folder, lambda: self.cluster)
        self.waits = Waits(self.folder, lambda: self.cluster, lambda: self.programs.watched)
        self.made = MadeVerdicts(self.folder, lambda: self.repeat or f"seed {seed}")
        self.failures = VerdictsOfFailures(self)
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
        self.faultless = self.others_faultless = False
        """Whether no chaos block injects a fault; whether none does that has no schedule in `replays`."""

    @property
    def repeat(self) -> str:
        """The command that repeats the run; failures and the report show it."""
        return self._verifier.repeat

    @repeat.setter
    def repeat(self, command: str) -> None:
        self._verifier.repeat = command

    def shrink_sizes(self, smaller: Mapping[str, int]) -> None:
        """Run with smaller sizes than the test says; called before the cluster starts."""
        assert self._cluster is None, "the cluster has its size"
        asked = self.sizes.asked[BROKERS]
        self.sizes = RunSizes(smaller)
        self.brokers = self.sizes.brokers(asked)

    def draw_invalid_only(self) -> None:
        """Draw no page of a valid verdict: for runs whose folder is removed."""
        self._verifier.draws_valid = False

    def begin_test(self, *seed_names: str) -> None:
        """Begin another test on the same cluster: random values from now on derive from `seed_names`."""
        self._seed = child_seed(self.seed, *seed_names)
        self._before_test = (self._blocks, len(self.made.verdicts))
        self._topics_of_test.clear()
        if self._cluster is not None:
            self.waits.forget_requests()
        self._bounds.clear()
        self.schedules.clear()
        for name in ("random", "faker", "values"):
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
            config = self.credentials.settings(self._config)
            self._cluster = self._source.acquire(
                self.folder, brokers=self.brokers, config=config, seed=self._seed, plants=self._plants
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
                security="" if self.credentials.security == INSECURE else self.credentials.security.words,
            )
            if self._source.shared:
                self.waits.forget_requests()
        return self._cluster

    @property
    def is_started(self) -> bool:
        """Whether the cluster was started."""
        return self._cluster is not None

    def topic(
        self,
        name: str,
        partitions: int,
        replication_factor: int | None,
        config: Mapping[str, object] | None,
    ) -> Topic:
        """Create a topic and wait for its leaders; `Harrow.topic`."""
        unique = f"{name}-{child_seed(self._seed, self.folder.name, name) % 16**6:06x}" if self._source.shared else name
        brokers = len(self.cluster.brokers)
        partitions = self.sizes.partitions(name, partitions)
        replicas = min(3, brokers) if replication_factor is None else replication_factor
        topic = Topic(name=unique, partitions=partitions, replication_factor=replicas, config=dict(config or {}))
        check_topic(topic, brokers)
        existing = self._topics.get(name)
        if existing is not None and not topic_exists(self.cluster, existing.name):
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
        """`Harrow.faker`."""
        return seeded_faker(child_seed(self._seed, "faker"))

    @cached_property
    def values(self) -> Values:
        """`Harrow.values`."""
        return Values(child_seed(self._seed, "values"))

    @cached_property
    def random(self) -> random.Random:
        """`Harrow.random`."""
        return random.Random(child_seed(self._seed, "random"))  # noqa: S311 - repeatable, not secret

    # ----------------------------------------------------------------------------------- faults

    def chaos(self, request: ChaosRequest, bound: float | None) -> Chaos:
        """Plan and return a block; `Harrow.chaos`. `bound`: its `recovers_within`, in seconds."""
        if self._chaos is not None:
            unused = self._chaos.never_entered
            raise ConfigError(unused or "a chaos block is already active; give all faults to one block")
        cluster = self.cluster
        system = self._source.system(cluster)
        system.programs = self.programs.controls
        system.dependencies = self.dependencies.controls
        self.credentials.hand_over(system)
        block = self._blocks - self._before_test[0]
        planned = request.plan(
            cluster,
            system.capabilities,
            list(self._topics.values()),
            first_id=self._steps + 1,
            seed=child_seed(self._seed, "chaos", str(block)),
        )
        replayed = self.faultless or self.others_faultless or block in self.replays
        if self.faultless or (self.others_faultless and block not in self.replays):
            planned = Schedule()
        elif replayed:
            planned = self.replays[block]
        elif (spread := getattr(self._source, "spread", None)) is not None:
            planned = spread(planned, block, self._seed)
        if bound is not None:
            self._bounds.update((step.id, bound) for step in planned.steps)
        if self._early_spark:
            self._verifier.prepare()
        self._chaos = Chaos(
            system,
            planned,
            self.folder,
            groups=partial(consumer_groups, cluster),
            on_error=self.failures.attach_verdict,
            on_end=self._chaos_ended,
            reached_within=request.reached_within,
            must_inject=not replayed,
            nemesis=getattr(self._source, "nemesis", BackgroundNemesis),
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
        if not schedule.steps:  # a block of a run that is to be without faults
            return
        run_folder.note(self.folder, chaos_blocks=self._blocks)
        file = self.folder / run_folder.schedule_name(self._blocks)
        file.write_text(self.schedule.to_json(), encoding="utf-8")

    def _describe(self, schedule: Schedule) -> dict[str, Any]:
        """What a schedule ran on, so that its file alone repeats it; empty without a topic."""
        topic = next(iter(self._topics.values()), None)
        if topic is None:
            return {}
        ends_ms = [(step.fired_ms or 0) + (step.duration_ms or 0) for step in schedule.steps]
        made = fields_of_producer(self.clients.produced_with)
        return RunSettings(
            seed=self._seed,
            brokers=self.brokers,
            seconds=max(ends_ms, default=0) / 1000 + AFTER_FAULTS_S,
            config=self.credentials.without_own(self.cluster.config.overrides()),
            topic=topic.name,
            partitions=topic.partitions,
            replication_factor=topic.replication_factor,
            topic_config=topic.config,
            plants=self._plants,
            sizes=self.sizes.smaller,
            workload=self.workload,
            guarantee=GUARANTEE_OF_SIMULATIONS if made["idempotent"] else "no-loss",
            **made,
        ).to_json()

    # --------------------------------------------------------------------------------- services

    def start(
        self, main: Main | Coroutine[Any, Any, object], args: tuple[object, ...], name: str, restart: Restart
    ) -> Service | ServiceProcess:
        """Start an asyncio service on a simulated machine, or as a process; `Harrow.start`."""
        from ..backends.knobs import HostLinks
        from ..backends.simulated.cluster import SimulatedRunningCluster
        from ..backends.simulated.process import current
        from ..programs.services import Service, name_of

        cluster = self.cluster
        if not isinstance(cluster, SimulatedRunningCluster):
            return self.programs.start_service(name or name_of(main), main, args, restart, user=APP)
        view = current().view
        service = Service(
            name or name_of(main), cluster.simulated, main, args, enter=view.enter, restart=restart, output=view.output
        )
        self.programs.add_service(service)
        self.dependencies.controls[service.name] = HostLinks(service.link_operation, frozenset({PeerKind.CLIENT}))
        return service

    # ---------------------------------------------------------------------------------- verdict

    def verify(
        self,
        topics: Iterable[Topic | str],
        guarantee: str | None,
        promise: TopicPromise | PipelinePromise | None,
        recovers_within: float | None,
        consumed_by: Sequence[str] = (),
    ) -> Verdict:
        """Judge the run; raise VerdictError unless the verdict is valid."""
        __tracebackhide__ = True  # so pytest shows the caller's line
        verdict = self.judged(topics, guarantee, promise, recovers_within, consumed_by)
        if not verdict.valid:
            raise VerdictError(self.made.explained(verdict), verdict)
        return verdict

    def judged(
        self,
        topics: Iterable[Topic | str],
        guarantee: str | None = None,
        promise: TopicPromise | PipelinePromise | None = None,
        recovers_within: float | None = None,
        consumed_by: Sequence[str] = (),
    ) -> Verdict:
        """Judge the run; without topics: all topics of the test."""
        if self._chaos is not None:
            raise ConfigError(
                self._chaos.never_entered
                or "call verify() after the chaos block: the block heals the cluster when it ends"
            )
        names = [str(topic) for topic in topics] or [str(topic) for topic in self._topics.values()]
        if not names:
            raise ConfigError("verify(): no topic was given, and this test has created none")
        check_existing(self.cluster, names, {topic.name for topic in self._topics.values()})
        with self.failures.making_a_verdict():
            notes = self.clients.await_sends()
            least_isr = least_isr_of(self._topics.values())
            progress = progress_facts(least_isr, recovers_within, self._bounds, had_faults=self._blocks > 0)
            run_folder.note_progress(self.folder, progress)
            if consumed_by:
                note_consumed_by(self.folder, names, consumed_by)
            self.programs.record_ends()
            verdict = self._verifier.judge(self.cluster, names, guarantee, promise, notes, self.made.next_number)
        return self.made.publish(verdict)

    def judged_without_spark(self, reason: str) -> Verdict:
        """Give the run the verdict unknown and its page, without the cluster and without Spark."""
        names = [topic.name for topic in self._topics.values()]
        return self.made.publish(self._verifier.end_unjudged(names, reason, self.made.next_number))

    @property
    def needs_no_verdict(self) -> bool:
        """Whether the running test has a verdict, or made no chaos block or no topic."""
        blocks, verdicts = self._before_test
        return len(self.made.verdicts) > verdicts or self._blocks == blocks or not self._topics

    # ------------------------------------------------------------------------------------- end

    def take_unused(self) -> list[str]:
        """Return what was made and never used, so that the test met no fault: chaos blocks and programs. Once each."""
        unused = self.programs.take_unstarted()
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
            failures += self.programs.end()
            self.dependencies.end()
            self.clients.close()
        finally:
            if cluster is not None:
                try:
                    self._source.release(cluster)
                finally:
                    failures += failed_tasks(cluster.folder, self._traced)
                    note_run(self.folder, self.name, (name for made in self.made.verdicts for name in made.guarantees))
        return unused + failures

    def remove_data(self) -> None:
        """Remove the large files. Verdict, report, schedule and faults stay; an empty folder is removed."""
        run_folder.remove_data(self.folder)
        with contextlib.suppress(OSError):  # the folder is not empty, or does not exist
            self.folder.rmdir()
