"""Where the cluster's state lies in the registry: the paths of Apache Kafka 3.9 in ZooKeeper.

Owns: every path that a broker reads or writes. No other module spells a path.
"""

from __future__ import annotations

from ..ids import NodeId, TopicPartition

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
BROKER_SEQUENCE = "/brokers/seqid"
TOPICS = "/brokers/topics"
CONFIGS = "/config"
TOPIC_CONFIGS = "/config/topics"
GROUP_CONFIGS = "/config/groups"
BROKER_CONFIGS = "/config/brokers"
USER_QUOTAS = "/config/users"
"""Below it each user has quotas and SCRAM credentials."""
USERS_MADE = "/harrow/scram_users"
"""Says that the users of a new cluster were stored."""
CLIENT_QUOTAS = "/config/clients"
IP_QUOTAS = "/config/ips"
CONFIG_CHANGES = "/config/changes"
CONFIG_CHANGE = f"{CONFIG_CHANGES}/config_change_"
"""Prefix of the sequential nodes that announce a changed setting."""
DELETIONS = "/admin/delete_topics"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = f"{ISR_CHANGES}/isr_change_"
"""Prefix of the sequential nodes by which leaders notify the controller of ISR changes."""
LOG_DIR_EVENTS = "/log_dir_event_notification"
LOG_DIR_EVENT = f"{LOG_DIR_EVENTS}/log_dir_event_"
"""Prefix of the sequential nodes by which brokers notify the controller of an offline data folder."""
ACLS = "/kafka-acl"
"""ACLs of literal patterns: `/kafka-acl/Topic/name`."""
EXTENDED_ACLS = "/kafka-acl-extended"
"""ACLs of other patterns: `/kafka-acl-extended/prefixed/Topic/name`."""
ACL_CHANGES = "/kafka-acl-changes"
EXTENDED_ACL_CHANGES = "/kafka-acl-extended-changes"
ACL_CHANGE = "acl_changes_"
"""Prefix of the sequential nodes below both that announce a pattern whose ACLs changed."""
DELEGATION_TOKENS = "/delegation_token/tokens"
DELEGATION_CHANGES = "/delegation_token/token_changes"
DELEGATION_CHANGE = f"{DELEGATION_CHANGES}/token_change_"
"""Prefix of the sequential nodes that announce a changed delegation token."""
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/latest_producer_id_block"
CLUSTER_ID = "/cluster/id"

PERSISTENT = (
    BROKER_IDS,
    TOPICS,
    TOPIC_CONFIGS,
    CONFIG_CHANGES,
    BROKER_CONFIGS,
    BROKER_SEQUENCE,
    DELETIONS,
    LOG_DIR_EVENTS,
    ISR_CHANGES,
)
"""The nodes that the first broker creates when it registers, in this order: if the last exists, all exist."""


def broker_path(node_id: NodeId) -> str:
    """The registration of a broker."""
    return f"{BROKER_IDS}/{node_id}"


def topic_path(topic: str) -> str:
    """The node that holds a topic's id and assignment; its partitions' states lie below it."""
    return f"{TOPICS}/{topic}"


def state_path(tp: TopicPartition) -> str:
    """The node that holds a partition's leader and ISR."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def partition_of_state_path(path: str) -> TopicPartition | None:
    """The inverse of `state_path`; None for a path of another kind."""
    parts = path.split("/")
    if path.startswith(f"{TOPICS}/") and len(parts) == 7 and parts[6] == "state":
        return TopicPartition(parts[3], int(parts[5]))
    return None


def config_path(topic: str) -> str:
    """The node that holds a topic's overrides."""
    return f"{TOPIC_CONFIGS}/{topic}"


def entity_config_path(entity: str) -> str:
    """The node that holds the settings of `topics/T`, `groups/G`, `brokers/N` or `brokers/<default>`."""
    return f"{CONFIGS}/{entity}"


def token_path(token_id: str) -> str:
    """The node of a delegation token."""
    return f"{DELEGATION_TOKENS}/{token_id}"


def deletion_path(topic: str) -> str:
    """The node that marks a topic for deletion."""
    return f"{DELETIONS}/{topic}"
