"""The controller's orders: LeaderAndIsr and StopReplica (C8, D2, D6; seed 001).

Owns: the order of steps. Orders are taken one at a time, whatever connection they come on.

    broker epoch not ours         STALE_BROKER_EPOCH; one newer than ours is waited for a moment, for the
                                  controller may see a registration before its own broker does
    controller epoch older        STALE_CONTROLLER_EPOCH for all
    leader epoch older            STALE_CONTROLLER_EPOCH for that partition, and nothing done
    leader epoch the same         nothing done but to take in a newer ISR
    leader epoch newer            leader: fetcher off, remote LEOs reset, epoch start recorded, HW tried
                                  follower: fetcher off, role, delayed operations answered, fetcher on
                                  (which truncates before it fetches)

A partition whose log lies here under another topic id belongs to a deleted topic of the same name: it
is deleted and begun anew.

Everything between the checks and the answer happens in one turn of the loop: no request, no fetch
response and no timer sees half an order.

Source: Kafka's `ReplicaManager.becomeLeaderOrFollower`, `makeLeaders`, `makeFollowers`, `stopReplicas`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode, HarrowError, KafkaError, StorageError
from ..ids import BrokerEpoch, TopicPartition
from ..wire import messages
from .partition import Partition, PartitionState

if TYPE_CHECKING:
    from ..host.seam import Promise
    from ..wire.request import Request
    from .replica_manager import ReplicaManager

BROKER_EPOCH_WAIT_MS = 5_000
"""How long an order for a registration that this broker does not know yet waits for it."""
DELETED_EPOCH = -2
"""Leader epoch of a StopReplica for a deleted topic (KIP-570): newer than every other."""


class Orders:
    """Handlers of LeaderAndIsr and StopReplica."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager
        self._host = manager.host
        self._busy = False
        self._queue: list[Promise[None]] = []

    async def handle_leader_and_isr(self, request: Request) -> None:
        """Become leader or follower of what the controller says."""
        order = request.decode()
        await self._enter()
        try:
            error = await self._refusal(order)
            configs: dict[str, Mapping[str, object]] = {}
            if error is ErrorCode.none:
                configs = await self._configs(order)
                error = await self._refusal(order)  # it may have become old while we waited
            if error is not ErrorCode.none:
                request.fail(error)
                return
            request.respond(self._apply(request, order, configs))
        finally:
            self._leave()

    async def handle_stop_replica(self, request: Request) -> None:
        """Stop replicas, and delete their logs where asked."""
        order = request.decode()
        await self._enter()
        try:
            error = await self._refusal(order)
            if error is not ErrorCode.none:
                request.fail(error)
                return
            request.respond(self._stop(request, order))
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

    async def _refusal(self, order: Any) -> ErrorCode:
        manager = self._manager
        if order.broker_epoch > manager.broker_epoch:
            await manager.await_broker_epoch(BrokerEpoch(order.broker_epoch), BROKER_EPOCH_WAIT_MS)
        if order.broker_epoch != manager.broker_epoch:
            return ErrorCode.stale_broker_epoch
        if order.controller_epoch < manager.controller_epoch:
            return ErrorCode.stale_controller_epoch
        manager.controller_epoch = order.controller_epoch
        return ErrorCode.none

    async def _configs(self, order: Any) -> dict[str, Mapping[str, object]]:
        """Overrides of topics that have no log here yet; asked before anything changes."""
        found: dict[str, Mapping[str, object]] = {}
        ask = self._manager.topic_config
        for topic in order.topic_states:
            name = topic.topic_name
            for state in topic.partition_states:
                tp = TopicPartition(name, state.partition_index)
                if ask is not None and name not in found and self._manager.partition(tp) is None:
                    found[name] = await ask(name)
        return found

    # ------------------------------------------------------------ LeaderAndIsr

    def _apply(self, request: Request, order: Any, configs: dict[str, Mapping[str, object]]) -> Any:
        manager = self._manager
        leaders: list[Partition] = []
        followers: list[Partition] = []
        topics: list[Any] = []
        s = messages.response(request)
        for topic in order.topic_states:
            rows: list[Any] = []
            for row in topic.partition_states:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                error = ErrorCode.none
                try:
                    overrides = configs.get(topic.topic_name, {})
                    partition = manager.host_partition(
                        tp, topic.topic_id, overrides, is_new=row.is_new
                    )
                    self._become(partition, row, order.controller_epoch, leaders, followers)
                except KafkaError as refused:
                    error = refused.code
                except (StorageError, OSError) as failed:
                    error = ErrorCode.kafka_storage_error
                    manager.log_failed(manager.partition(tp), failed)
                rows.append(
                    s.LeaderAndIsrPartitionError(
                        partition_index=row.partition_index, error_code=error
                    )
                )
            topics.append(
                s.LeaderAndIsrTopicError(topic_id=topic.topic_id, partition_errors=tuple(rows))
            )
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
        manager = self._manager
        state = PartitionState(
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
            manager.fetchers.remove(partition)
        if state.leader == manager.node_id:
            self._lead(partition, state, leaders, fresh=fresh)
            return
        partition.become_follower(state)
        if fresh:
            followers.append(partition)
            self._trace("partition.follower", partition)

    def _lead(
        self, partition: Partition, state: PartitionState, leaders: list[Partition], *, fresh: bool
    ) -> None:
        manager = self._manager
        isr, high = partition.isr, partition.high_watermark
        now_ms = self._host.clock.monotonic_ms()
        partition.become_leader(state, now_ms)
        if fresh:
            leaders.append(partition)
            self._trace("partition.leader", partition)
            if partition.high_watermark > high:
                manager.high_watermark_moved(partition, "became-leader")
        elif partition.isr != isr:
            # its own write, whose outcome it did not know, or the controller's without a new epoch
            moved = partition.advance_high_watermark(now_ms)
            manager.isr_changed(partition, "leader-and-isr", moved)

    def _finish(self, leaders: list[Partition], followers: list[Partition]) -> None:
        manager = self._manager
        for partition in (*leaders, *followers):
            manager.role_changed(partition)
        for partition in followers:
            if partition.leader >= 0:
                manager.fetchers.add(partition)
        manager.fetchers.close_idle()
        manager.checkpoint.start()
        manager.announce(leaders, followers)

    def _trace(self, event: str, partition: Partition) -> None:
        topic, index = partition.topic_partition
        self._host.trace.emit(
            event,
            topic=topic,
            partition=index,
            leader=partition.leader,
            leader_epoch=partition.leader_epoch,
            isr=list(partition.isr),
            leo=partition.log_end_offset,
            hw=partition.high_watermark,
            cause="leader-and-isr",
        )

    # -------------------------------------------------------------- StopReplica

    def _stop(self, request: Request, order: Any) -> Any:
        s = messages.response(request)
        stopped: list[Partition] = []
        rows: list[Any] = []
        for topic in order.topic_states:
            for row in topic.partition_states:
                tp = TopicPartition(topic.topic_name, row.partition_index)
                error = self._stop_one(tp, row.leader_epoch, stopped, delete=row.delete_partition)
                rows.append(
                    s.StopReplicaPartitionError(
                        topic_name=tp.topic, partition_index=tp.partition, error_code=error
                    )
                )
        self._manager.fetchers.close_idle()
        if stopped:
            self._manager.announce([], stopped)
        return s.StopReplicaResponse(error_code=ErrorCode.none, partition_errors=tuple(rows))

    def _stop_one(
        self, tp: TopicPartition, leader_epoch: int, stopped: list[Partition], *, delete: bool
    ) -> ErrorCode:
        manager = self._manager
        partition = manager.partition(tp)
        if partition is not None:
            if leader_epoch not in (-1, DELETED_EPOCH) and leader_epoch < partition.leader_epoch:
                return ErrorCode.fenced_leader_epoch
            manager.drop(partition)
            stopped.append(partition)
        if delete:
            try:
                manager.delete_log(tp)
            except (HarrowError, OSError) as error:
                self._host.trace.log("error", f"{tp}: deleting its log failed: {error}")
                return ErrorCode.kafka_storage_error
        return ErrorCode.none
