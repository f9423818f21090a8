"""DescribeLogDirs (API 35): which replica lies in which data folder, and how much room there is (B13).

Owns: the handler. A folder that is offline is named with kafka_storage_error and without its partitions; what was
asked for and is not here is left out. Sizes are bytes of segments, indexes left out; the lag is by how much the log
is behind its own high watermark (more than 0 while a follower that was truncated catches up), -1 where unknown.

Source: Kafka's `ReplicaManager.describeLogDirs`.
"""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, Any

from ..errors import ErrorCode
from ..ids import TopicPartition
from ..wire import messages

if TYPE_CHECKING:
    from ..storage.log_folder import LogFolder
    from ..wire.request import Request
    from .replica_manager import ReplicaManager

VERSION_LOW, VERSION_HIGH = 1, 4
UNKNOWN_LAG = -1
_WITH_SPACE = 4


class LogDirs:
    """The DescribeLogDirs handler."""

    def __init__(self, manager: ReplicaManager) -> None:
        self._manager = manager

    async def handle(self, request: Request) -> None:
        """Answer all folders with the partitions asked for; with all of them where none is named."""
        asked = request.decode()
        wanted: set[TopicPartition] | None = None
        if asked.topics is not None:
            wanted = {TopicPartition(row.topic, p) for row in asked.topics for p in row.partitions}
        s = messages.response(request)
        results = [await self._folder(s, folder, wanted) for folder in self._manager.logs.folders]
        request.respond(s.DescribeLogDirsResponse(results=tuple(results)))

    async def _folder(
        self, s: messages.Schema, folder: LogFolder, wanted: set[TopicPartition] | None
    ) -> Any:
        path = folder.path
        space: dict[str, int] = {}
        failed = folder.failed is not None
        if not failed and s.version >= _WITH_SPACE:
            host = self._manager.host
            try:
                total, usable = await host.tasks.run_blocking(host.disk.space, path)
                space = {"total_bytes": total, "usable_bytes": usable}
            except OSError as error:
                host.trace.log("error", f"the room in {path} is not known: {error}")
                failed = True
        if failed:
            return s.DescribeLogDirsResult(
                error_code=ErrorCode.kafka_storage_error, log_dir=path, topics=()
            )
        topics: dict[str, list[Any]] = defaultdict(list)
        for tp, log in sorted(folder.logs.items()):
            if wanted is None or tp in wanted:
                partition = self._manager.partition(tp)
                lag = UNKNOWN_LAG
                if partition is not None:
                    lag = max(0, partition.high_watermark - log.log_end_offset)
                topics[tp.topic].append(
                    s.DescribeLogDirsPartition(
                        partition_index=tp.partition,
                        partition_size=log.size,
                        offset_lag=lag,
                        is_future_key=False,
                    )
                )
        rows = (
            s.DescribeLogDirsTopic(name=name, partitions=tuple(found))
            for name, found in topics.items()
        )
        return s.DescribeLogDirsResult(
            error_code=ErrorCode.none, log_dir=path, topics=tuple(rows), **space
        )
