"""The workload of a simulation: one topic, an idempotent producer (or several), a consumer.

Owns: `SimulatedWorkload`. It creates the topic, then sends batches at random moments of the run; the number of records
of each batch, and its partition, are drawn from the world's seed.
"""

from __future__ import annotations

from collections.abc import Mapping

from harrow.cluster.host.seam import Host
from harrow.cluster.ids import TopicPartition
from harrow.cluster.simulation import SimulatedCluster

from ..backends.simulated.wire import WireClient
from ..histories.memory import MemoryHistory
from ..run_settings import RunSettings
from .checks import FoundAnomaly
from .consumer import SimulatedConsumer
from .events import AnomalyFound
from .producer import SimulatedProducer


class SimulatedWorkload:
    """The producer and the consumer of one topic, and their pace."""

    def __init__(self, cluster: SimulatedCluster, settings: RunSettings) -> None:
        self._cluster = cluster
        self._settings = settings
        self.offered: set[bytes] = set()
        """The value of every record that was offered to the producer."""
        self._random = cluster.world.rng("workload")
        self._rest = settings.batches
        self.history = MemoryHistory()
        self.anomalies: list[FoundAnomaly] = []
        self._prepared = False
        host, reading = cluster.client("producer"), cluster.client("reader")
        self._host: Host = host
        self._client = WireClient(host, "producer", cluster.bootstrap)
        self.producer = self._producer(self._client, "producer")
        self.producers = [self.producer]
        """All of them; `producer` is the first."""
        for number in range(2, settings.producers + 1):
            name = f"producer-{number}"
            client = WireClient(cluster.client(name), name, cluster.bootstrap)
            producer = self._producer(client, name)
            client.host.tasks.spawn(producer.start(), name="start")
            self.producers.append(producer)
        self.consumer = SimulatedConsumer(
            WireClient(reading, "reader", cluster.bootstrap),
            settings.topic,
            settings.partitions,
            self.history,
            reads_from=settings.reads_from,
            on_anomaly=self._anomaly,
        )
        self._numbers = [0] * settings.partitions
        host.tasks.spawn(self._prepare(), name="prepare")

    def _producer(self, client: WireClient, name: str) -> SimulatedProducer:
        settings = self._settings
        return SimulatedProducer(
            client,
            settings.topic,
            settings.partitions,
            self.history,
            in_flight=settings.in_flight,
            acks=settings.acks,
            resends=settings.resends,
            on_anomaly=self._anomaly,
            name=name,
            keys=settings.keys,
        )

    @property
    def topics(self) -> tuple[str, ...]:
        """The topics that must have converged at the end."""
        return (self._settings.topic,)

    def calm(self) -> None:
        """The faults have ended."""

    def moving_groups(self) -> list[str]:
        """Return a line for each group that is not stable; this workload has none."""
        return []

    def hanging(self) -> list[str]:
        """Return a line for each transaction without end that no coordinator knows; this workload has none."""
        return []

    def left_open(self) -> list[str]:
        """Return what keeps the run from its end, beside replicas, sends and reads."""
        return []

    def _anomaly(self, name: str, text: str) -> None:
        self._cluster.world.record_event(AnomalyFound(name=name, text=text))
        self.anomalies.append((name, text))

    async def _prepare(self) -> None:
        for topic in self.topics:
            await self._create(topic, self.config_of(topic))
        await self.producer.start()
        for number in range(self._settings.partitions):
            await self._client.leader(TopicPartition(self._settings.topic, number))
        self.consumer.start()
        self._prepared = True

    @property
    def ready(self) -> bool:
        """True when the topic has leaders, and every producer its id."""
        return self._prepared and all(producer.started for producer in self.producers)

    def config_of(self, topic: str) -> Mapping[str, object]:
        """Return the settings with which a topic is created."""
        assert topic in self.topics, f"{topic} is no topic of this workload"
        return self._settings.topic_config

    async def _create(self, name: str, config: Mapping[str, object]) -> None:
        settings, texts = self._settings, {key: _text(value) for key, value in config.items()}
        await self._client.create_topic(name, settings.partitions, settings.replication_factor, texts)

    def begin(self) -> None:
        """Offer the first batch; the others follow at random moments, a little longer than the faults last."""
        self._host.tasks.spawn(self._offer_all(), name="offer")
        if self._settings.clock_jump_ms:
            self._host.tasks.spawn(self._jump(), name="clock-jump")

    async def _jump(self) -> None:
        """Set the wall clocks of all brokers ahead."""
        await self._host.tasks.sleep(self._settings.seconds * 500)
        for broker in self._cluster.brokers.values():
            broker.machine.clock.skew_ms += self._settings.clock_jump_ms

    async def _offer_all(self) -> None:
        rng, settings = self._random, self._settings
        pause_ms = settings.seconds * 1_000 / max(1, settings.batches)
        while self._rest:
            self._rest -= 1
            partition = rng.randrange(settings.partitions)
            at = self._numbers[partition]
            count = rng.choice((1, 1, 2, 3, 5))
            self._numbers[partition] += count
            values = [f"{partition}:{number}".encode() for number in range(at, at + count)]
            self.offered.update(values)
            producers = self.producers
            producer = rng.choice(producers) if len(producers) > 1 else self.producer
            producer.offer(partition, values)
            await self._host.tasks.sleep(rng.uniform(0, 2 * pause_ms))

    @property
    def done(self) -> bool:
        """True when everything was offered and acknowledged."""
        return not self._rest and all(producer.idle for producer in self.producers)


def _text(value: object) -> str:
    """A setting as Kafka's text: `true`, not `True`."""
    return str(value).lower() if isinstance(value, bool) else str(value)
