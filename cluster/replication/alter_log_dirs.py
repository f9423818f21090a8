"""AlterReplicaLogDirs (API 34): in which data folder a replica of this broker has its log (KIP-113).

Owns: `AlterReplicaLogDirsHandler`. A replica that will be created here gets its log in the folder that was named last
(`LogManager.prefer`), and the request is answered with replica_not_available, as in Kafka. A replica that is here stays
in its folder: another folder is refused with invalid_request, because logs are not moved between folders.

Source: Kafka's `ReplicaManager.alterReplicaLogDirs`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..errors import ErrorCode
from ..ids import TopicPartition, by_topic
from ..wire import messages

if TYPE_CHECKING:
    from ..storage.log_folder import LogFolder
    from ..storage.log_manager import LogManager
    from ..wire.request import Request
    from .partition_directory import PartitionDirectory

VERSION_LOW, VERSION_HIGH = 1, 2
NAME_MOST = 255 - len(".-future") - 32
"""Bytes of the name of a log's folder that may move, as in Kafka: the name of a future log has 40 bytes more."""


class AlterReplicaLogDirsHandler:
    """Chooses data folders of this broker for replicas."""

    def __init__(self, logs: LogManager, directory: PartitionDirectory) -> None:
        self._logs = logs
        self._directory = directory

    def handle(self, request: Request) -> None:
        """Answer each partition with its own error code."""
        s = messages.response(request)
        paths = {  # as in Kafka: the last folder that is named for a partition
            TopicPartition(topic.name, number): row.path
            for row in request.decode().dirs
            for topic in row.topics
            for number in topic.partitions
        }
        results = tuple(
            s.AlterReplicaLogDirTopicResult(
                topic_name=name,
                partitions=tuple(
                    s.AlterReplicaLogDirPartitionResult(
                        partition_index=tp.partition, error_code=self._chosen(paths[tp], tp)
                    )
                    for tp in rows
                ),
            )
            for name, rows in by_topic(paths).items()
        )
        request.respond(s.root(throttle_time=messages.milliseconds(0), results=results))

    def _chosen(self, path: str, tp: TopicPartition) -> ErrorCode:
        if len(f"{tp}") > NAME_MOST:
            return ErrorCode.invalid_topic_exception
        folder = self._logs.folder_at(path)
        if folder is None:
            return ErrorCode.log_dir_not_found
        if folder.failed is not None:
            return ErrorCode.kafka_storage_error
        if self._logs.get(tp) is not None and self._directory.partition(tp) is not None:
            return self._kept(folder, tp)
        missing = self._directory.missing(tp)
        if missing is not ErrorCode.not_leader_or_follower:
            return missing
        self._logs.prefer(tp, folder)
        return ErrorCode.replica_not_available

    def _kept(self, folder: LogFolder, tp: TopicPartition) -> ErrorCode:
        if tp in folder.logs:
            return ErrorCode.none
        log = self._logs.get(tp)
        if log is not None and log.failed is not None:
            return ErrorCode.kafka_storage_error
        return ErrorCode.invalid_request
