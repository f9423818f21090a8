"""One data folder of a broker, which may have several (B13): its own files, and whether it is online.

Owns: `.lock` (exclusive use of the folder), `meta.properties` (its broker and cluster), `.kafka_cleanshutdown`,
`recovery-point-offset-checkpoint`, `log-start-offset-checkpoint`, `replication-offset-checkpoint`.

Invariant: after the first I/O error a folder is offline until the broker restarts: nothing is read from it and
nothing is written, not even the clean-shutdown marker. What may fail: StorageError (the folder belongs to another
broker or cluster, or is in use), OSError (the disk).

Source: Kafka's `LogManager` (one log directory), `LogDirFailureChannel`, `MetaPropertiesEnsemble`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from ..broker_folder import DATA
from ..config import BrokerConfig
from ..errors import ConfigError, CorruptLogError, StorageError
from ..host.seam import Host, Lock
from ..ids import Offset, TopicPartition
from ..wire.topic_ids import draw_topic_id, text_of
from .checkpoints import OffsetCheckpoint
from .files import HIGH_WATERMARKS, LOCK, LOG_START_OFFSETS, RECOVERY_POINTS, partition_of
from .log import Log
from .metadata_files import MetaProperties, read_clean_shutdown, remove_clean_shutdown, write_clean_shutdown


def log_folders(config: BrokerConfig, base: str) -> list[str]:
    """The data folders that `log.dirs` names: relative to `base`, the broker's own folder, or absolute.

    ConfigError for a folder that is named twice.
    """
    names = [name.strip() for name in config.text("log.dirs").split(",") if name.strip()]
    paths = [name if name.startswith("/") else f"{base}/{name}" for name in names or [DATA]]
    paths = [path.rstrip("/") for path in paths]
    if len(set(paths)) < len(paths):
        raise ConfigError(f"log.dirs={config.text('log.dirs')!r} names a folder twice; remove one")
    return paths


class LogFolder:
    """One data folder; `path` as the configuration has it."""

    def __init__(self, host: Host, path: str) -> None:
        self._host = host
        self._disk = host.disk
        self._lock: Lock | None = None
        self._recovery_points = OffsetCheckpoint(host.disk, f"{path}/{RECOVERY_POINTS}")
        self._log_starts = OffsetCheckpoint(host.disk, f"{path}/{LOG_START_OFFSETS}")
        self._high_watermarks = OffsetCheckpoint(host.disk, f"{path}/{HIGH_WATERMARKS}")
        self.path = path
        self._points: dict[TopicPartition, Offset] = {}  # as checkpointed
        self._starts: dict[TopicPartition, Offset] = {}
        self._checkpointing = host.tasks.mutex()
        self.logs: dict[TopicPartition, Log] = {}
        self.failed: StorageError | None = None
        """Why the folder is offline; None while it is online."""
        self.was_clean = False
        self.previous_broker_epoch = -1
        self.meta: MetaProperties | None = None

    # -- start

    def open(self) -> None:
        """BLOCKS. Create the folder if it is absent, lock it, read its clean-shutdown marker and remove it."""
        self._disk.make_folder(self.path)
        try:
            self._lock = self._disk.lock(f"{self.path}/{LOCK}")
        except BlockingIOError:
            raise StorageError(
                f"the data folder {self.path} is in use by another process; stop that one, or use another"
            ) from None
        self.meta = MetaProperties.read(self._disk, self.path)
        self.was_clean, self.previous_broker_epoch = read_clean_shutdown(self._disk, self.path)
        self.remove_marker()

    def remove_marker(self) -> None:
        """BLOCKS briefly. Remove the clean-shutdown marker durably, before a log is opened (KAFKA-10471)."""
        remove_clean_shutdown(self._disk, self.path)

    def partitions(self) -> Iterable[tuple[TopicPartition | None, str]]:
        """The log folders in it: partition (None: not a log folder, or a deleted one) and path."""
        for name in self._disk.list(self.path):
            path = f"{self.path}/{name}"
            if self._disk.is_folder(path):
                yield partition_of(name), path

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """BLOCKS briefly. Write `meta.properties` in a new folder; StorageError for another owner."""
        meta = self.meta
        if meta is not None:
            if meta.cluster_id != cluster_id:
                raise StorageError(
                    f"{self.path} belongs to cluster {meta.cluster_id}, not {cluster_id}; "
                    "choose another folder, or delete it if its records may go"
                )
            if meta.broker_id != broker_id:
                raise StorageError(
                    f"{self.path} belongs to broker {meta.broker_id}, not {broker_id}; choose another folder"
                )
            if meta.directory_id:
                return
        fresh = MetaProperties(
            cluster_id=cluster_id, broker_id=broker_id, directory_id=text_of(draw_topic_id(self._host.random))
        )
        fresh.write(self._disk, self.path)
        self.meta = fresh

    # -- checkpoints

    def read_recovery_points(self) -> dict[TopicPartition, Offset]:
        """Recovery points as checkpointed."""
        self._points = self._read(self._recovery_points)
        return dict(self._points)

    def recovery_point_of(self, log: Log) -> Offset:
        """The recovery point of `log` in the checkpoint; 0 when it is not in it."""
        return self._points.get(log.topic_partition, Offset(0))

    def read_log_starts(self) -> dict[TopicPartition, Offset]:
        """Log start offsets as checkpointed."""
        self._starts = self._read(self._log_starts)
        return dict(self._starts)

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """High watermarks as checkpointed."""
        return self._read(self._high_watermarks)

    def _read(self, checkpoint: OffsetCheckpoint) -> dict[TopicPartition, Offset]:
        """A broken checkpoint makes recovery longer; it does not prevent the start (as in Kafka)."""
        try:
            return checkpoint.read()
        except CorruptLogError as error:
            self._host.trace.log("warning", f"{error}; going on without it")
            return {}

    def checkpoint_recovery_points(self) -> None:
        """BLOCKS briefly. Write recovery points and log start offsets of its logs. Any thread.

        One at a time: the offsets read here are on disk before `check_cut` of a truncation that happened meanwhile.
        """
        with self._checkpointing:
            self._checkpoint()

    def _checkpoint(self) -> None:
        logs = dict(self.logs)
        points = {tp: log.recovery_point for tp, log in logs.items()}
        self._recovery_points.write(points)
        self._points = points
        moved = {
            tp: log.log_start_offset for tp, log in logs.items() if log.log_start_offset > log.segments[0].base_offset
        }
        self._log_starts.write(moved)
        self._starts = moved

    def check_cut(self, log: Log) -> None:
        """`log` was truncated: lower its checkpoints if they are above. BLOCKS briefly.

        A recovery point above the truncation would declare the next records durable; a log start above it would empty
        the log at the next start.
        """
        tp, point, start = log.topic_partition, log.recovery_point, log.log_start_offset
        with self._checkpointing:
            if self._points.get(tp, point) > point or self._starts.get(tp, start) > start:
                self._checkpoint()

    def check_new(self, tp: TopicPartition) -> None:
        """A new log gets this name: remove the checkpoints of a deleted log with the same name. BLOCKS briefly."""
        with self._checkpointing:
            if tp in self._points or tp in self._starts:
                self._checkpoint()

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """BLOCKS briefly. Replace its `replication-offset-checkpoint`."""
        self._high_watermarks.write(offsets)

    # -- end

    def fail(self, error: StorageError) -> Sequence[Log]:
        """Take the folder offline with every log in it; returns those logs. Any thread."""
        if self.failed is None:
            self.failed = error
        logs = list(self.logs.values())
        for log in logs:
            if log.failed is None:
                log.failed = error
        return logs

    def close(self, *, clean: bool, broker_epoch: int) -> None:
        """BLOCKS. Unlock the folder; with `clean` write the checkpoints and the clean-shutdown marker."""
        try:
            if clean and self.failed is None:
                self.checkpoint_recovery_points()
                write_clean_shutdown(self._disk, self.path, broker_epoch)
        finally:
            self.logs.clear()
            if self._lock is not None:
                self._lock.release()
                self._lock = None
