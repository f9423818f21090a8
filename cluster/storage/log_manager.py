"""Every log of a broker, in one data folder or several: loading, creating, deleting, checkpoints, closing.

Owns: topic-partition → `Log`; the data folders (`log_folder.py`); the choice of the folder for a new log (the folder
that `prefer` named, else the folder with the fewest logs); which logs go offline with an I/O error.

Invariants:

* A folder in which a system call failed is offline at once: every log in it refuses calls from that moment on,
  whichever log it was (KAFKA-10778), and `on_folder_failed` is called on the loop. The other folders stay online (B13).
* The clean-shutdown marker exists only while no broker runs on the folder, and only when every log in it was
  closed without an error; a partition's folder has `partition.metadata` before it has records.
* While a folder is offline, a replica that is not new gets no new log elsewhere: its records may be there.
* A new log is refused (OpenFilesError) while the process may open few more files: an eighth of its limit stays free for
  connections, checkpoints and the next segments of the logs that are here. No folder goes offline for that.

What may fail: StorageError, OpenFilesError and CorruptLogError (the message names the file), OSError from the disk.
Source: Kafka's `LogManager`, `LogDirFailureHandler`.
"""

from __future__ import annotations

import contextlib
import errno
from collections.abc import Callable, Iterable, Mapping, Sequence

from ..config import BrokerConfig, TopicConfig
from ..errors import OpenFilesError, StorageError
from ..events.logs import LogFolderFailed
from ..host.seam import Host
from ..host.seam.failpoints import AFTER_LOGS, AFTER_MARKER_REMOVAL, BEFORE_LOWER_CHECKPOINTS
from ..ids import Offset, TopicPartition
from .compaction.log_cleaner import LogCleaner
from .files import deleted_folder_name
from .flusher import Flusher
from .log import Log
from .log_folder import LogFolder
from .metadata_files import write_topic_id
from .opening.gaps import Gaps
from .opening.log_opener import LogOpener
from .retention import clean_up
from .tail import TailBudget

LOG_FILES_MOST = 8
"""No new log has more files."""
FREE_SHARE = 8
"""One part of so many of the limit of open files stays free."""
_NO_MORE_FILES = (errno.EMFILE, errno.ENFILE)

FolderFailed = Callable[[LogFolder, Sequence[Log], StorageError], None]


class LogManager:
    """The logs of one broker; `folders`: its data folder, or several."""

    def __init__(self, host: Host, folders: str | Sequence[str], config: BrokerConfig) -> None:
        self._host = host
        self._disk = host.disk
        self._config = config
        self.tasks = host.tasks
        """Of the host."""
        paths = [folders] if isinstance(folders, str) else list(folders)
        self.folders = [LogFolder(host, path) for path in paths]
        self._logs: dict[TopicPartition, Log] = {}
        self._folder_of: dict[TopicPartition, LogFolder] = {}
        self._preferred: dict[TopicPartition, LogFolder] = {}
        self._tails = TailBudget(config.number("harrow.tail.total.bytes"))
        self._opener = LogOpener(host, config)
        self._flusher = Flusher(host)
        self._reported: set[LogFolder] = set()
        self._gaps = Gaps(host)
        self.cleaner = LogCleaner(host, config, self.logs)
        """Compaction (B8); the broker starts and stops it."""
        self.on_folder_failed: list[FolderFailed] = []
        """Called on the loop, once for each folder that went offline, with the logs that were in it."""
        self.broker_epoch = -1
        """Written to the markers at a clean stop; the broker sets it when it has registered."""

    @property
    def online(self) -> list[LogFolder]:
        """The folders that can be used."""
        return [folder for folder in self.folders if folder.failed is None]

    @property
    def was_clean(self) -> bool:
        """The last stop was a clean one in every folder; known after `load`."""
        return all(folder.was_clean for folder in self.folders)

    @property
    def previous_broker_epoch(self) -> int:
        """The broker epoch that the clean-shutdown markers named (KIP-966); -1 without one in every folder."""
        return min(folder.previous_broker_epoch for folder in self.folders)

    # -- start

    async def start(self) -> None:
        """Load the logs off the loop; errors as of `load`."""
        await self.tasks.run_blocking(self.load)

    def load(self) -> None:
        """BLOCKS. Open every log of every folder, recovering those that need it (B9).

        A folder that cannot be read is offline; StorageError when that leaves none, OSError with one folder.
        """
        for folder in self.folders:
            try:
                folder.open()
                self._host.failpoints.hit(AFTER_MARKER_REMOVAL)
                self._load_folder(folder)
            except OSError as error:
                if len(self.folders) == 1:
                    raise
                failure = StorageError(f"the data folder {folder.path} is offline: {error}")
                self._host.trace.log("error", str(failure))
                self.folder_failed(folder, failure)
        if not self.online:
            raise StorageError(f"no data folder can be used: {self.folders[0].failed}")
        self._host.failpoints.hit(AFTER_LOGS)

    def _load_folder(self, folder: LogFolder) -> None:
        for log in self._opener.open_all(folder, self._folder_of):
            self._add(folder, log)
            if not folder.was_clean:
                durable = max(self.cleaner.manager.cleaned(log), folder.recovery_point_of(log))
                self._gaps.look_for(log, durable)
                log.flush_what_is_due()
        self._host.failpoints.hit(BEFORE_LOWER_CHECKPOINTS)
        for log in list(folder.logs.values()):
            folder.check_cut(log)  # truncated by this loading, or by the last broker before it crashed

    def claim(self, cluster_id: str, broker_id: int) -> None:
        """BLOCKS briefly. Note in every folder whose it is; StorageError when one is another's."""
        for folder in self.online:
            try:
                folder.claim(cluster_id, broker_id)
            except OSError as error:
                self._fail(folder, "claim", error)

    def _add(self, folder: LogFolder, log: Log) -> None:
        self.cleaner.manager.watch(log)
        clean = log.on_cut

        def cut(end: Offset) -> None:
            clean(end)
            folder.check_cut(log)

        log.on_cut = cut
        log.join(self._tails, self._flusher.due, self.log_failed)
        self._logs[log.topic_partition] = log
        self._folder_of[log.topic_partition] = folder
        folder.logs[log.topic_partition] = log

    # -- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """The log of a replica of this broker, whether its folder is offline or not; None without a replica."""
        return self._logs.get(topic_partition)

    def logs(self) -> Iterable[Log]:
        """All logs; a copy, so that logs may be created and deleted during an iteration."""
        return list(self._logs.values())

    def create(
        self, topic_partition: TopicPartition, topic_id: str, config: TopicConfig, *, is_new: bool = True
    ) -> Log:
        """The log of a new replica, or the existing log of the replica, reconfigured.

        `topic_id` in Kafka's base64url. StorageError when the folder belongs to another topic of the
        same name, which must be deleted first; and, unless `is_new`, when the log may lie in an offline folder.
        """
        log = self._logs.get(topic_partition)
        if log is not None:
            if log.topic_id and topic_id and log.topic_id != topic_id:
                raise StorageError(
                    f"{log.folder} belongs to topic id {log.topic_id}, not {topic_id}; delete the old replica first"
                )
            if topic_id and not log.topic_id:
                try:
                    write_topic_id(self._disk, log.folder, topic_id)
                except OSError as error:
                    raise self._fail(self._folder_of[topic_partition], "write to", error) from error
                log.topic_id = topic_id
            log.reconfigure(config)
            self._gaps.close(log)
            return log
        online = self.online
        if not online or (len(online) < len(self.folders) and not is_new):
            raise StorageError(
                f"{topic_partition} is not new, and its log may lie in a folder that is offline; repair the disk and "
                "restart the broker: "
                f"{[folder.path for folder in self.folders if folder.failed]}"
            )
        self._check_open_files(topic_partition)
        folder = self._preferred.pop(topic_partition, None)
        if folder not in online:
            folder = min(online, key=lambda folder: len(folder.logs))
        path = f"{folder.path}/{topic_partition}"
        try:
            folder.check_new(topic_partition)
            self._disk.make_folder(path)
            if topic_id:
                write_topic_id(self._disk, path, topic_id)
            log = self._opener.open_new(topic_partition, path, config, topic_id)
        except OSError as error:
            if error.errno in _NO_MORE_FILES:
                with contextlib.suppress(OSError):  # else the next start opens an empty log
                    self._disk.remove_folder(path)
                raise _no_more_files(topic_partition, 0) from error
            raise self._fail(folder, f"create the log {topic_partition} in", error) from error
        self._add(folder, log)
        return log

    def _check_open_files(self, topic_partition: TopicPartition) -> None:
        left, limit = self._disk.files_left()
        if left < LOG_FILES_MOST + limit // FREE_SHARE:
            raise _no_more_files(topic_partition, left)

    def folder_at(self, path: str) -> LogFolder | None:
        """The data folder at an absolute path; None where `log.dirs` names none there."""
        return next((folder for folder in self.folders if folder.path == path.rstrip("/")), None)

    def prefer(self, topic_partition: TopicPartition, folder: LogFolder) -> None:
        """The log of this replica, when it is created, lies in `folder` if that is online then."""
        self._preferred[topic_partition] = folder

    def delete(self, topic_partition: TopicPartition) -> None:
        """Rename the log folder to `…-delete` now, remove it after `file.delete.delay.ms` (B7).

        No error when the log does not exist.
        """
        log = self._logs.pop(topic_partition, None)
        if log is None:
            return
        self._gaps.forget(log)
        folder = self._folder_of.pop(topic_partition)
        folder.logs.pop(topic_partition, None)
        log.retire()
        self.cleaner.manager.deleted(log)
        unique = f"{self._host.random.getrandbits(128):032x}"
        target = f"{folder.path}/{deleted_folder_name(topic_partition, unique)}"
        try:
            self._disk.rename(log.folder, target)
        except OSError as error:
            raise self._fail(folder, f"delete {topic_partition} from", error) from error
        delay_ms = log.config.number("file.delete.delay.ms")
        self._host.tasks.call_later(delay_ms, self._remove_soon, folder, log, target)

    def _remove_soon(self, folder: LogFolder, log: Log, path: str) -> None:
        name = f"log.remove {log.topic_partition}"
        self._host.tasks.spawn(self._remove(folder, log, path), name=name)

    async def _remove(self, folder: LogFolder, log: Log, path: str) -> None:
        log.abandon()
        try:
            await self._host.tasks.run_blocking(self._disk.remove_folder, path)
        except OSError as error:
            self._fail(folder, f"remove {path} from", error)

    # -- failure

    def log_failed(self, log: Log, failure: StorageError) -> None:
        """Any thread. A system call for `log` failed: its folder is offline."""
        folder = self._folder_of.get(log.topic_partition)
        if folder is not None:
            self.folder_failed(folder, failure)

    def _fail(self, folder: LogFolder, action: str, error: OSError) -> StorageError:
        failure = StorageError(
            f"could not {action} {folder.path}: {error}; the folder is offline until the broker restarts"
        )
        self._host.trace.log("error", str(failure))
        self.folder_failed(folder, failure)
        return failure

    def folder_failed(self, folder: LogFolder, failure: StorageError) -> None:
        """Any thread. Take `folder` offline with its logs; `on_folder_failed` is called on the loop."""
        if folder in self._reported:
            return
        self._reported.add(folder)
        logs = folder.fail(failure)
        self._host.tasks.call_soon(self._report, folder, logs, failure)

    def _report(self, folder: LogFolder, logs: Sequence[Log], failure: StorageError) -> None:
        self._host.trace.emit(LogFolderFailed(folder=folder.path, logs=len(logs), error=str(failure)))
        for listener in self.on_folder_failed:
            listener(folder, logs, failure)

    # -- checkpoints

    def read_high_watermarks(self) -> dict[TopicPartition, Offset]:
        """What `write_high_watermarks` wrote last (C3)."""
        found: dict[TopicPartition, Offset] = {}
        for folder in self.online:
            found |= folder.read_high_watermarks()
        return found

    def write_high_watermarks(self, offsets: Mapping[TopicPartition, Offset]) -> None:
        """BLOCKS briefly. Replace `replication-offset-checkpoint` in each folder, with its own partitions."""
        for folder in self.online:
            own = {tp: offset for tp, offset in offsets.items() if self._folder_of.get(tp, self.folders[0]) is folder}
            try:
                folder.write_high_watermarks(own)
            except OSError as error:
                self._fail(folder, "write high watermarks in", error)

    def checkpoint_recovery_points(self) -> None:
        """BLOCKS briefly. Write recovery points and log start offsets of all logs."""
        for folder in self.online:
            try:
                folder.checkpoint_recovery_points()
            except OSError as error:
                self._fail(folder, "write recovery points in", error)

    # -- periodic work

    def clean_up(self) -> int:
        """Retention of every log and expiry of silent producers; returns the segments dropped."""
        removed = 0
        now = self._host.clock.wall_ms()
        expiration_ms = self._config.number("producer.id.expiration.ms")  # may have changed
        for log in self.logs():
            if log.failed is None:
                if not self.cleaner.retains(log):
                    with contextlib.suppress(StorageError):  # its folder is offline now, as in `flush_overdue`
                        removed += clean_up(self._host, log)
                log.producers.expiration_ms = expiration_ms
                log.producers.remove_expired(now)
        return removed

    def flush_overdue(self) -> None:
        """BLOCKS. fsync the logs whose `flush.ms` has passed since their last flush (B11)."""
        now = self._host.clock.wall_ms()
        for log in self.logs():
            if now - log.flushed_ms >= log.config.number("flush.ms"):
                with contextlib.suppress(StorageError):  # its folder is offline now; the other logs are flushed
                    log.flush()

    # -- end

    def close(self, *, clean: bool) -> None:
        """BLOCKS. Close all files.

        With `clean` everything is flushed, snapshots and checkpoints are written and, in every folder in
        which no log failed, the marker that spares the next start its recovery.
        """
        for folder in self.folders:
            failures: list[str] = []
            for log in list(folder.logs.values()):
                try:
                    if clean:
                        log.close()
                    else:
                        log.abandon()
                except StorageError as error:
                    failures.append(str(error))
            for failure in failures if clean else ():
                self._host.trace.log("error", f"not a clean stop: {failure}")
            try:
                folder.close(clean=clean and not failures, broker_epoch=self.broker_epoch)
            except OSError as error:
                self._host.trace.log("error", f"not a clean stop of {folder.path}: {error}")
        self._logs.clear()
        self._folder_of.clear()


def _no_more_files(topic_partition: TopicPartition, left: int) -> OpenFilesError:
    return OpenFilesError(
        f"no log for {topic_partition}: this process may open {left} more files, which it needs for the logs that it "
        "has; raise its limit of open files (ulimit -n), or create fewer partitions"
    )
