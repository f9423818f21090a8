"""Every log of one data folder: loading, creating, deleting, checkpoints, retention, closing.

Owns: topic-partition → `Log`; the data folder's own files (`recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `replication-offset-checkpoint`, `.kafka_cleanshutdown`).

Invariants: the clean-shutdown marker exists only while no broker runs on the folder, and only when every
log was closed without an error; a partition's folder has `partition.metadata` before it has records.
What may fail: StorageError and CorruptLogError (the message names the file), OSError from the disk.

Source: Kafka's `LogManager`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from ..config import BrokerConfig, TopicConfig
from ..errors import CorruptLogError, StorageError
from ..host.seam import Host
from ..ids import Offset, TopicPartition
from .checkpoints import OffsetCheckpoint
from .files import (
    DELETED_FOLDER,
    FUTURE_FOLDER,
    HIGH_WATERMARKS,
    LOG_START_OFFSETS,
    RECOVERY_POINTS,
    deleted_folder_name,
    partition_of,
)
from .loader import START, LogOptions, open_log
from .log import Log
from .metadata_files import (
    read_topic_id,
    take_clean_shutdown,
    write_clean_shutdown,
    write_topic_id,
)
from .retention import clean_up


class LogManager:
    """The logs of one broker's data folder."""

    def __init__(self, host: Host, folder: str, config: BrokerConfig) -> None:
        self._host = host
        self._disk = host.disk
        self._config = config
        self._logs: dict[TopicPartition, Log] = {}
        self._recovery_points = OffsetCheckpoint(host.disk, f"{folder}/{RECOVERY_POINTS}")
        self._log_starts = OffsetCheckpoint(host.disk, f"{folder}/{LOG_START_OFFSETS}")
        self._high_watermarks = OffsetCheckpoint(host.disk, f"{folder}/{HIGH_WATERMARKS}")
        self.folder = folder
        self.was_clean = False
        """The last stop was a clean one; known after `load`."""
        self.previous_broker_epoch = -1
        """The broker epoch that the clean-shutdown marker named (KIP-966); -1 without one."""
        self.broker_epoch = -1
        """Written to the marker at a clean stop; the broker sets it when it has registered."""

    def load(self) -> None:
        """BLOCKS. Open every log of the folder, recovering those that need it (B9)."""
        self._disk.make_folder(self.folder)
        self.was_clean, self.previous_broker_epoch = take_clean_shutdown(self._disk, self.folder)
        recovery_points = self._read(self._recovery_points)
        log_starts = self._read(self._log_starts)
        for name in self._disk.list(self.folder):
            path = f"{self.folder}/{name}"
            if name.endswith((DELETED_FOLDER, FUTURE_FOLDER)) and self._disk.is_folder(path):
                self._disk.remove_folder(path)
                continue
            topic_partition = partition_of(name)
            if topic_partition is None or not self._disk.is_folder(path):
                continue
            self._logs[topic_partition] = self._open(
                topic_partition,
                path,
                self._config.topic(),
                topic_id=read_topic_id(self._disk, path),
                recovery_point=recovery_points.get(topic_partition, START),
                log_start=log_starts.get(topic_partition, START),
                clean=self.was_clean,
            )

    def _read(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, Offset]:
        """A broken checkpoint costs a longer recovery, not the start (as in Kafka)."""
        try:
            return checkpoint.read()
        except CorruptLogError as error:
            self._host.trace.log("warning", f"{error}; going on without it")
            return {}

    def _open(
        self,
        topic_partition: TopicPartition,
        path: str,
        config: TopicConfig,
        *,
        topic_id: str,
        recovery_point: Offset = START,
        log_start: Offset = START,
        clean: bool = True,
    ) -> Log:
        options = LogOptions(
            config=config,
            topic_id=topic_id,
            recovery_point=recovery_point,
            log_start_offset=log_start,
            clean=clean,
            tail_bytes=self._config.number("harrow.tail.bytes"),
            producer_expiration_ms=self._config.number("producer.id.expiration.ms"),
        )
        return open_log(self._host, path, topic_partition, options)

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a replica that this folder has."""
        return self._logs.get(topic_partition)

    def logs(self) -> Iterable[Log]:
        """All of them; a copy, so logs may come and go meanwhile."""
        return list(self._logs.values())

    def create(self, topic_partition: TopicPartition, topic_id: str, config: TopicConfig) -> Log:
        """The log of a new replica; the one that is there, reconfigured, where there is one.

        `topic_id` in Kafka's base64url. StorageError when the folder belongs to another topic of the
        same name: the old one must be deleted first.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id and topic_id and log.topic_id != topic_id:
                raise StorageError(
                    f"{log.folder} belongs to topic id {log.topic_id}, not {topic_id}; "
                    "delete the old replica first"
                )
            if topic_id and not log.topic_id:
                write_topic_id(self._disk, log.folder, topic_id)
                log.topic_id = topic_id
            log.reconfigure(config)
            return log
        path = f"{self.folder}/{topic_partition}"
        try:
            self._disk.make_folder(path)
            if topic_id:
                write_topic_id(self._disk, path, topic_id)
            log = self._open(topic_partition, path, config, topic_id=topic_id)
        except OSError as error:
            raise StorageError(f"could not create the log {path}: {error}") from error
        self._logs[topic_partition] = log
        return log

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the folder to `…-delete` now, remove it after `file.delete.delay.ms` (B7).

        No error where there is no such log.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return
        log.retire()
        unique = f"{self._host.random.getrandbits(128):032x}"
        target = f"{self.folder}/{deleted_folder_name(topic_partition, unique)}"
        try:
            self._disk.rename(log.folder, target)
        except OSError as error:
            raise StorageError(f"could not delete {log.folder}: {error}") from error
        delay_ms = log.config.number("file.delete.delay.ms")
        self._host.tasks.call_later(delay_ms, self._remove_soon, log, target)

    def _remove_soon(self, log: Log, path: str) -> None:
        self._host.tasks.spawn(self._remove(log, path), name=f"log.remove {log.topic_partition}")

    async def _remove(self, log: Log, path: str) -> None:
        log.abandon()
        await self._host.tasks.run_blocking(self._disk.remove_folder, path)

    # -- checkpoints

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """What `write_high_watermarks` wrote last (C3)."""
        return self._read(self._high_watermarks)

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """BLOCKS briefly. Replace `replication-offset-checkpoint`."""
        self._high_watermarks.write(offsets)

    def checkpoint_recovery_points(self) -> None:
        """BLOCKS briefly. Write recovery points and log start offsets of all logs."""
        self._recovery_points.write({tp: log.recovery_point for tp, log in self._logs.items()})
        moved = {
            tp: log.log_start_offset
            for tp, log in self._logs.items()
            if log.log_start_offset > log.segments[0].base_offset
        }
        self._log_starts.write(moved)

    # -- periodic work

    def clean_up(self) -> int:
        """Retention of every log and expiry of silent producers; returns the segments dropped."""
        removed = 0
        now = self._host.clock.wall_ms()
        for log in self.logs():
            if log.failed is None:
                removed += clean_up(self._host, log)
                log.producers.remove_expired(now)
        return removed

    def flush_overdue(self) -> None:
        """BLOCKS. fsync the logs whose `flush.ms` has passed since their last flush (B11)."""
        now = self._host.clock.wall_ms()
        for log in self.logs():
            if now - log.flushed_ms >= log.config.number("flush.ms"):
                log.flush()

    # -- end

    def close(self, *, clean: bool) -> None:
        """BLOCKS. Give all files back.

        With `clean` everything is flushed, snapshots and checkpoints are written and, when no log
        failed, the marker that spares the next start its recovery.
        """
        failures: list[str] = []
        for log in self.logs():
            try:
                if clean:
                    log.close()
                else:
                    log.abandon()
            except StorageError as error:
                failures.append(str(error))
        if clean:
            self.checkpoint_recovery_points()
            for failure in failures:
                self._host.trace.log("error", f"not a clean stop: {failure}")
            if not failures:
                write_clean_shutdown(self._disk, self.folder, self.broker_epoch)
        self._logs.clear()
