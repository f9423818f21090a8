"""The workload `exactly-once` of a simulation: a job in three processes, which are killed, and an operator.

Owns: `TransformWorkload`, which adds to the producer and the reader of `workload.py` the topic of the output, the jobs,
a reader of committed data, and an operator. `judge` says what is wrong with the output (`output_checks.py`).

`left_open` says why a run is not converged: an open transaction, a last stable offset below the high watermark, or a
group that is not stable. An unclean election may take the marker of a transaction that has ended: once the cluster is
healed, such a transaction is aborted as an operator does it (`hanging_transactions.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from harrow.cluster.events.partitions import PartitionLeader
from harrow.cluster.host.simulated import Machine
from harrow.cluster.ids import TopicPartition
from harrow.cluster.internal_topics import OFFSETS, TRANSACTIONS, partition_for
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.transactions.states import TransactionState
from harrow.faults.runs import SINK

from ..backends.simulated.replicas import ReplicaLog, current_leader
from ..backends.simulated.wire import WireClient
from ..checks.log_changes import LogChanges
from ..requests.coordinator import NO_NODE
from ..run_settings import RunSettings
from .hanging_transactions import HangingTransactions
from .operator import SimulatedOperator
from .output_checks import Findings, OutputFacts, judge_output
from .sink_reader import SinkReader
from .transform_job import GROUP, JobProgress, SimulatedJob
from .workload import SimulatedWorkload

Leaders = Mapping[TopicPartition, Mapping[str, Any]]
"""The state of each partition's leader."""

JOBS = 3
KILL_EVERY_MS = 1_800
PAUSE_EVERY_MS = 300
"""From the end of a pause to the next one, on average."""
DOWN_MS = (50, 2_000)
"""How long a killed process of the job is away: shorter and longer than its session and its transaction."""
OPERATOR_PAUSE_MS = 500
AT_REST = (
    TransactionState.EMPTY,
    TransactionState.COMPLETE_COMMIT,
    TransactionState.COMPLETE_ABORT,
    TransactionState.DEAD,
)


class TransformWorkload(SimulatedWorkload):
    """The producer and the reader of the source, the jobs, and a reader of the sink."""

    def __init__(self, cluster: SimulatedCluster, settings: RunSettings) -> None:
        super().__init__(cluster, settings)
        self._jobs_random = cluster.world.rng("jobs")
        self._progress = JobProgress(self._anomaly, lambda: cluster.world.loop.now_ns, self._coordinates_since)
        self._machines: list[Machine] = [cluster.client_machine(f"job-{number}") for number in range(1, JOBS + 1)]
        self._calm = False
        self._incarnations: list[SimulatedJob] = []
        """Every process of the job that was ever started."""
        self._reader = SinkReader(
            WireClient(cluster.client("sink-reader"), "sink-reader", cluster.bootstrap),
            SINK,
            settings.partitions,
            self._unclean_epoch,
        )
        operator = WireClient(cluster.client("operator"), "operator", cluster.bootstrap)
        self.operator = SimulatedOperator(
            operator,
            settings.topic,
            SINK,
            cluster.world.rng("operator"),
            pause_ms=OPERATOR_PAUSE_MS,
            operations=settings.operations,
            brokers=settings.brokers,
            movable=self._movable(),
            deletable=self._deletable,
        )
        self._hanging = HangingTransactions(operator, self._damaged, settings.transaction_timeout_ms)
        self.findings = Findings()

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that must have converged at the end."""
        return (self._settings.topic, SINK)

    def config_of(self, topic: str) -> Mapping[str, object]:
        """Return the settings with which a topic is created."""
        config = super().config_of(topic)
        allowed = topic == SINK and self._settings.unclean_sink
        return {**config, "unclean.leader.election.enable": True} if allowed else config

    @property
    def transactions(self) -> int:
        """Transactions whose commit was confirmed."""
        return sum(job.committed for job in self._incarnations)

    def begin(self) -> None:
        """Start everything."""
        super().begin()
        for machine in self._machines:
            self._start(machine)
        self._reader.start()
        self.operator.start()
        if self._settings.job_outage_ms:
            self._host.tasks.spawn(self._stop_jobs(), name="stop-jobs")
        else:
            self._host.tasks.spawn(self._kill_jobs(), name="kill-jobs")
        if self._settings.job_pause_ms:
            self._host.tasks.spawn(self._pause_jobs(), name="pause-jobs")

    def calm(self) -> None:
        """Kill no more processes, and change nothing more."""
        self._calm = True
        self.operator.stop()
        if self._settings.unclean_sink:
            self._hanging.start()

    @property
    def done(self) -> bool:
        """True when every record was acknowledged, and the job and the readers have reached the ends."""
        return (
            super().done
            and all(machine.alive for machine in self._machines)
            and not any(self._uncommitted())  # asks no broker, and mostly decides
            and not self.left_open()
        )

    def _deletable(self, topic: str) -> Mapping[TopicPartition, int]:
        """Return up to where the job and the readers have read each partition of the topic."""
        if topic == SINK:
            return dict(self._reader.positions)
        return {tp: min(offset, self.consumer.positions[tp]) for tp, offset in self._progress.processed.items()}

    def _movable_counts(self) -> dict[str, int]:
        config = self._settings.config
        return dict.fromkeys(self.topics, self._settings.partitions) | {
            OFFSETS.name: int(str(config.get("offsets.topic.num.partitions", 50))),
            TRANSACTIONS.name: int(str(config.get("transaction.state.log.num.partitions", 50))),
        }

    def _movable(self) -> list[TopicPartition]:
        return [
            TopicPartition(topic, number) for topic, count in self._movable_counts().items() for number in range(count)
        ]

    def _unclean_epoch(self, tp: TopicPartition) -> int:
        return self._cluster.invariants.unclean_epochs.get(tp, -1)

    def _damaged(self) -> list[TopicPartition]:
        """Return the partitions of the sink that had an unclean election."""
        return [tp for tp in self._reader.positions if self._unclean_epoch(tp) >= 0]

    # ------------------------------------------------------------------------------------- jobs

    def _start(self, machine: Machine) -> None:
        host, settings = machine.boot(), self._settings
        name = machine.name.removeprefix("client-")
        job = SimulatedJob(
            WireClient(host, name, self._cluster.bootstrap), name, settings, SINK, self._jobs_random, self._progress
        )
        self._incarnations.append(job)
        job.start()

    async def _kill_jobs(self) -> None:
        rng = self._jobs_random
        while True:
            await self._host.tasks.sleep(rng.uniform(0.3, 1.7) * KILL_EVERY_MS)
            if self._calm:
                return
            machine = rng.choice(self._machines)
            machine.kill()
            await self._host.tasks.sleep(rng.uniform(*DOWN_MS))
            self._start(machine)

    async def _stop_jobs(self) -> None:
        """An outage of the whole job, so that its group is empty."""
        await self._host.tasks.sleep(self._settings.seconds * 500)
        for machine in self._machines:
            machine.kill()
        await self._host.tasks.sleep(self._settings.job_outage_ms)
        for machine in self._machines:
            self._start(machine)

    async def _pause_jobs(self) -> None:
        rng = self._cluster.world.rng("job-pauses")
        while not self._calm:
            await self._host.tasks.sleep(rng.uniform(0, 2) * PAUSE_EVERY_MS)
            machine = rng.choice(self._machines)
            machine.pause()
            await self._host.tasks.sleep(rng.uniform(0.3, 1) * self._settings.job_pause_ms)
            machine.resume()

    # ------------------------------------------------------------------------------------- the end

    def left_open(self) -> list[str]:
        """Return a line for each open transaction, held back LSO and unread end, and each group that is not stable."""
        leaders = self._leaders()
        return [
            *self._open_transactions(leaders),
            *self._held_back(leaders),
            *self._uncommitted(),
            *self._unread(leaders),
            *self._moving_groups(leaders),
        ]

    def _state_partition(self, transactional_id: str) -> TopicPartition:
        count = self._movable_counts()[TRANSACTIONS.name]
        return TopicPartition(TRANSACTIONS.name, partition_for(transactional_id, count))

    def _group_partition(self, group_id: str) -> TopicPartition:
        count = self._movable_counts()[OFFSETS.name]
        return TopicPartition(OFFSETS.name, partition_for(group_id, count))

    def _open_transactions(self, leaders: Leaders) -> Iterator[str]:
        for node, process in self._cluster.brokers.items():
            if not process.ready:
                continue
            for shard in self._cluster.broker(node).transactions.service.runtime.all_active():
                for transaction in shard:
                    row = leaders.get(self._state_partition(transaction.transactional_id), {})
                    if transaction.value.state not in AT_REST and row.get("leader") == node:
                        yield (f"{transaction.transactional_id} is {transaction.value.state.title} on broker {node}")

    def moving_groups(self) -> list[str]:
        """Return a line for each group that is not stable at its coordinator."""
        return list(self._moving_groups(self._leaders()))

    def hanging(self) -> list[str]:
        """Return a line for each partition that an open transaction holds back, when every coordinator is at rest."""
        leaders = self._leaders()
        if any(self._open_transactions(leaders)):
            return []
        return [f"{tp}: LSO {row['lso']}, HW {row['hw']}" for tp, row in leaders.items() if row["lso"] < row["hw"]]

    def _coordinates_since(self, node: int, at_ns: int) -> bool:
        """Whether the broker coordinates the job's group, and did so at `at_ns`: it has the highest leader epoch."""
        home = self._group_partition(GROUP)
        elected = [
            (event.leader_epoch, row.t_ns, event.leader)
            for row in self._cluster.world.trace.events
            if isinstance(event := row.event, PartitionLeader) and (event.topic, event.partition) == home
        ]
        _, t_ns, leader = max(elected, default=(-1, 0, NO_NODE))
        return leader == node and t_ns <= at_ns

    def _moving_groups(self, leaders: Leaders) -> Iterator[str]:
        for node, process in self._cluster.brokers.items():
            shards = self._cluster.broker(node).groups.service.shards() if process.ready else ()
            for hosted in (hosted for shard in shards for hosted in shard):
                home = self._group_partition(hosted.group_id)
                state = (hosted.group if hosted.consumer is None else hosted.consumer).state.value
                if leaders.get(home, {}).get("leader") == node and state != "Stable":
                    yield f"group {hosted.group_id} is {state} on broker {node}"

    def _held_back(self, leaders: Leaders) -> Iterator[str]:
        for tp, row in leaders.items():
            if not row["lso"] == row["hw"] == row["leo"]:
                yield f"{tp}: LSO {row['lso']}, HW {row['hw']}, LEO {row['leo']}"

    def _leaders(self) -> Leaders:
        by_partition: dict[TopicPartition, list[Mapping[str, Any]]] = {}
        for rows in self._cluster.states().values():
            for row in rows:
                tp = TopicPartition(row["topic"], row["partition"])
                by_partition.setdefault(tp, []).append(row)
        found = {tp: current_leader(rows) for tp, rows in by_partition.items()}
        return {tp: row for tp, row in found.items() if row is not None}

    def _uncommitted(self) -> Iterator[str]:
        for tp, position in self.consumer.positions.items():
            committed = self._progress.processed.get(tp, 0)
            if committed < position:
                yield f"{tp}: the group has committed {committed} of {position}"

    def _unread(self, leaders: Leaders) -> Iterator[str]:
        for tp, position in self._reader.positions.items():
            end = int(leaders[tp]["leo"]) if tp in leaders else -1
            if not self._reader.at_end(tp, end):
                yield f"{tp}: the reader of committed data is at {position} of {end}"

    def judge(
        self,
        number: int,
        inputs: Iterable[ReplicaLog],
        outputs: Sequence[ReplicaLog],
        acknowledged: set[bytes],
        changes: LogChanges,
    ) -> None:
        """Judge partition `number` of the sink; `findings` gets what is wrong.

        `acknowledged`: values of the same partition of the source that were acknowledged. `changes`: of the sink.
        """
        tp = TopicPartition(SINK, number)
        facts = OutputFacts(
            offered=self.offered,
            acknowledged=acknowledged,
            seen=self._reader.seen[tp],
            seen_markers_commit=self._reader.committed(tp),
            skipped=self._reader.skipped[tp],
            position=self._reader.positions[tp],
            unclean_epoch=self._unclean_epoch(tp),
            cleaned_end=changes.cleaned_end,
            epochs=self._progress.output_epochs.get(tp, {}),
            stale=self._progress.stale.get(tp, frozenset()),
        )
        judge_output(tp, facts, inputs, outputs, self.findings)
