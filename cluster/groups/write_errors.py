"""The errors that a client of a group receives when an append to `__consumer_offsets` is refused.

Owns: the two translations, one for offsets and one for the group's metadata. Other errors pass as they are.

Source: Kafka's GroupMetadataManager.storeOffsets (OffsetCommit) and storeGroup (SyncGroup, JoinGroup).
"""

from __future__ import annotations

from collections.abc import Mapping

from ..coordinators import COORDINATOR_ERRORS
from ..errors import ErrorCode

TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large, ErrorCode.invalid_fetch_size)

OFFSET_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **COORDINATOR_ERRORS,
    **dict.fromkeys(TOO_LARGE, ErrorCode.invalid_commit_offset_size),
}
"""Log error -> the error of OffsetCommit, OffsetDelete and DeleteGroups."""

GROUP_ERRORS: Mapping[ErrorCode, ErrorCode] = {
    **COORDINATOR_ERRORS,
    **dict.fromkeys(TOO_LARGE, ErrorCode.unknown_server_error),
}
"""Log error -> the error of SyncGroup and JoinGroup."""
