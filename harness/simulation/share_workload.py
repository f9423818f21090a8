"""The workload `shares` of a simulation: a share group of workers that are killed now and then (KIP-932).

Owns: `SharesWorkload`, which adds the group to the producer and the reader of `workload.py`. The group begins at the
earliest record. A run is converged when the leaders of the topic have no record left that is neither accepted,
rejected nor given up. `judge_group` says what is wrong with what the workers saw (`share_checks.py`).
"""

from __future__ import annotations

from collections.abc import Iterator

from harrow.cluster.config.group_table import SHARE_RESET, group_text
from harrow.cluster.events.partitions import PartitionLeader
from harrow.cluster.host.simulated import Machine
from harrow.cluster.ids import TopicPartition
from harrow.cluster.share_coordinator.values import SharePartition
from harrow.cluster.simulation import SimulatedCluster
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ..backends.simulated.replicas import hosted_replicas, leading_replica
from ..backends.simulated.wire import WireClient
from ..run_settings import RunSettings
from .checks import FoundAnomaly
from .share_checks import Elected, ShareLog
from .share_worker import ShareWorker
from .workload import SimulatedWorkload

GROUP = "workers"
WORKERS = 3
LIMIT, LOCK = "group.share.delivery.count.limit", "group.share.record.lock.duration.ms"
KILL_EVERY_MS = 1_500
DOWN_MS = (50, 2_000)
"""How long a killed worker is away: shorter and longer than its session and its locks."""
ALTER_VERSION, GROUP_RESOURCE, SET = 1, 32, 0
SETTLE_MS = 20


class SharesWorkload(SimulatedWorkload):
    """The producer and the reader of the topic, and the workers."""

    def __init__(self, cluster: SimulatedCluster, settings: RunSettings) -> None:
        self._begins_early = False
        self._calm = False
        super().__init__(cluster, settings)
        self._group_random = cluster.world.rng("shares")
        self.log = ShareLog(limit=settings.number(LIMIT, 5), lock_ms=settings.number(LOCK, 30_000))
        self._machines: list[Machine] = [cluster.client_machine(f"worker-{n}") for n in range(1, WORKERS + 1)]
        self._workers: dict[str, ShareWorker] = {}
        self._deaths = 0
        self._host.tasks.spawn(self._begin_early(), name="begin-early")

    async def _begin_early(self) -> None:
        """Let the group begin at the earliest record; wait until every broker knows it."""
        request = client_request(
            ApiKey.INCREMENTAL_ALTER_CONFIGS,
            ALTER_VERSION,
            resources=[
                {
                    "resource_type": GROUP_RESOURCE,
                    "resource_name": GROUP,
                    "configs": [{"name": SHARE_RESET, "config_operation": SET, "value": "earliest"}],
                }
            ],
            validate_only=False,
        )
        await self._client.ask_any_broker(request)
        while any(
            group_text(self._cluster.broker(node).config, GROUP, SHARE_RESET) != "earliest"
            for node in self._cluster.brokers
        ):
            await self._client.sleep(SETTLE_MS)
        self._begins_early = True

    @property
    def ready(self) -> bool:
        """True when there is nothing to wait for before the first record."""
        return super().ready and self._begins_early

    def begin(self) -> None:
        """Start everything."""
        super().begin()
        for machine in self._machines:
            self._start(machine)
        self._host.tasks.spawn(self._kill_workers(), name="kill-workers")

    def calm(self) -> None:
        """Kill no more workers; they accept everything."""
        self._calm = True

    def _start(self, machine: Machine) -> None:
        name = machine.name.removeprefix("client-")
        client = WireClient(machine.boot(), name, self._cluster.bootstrap)
        worker = ShareWorker(
            client,
            f"{name}.{self._deaths}",
            GROUP,
            self._settings.topic,
            self._group_random,
            self.log,
            lambda: self._calm,
        )
        self._workers[name] = worker
        worker.start()

    async def _kill_workers(self) -> None:
        rng = self._group_random
        while True:
            await self._host.tasks.sleep(rng.uniform(0.3, 1.7) * KILL_EVERY_MS)
            if self._calm:
                return
            machine = rng.choice(self._machines)
            machine.kill()
            self._deaths += 1
            self._workers[machine.name.removeprefix("client-")].died()
            await self._host.tasks.sleep(rng.uniform(*DOWN_MS))
            self._start(machine)

    # ------------------------------------------------------------------------------------- the end

    @property
    def done(self) -> bool:
        """True when every record was acknowledged by a broker, and is over for the group."""
        return super().done and all(machine.alive for machine in self._machines) and not any(self._lagging())

    def left_open(self) -> list[str]:
        """Return a line for each partition in which records are not over."""
        return list(self._lagging())

    def _lagging(self) -> Iterator[str]:
        for number in range(self._settings.partitions):
            tp = TopicPartition(self._settings.topic, number)
            leader = leading_replica(hosted_replicas(self._cluster, tp))
            if leader is None:
                yield f"{tp} has no leader"
                continue
            end = leader.log.log_end_offset
            start = self._start_offset(leader.leader, tp)
            if start is None or start < end:
                yield f"{tp}: the share group is at {start} of {end}"

    def _start_offset(self, node: int, tp: TopicPartition) -> int | None:
        """Up to where records are over, as the leader says; None while it does not know the share-partition."""
        broker = self._cluster.broker(node)
        topic_id = broker.cache.topic_id(tp.topic)
        if topic_id is None:
            return None
        led = broker.share_partitions.shares.find(SharePartition(GROUP, topic_id, tp.partition))
        return None if led is None or led.state is None or led.closed else led.state.start_offset

    def judge_group(self) -> list[FoundAnomaly]:
        """Return what is wrong with what the workers saw."""
        ends: dict[TopicPartition, int] = {}
        for number in range(self._settings.partitions):
            tp = TopicPartition(self._settings.topic, number)
            leader = leading_replica(hosted_replicas(self._cluster, tp))
            start = None if leader is None else self._start_offset(leader.leader, tp)
            if start is not None:
                ends[tp] = start
        elections = [
            Elected(row.t_ns, TopicPartition(event.topic, event.partition), int(event.leader), event.leader_epoch)
            for row in self._cluster.world.trace.events
            if isinstance(event := row.event, PartitionLeader)
        ]
        return list(self.log.judge(ends, elections))
