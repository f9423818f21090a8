"""The workload `exactly-once` of a simulation: a job in three processes, which are killed, and an operator.

Owns: `TransformWorkload`, which adds to the producer and the reader of `workload.py` the topic of the output, the jobs,
a reader of committed data, and `SimulatedOperator`. `judge` says what is wrong with the output:

* `missing-output`, `duplicate-output`, `unexpected-output`: not every record of the source has exactly one output;
* `inconsistent-offsets`: a reader of committed data received a record that is not committed in the final log;
* `unseen`: the reader passed over a record that is committed;
* `replica-divergence`: the committed records of two replicas differ.

`left_open` says why a run is not converged: an open transaction, or a last stable offset below the high watermark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from harrow.cluster.host.simulated import Machine
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.transactions.states import TransactionState

from ..run_settings import RunSettings
from .checks import FoundAnomaly, ReplicaLog
from .committed_reads import committed_records, records_of_log
from .operator import SimulatedOperator
from .transform_job import SimulatedJob, fetch_committed
from .wire import WireClient, pause_ms
from .workload import SimulatedWorkload

SINK = "bills"
JOBS = 3
KILL_EVERY_MS = 1_800
DOWN_MS = (50, 2_000)
"""How long a killed process of the job is away: shorter and longer than its session and its transaction."""
OPERATOR_PAUSE_MS = 500
READ_WAIT_MS = 400
AT_REST = (
    TransactionState.EMPTY, TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT, TransactionState.DEAD,
)  # fmt: skip


class TransformWorkload(SimulatedWorkload):
    """The producer and the reader of the source, the jobs, and a reader of the sink."""

    def __init__(self, cluster: SimulatedCluster, settings: RunSettings) -> None:
        super().__init__(cluster, settings)
        self._jobs_random = cluster.world.rng("jobs")
        self._processed: dict[TopicPartition, int] = {}
        self._machines: list[Machine] = [
            cluster.client_machine(f"job-{number}") for number in range(1, JOBS + 1)
        ]
        self._calm = False
        self._incarnations: list[SimulatedJob] = []
        """Every process of the job that was ever started."""
        self._seen: dict[TopicPartition, dict[int, bytes]] = {}
        self._sink_positions = {
            TopicPartition(SINK, number): 0 for number in range(settings.partitions)
        }
        self._reader = WireClient(cluster.client("sink-reader"), "sink-reader", cluster.bootstrap)
        self.operator = SimulatedOperator(
            WireClient(cluster.client("operator"), "operator", cluster.bootstrap), settings.topic, SINK,
            cluster.world.rng("operator"), pause_ms=OPERATOR_PAUSE_MS, deletable=self._deletable,
        )  # fmt: skip

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that must have converged at the end."""
        return (self._settings.topic, SINK)

    @property
    def transactions(self) -> int:
        """Transactions whose commit was confirmed."""
        return sum(job.committed for job in self._incarnations)

    def begin(self) -> None:
        """Start everything."""
        super().begin()
        for machine in self._machines:
            self._start(machine)
        for tp in self._sink_positions:
            self._reader.host.tasks.spawn(self._follow(tp), name=f"read-{tp}")
        self.operator.start()
        self._host.tasks.spawn(self._kill_jobs(), name="kill-jobs")

    def calm(self) -> None:
        """Kill no more processes, and change nothing more."""
        self._calm = True
        self.operator.stop()

    @property
    def done(self) -> bool:
        """True when every record was acknowledged, and the job and the readers have reached the ends."""
        return (
            super().done
            and all(machine.alive for machine in self._machines)
            and all(
                self._processed.get(tp, 0) >= position
                for tp, position in self.consumer.positions.items()
            )
            and not self.left_open()
            and all(position == self._end_of(tp) for tp, position in self._sink_positions.items())
        )

    def _deletable(self) -> Mapping[TopicPartition, int]:
        """Return up to where the job and the reader have read each partition of the source."""
        return {
            tp: min(offset, self.consumer.positions[tp]) for tp, offset in self._processed.items()
        }

    # ------------------------------------------------------------------------------------- jobs

    def _start(self, machine: Machine) -> None:
        host, settings = machine.boot(), self._settings
        name = machine.name.removeprefix("client-")
        job = SimulatedJob(
            WireClient(host, name, self._cluster.bootstrap), name, settings.topic, SINK, settings.partitions,
            self._jobs_random, self._processed,
        )  # fmt: skip
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

    # ------------------------------------------------------------------------------------- reads

    async def _follow(self, tp: TopicPartition) -> None:
        """Read committed data of the sink from its beginning."""
        seen = self._seen.setdefault(tp, {})
        while True:
            position = self._sink_positions[tp]
            row = await fetch_committed(self._reader, tp, position, READ_WAIT_MS)
            if row is None or row.error:
                await self._reader.refresh(tp.topic)
                await self._reader.host.tasks.sleep(pause_ms(self._reader.host))
                continue
            records, end = committed_records(row.records, row.aborted or ())
            seen.update(record for record in records if record[0] >= position)
            self._sink_positions[tp] = max(position, end or 0)

    # ------------------------------------------------------------------------------------- the end

    def left_open(self) -> list[str]:
        """Return a line for each open transaction, and for each leader whose LSO is below its HW."""
        return [*self._open_transactions(), *self._held_back()]

    def _open_transactions(self) -> Iterator[str]:
        for node, process in self._cluster.brokers.items():
            if not process.ready:
                continue
            for shard in self._cluster.broker(node).transactions.service.runtime.all_active():
                for transaction in shard:
                    if transaction.value.state not in AT_REST:
                        yield (
                            f"{transaction.transactional_id} is {transaction.value.state.title} on broker {node}"
                        )

    def _held_back(self) -> Iterator[str]:
        for rows in self._cluster.states().values():
            for row in rows:
                if row["is_leader"] and not row["lso"] == row["hw"] == row["leo"]:
                    yield (
                        f"{row['topic']}-{row['partition']}: LSO {row['lso']}, HW {row['hw']}, LEO {row['leo']}"
                    )

    def _end_of(self, tp: TopicPartition) -> int:
        ends = [
            row["leo"] for rows in self._cluster.states().values() for row in rows
            if (row["topic"], row["partition"]) == tp and row["is_leader"]
        ]  # fmt: skip
        return int(ends[0]) if ends else -1

    def judge_reads(self, tp: TopicPartition, final: Mapping[int, bytes]) -> Iterator[FoundAnomaly]:
        """Compare what the reader of the sink received with `final`, the committed values by offset."""
        seen = self._seen.get(tp, {})
        for offset, value in sorted(seen.items()):
            if final.get(offset) != value:
                yield (
                    "inconsistent-offsets",
                    f"{tp} at {offset}: {value.decode()} was read as committed",
                )
        for offset in sorted(set(final) - set(seen)):
            if offset < self._sink_positions[tp]:
                yield "unseen", f"{tp} at {offset}"


def judge_output(
    workload: TransformWorkload, tp: TopicPartition, inputs: Iterable[ReplicaLog], outputs: Iterable[ReplicaLog],
    acknowledged: set[bytes],
) -> Iterator[FoundAnomaly]:  # fmt: skip
    """Judge the partition `tp` of the sink by the logs of its replicas and those of the same partition of the source.

    `acknowledged`: values of the source that were acknowledged; they may have been deleted since.
    """
    required = set(acknowledged)
    for replica in inputs:
        if replica.is_leader:
            required |= {value for _, value in records_of_log(replica.data)[0]}
    committed = {replica.node: records_of_log(replica.data)[0] for replica in outputs}
    led = [committed[replica.node] for replica in outputs if replica.is_leader]
    final = led[0] if led else []
    for node, records in committed.items():
        if records != final:
            yield "replica-divergence", f"committed records of {tp} on broker {node} and the leader"
    counts = Counter(value for _, value in final)
    for value in sorted(required | set(counts)):
        if not counts[value]:
            yield "missing-output", f"{tp}: {value.decode()}"
        elif counts[value] > 1:
            yield "duplicate-output", f"{tp}: {value.decode()}, {counts[value]} times"
        elif value not in workload.offered:
            yield "unexpected-output", f"{tp}: {value.decode()}"
    yield from workload.judge_reads(tp, dict(final))
