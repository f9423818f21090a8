"""One simulated seed from its start to its verdict.

Owns: `SimulationOptions`, `run_seed`, `Outcome`. Five brokers and the registry on a virtual clock; an idempotent
producer with acks=all and a reader speak the real protocol to them; a nemesis does what its plan says; then all is
healed, everything must be acknowledged, replicated and read within `LIVENESS_MS` of virtual time, and `checks.py`
says what holds.

Verdicts: `valid`; `invalid` with its anomalies; `unknown` where nothing could have gone wrong: no fault took
effect, or nothing was acknowledged after the first one.
"""

from __future__ import annotations

import gc
import hashlib
import json
import random
from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field

from harrow.cluster.broker import preload
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import Host
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire import messages

from .checks import (
    Anomaly,
    check_delivered,
    check_lane,
    check_replicas,
    check_trace,
    content_of,
    log_bytes,
)
from .nemesis import Nemesis
from .producer import Producer
from .reader import Reader
from .wire import WireClient

TOPIC = "orders"
CREATE_TOPICS, CREATE_VERSION = 19, 5
LIVENESS_MS = 30_000
"""Virtual time after healing within which everything must be well again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SimulationOptions:
    """What every seed of a run has in common."""

    brokers: int = 5
    seconds: float = 8.0
    """Virtual time in which faults happen."""
    partitions: int = 2
    batches: int = 90
    power: bool = False
    """Power cuts too: what is not synced vanishes, so brokers sync before they acknowledge."""
    config: Mapping[str, object] = field(default_factory=dict[str, object])
    """Broker settings over the drawn ones; a run that is meant to fail sets them."""
    acks: int = -1
    """Less than all promises less: a run that is meant to fail."""
    topic_config: Mapping[str, str] = field(default_factory=dict[str, str])
    faults: Mapping[str, int] | None = None
    keep_trace: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What became of one seed."""

    seed: int
    status: str
    anomalies: tuple[Anomaly, ...]
    acknowledged: int
    faults: tuple[str, ...]
    elections: int
    converged_ms: int
    """Virtual time from healing to all well; -1: never."""
    turns: int
    trace_sha256: str
    trace: str = ""

    def to_json(self) -> str:
        """One line for a ledger, without the trace."""
        fields = {name: value for name, value in asdict(self).items() if name != "trace"}
        return json.dumps(fields, separators=(",", ":"))


class Workload:
    """The producer, the reader, and the pace of both."""

    def __init__(self, cluster: SimulatedCluster, options: SimulationOptions) -> None:
        self._cluster = cluster
        self._options = options
        self._random = cluster.world.rng("workload")
        self._rest = options.batches
        self.anomalies: list[Anomaly] = []
        self.ready = False
        host, reading = cluster.client("producer"), cluster.client("reader")
        self._host: Host = host
        self._client = WireClient(host, "producer", cluster.bootstrap)
        self.producer = Producer(
            self._client, TOPIC, options.partitions, in_flight=self._random.choice((1, 3, 5)),
            acks=options.acks, on_anomaly=self._anomaly,
        )  # fmt: skip
        self.reader = Reader(
            WireClient(reading, "reader", cluster.bootstrap), TOPIC, options.partitions,
            on_anomaly=self._anomaly,
        )  # fmt: skip
        self._numbers = [0] * options.partitions
        host.tasks.spawn(self._prepare(), name="prepare")

    def _anomaly(self, name: str, text: str) -> None:
        self._cluster.world.tell("anomaly", name=name, text=text)
        self.anomalies.append((name, text))

    async def _prepare(self) -> None:
        schema = messages.schema(CREATE_TOPICS, CREATE_VERSION, "request")
        configs = {"min.insync.replicas": "2", **self._options.topic_config}
        topic = schema.CreatableTopic(
            name=TOPIC, num_partitions=self._options.partitions, replication_factor=3, assignments=(),
            configs=tuple(
                schema.CreatableTopicConfig(name=name, value=value)
                for name, value in sorted(configs.items())
            ),
        )  # fmt: skip
        entity = schema.CreateTopicsRequest(
            topics=(topic,), timeout=messages.milliseconds(5_000), validate_only=False
        )
        while True:
            answer = await self._client.ask_anyone(CREATE_TOPICS, CREATE_VERSION, entity)
            if answer.topics[0].error_code in (ErrorCode.none, ErrorCode.topic_already_exists):
                break
            await self._host.tasks.sleep(20)
        await self.producer.start()
        for number in range(self._options.partitions):
            await self._client.leader(TopicPartition(TOPIC, number))
        self.reader.start()
        self.ready = True

    def begin(self) -> None:
        """Offer the first batch; the others follow at random moments, a little longer than the faults last."""
        self._host.tasks.spawn(self._offer_all(), name="offer")

    async def _offer_all(self) -> None:
        rng, options = self._random, self._options
        pause_ms = options.seconds * 1_000 / max(1, options.batches)
        while self._rest:
            self._rest -= 1
            partition = rng.randrange(options.partitions)
            at = self._numbers[partition]
            count = rng.choice((1, 1, 2, 3, 5))
            self._numbers[partition] += count
            values = [f"{partition}:{number}".encode() for number in range(at, at + count)]
            self.producer.offer(partition, values)
            await self._host.tasks.sleep(rng.uniform(0, 2 * pause_ms))

    @property
    def done(self) -> bool:
        """True when everything was offered and acknowledged."""
        return not self._rest and self.producer.idle


def drawn_config(rng: random.Random, options: SimulationOptions) -> dict[str, object]:
    """Broker settings of one seed: timeouts around each other, small segments now and then."""
    config: dict[str, object] = {
        "zookeeper.session.timeout.ms": rng.choice((600, 1_000, 1_500)),
        "replica.lag.time.max.ms": rng.choice((400, 1_000, 2_500)),
        "replica.high.watermark.checkpoint.interval.ms": rng.choice((200, 1_000, 5_000)),
        "log.segment.bytes": rng.choice((1_500, 6_000, 1 << 20)),
        "log.index.size.max.bytes": 4_096,  # mapped whole for each segment: 10 MiB of zeroes by default
        "replica.fetch.wait.max.ms": rng.choice((100, 400)),
        "default.replication.factor": 3,
        "harrow.trace.hw.interval.ms": 1_000,
    }
    if options.power:
        config["log.flush.interval.messages"] = 1
    return {**config, **options.config}


def run_seed(seed: int, options: SimulationOptions | None = None) -> Outcome:
    """Run one seed; the same options and seed give the same outcome, its trace included."""
    options = options or SimulationOptions()
    preload()
    config = drawn_config(random.Random(f"{seed}/config"), options)  # noqa: S311 - not cryptography
    # reference counts free almost everything of a seed; its cycles go once, at its end
    collecting = gc.isenabled()
    gc.disable()
    try:
        with SimulatedCluster(brokers=options.brokers, seed=seed, config=config) as cluster:
            return _run(seed, options, cluster)
    finally:
        if collecting:
            gc.enable()


def _run(seed: int, options: SimulationOptions, cluster: SimulatedCluster) -> Outcome:
    session_ms = int(str(cluster.config["zookeeper.session.timeout.ms"]))
    cluster.world.tell("begin", seed=seed, config=cluster.config)
    cluster.start()
    workload = Workload(cluster, options)
    assert cluster.run_until(lambda: workload.ready, 10_000), "the topic was never created"
    nemesis = Nemesis(
        cluster, duration_ms=options.seconds * 1_000, session_ms=session_ms, power=options.power,
        faults=None if options.faults is None else dict(options.faults),
    )  # fmt: skip
    nemesis.start()
    workload.begin()
    cluster.run_for(options.seconds * 1_000)
    nemesis.heal()
    healed_ms = cluster.world.loop.now_ms
    well = cluster.run_until(lambda: all_well(cluster, workload, options), LIVENESS_MS)
    converged_ms = cluster.world.loop.now_ms - healed_ms if well else -1
    anomalies = list(workload.anomalies)
    if not well:
        anomalies.append(("not-converged", what_is_wrong(cluster, workload)))
    anomalies += check_cluster(cluster, workload)
    return _outcome(seed, options, cluster, workload, nemesis, anomalies, converged_ms)


def _outcome(
    seed: int, options: SimulationOptions, cluster: SimulatedCluster, workload: Workload,
    nemesis: Nemesis, anomalies: list[Anomaly], converged_ms: int,
) -> Outcome:  # fmt: skip
    batches = [batch for lane in workload.producer.lanes for batch in lane.acked]
    first_ms = nemesis.first_ms
    met = first_ms is not None and any(
        batch.acked_ms is not None and batch.acked_ms >= first_ms for batch in batches
    )
    status = "invalid" if anomalies else "valid" if met else "unknown"
    counts = Counter(event for _, _, event, _ in cluster.world.trace.events)
    cluster.world.tell(
        "end", status=status, anomalies=anomalies, turns=cluster.world.loop.turns,
        acknowledged=workload.producer.acked,
    )  # fmt: skip
    text = cluster.world.trace.text()
    return Outcome(
        seed=seed, status=status, anomalies=tuple(anomalies), acknowledged=workload.producer.acked,
        faults=tuple(nemesis.done), elections=counts["partition.leader"], converged_ms=converged_ms,
        turns=cluster.world.loop.turns, trace_sha256=hashlib.sha256(text.encode()).hexdigest(),
        trace=text if options.keep_trace else "",
    )  # fmt: skip


def all_well(cluster: SimulatedCluster, workload: Workload, options: SimulationOptions) -> bool:
    """Everything acknowledged, every replica in sync and at the end, everything read."""
    if not workload.done or not all(process.ready for process in cluster.processes()):
        return False
    states = cluster.states()
    for number in range(options.partitions):
        tp = TopicPartition(TOPIC, number)
        rows = [
            (node, row) for node, states_of in states.items() for row in states_of
            if row["topic"] == TOPIC and row["partition"] == number
        ]  # fmt: skip
        leaders = [(node, row) for node, row in rows if row["is_leader"]]
        if len(leaders) != 1:
            return False
        _, leader = leaders[0]
        replicas = set(leader["replicas"])
        held = [row for node, row in rows if node in replicas]
        if len(held) != len(replicas) or set(leader["isr"]) != replicas:
            return False
        if any((row["leo"], row["hw"]) != (leader["leo"], leader["leo"]) for row in held):
            return False
        if workload.reader.positions[tp] != leader["leo"]:
            return False
    return True


def what_is_wrong(cluster: SimulatedCluster, workload: Workload) -> str:
    """What a seed that did not converge looks like."""
    lines = [f"{process.name} {process.state}" for process in cluster.processes()]
    lines += [f"pending {len(lane.pending)} {lane.broken}" for lane in workload.producer.lanes]
    lines.append(f"read to {list(workload.reader.positions.values())}")
    for node, rows in cluster.states().items():
        lines += [
            f"broker {node}: {row['topic']}-{row['partition']} leader {row['leader']} epoch {row['leader_epoch']} "
            f"isr {row['isr']} leo {row['leo']} hw {row['hw']}"
            for row in rows
            if row["topic"] == TOPIC
        ]
    return "; ".join(lines)


def check_cluster(cluster: SimulatedCluster, workload: Workload) -> list[Anomaly]:
    """Everything that `checks.py` asks."""
    found: list[Anomaly] = list(check_trace(cluster.world.trace))
    for lane in workload.producer.lanes:
        logs: dict[int, bytes] = {}
        leader_log: bytes | None = None
        for node, process in cluster.brokers.items():
            partition = cluster.broker(node).replicas.partition(lane.tp) if process.ready else None
            if partition is None or node not in partition.replicas:
                continue
            logs[node] = log_bytes(partition.log)
            if partition.is_leader:
                leader_log = logs[node]
        if leader_log is None:
            continue
        content = content_of(leader_log)
        found += check_lane(lane, content)
        found += check_delivered(lane.tp, workload.reader.delivered[lane.tp], content)
        found += check_replicas(lane.tp, logs)
    return found
