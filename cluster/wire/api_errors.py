"""Which error codes Apache Kafka gives in the response of each API, and at which place of the response.

Owns: `API_ERRORS`, the one table for the faults of Harrow's brokers and of the proxy. Source: the behaviour of Apache
Kafka 3.9 to 4.2 (`KafkaApis`, `getErrorResponse` of each request, the lists of errors in its protocol documents).

A place is a level of the response: `TOP`, or the items of a list (`TOPIC`, `PARTITION`, `GROUP`, …: the names of
`refusals.py`). `ALL` is the top and every item. Rules:

* A code is at one place, and every other error field of the response is NONE: the client of a Fetch whose partitions
  have OFFSET_OUT_OF_RANGE finds no error at the top.
* A version that lacks the place has the code at the top; a version without an error at the top has it in every item.
* `SINCE` has the codes that Kafka gives from a version on, and what it gives before (None: nothing of the kind).
* UNKNOWN_SERVER_ERROR is what Kafka gives for an exception that nothing handles, so every API has it.
* `after` has the codes that Kafka gives although the request took effect, or may have; empty for an API without effect.

Kafka's error codes are names here, in capitals, so that a process that only plans faults does not need kio.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from ..errors import ErrorCode, error_name
from .api_keys import ApiKey

__all__ = [
    "ALL",
    "API_ERRORS",
    "SINCE",
    "TOP",
    "ApiErrors",
    "code_at",
    "errors_after",
    "errors_of",
    "place_of",
    "whole_place",
]

ALL, TOP = "all", "top"
TOPIC, PARTITION, GROUP, MEMBER, KEY = "topic", "partition", "group", "member", "key"
RESOURCE, TRANSACTION, ENTRY, LOG_DIR = "resource", "transaction", "entry", "log dir"
EVERY_API = "UNKNOWN_SERVER_ERROR"
TOP_ALONE_FROM: Mapping[int, int] = {ApiKey.FETCH: 13, ApiKey.ADD_PARTITIONS_TO_TXN: 4}
"""The first versions in which an error at the top is enough for a request that failed as a whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiErrors:
    """The errors of one API."""

    places: Mapping[str, str]
    """The place of each code."""
    whole: str
    """Where the error of a request is that failed as a whole, such as UNKNOWN_SERVER_ERROR."""
    after: tuple[str, ...]
    """Codes that follow an effect."""


def _api(whole: str, *, after: str = "", **codes: str) -> ApiErrors:
    """The errors of an API: the codes of each place as words, `log_dir` for "log dir"."""
    places: dict[str, str] = {}
    for place, words in codes.items():
        for word in words.split():
            assert word not in places, f"{word} at two places"
            places[word] = place.replace("_", " ")
    follow = tuple(after.split())
    assert set(follow) <= set(places), f"{set(follow) - set(places)} at no place"
    return ApiErrors(places=places, whole=whole, after=follow)


_COORDINATOR = "COORDINATOR_LOAD_IN_PROGRESS COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR "
_NOT_LOGGED = "COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR"
"""What a coordinator says when its write to the log did not succeed in time: the write may be there."""
_TRANSACTION = (
    "INVALID_PRODUCER_ID_MAPPING INVALID_PRODUCER_EPOCH CONCURRENT_TRANSACTIONS TRANSACTION_ABORTABLE "
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
)
_READ = (
    "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED NOT_LEADER_OR_FOLLOWER REPLICA_NOT_AVAILABLE "
    "FENCED_LEADER_EPOCH UNKNOWN_LEADER_EPOCH KAFKA_STORAGE_ERROR "
)
_ADMIN = "CLUSTER_AUTHORIZATION_FAILED NOT_CONTROLLER REQUEST_TIMED_OUT "
_OF_TOPIC = "UNKNOWN_TOPIC_OR_PARTITION INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED "
_CONTROLLED = "REQUEST_TIMED_OUT NOT_CONTROLLER"
"""What an administrator gets when the controller did not finish in time, or was deposed."""

API_ERRORS: Mapping[int, ApiErrors] = {
    ApiKey.PRODUCE: _api(
        PARTITION,
        partition=_OF_TOPIC + _TRANSACTION + "CORRUPT_MESSAGE NOT_LEADER_OR_FOLLOWER MESSAGE_TOO_LARGE "
        "RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND INVALID_REQUIRED_ACKS "
        "UNSUPPORTED_FOR_MESSAGE_FORMAT UNSUPPORTED_COMPRESSION_TYPE CLUSTER_AUTHORIZATION_FAILED INVALID_RECORD "
        "INVALID_TXN_STATE INVALID_TIMESTAMP OUT_OF_ORDER_SEQUENCE_NUMBER UNKNOWN_PRODUCER_ID KAFKA_STORAGE_ERROR "
        "REQUEST_TIMED_OUT UNKNOWN_TOPIC_ID",
        after="REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_OR_FOLLOWER KAFKA_STORAGE_ERROR "
        "UNKNOWN_TOPIC_OR_PARTITION",
    ),
    ApiKey.FETCH: _api(
        ALL,
        partition=_READ + "OFFSET_OUT_OF_RANGE UNSUPPORTED_COMPRESSION_TYPE CORRUPT_MESSAGE UNKNOWN_TOPIC_ID "
        "INCONSISTENT_TOPIC_ID OFFSET_MOVED_TO_TIERED_STORAGE UNKNOWN_SERVER_ERROR",
        top="FETCH_SESSION_ID_NOT_FOUND INVALID_FETCH_SESSION_EPOCH FETCH_SESSION_TOPIC_ID_ERROR",
    ),
    ApiKey.LIST_OFFSETS: _api(
        PARTITION,
        partition=_READ + "UNSUPPORTED_FOR_MESSAGE_FORMAT LEADER_NOT_AVAILABLE OFFSET_NOT_AVAILABLE INVALID_REQUEST "
        "UNSUPPORTED_VERSION REQUEST_TIMED_OUT",
    ),
    ApiKey.METADATA: _api(
        TOPIC,
        topic=_OF_TOPIC + "UNKNOWN_TOPIC_ID INVALID_REPLICATION_FACTOR",
        partition="LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND REPLICA_NOT_AVAILABLE",
        top="REBOOTSTRAP_REQUIRED",
    ),
    ApiKey.OFFSET_COMMIT: _api(
        PARTITION,
        partition=_COORDINATOR + "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED REQUEST_TIMED_OUT "
        "OFFSET_METADATA_TOO_LARGE ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS "
        "INVALID_COMMIT_OFFSET_SIZE GROUP_AUTHORIZATION_FAILED GROUP_ID_NOT_FOUND STALE_MEMBER_EPOCH "
        "FENCED_INSTANCE_ID INVALID_GROUP_ID UNKNOWN_TOPIC_ID UNSUPPORTED_VERSION",
        after=_NOT_LOGGED + " REQUEST_TIMED_OUT",
    ),
    ApiKey.OFFSET_FETCH: _api(
        GROUP,
        group=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED INVALID_GROUP_ID UNKNOWN_MEMBER_ID STALE_MEMBER_EPOCH "
        "GROUP_ID_NOT_FOUND UNSUPPORTED_VERSION",
        partition="UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED UNSTABLE_OFFSET_COMMIT UNKNOWN_TOPIC_ID",
    ),
    ApiKey.FIND_COORDINATOR: _api(
        KEY,
        key="COORDINATOR_NOT_AVAILABLE GROUP_AUTHORIZATION_FAILED TRANSACTIONAL_ID_AUTHORIZATION_FAILED "
        "INVALID_REQUEST INVALID_GROUP_ID",
    ),
    ApiKey.JOIN_GROUP: _api(
        TOP,
        top=_COORDINATOR + "INCONSISTENT_GROUP_PROTOCOL UNKNOWN_MEMBER_ID INVALID_SESSION_TIMEOUT INVALID_GROUP_ID "
        "GROUP_AUTHORIZATION_FAILED MEMBER_ID_REQUIRED FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED "
        "REBALANCE_IN_PROGRESS UNSUPPORTED_VERSION",
        after=_NOT_LOGGED + " UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS",
    ),
    ApiKey.HEARTBEAT: _api(
        TOP,
        top="COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS "
        "GROUP_AUTHORIZATION_FAILED FENCED_INSTANCE_ID INVALID_GROUP_ID UNSUPPORTED_VERSION",
    ),
    ApiKey.LEAVE_GROUP: _api(
        TOP,
        top=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED INVALID_GROUP_ID",
        member="UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID",
        after=_NOT_LOGGED,
    ),
    ApiKey.SYNC_GROUP: _api(
        TOP,
        top="COORDINATOR_NOT_AVAILABLE NOT_COORDINATOR ILLEGAL_GENERATION UNKNOWN_MEMBER_ID REBALANCE_IN_PROGRESS "
        "GROUP_AUTHORIZATION_FAILED FENCED_INSTANCE_ID INVALID_GROUP_ID INCONSISTENT_GROUP_PROTOCOL "
        "UNSUPPORTED_VERSION",
        after=_NOT_LOGGED + " REBALANCE_IN_PROGRESS UNKNOWN_MEMBER_ID",
    ),
    ApiKey.DESCRIBE_GROUPS: _api(
        GROUP, group=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED INVALID_GROUP_ID GROUP_ID_NOT_FOUND"
    ),
    ApiKey.LIST_GROUPS: _api(TOP, top=_COORDINATOR + "INVALID_REQUEST CLUSTER_AUTHORIZATION_FAILED"),
    ApiKey.API_VERSIONS: _api(TOP, top="UNSUPPORTED_VERSION INVALID_REQUEST"),
    ApiKey.CREATE_TOPICS: _api(
        TOPIC,
        topic=_ADMIN + "TOPIC_ALREADY_EXISTS INVALID_TOPIC_EXCEPTION TOPIC_AUTHORIZATION_FAILED INVALID_PARTITIONS "
        "INVALID_REPLICATION_FACTOR INVALID_REPLICA_ASSIGNMENT INVALID_CONFIG INVALID_REQUEST POLICY_VIOLATION "
        "THROTTLING_QUOTA_EXCEEDED UNSUPPORTED_VERSION",
        after=_CONTROLLED,
    ),
    ApiKey.DELETE_TOPICS: _api(
        TOPIC,
        topic=_ADMIN + _OF_TOPIC + "UNKNOWN_TOPIC_ID TOPIC_DELETION_DISABLED INVALID_REQUEST "
        "THROTTLING_QUOTA_EXCEEDED UNSUPPORTED_VERSION",
        after=_CONTROLLED,
    ),
    ApiKey.DELETE_RECORDS: _api(
        PARTITION,
        partition=_OF_TOPIC + "OFFSET_OUT_OF_RANGE NOT_LEADER_OR_FOLLOWER POLICY_VIOLATION KAFKA_STORAGE_ERROR "
        "REQUEST_TIMED_OUT",
        after="REQUEST_TIMED_OUT NOT_LEADER_OR_FOLLOWER KAFKA_STORAGE_ERROR",
    ),
    ApiKey.INIT_PRODUCER_ID: _api(
        TOP,
        top=_COORDINATOR + _TRANSACTION + "CLUSTER_AUTHORIZATION_FAILED PRODUCER_FENCED INVALID_TRANSACTION_TIMEOUT "
        "INVALID_REQUEST INVALID_TXN_STATE",
        after=_NOT_LOGGED + " CONCURRENT_TRANSACTIONS",
    ),
    ApiKey.OFFSET_FOR_LEADER_EPOCH: _api(PARTITION, partition=_READ),
    ApiKey.ADD_PARTITIONS_TO_TXN: _api(
        PARTITION,
        partition=_COORDINATOR + _TRANSACTION + "INVALID_TXN_STATE PRODUCER_FENCED TOPIC_AUTHORIZATION_FAILED "
        "UNKNOWN_TOPIC_OR_PARTITION OPERATION_NOT_ATTEMPTED INVALID_REQUEST",
        top="CLUSTER_AUTHORIZATION_FAILED",
        after=_NOT_LOGGED + " CONCURRENT_TRANSACTIONS",
    ),
    ApiKey.ADD_OFFSETS_TO_TXN: _api(
        TOP,
        top=_COORDINATOR + _TRANSACTION + "INVALID_TXN_STATE PRODUCER_FENCED GROUP_AUTHORIZATION_FAILED "
        "INVALID_REQUEST",
        after=_NOT_LOGGED + " CONCURRENT_TRANSACTIONS",
    ),
    ApiKey.END_TXN: _api(
        TOP,
        top=_COORDINATOR + _TRANSACTION + "INVALID_TXN_STATE PRODUCER_FENCED INVALID_REQUEST",
        after=_NOT_LOGGED + " CONCURRENT_TRANSACTIONS",
    ),
    ApiKey.WRITE_TXN_MARKERS: _api(
        PARTITION,
        partition="CORRUPT_MESSAGE INVALID_PRODUCER_EPOCH UNKNOWN_TOPIC_OR_PARTITION NOT_LEADER_OR_FOLLOWER "
        "MESSAGE_TOO_LARGE RECORD_LIST_TOO_LARGE NOT_ENOUGH_REPLICAS NOT_ENOUGH_REPLICAS_AFTER_APPEND "
        "INVALID_REQUIRED_ACKS TRANSACTION_COORDINATOR_FENCED REQUEST_TIMED_OUT CLUSTER_AUTHORIZATION_FAILED "
        "KAFKA_STORAGE_ERROR UNSUPPORTED_FOR_MESSAGE_FORMAT",
        after="REQUEST_TIMED_OUT NOT_ENOUGH_REPLICAS_AFTER_APPEND NOT_LEADER_OR_FOLLOWER KAFKA_STORAGE_ERROR",
    ),
    ApiKey.TXN_OFFSET_COMMIT: _api(
        PARTITION,
        partition=_COORDINATOR + _TRANSACTION + "UNKNOWN_TOPIC_OR_PARTITION TOPIC_AUTHORIZATION_FAILED "
        "REQUEST_TIMED_OUT OFFSET_METADATA_TOO_LARGE INVALID_COMMIT_OFFSET_SIZE GROUP_AUTHORIZATION_FAILED "
        "UNSUPPORTED_FOR_MESSAGE_FORMAT UNKNOWN_MEMBER_ID FENCED_INSTANCE_ID ILLEGAL_GENERATION "
        "INVALID_TXN_STATE INVALID_GROUP_ID",
        after=_NOT_LOGGED + " REQUEST_TIMED_OUT",
    ),
    ApiKey.DESCRIBE_ACLS: _api(TOP, top="SECURITY_DISABLED CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST"),
    ApiKey.CREATE_ACLS: _api(ENTRY, entry=_ADMIN + "SECURITY_DISABLED INVALID_REQUEST", after=_CONTROLLED),
    ApiKey.DELETE_ACLS: _api(ENTRY, entry=_ADMIN + "SECURITY_DISABLED INVALID_REQUEST", after=_CONTROLLED),
    ApiKey.DESCRIBE_CONFIGS: _api(
        RESOURCE, resource=_OF_TOPIC + "CLUSTER_AUTHORIZATION_FAILED GROUP_AUTHORIZATION_FAILED INVALID_REQUEST"
    ),
    ApiKey.ALTER_CONFIGS: _api(
        RESOURCE, resource=_ADMIN + _OF_TOPIC + "INVALID_CONFIG INVALID_REQUEST POLICY_VIOLATION", after=_CONTROLLED
    ),
    ApiKey.INCREMENTAL_ALTER_CONFIGS: _api(
        RESOURCE,
        resource=_ADMIN + _OF_TOPIC + "INVALID_CONFIG INVALID_REQUEST POLICY_VIOLATION "
        "GROUP_AUTHORIZATION_FAILED UNSUPPORTED_VERSION",
        after=_CONTROLLED,
    ),
    ApiKey.ALTER_REPLICA_LOG_DIRS: _api(
        PARTITION,
        partition="LOG_DIR_NOT_FOUND KAFKA_STORAGE_ERROR REPLICA_NOT_AVAILABLE UNKNOWN_TOPIC_OR_PARTITION "
        "INVALID_TOPIC_EXCEPTION CLUSTER_AUTHORIZATION_FAILED",
        after="KAFKA_STORAGE_ERROR",
    ),
    ApiKey.DESCRIBE_LOG_DIRS: _api(TOP, top="CLUSTER_AUTHORIZATION_FAILED", log_dir="KAFKA_STORAGE_ERROR"),
    ApiKey.CREATE_PARTITIONS: _api(
        TOPIC,
        topic=_ADMIN + _OF_TOPIC + "INVALID_PARTITIONS INVALID_REPLICA_ASSIGNMENT INVALID_REQUEST POLICY_VIOLATION "
        "REASSIGNMENT_IN_PROGRESS THROTTLING_QUOTA_EXCEEDED INVALID_REPLICATION_FACTOR",
        after=_CONTROLLED,
    ),
    ApiKey.DELETE_GROUPS: _api(
        GROUP,
        group=_COORDINATOR + "INVALID_GROUP_ID GROUP_AUTHORIZATION_FAILED NON_EMPTY_GROUP GROUP_ID_NOT_FOUND",
        after=_NOT_LOGGED,
    ),
    ApiKey.ELECT_LEADERS: _api(
        ALL,
        all=_ADMIN,
        partition="ELECTION_NOT_NEEDED PREFERRED_LEADER_NOT_AVAILABLE ELIGIBLE_LEADERS_NOT_AVAILABLE "
        "UNKNOWN_TOPIC_OR_PARTITION INVALID_TOPIC_EXCEPTION INVALID_REQUEST LEADER_NOT_AVAILABLE",
        after=_CONTROLLED,
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _api(
        ALL,
        all=_ADMIN,
        partition="UNKNOWN_TOPIC_OR_PARTITION INVALID_REPLICA_ASSIGNMENT NO_REASSIGNMENT_IN_PROGRESS "
        "INVALID_REPLICATION_FACTOR INVALID_TOPIC_EXCEPTION",
        after=_CONTROLLED,
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _api(TOP, top=_ADMIN),
    ApiKey.OFFSET_DELETE: _api(
        TOP,
        top=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED INVALID_GROUP_ID GROUP_ID_NOT_FOUND NON_EMPTY_GROUP",
        partition="GROUP_SUBSCRIBED_TO_TOPIC TOPIC_AUTHORIZATION_FAILED UNKNOWN_TOPIC_OR_PARTITION",
        after=_NOT_LOGGED,
    ),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _api(TOP, top="CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST"),
    ApiKey.ALTER_CLIENT_QUOTAS: _api(ENTRY, entry=_ADMIN + "INVALID_REQUEST UNSUPPORTED_VERSION", after=_CONTROLLED),
    ApiKey.DESCRIBE_CLUSTER: _api(
        TOP, top="CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST UNSUPPORTED_ENDPOINT_TYPE MISMATCHED_ENDPOINT_TYPE"
    ),
    ApiKey.DESCRIBE_PRODUCERS: _api(PARTITION, partition=_OF_TOPIC + "NOT_LEADER_OR_FOLLOWER"),
    ApiKey.DESCRIBE_TRANSACTIONS: _api(
        TRANSACTION,
        transaction=_COORDINATOR + "TRANSACTIONAL_ID_AUTHORIZATION_FAILED TRANSACTIONAL_ID_NOT_FOUND INVALID_REQUEST",
    ),
    ApiKey.LIST_TRANSACTIONS: _api(TOP, top=_COORDINATOR + "INVALID_REGULAR_EXPRESSION"),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _api(
        TOP,
        top=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED INVALID_REQUEST UNKNOWN_MEMBER_ID "
        "FENCED_MEMBER_EPOCH UNSUPPORTED_ASSIGNOR UNRELEASED_INSTANCE_ID FENCED_INSTANCE_ID GROUP_MAX_SIZE_REACHED "
        "INVALID_REGULAR_EXPRESSION INVALID_GROUP_ID GROUP_ID_NOT_FOUND UNSUPPORTED_VERSION",
        after=_NOT_LOGGED,
    ),
    ApiKey.CONSUMER_GROUP_DESCRIBE: _api(
        GROUP,
        group=_COORDINATOR + "GROUP_AUTHORIZATION_FAILED TOPIC_AUTHORIZATION_FAILED INVALID_REQUEST "
        "INVALID_GROUP_ID GROUP_ID_NOT_FOUND UNSUPPORTED_VERSION",
    ),
    ApiKey.LIST_CONFIG_RESOURCES: _api(TOP, top="CLUSTER_AUTHORIZATION_FAILED INVALID_REQUEST UNSUPPORTED_VERSION"),
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: _api(
        TOPIC, topic=_OF_TOPIC + "INVALID_REQUEST", partition="LEADER_NOT_AVAILABLE LISTENER_NOT_FOUND"
    ),
    # between brokers
    ApiKey.LEADER_AND_ISR: _api(TOP, top="STALE_CONTROLLER_EPOCH STALE_BROKER_EPOCH CLUSTER_AUTHORIZATION_FAILED"),
    ApiKey.STOP_REPLICA: _api(TOP, top="STALE_CONTROLLER_EPOCH STALE_BROKER_EPOCH CLUSTER_AUTHORIZATION_FAILED"),
    ApiKey.UPDATE_METADATA: _api(TOP, top="STALE_CONTROLLER_EPOCH STALE_BROKER_EPOCH CLUSTER_AUTHORIZATION_FAILED"),
    ApiKey.CONTROLLED_SHUTDOWN: _api(
        TOP, top="NOT_CONTROLLER STALE_BROKER_EPOCH BROKER_ID_NOT_REGISTERED CLUSTER_AUTHORIZATION_FAILED"
    ),
    ApiKey.ENVELOPE: _api(TOP, top="NOT_CONTROLLER INVALID_REQUEST CLUSTER_AUTHORIZATION_FAILED"),
}
"""Every API that a broker of Harrow's serves."""

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
}
"""(API, code) → the first version in which Kafka gives the code, and what it gives in versions before.

None: an earlier version has no such case; a fault that asks for the code there gives the code itself.
"""


def errors_of(api_key: int) -> tuple[str, ...]:
    """Return the codes that Kafka gives for an API, sorted; empty for an API that is not in the table."""
    row = API_ERRORS.get(api_key)
    return () if row is None else tuple(sorted({EVERY_API, *row.places}))


def errors_after(api_key: int) -> tuple[str, ...]:
    """Return the codes that Kafka gives for an API although its request took effect, or may have; sorted."""
    row = API_ERRORS.get(api_key)
    return () if row is None else tuple(sorted(row.after))


def place_of(api_key: int, code: int) -> str:
    """Return the place of a code in the response of an API; "" for a code that it has where all of a request failed."""
    row = API_ERRORS.get(api_key)
    return "" if row is None else row.places.get(error_name(code), "")


def whole_place(api_key: int, version: int) -> str:
    """Return the place of the error of a request that failed as a whole."""
    if version >= TOP_ALONE_FROM.get(api_key, version + 1):
        return TOP
    row = API_ERRORS.get(api_key)
    return ALL if row is None else row.whole


def code_at(api_key: int, version: int, code: int) -> ErrorCode:
    """Return what Kafka gives in this version where it gives `code` in the latest one."""
    since = SINCE.get((api_key, error_name(code)))
    if since is not None and version < since[0] and since[1] is not None:
        return ErrorCode[since[1].lower()]
    return ErrorCode(code)
