"""DescribeLogDirs (API 35): which replica lies in which data folder, and how much space there is (B13).

Owns: `DescribeLogDirsHandler`. A folder that is offline is answered with kafka_storage_error and without its
partitions; requested partitions that are not here are left out. Sizes are bytes of segments without indexes; the lag is
the distance of the log end behind the high watermark (more than 0 while a truncated follower catches up), -1 where
unknown.

Source: Kafka's `ReplicaManager.describeLogDirs`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode
from ..ids import TopicPartition
from ..wire import messages

if TYPE_CHECKING:
    from ..host.seam import Host
    from ..storage.log_folder import LogFolder
    from ..storage.log_manager import LogManager
    from ..wire.request import Request
    from .partition_directory import PartitionDirectory

VERSION_LOW, VERSION_HIGH = 1, 5
UNKNOWN_LAG = -1
_WITH_SPACE = 4


class DescribeLogDirsHandler:
    """Describes the data folders of this broker."""

    def __init__(self, host: Host, logs: LogManager, directory: PartitionDirectory) -> None:
        self._host = host
        self.logs = logs
        """The logs that it describes."""
        self._directory = directory

    async def handle(self, request: Request) -> None:
        """Answer all folders with the requested partitions; with all partitions when the request names none."""
        body = request.decode()
        wanted: set[TopicPartition] | None = None
        if body.topics is not None:
            wanted = {TopicPartition(row.topic, p) for row in body.topics for p in row.partitions}
        s = messages.response(request)
        results = [await self._folder(s, folder, wanted) for folder in self.logs.folders]
        request.respond(s.DescribeLogDirsResponse(results=tuple(results)))

    async def _folder(self, s: messages.Schema, folder: LogFolder, wanted: set[TopicPartition] | None) -> Any:
        path = folder.path
        space: dict[str, int] = {}
        failed = folder.failed is not None
        if not failed and s.version >= _WITH_SPACE:
            host = self._host
            try:
                total, usable = await host.tasks.run_blocking(host.disk.space, path)
                space = {"total_bytes": total, "usable_bytes": usable}
            except OSError as error:
                host.trace.log("error", f"the free space of {path} is unknown: {error}")
                failed = True
        if failed:
            return s.DescribeLogDirsResult(error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=())
        topics: dict[str, list[Any]] = defaultdict(list)
        for tp, log in sorted(folder.logs.items()):
            if wanted is None or tp in wanted:
                partition = self._directory.partition(tp)
                lag = UNKNOWN_LAG
                if partition is not None:
                    lag = max(0, partition.high_watermark - log.log_end_offset)
                topics[tp.topic].append(
                    s.DescribeLogDirsPartition(
                        partition_index=tp.partition, partition_size=log.size, offset_lag=lag, is_future_key=False
                    )
                )
        rows = (s.DescribeLogDirsTopic(name=name, partitions=tuple(found)) for name, found in topics.items())
        return s.DescribeLogDirsResult(error_code=ErrorCode.none, log_dir=path, topics=tuple(rows), **space)
