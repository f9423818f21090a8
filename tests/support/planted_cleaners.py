"""A planted bug: a log cleaner that removes tombstones at its next pass, and the last value of the key `key 3`."""

from __future__ import annotations

from harrow.cluster.planting import Planter
from harrow.cluster.storage.compaction.offset_map import OffsetMap
from harrow.cluster.storage.compaction.record_filter import RecordFilter
from harrow.cluster.wire.batch_header import BatchHeader

TITLE = "a log cleaner removes tombstones early, and the last value of one key"
VICTIM = b"key 3"
BEHIND_ALL = 2**62

_get = OffsetMap.get


def plant(planter: Planter) -> None:
    """Let every delete horizon have passed, and a newer record of `VICTIM` exist."""
    planter.replace_method(OffsetMap, "get", _as_if_newer)
    planter.replace_method(RecordFilter, "has_expired", _at_once)


def _as_if_newer(self: OffsetMap, key: bytes) -> int:
    return BEHIND_ALL if key == VICTIM else _get(self, key)


def _at_once(self: RecordFilter, header: BatchHeader) -> bool:
    del self, header
    return True
