"""Replication on one broker: the parts wired together, and what other rooms use of them (C1 to C8, E3, E4).

Owns: no rule. `ReplicaManager` creates the parts below, in the order of their dependencies, and starts and stops them.

    partition.py             role, high watermark, epochs of one replica; isr_state.py, remote_replica.py
    partition_directory.py   which replicas are here
    wake_ups.py              what an append, a moved high watermark, an fsync or a new role completes
    log_failures.py          partitions out of service
    leader_and_isr.py        LeaderAndIsr and StopReplica
    appends.py               appends; delayed_produce.py: acks=all; produce_handler.py, transaction_checks.py
    fetch_handler.py         reads for consumers and followers; fetch_reads.py, fetch_session.py
    fetcher_manager.py       following leaders; fetcher.py, follower_session.py, follower_truncation.py
    isr_writes.py, high_watermark_checkpoint.py, offset_trace.py
    list_offsets.py, delete_records.py, log_dirs.py, describe_producers.py

No part receives this manager, and no two parts import each other (import-linter contract).

Source: Kafka's `ReplicaManager`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from ..storage.results import Origin
from ..wire.api_table import ApiRow
from ..wire.fetch import FETCH_VERSION_HIGH, FETCH_VERSION_LOW
from ..wire.produce import PRODUCE_VERSION_HIGH, PRODUCE_VERSION_LOW
from .alter_log_dirs import VERSION_HIGH as ALTER_DIRS_VERSION_HIGH
from .alter_log_dirs import VERSION_LOW as ALTER_DIRS_VERSION_LOW
from .alter_log_dirs import AlterReplicaLogDirsHandler
from .appends import Appends
from .broker_registration import BrokerRegistration
from .current_leaders import CurrentLeaders
from .delayed_produce import Done
from .delete_records import VERSION_HIGH as DELETE_VERSION_HIGH
from .delete_records import VERSION_LOW as DELETE_VERSION_LOW
from .delete_records import DeleteRecordsHandler
from .describe_producers import DescribeProducersHandler
from .fetch_handler import FetchHandler
from .fetcher import FetcherServices
from .fetcher_manager import FetcherManager
from .follower_fetch_state import FollowerFetchState
from .high_watermark_checkpoint import HighWatermarkCheckpoint
from .isr_writes import IsrChanges, IsrStore, IsrWrites
from .leader_and_isr import LeaderAndIsrHandler, RoleServices
from .list_offsets import OffsetHandlers
from .log_dirs import VERSION_HIGH as LOG_DIRS_VERSION_HIGH
from .log_dirs import VERSION_LOW as LOG_DIRS_VERSION_LOW
from .log_dirs import DescribeLogDirsHandler
from .log_failures import LogFailures
from .offset_trace import OffsetTrace
from .partition import Partition
from .partition_directory import PartitionDirectory
from .produce_handler import ProduceHandler
from .read_replica import ReadReplicas
from .transaction_checks import TransactionChecks
from .truncation_strategies import STRATEGIES
from .wake_ups import WakeUps

if TYPE_CHECKING:
    from uuid import UUID

    from ..config import BrokerConfig
    from ..host.seam import Buffer, Host
    from ..ids import BrokerEpoch, ControllerEpoch, NodeId, TopicPartition
    from ..network.peers import PeerClient
    from ..purgatory import Purgatory
    from ..storage.log_manager import LogManager
    from .cluster_metadata import ClusterMetadata

LeadershipHook = Callable[[list[Partition], list[Partition]], None]


class ReplicaManager:
    """The replicas of one broker. `peers(node)` gives a new client of a broker, None if its address is unknown."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        logs: LogManager,
        registry_isr: IsrStore,
        peers: Callable[[NodeId], PeerClient | None],
        metadata: ClusterMetadata,
    ) -> None:
        self._host = host
        number = config.number
        self.on_leadership: list[LeadershipHook] = []
        """Called with the partitions that began to lead, and to follow, stopped or failed, after they did."""
        self._registration = BrokerRegistration(host)
        offsets = OffsetTrace(host, number("harrow.trace.hw.interval.ms"))
        self.wake_ups = WakeUps(host, config, offsets)
        self._checkpoint = HighWatermarkCheckpoint(
            host, logs, number("replica.high.watermark.checkpoint.interval.ms"), self.partitions
        )
        self.directory = PartitionDirectory(
            node_id=node_id,
            config=config,
            logs=logs,
            checkpoint=self._checkpoint,
            metadata=metadata,
            on_flush_finished=self._flush_finished,
            on_drop=self._dropped,
        )
        self.partition = self.directory.partition
        """The replica of a partition here; None when the controller placed none here."""
        self.missing = self.directory.missing
        """The error for a client when `partition(tp)` is None."""
        self.state = self.directory.state
        """Every replica here, JSON-able: for the control op `state`."""
        self.log_failures = LogFailures(host, logs, self.directory, self.wake_ups)
        log_failed = self.log_failures.log_failed
        isr_changes = IsrChanges(host, self.wake_ups)
        self.isr_changes: Mapping[str, int] = isr_changes.counts
        """How often ISRs changed here, by cause: for metrics."""
        shortest_ms = self.directory.shortest_lag_ms
        self._isr_writes = IsrWrites(host, registry_isr, node_id, shortest_ms, self.partitions, isr_changes)
        self.fetchers = FetcherManager(
            FetcherServices(
                host=host,
                node_id=node_id,
                config=config,
                registration=self._registration,
                peers=peers,
                strategy=STRATEGIES[config.text("harrow.replica.truncation")],
                offsets=offsets,
                wake_ups=self.wake_ups,
                log_failed=log_failed,
            )
        )
        self.log_failures.on_failure.append(self.fetchers.remove)
        self.log_failures.on_failure.append(self._announce_failure)
        self._appends = Appends(host, self.directory, self.wake_ups, log_failed)
        self.transaction_checks = TransactionChecks(host, config, self.directory)
        """Asks transaction coordinators; the broker connects it to them."""
        followers = FollowerFetchState(host, self.wake_ups, self._isr_writes, offsets, metadata)
        readers = ReadReplicas(node_id, config, metadata), CurrentLeaders(self.directory, metadata)
        self._fetch = FetchHandler(host, self.directory, self.wake_ups, followers, log_failed, config, *readers)
        self._log_dirs = DescribeLogDirsHandler(host, logs, self.directory)
        self._isr_changes, self._node_id, self._metadata = isr_changes, node_id, metadata
        self._leader_and_isr = LeaderAndIsrHandler(self._role_services())

    # ------------------------------------------------------------------- life

    def start(self) -> None:
        """Begin the periodic checks."""
        self._isr_writes.start()

    async def stop(self) -> None:
        """Stop following, answer what waits, write the high watermarks."""
        self.fetchers.close()
        self._isr_writes.stop()
        partitions = self.partitions()
        for partition in partitions:
            partition.stop()
        self.wake_ups.roles_changed(partitions)
        self.wake_ups.close()
        await self._host.tasks.run_blocking(self._checkpoint.stop)

    @property
    def broker_epoch(self) -> BrokerEpoch:
        """Epoch of this broker's registration (D6); -1 before the first."""
        return self._registration.epoch

    @broker_epoch.setter
    def broker_epoch(self, epoch: BrokerEpoch) -> None:
        self._registration.renew(epoch)

    @property
    def controller_epoch(self) -> ControllerEpoch:
        """The largest controller epoch that this broker received (D2)."""
        return self._leader_and_isr.controller_epoch

    async def await_broker_epoch(self, epoch: BrokerEpoch, timeout_ms: int) -> None:
        """Wait until the broker epoch is at least `epoch`, at most `timeout_ms`."""
        await self._registration.await_epoch(epoch, timeout_ms)

    def handlers(self) -> Iterable[ApiRow]:
        """The APIs that this room serves."""
        host, directory, log_failed = self._host, self.directory, self.log_failures.log_failed
        roles = self._leader_and_isr
        leaders = CurrentLeaders(directory, self._metadata)
        produce = ProduceHandler(host, directory, self._appends, self.transaction_checks, leaders)
        offsets = OffsetHandlers(host, directory, log_failed)
        delete_records = DeleteRecordsHandler(host, directory, self.wake_ups, log_failed)
        producers = DescribeProducersHandler(directory)
        alter_log_dirs = AlterReplicaLogDirsHandler(self._log_dirs.logs, directory)
        return (
            ApiRow(0, PRODUCE_VERSION_LOW, PRODUCE_VERSION_HIGH, produce.handle, refuse=produce.refuse),
            ApiRow(1, FETCH_VERSION_LOW, FETCH_VERSION_HIGH, self._fetch.handle, refuse=self._fetch.refuse),
            ApiRow(2, 1, 11, offsets.handle_list_offsets),
            ApiRow(4, 7, 7, roles.handle_leader_and_isr),
            ApiRow(5, 4, 4, roles.handle_stop_replica),
            ApiRow(21, DELETE_VERSION_LOW, DELETE_VERSION_HIGH, delete_records.handle),
            ApiRow(23, 2, 4, offsets.handle_offset_for_leader_epoch),
            ApiRow(61, 0, 0, producers.handle),
            ApiRow(34, ALTER_DIRS_VERSION_LOW, ALTER_DIRS_VERSION_HIGH, alter_log_dirs.handle),
            ApiRow(35, LOG_DIRS_VERSION_LOW, LOG_DIRS_VERSION_HIGH, self._log_dirs.handle),
        )

    # ------------------------------------------------------- for other rooms

    def session_partitions(self, session_id: int) -> Sequence[tuple[str | UUID, int]]:
        """The partitions of a consumer's fetch session; none for one that is not known."""
        return self._fetch.session_partitions(session_id)

    def partitions(self) -> Iterable[Partition]:
        """All replicas here."""
        return self.directory.partitions()

    def metadata_updated(self) -> None:
        """The live brokers may be others: DeleteRecords waits for live replicas only."""
        if self.wake_ups.deletions.delayed:
            self.wake_ups.deletions.check_all()

    def assigned_elsewhere(self, tp: TopicPartition, topic_id: UUID | None, leader_epoch: int) -> None:
        """The controller says that a partition has no replica here under `leader_epoch`."""
        self._leader_and_isr.stop_assigned_elsewhere(tp, topic_id, leader_epoch)

    def append(
        self,
        entries: Mapping[TopicPartition, Buffer],
        *,
        acks: int,
        timeout_ms: int,
        done: Done,
        internal: bool = False,
    ) -> None:
        """Append to partitions led here; `done(results)` is called once, maybe before this returns (see appends.py)."""
        self._appends.append(
            entries,
            acks=acks,
            timeout_ms=timeout_ms,
            done=done,
            origin=Origin.COORDINATOR if internal else Origin.CLIENT,
            internal_topics=internal,
        )

    @property
    def produces(self) -> Purgatory:
        """Where produces wait for their followers; operations of coordinators may wait here too."""
        return self.wake_ups.produces

    def purgatories(self) -> tuple[Purgatory, ...]:
        """All purgatories of this room: for metrics."""
        wake_ups = self.wake_ups
        return (
            wake_ups.produces,
            wake_ups.follower_fetches,
            wake_ups.consumer_fetches,
            wake_ups.share_fetches,
            wake_ups.deletions,
        )

    # ------------------------------------------------------- between the parts

    def _role_services(self) -> RoleServices:
        return RoleServices(
            host=self._host,
            node_id=self._node_id,
            registration=self._registration,
            directory=self.directory,
            fetchers=self.fetchers,
            wake_ups=self.wake_ups,
            isr_changes=self._isr_changes,
            checkpoint=self._checkpoint,
            metadata=self._metadata,
            log_failed=self.log_failures.log_failed,
            announce=self._announce,
        )

    def _flush_finished(self, partition: Partition) -> None:
        self.wake_ups.flush_finished(partition)
        self.fetchers.flush_finished()

    def _dropped(self, partition: Partition) -> None:
        self.fetchers.remove(partition)
        self.wake_ups.roles_changed((partition,))

    def _announce_failure(self, partition: Partition) -> None:
        """A failed log leads no more: in the next turn, because the append that failed may be a coordinator's."""
        self._host.tasks.call_soon(self._announce_if_present, partition)

    def _announce_if_present(self, partition: Partition) -> None:
        if self.partition(partition.topic_partition) is partition:
            self._announce([], [partition])

    def _announce(self, leaders: list[Partition], followers: list[Partition]) -> None:
        for hook in self.on_leadership:
            hook(list(leaders), list(followers))
