"""Requests of the controller: LeaderAndIsr and StopReplica (C8, D2, D6; seed 001).

Owns: `LeaderAndIsrHandler`, and the order of steps. It takes these requests one at a time, on whichever
connection they come.

    broker epoch not ours         STALE_BROKER_EPOCH; a newer one than ours is waited for a moment, because the
                                  controller may see a registration before the broker itself does
    controller epoch older        STALE_CONTROLLER_EPOCH for all
    leader epoch older            STALE_CONTROLLER_EPOCH for that partition, and nothing done
    leader epoch the same         nothing done except that a newer ISR is adopted
    leader epoch newer            leader: fetcher off, remote LEOs reset, epoch start recorded, HW tried
                                  follower: fetcher off, role, delayed operations answered, fetcher on
                                  (which truncates before it fetches)

A broker that was away when a reassignment ended got no StopReplica, and when it registers again the controller has no
replica there to tell it about. Such a replica would lead under its old epoch for ever, and clients that know it as the
leader would read nothing new. So a replica is stopped, and its log deleted, as soon as an UpdateMetadata request says
under a newer leader epoch that the partition has no replica here (`stop_assigned_elsewhere`).

Everything between the checks and the response happens in one turn of the loop: no request, no fetch
response and no timer sees a request that is half applied.

Source: Kafka's `ReplicaManager.becomeLeaderOrFollower`, `makeLeaders`, `makeFollowers`, `stopReplicas`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, HarrowError, KafkaError, OpenFilesError, RegistryError, StorageError
from ..events.partitions import PartitionFollower, PartitionLeader
from ..host.seam.failpoints import BEFORE_FOLLOWER, BEFORE_LEADER, passes
from ..ids import BrokerEpoch, ControllerEpoch, TopicPartition
from ..wire import messages
from ..wire.topic_ids import text_of
from .isr_state import LeaderAndIsr

if TYPE_CHECKING:
    from uuid import UUID

    from ..host.seam import Host, Promise
    from ..ids import NodeId
    from ..wire.request import Request
    from .broker_registration import BrokerRegistration
    from .cluster_metadata import ClusterMetadata
    from .fetcher_manager import FetcherManager
    from .high_watermark_checkpoint import HighWatermarkCheckpoint
    from .isr_writes import IsrChanges
    from .partition import Partition
    from .partition_directory import PartitionDirectory
    from .wake_ups import WakeUps

BROKER_EPOCH_WAIT_MS = 5_000
"""How long a request that names a newer registration waits until this broker knows it."""
MANY = 50
"""After a request for so many partitions, which may have created as many logs, the loop serves others first."""
DELETED_EPOCH = -2
"""Leader epoch of a StopReplica for a deleted topic (KIP-570): newer than every other."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleServices:
    """What a change of roles touches. `announce` gets the partitions that began to lead and to follow."""

    host: Host
    node_id: NodeId
    registration: BrokerRegistration
    directory: PartitionDirectory
    fetchers: FetcherManager
    wake_ups: WakeUps
    isr_changes: IsrChanges
    checkpoint: HighWatermarkCheckpoint
    metadata: ClusterMetadata
    log_failed: Callable[[Partition | None, BaseException], None]
    announce: Callable[[list[Partition], list[Partition]], None]


class LeaderAndIsrHandler:
    """Handles LeaderAndIsr and StopReplica."""

    def __init__(self, services: RoleServices) -> None:
        self._services = services
        self._host = services.host
        self.controller_epoch = ControllerEpoch(0)
        """The largest controller epoch that a request of a controller carried (D2)."""
        self._busy = False
        self._queue: list[Promise[None]] = []

    async def handle_leader_and_isr(self, request: Request) -> None:
        """Become leader or follower of the partitions that the controller names."""
        body = request.decode()
        await self._enter()
        try:
            error = await self._refusal(body)
            configs: dict[str, Mapping[str, object]] = {}
            if error is ErrorCode.none:
                try:
                    configs = await self._configs(body)
                except RegistryError:  # this broker stops: another must lead
                    request.fail(ErrorCode.broker_not_available)
                    return
                error = await self._refusal(body)  # it may have become stale meanwhile
            if error is not ErrorCode.none:
                request.fail(error)
                return
            request.respond(self._apply(request, body, configs))
            if sum(len(topic.partition_states) for topic in body.topic_states) >= MANY:
                await self._host.tasks.sleep(0)
        finally:
            self._leave()

    async def handle_stop_replica(self, request: Request) -> None:
        """Stop replicas, and delete their logs if the request says so."""
        body = request.decode()
        await self._enter()
        try:
            error = await self._refusal(body)
            if error is not ErrorCode.none:
                request.fail(error)
                return
            request.respond(self._stop(request, body))
        finally:
            self._leave()

    # ----------------------------------------------------------------- checks

    async def _enter(self) -> None:
        if self._busy:
            turn: Promise[None] = self._host.tasks.promise()
            self._queue.append(turn)
            await turn
        self._busy = True

    def _leave(self) -> None:
        self._busy = False
        while self._queue:
            turn = self._queue.pop(0)
            if not turn.done():
                self._busy = True
                turn.set_result(None)
                return

    async def _refusal(self, body: Any) -> ErrorCode:
        registration = self._services.registration
        if body.broker_epoch > registration.epoch:
            await registration.await_epoch(BrokerEpoch(body.broker_epoch), BROKER_EPOCH_WAIT_MS)
        if body.broker_epoch != registration.epoch:
            return ErrorCode.stale_broker_epoch
        if body.controller_epoch < self.controller_epoch:
            return ErrorCode.stale_controller_epoch
        self.controller_epoch = body.controller_epoch
        return ErrorCode.none

    async def _configs(self, body: Any) -> dict[str, Mapping[str, object]]:
        """Overrides of topics that have no log here yet, read before anything changes."""
        found: dict[str, Mapping[str, object]] = {}
        directory, metadata = self._services.directory, self._services.metadata
        for topic in body.topic_states:
            name = topic.topic_name
            for state in topic.partition_states:
                tp = TopicPartition(name, state.partition_index)
                if name not in found and directory.partition(tp) is None:
                    found[name] = await metadata.topic_config(name)
        return found

    # ------------------------------------------------------------ LeaderAndIsr

    def _apply(self, request: Request, body: Any, configs: dict[str, Mapping[str, object]]) -> Any:
        services = self._services
        leaders: list[Partition] = []
        followers: list[Partition] = []
        topics: list[Any] = []
        unopened: dict[TopicPartition, OpenFilesError] = {}
        s = messages.response(request)
        for topic in body.topic_states:
            rows: list[Any] = []
            for row in topic.partition_states:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                error = ErrorCode.none
                try:
                    overrides = configs.get(topic.topic_name, {})
                    partition = services.directory.create(tp, topic.topic_id, overrides, is_new=row.is_new)
                    self._become(partition, row, body.controller_epoch, leaders, followers)
                except KafkaError as refusal:
                    error = refusal.code
                except OpenFilesError as refused:
                    error = ErrorCode.kafka_storage_error
                    unopened[tp] = refused
                except (StorageError, OSError) as failed:
                    error = ErrorCode.kafka_storage_error
                    services.log_failed(services.directory.partition(tp), failed)
                rows.append(s.LeaderAndIsrPartitionError(partition_index=row.partition_index, error_code=error))
            topics.append(s.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=tuple(rows)))
        if unopened:
            self._report(unopened)
        self._finish(leaders, followers)
        return s.LeaderAndIsrResponse(error_code=ErrorCode.none, topics=tuple(topics))

    def _become(
        self,
        partition: Partition,
        row: Any,
        controller_epoch: int,
        leaders: list[Partition],
        followers: list[Partition],
    ) -> None:
        services = self._services
        state = LeaderAndIsr(
            leader=row.leader,
            leader_epoch=row.leader_epoch,
            isr=tuple(row.isr),
            version=row.partition_epoch,
            replicas=tuple(row.replicas),
            controller_epoch=max(row.controller_epoch, controller_epoch),
        )
        if partition.failed:
            raise KafkaError(ErrorCode.kafka_storage_error)
        fresh = state.leader_epoch > partition.leader_epoch
        if fresh:
            services.fetchers.remove(partition)
        if state.leader == services.node_id:
            self._lead(partition, state, leaders, fresh=fresh)
            return
        if fresh:
            self._passes(BEFORE_FOLLOWER, partition)
        partition.become_follower(state)
        if fresh:
            followers.append(partition)
            self._trace(PartitionFollower, partition)

    def _lead(self, partition: Partition, state: LeaderAndIsr, leaders: list[Partition], *, fresh: bool) -> None:
        services = self._services
        isr, high = partition.isr, partition.high_watermark
        now_ms = self._host.clock.monotonic_ms()
        if fresh:
            self._passes(BEFORE_LEADER, partition)
        partition.become_leader(state, now_ms)
        if fresh:
            leaders.append(partition)
            self._trace(PartitionLeader, partition)
            if partition.high_watermark > high:
                services.wake_ups.high_watermark_moved(partition, "became-leader")
        elif partition.isr != isr:
            # A write of this leader whose outcome it did not know, or the controller's without a new epoch.
            moved = partition.advance_high_watermark(now_ms)
            services.isr_changes.committed(partition, "leader-and-isr", hw_moved=moved)

    def _passes(self, name: str, partition: Partition) -> None:
        passes(self._host.failpoints, self._host.trace, name, partition.topic_partition)

    def _finish(self, leaders: list[Partition], followers: list[Partition]) -> None:
        services = self._services
        services.wake_ups.roles_changed((*leaders, *followers))
        for partition in followers:
            if partition.leader >= 0:
                services.fetchers.add(partition)
        services.fetchers.close_idle()
        services.checkpoint.start()
        services.announce(leaders, followers)

    def _report(self, unopened: Mapping[TopicPartition, OpenFilesError]) -> None:
        names = ", ".join(map(str, unopened))
        why = next(iter(unopened.values()))
        count = len(unopened)
        self._host.trace.log("error", f"{count} replicas have no log here: {names}; {why}")

    def _trace(self, event: type[PartitionLeader | PartitionFollower], partition: Partition) -> None:
        topic, index = partition.topic_partition
        self._host.trace.emit(
            event(
                topic=topic,
                partition=index,
                topic_id=text_of(partition.topic_id),
                leader=partition.leader,
                leader_epoch=partition.leader_epoch,
                isr=tuple(partition.isr),
                leo=partition.log_end_offset,
                hw=partition.high_watermark,
                cause="leader-and-isr",
            )
        )

    # -------------------------------------------------------------- StopReplica

    def _stop(self, request: Request, body: Any) -> Any:
        s = messages.response(request)
        stopped: list[Partition] = []
        rows: list[Any] = []
        for topic in body.topic_states:
            for row in topic.partition_states:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                error = self._stop_one(tp, row.leader_epoch, stopped, delete=row.delete_partition)
                rows.append(
                    s.StopReplicaPartitionError(topic_name=tp.topic, partition_index=tp.partition, error_code=error)
                )
        self._services.fetchers.close_idle()
        if stopped:
            self._services.announce([], stopped)
        return s.StopReplicaResponse(error_code=ErrorCode.none, partition_errors=tuple(rows))

    def stop_assigned_elsewhere(self, tp: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> None:
        """The partition has no replica here under `leader_epoch`: stop the one that is left of an earlier epoch."""
        partition = self._services.directory.partition(tp)
        if partition is None or partition.topic_id != topic_id:
            return
        if leader_epoch <= partition.leader_epoch:
            return
        stopped: list[Partition] = []
        self._stop_one(tp, leader_epoch, stopped, delete=True)
        self._services.fetchers.close_idle()
        self._services.announce([], stopped)

    def _stop_one(self, tp: TopicPartition, leader_epoch: int, stopped: list[Partition], *, delete: bool) -> ErrorCode:
        directory = self._services.directory
        partition = directory.partition(tp)
        if partition is not None:
            if leader_epoch not in (-1, DELETED_EPOCH) and leader_epoch < partition.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            directory.drop(partition)
            stopped.append(partition)
        if delete:
            try:
                directory.delete_log(tp)
            except (HarrowError, OSError) as error:
                self._host.trace.log("error", f"{tp}: deleting its log failed: {error}")
                return ErrorCode.kafka_storage_error
        return ErrorCode.none
