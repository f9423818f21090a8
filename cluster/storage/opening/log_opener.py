"""Opening the logs of one broker: all logs in a data folder at its start, and logs of new replicas.

Owns: the index mappings that all logs of the broker share. Removes the folders of deleted replicas on its way.
What may fail: StorageError where a partition lies in two data folders, CorruptLogError, OSError.

Source: Kafka's `LogManager.loadLogs`, `LogManager.loadLog`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from ...config import BrokerConfig, TopicConfig
from ...errors import CorruptLogError, StorageError
from ...host.seam import Host
from ...host.seam.failpoints import AFTER_CHECKPOINTS, BEFORE_DELETED_FOLDER, BEFORE_LOG
from ...ids import TopicPartition
from ..files import DELETED_FOLDER, FUTURE_FOLDER
from ..indexes.sparse_index import IndexMaps
from ..log import Log
from ..log_folder import LogFolder
from ..metadata_files import read_topic_id
from .loader import START, LogOptions, open_log


class LogOpener:
    """Opens logs with the settings of one broker."""

    def __init__(self, host: Host, config: BrokerConfig) -> None:
        self._host = host
        self._config = config
        self._maps = IndexMaps()

    def open_all(self, folder: LogFolder, opened: Mapping[TopicPartition, LogFolder]) -> Iterator[Log]:
        """BLOCKS. The logs in `folder`, recovered after an unclean stop; `opened`: the logs of all folders so far."""
        recovery_points = folder.read_recovery_points()
        log_starts = folder.read_log_starts()
        self._host.failpoints.hit(AFTER_CHECKPOINTS)
        for topic_partition, path in folder.partitions():
            if path.endswith((DELETED_FOLDER, FUTURE_FOLDER)):
                self._host.failpoints.hit(BEFORE_DELETED_FOLDER)
                self._host.disk.remove_folder(path)
                continue
            if topic_partition is None:
                continue
            other = opened.get(topic_partition)
            if other is not None:
                raise StorageError(
                    f"{topic_partition} lies in {other.path} and in {folder.path}; "
                    "delete the folder whose records you do not need"
                )
            self._host.failpoints.hit(BEFORE_LOG)
            options = LogOptions(
                config=self._config.topic(),
                topic_id=self._topic_id(folder, path),
                recovery_point=recovery_points.get(topic_partition, START),
                log_start_offset=log_starts.get(topic_partition, START),
                clean=folder.was_clean,
                tail_bytes=self._config.number("harrow.tail.bytes"),
                producer_expiration_ms=self._config.number("producer.id.expiration.ms"),
                maps=self._maps,
            )
            yield open_log(self._host, path, topic_partition, options)

    def open_new(self, topic_partition: TopicPartition, path: str, config: TopicConfig, topic_id: str) -> Log:
        """The empty log of a new replica."""
        options = LogOptions(
            config=config,
            topic_id=topic_id,
            is_new=True,
            tail_bytes=self._config.number("harrow.tail.bytes"),
            producer_expiration_ms=self._config.number("producer.id.expiration.ms"),
            maps=self._maps,
        )
        return open_log(self._host, path, topic_partition, options)

    def _topic_id(self, folder: LogFolder, path: str) -> str:
        """Read the topic id of the log folder at `path`; "" when it has none.

        The id is written before the first fsync of the log and not fsynced at once, so a power loss may leave a
        torn file: after an unclean stop the log is opened without its id.
        """
        try:
            return read_topic_id(self._host.disk, path)
        except CorruptLogError as error:
            if folder.was_clean:
                raise
            self._host.trace.log("warning", f"{error}; going on without it after an unclean stop")
            return ""
