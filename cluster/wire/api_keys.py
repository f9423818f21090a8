"""The protocol's API keys under Apache Kafka's names, and which of them brokers keep to themselves.

Owns: `ApiKey`, `INTER_BROKER_APIS`, `CLUSTER_OPERATIONS`. Keys 4 to 7 are the internal requests of Kafka 3.9.1 in
ZooKeeper mode; Kafka 4 dropped them, so their schemas live in `internal.py` and not in kio.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum

from ..authorizer import Operation

__all__ = ["CLUSTER_OPERATIONS", "INTER_BROKER_APIS", "ApiKey"]


class ApiKey(IntEnum):
    """What a request asks for: the first two bytes of its header."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    UNREGISTER_BROKER = 64
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69
    LIST_CONFIG_RESOURCES = 74
    DESCRIBE_TOPIC_PARTITIONS = 75
    SHARE_GROUP_HEARTBEAT = 76
    SHARE_GROUP_DESCRIBE = 77
    SHARE_FETCH = 78
    SHARE_ACKNOWLEDGE = 79
    INITIALIZE_SHARE_GROUP_STATE = 83
    READ_SHARE_GROUP_STATE = 84
    WRITE_SHARE_GROUP_STATE = 85
    DELETE_SHARE_GROUP_STATE = 86
    READ_SHARE_GROUP_STATE_SUMMARY = 87
    STREAMS_GROUP_HEARTBEAT = 88
    STREAMS_GROUP_DESCRIBE = 89
    DESCRIBE_SHARE_GROUP_OFFSETS = 90
    ALTER_SHARE_GROUP_OFFSETS = 91
    DELETE_SHARE_GROUP_OFFSETS = 92
    STREAMS_GROUP_TOPOLOGY_DESCRIPTION_UPDATE = 93


INTER_BROKER_APIS = frozenset(
    (ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA, ApiKey.CONTROLLED_SHUTDOWN, ApiKey.ENVELOPE)
)
"""APIs that only the inter-broker listener serves and advertises."""

CLUSTER_OPERATIONS: Mapping[int, tuple[Operation, ...]] = {
    **dict.fromkeys(INTER_BROKER_APIS, (Operation.CLUSTER_ACTION,)),
    ApiKey.DESCRIBE_ACLS: (Operation.DESCRIBE,),
    ApiKey.CREATE_ACLS: (Operation.ALTER,),
    ApiKey.DELETE_ACLS: (Operation.ALTER,),
    ApiKey.ALTER_REPLICA_LOG_DIRS: (Operation.ALTER,),
    ApiKey.DESCRIBE_LOG_DIRS: (Operation.DESCRIBE,),
    ApiKey.ELECT_LEADERS: (Operation.ALTER,),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: (Operation.ALTER,),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: (Operation.DESCRIBE,),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: (Operation.DESCRIBE_CONFIGS,),
    ApiKey.ALTER_CLIENT_QUOTAS: (Operation.ALTER_CONFIGS,),
    ApiKey.LIST_CONFIG_RESOURCES: (Operation.DESCRIBE_CONFIGS,),
    # brokers send markers as coordinators, an administrator sends them to abort a transaction that hangs (KIP-664)
    ApiKey.WRITE_TXN_MARKERS: (Operation.ALTER, Operation.CLUSTER_ACTION),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: (Operation.DESCRIBE,),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: (Operation.ALTER,),
    ApiKey.DESCRIBE_QUORUM: (Operation.DESCRIBE,),
    ApiKey.UPDATE_FEATURES: (Operation.ALTER,),
    ApiKey.UNREGISTER_BROKER: (Operation.ALTER,),
}
"""Operations on the cluster of which an API needs one; an API that is not listed needs none.

Every listener serves WriteTxnMarkers. A Fetch needs CLUSTER_ACTION only where it names a replica: see
`RequestContext.from_broker`.
"""
