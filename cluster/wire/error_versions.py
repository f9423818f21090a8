"""From which version of an API on Apache Kafka gives an error code, and what it gives in earlier versions.

Owns: `SINCE`, and `code_at`, which reads it. The codes of the latest versions are in `api_errors.py`; the source is the
same. Kafka's error codes are names, in capitals.
"""

from __future__ import annotations

from collections.abc import Mapping

from ..errors import ErrorCode, error_name
from .api_keys import ApiKey

__all__ = ["SINCE", "code_at"]

_NO_TXN, _FENCED = "INVALID_TXN_STATE", "INVALID_PRODUCER_EPOCH"
SINCE: Mapping[tuple[int, str], tuple[int, str | None]] = {
    (ApiKey.PRODUCE, "UNKNOWN_TOPIC_ID"): (13, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.PRODUCE, "TRANSACTION_ABORTABLE"): (11, _NO_TXN),
    (ApiKey.PRODUCE, "CONCURRENT_TRANSACTIONS"): (12, "NOT_ENOUGH_REPLICAS"),
    (ApiKey.FETCH, "KAFKA_STORAGE_ERROR"): (6, "NOT_LEADER_OR_FOLLOWER"),
    (ApiKey.FETCH, "FETCH_SESSION_ID_NOT_FOUND"): (7, None),
    (ApiKey.FETCH, "INVALID_FETCH_SESSION_EPOCH"): (7, None),
    (ApiKey.FETCH, "FETCH_SESSION_TOPIC_ID_ERROR"): (13, None),
    (ApiKey.FETCH, "UNKNOWN_TOPIC_ID"): (13, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.FETCH, "INCONSISTENT_TOPIC_ID"): (13, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.LIST_OFFSETS, "OFFSET_NOT_AVAILABLE"): (5, "LEADER_NOT_AVAILABLE"),
    (ApiKey.METADATA, "LISTENER_NOT_FOUND"): (6, "LEADER_NOT_AVAILABLE"),
    (ApiKey.METADATA, "UNKNOWN_TOPIC_ID"): (10, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.METADATA, "REBOOTSTRAP_REQUIRED"): (13, None),
    (ApiKey.API_VERSIONS, "REBOOTSTRAP_REQUIRED"): (5, None),
    (ApiKey.OFFSET_COMMIT, "STALE_MEMBER_EPOCH"): (9, "UNSUPPORTED_VERSION"),
    (ApiKey.OFFSET_COMMIT, "GROUP_ID_NOT_FOUND"): (9, "ILLEGAL_GENERATION"),
    (ApiKey.OFFSET_COMMIT, "FENCED_INSTANCE_ID"): (7, None),
    (ApiKey.OFFSET_COMMIT, "UNKNOWN_TOPIC_ID"): (10, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.OFFSET_FETCH, "UNSTABLE_OFFSET_COMMIT"): (7, None),
    (ApiKey.OFFSET_FETCH, "UNKNOWN_MEMBER_ID"): (9, None),
    (ApiKey.OFFSET_FETCH, "STALE_MEMBER_EPOCH"): (9, None),
    (ApiKey.OFFSET_FETCH, "UNKNOWN_TOPIC_ID"): (10, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.JOIN_GROUP, "MEMBER_ID_REQUIRED"): (4, None),
    (ApiKey.JOIN_GROUP, "FENCED_INSTANCE_ID"): (5, None),
    (ApiKey.HEARTBEAT, "FENCED_INSTANCE_ID"): (3, None),
    (ApiKey.SYNC_GROUP, "FENCED_INSTANCE_ID"): (3, None),
    (ApiKey.LEAVE_GROUP, "FENCED_INSTANCE_ID"): (3, None),
    (ApiKey.DESCRIBE_GROUPS, "GROUP_ID_NOT_FOUND"): (6, None),
    (ApiKey.CREATE_TOPICS, "THROTTLING_QUOTA_EXCEEDED"): (6, None),
    (ApiKey.DELETE_TOPICS, "THROTTLING_QUOTA_EXCEEDED"): (5, None),
    (ApiKey.DELETE_TOPICS, "UNKNOWN_TOPIC_ID"): (6, "UNKNOWN_TOPIC_OR_PARTITION"),
    (ApiKey.DELETE_TOPICS, "TOPIC_DELETION_DISABLED"): (3, "INVALID_REQUEST"),
    (ApiKey.CREATE_PARTITIONS, "THROTTLING_QUOTA_EXCEEDED"): (3, None),
    (ApiKey.INIT_PRODUCER_ID, "PRODUCER_FENCED"): (4, _FENCED),
    (ApiKey.INIT_PRODUCER_ID, "TRANSACTION_ABORTABLE"): (5, _NO_TXN),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "PRODUCER_FENCED"): (2, _FENCED),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "TRANSACTION_ABORTABLE"): (5, _NO_TXN),
    (ApiKey.ADD_PARTITIONS_TO_TXN, "CLUSTER_AUTHORIZATION_FAILED"): (4, None),
    (ApiKey.ADD_OFFSETS_TO_TXN, "PRODUCER_FENCED"): (2, _FENCED),
    (ApiKey.ADD_OFFSETS_TO_TXN, "TRANSACTION_ABORTABLE"): (4, _NO_TXN),
    (ApiKey.END_TXN, "PRODUCER_FENCED"): (2, _FENCED),
    (ApiKey.END_TXN, "TRANSACTION_ABORTABLE"): (4, _NO_TXN),
    (ApiKey.TXN_OFFSET_COMMIT, "TRANSACTION_ABORTABLE"): (4, _NO_TXN),
    (ApiKey.TXN_OFFSET_COMMIT, "COORDINATOR_LOAD_IN_PROGRESS"): (2, "COORDINATOR_NOT_AVAILABLE"),
    (ApiKey.TXN_OFFSET_COMMIT, "UNKNOWN_MEMBER_ID"): (3, None),
    (ApiKey.TXN_OFFSET_COMMIT, "ILLEGAL_GENERATION"): (3, None),
    (ApiKey.TXN_OFFSET_COMMIT, "FENCED_INSTANCE_ID"): (3, None),
    (ApiKey.TXN_OFFSET_COMMIT, "GROUP_ID_NOT_FOUND"): (6, "ILLEGAL_GENERATION"),
    (ApiKey.TXN_OFFSET_COMMIT, "STALE_MEMBER_EPOCH"): (6, "ILLEGAL_GENERATION"),
    (ApiKey.TXN_OFFSET_COMMIT, "UNKNOWN_TOPIC_ID"): (6, "UNKNOWN_TOPIC_OR_PARTITION"),
}
"""(API, code) → the first version in which Kafka gives the code, and what it gives in versions before.

None: an earlier version has no such case; a fault that asks for the code there gives the code itself.
"""


def code_at(api_key: int, version: int, code: int) -> ErrorCode:
    """Return what Kafka gives in this version where it gives `code` in the latest one."""
    since = SINCE.get((api_key, error_name(code)))
    if since is not None and version < since[0] and since[1] is not None:
        return ErrorCode[since[1].lower()]
    return ErrorCode(code)
