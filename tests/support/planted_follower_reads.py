"""A planted bug: a follower returns other values than the leader for the records that consumers read from it."""

from __future__ import annotations

from harrow.cluster.host.seam import bytes_of
from harrow.cluster.planting import Planter
from harrow.cluster.replication.fetch_isolation import FetchIsolation
from harrow.cluster.replication.fetch_reads import FetchReader
from harrow.cluster.replication.partition import Partition
from harrow.cluster.wire.batch_header import header_at
from harrow.cluster.wire.fetch import FetchPartition
from harrow.cluster.wire.fetch_response import FetchAnswer
from harrow.cluster.wire.records import NewRecord, build_batch, decode_records

TITLE = "a follower returns stale values to consumers"
_records = FetchReader._records  # pyright: ignore[reportPrivateUsage] - replaced below


def plant(planter: Planter) -> None:
    """Replace what a follower reads for a consumer."""
    planter.replace_method(FetchReader, "_records", _stale)


def _stale(
    self: FetchReader, row: FetchPartition, partition: Partition, left: int, *, first: bool
) -> tuple[FetchAnswer, int]:
    answer, size = _records(self, row, partition, left, first=first)
    of_follower = self._isolation is FetchIsolation.LOG_END  # pyright: ignore[reportPrivateUsage] - as above
    if partition.is_leader or of_follower or not answer.records:
        return answer, size
    data = b"".join(bytes(bytes_of(part)) for part in answer.records)
    changed = bytearray()
    while data:
        header = header_at(data)
        records: list[NewRecord] = [(record.key, b"stale", record.headers) for record in decode_records(data)]
        changed += build_batch(
            records,
            timestamp_ms=header.base_timestamp,
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
        )
        data = data[header.size :]
    return answer._replace(records=[bytes(changed)]), len(changed)
