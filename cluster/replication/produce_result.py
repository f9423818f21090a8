"""What became of appending to one partition, for the response of a produce.

Source: Kafka's `ProduceResponse.PartitionResponse` and `LogAppendResult`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from ..errors import ErrorCode
from ..ids import NO_OFFSET, Offset


@dataclass(frozen=True, slots=True, kw_only=True)
class ProduceResult:
    """The result of appending to one partition; offsets are -1 where nothing was appended."""

    error: ErrorCode
    base_offset: Offset = NO_OFFSET
    last_offset: Offset = NO_OFFSET
    append_time_ms: int = -1
    log_start_offset: Offset = NO_OFFSET
    message: str = ""
    record_errors: Sequence[tuple[int, str]] = ()
    """Index and fault of each record because of which the batch is refused (KIP-467)."""
    stored_header: bytes = b""
    """As in `AppendInfo`."""

    @classmethod
    def refused(
        cls, error: ErrorCode, message: str = "", record_errors: Sequence[tuple[int, str]] = ()
    ) -> ProduceResult:
        """Nothing was appended."""
        return cls(error=error, message=message, record_errors=record_errors)

    def failed(self, error: ErrorCode) -> ProduceResult:
        """The same append, which ended in `error` after it was made: an error carries no offsets."""
        return replace(self, error=error, base_offset=NO_OFFSET, append_time_ms=-1)
