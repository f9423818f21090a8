"""Where the cluster's state lies in the registry; as Apache Kafka 3.9's in ZooKeeper."""

from __future__ import annotations

from ..ids import NodeId, TopicPartition

BROKERS = "/brokers"
BROKER_IDS = "/brokers/ids"
TOPICS = "/brokers/topics"
TOPIC_CONFIGS = "/config/topics"
DELETIONS = "/admin/delete_topics"
ISR_CHANGES = "/isr_change_notification"
ISR_CHANGE = f"{ISR_CHANGES}/isr_change_"
LOG_DIR_EVENTS = "/log_dir_event_notification"
CONTROLLER = "/controller"
CONTROLLER_EPOCH = "/controller_epoch"
PRODUCER_IDS = "/latest_producer_id_block"

PERSISTENT = (
    BROKER_IDS,
    TOPICS,
    TOPIC_CONFIGS,
    "/config/changes",
    "/config/brokers",
    "/brokers/seqid",
    DELETIONS,
    LOG_DIR_EVENTS,
    ISR_CHANGES,
)
"""Made by the first broker that registers; the last one is there when all are."""


def broker_path(node_id: NodeId) -> str:
    """A broker's registration."""
    return f"{BROKER_IDS}/{node_id}"


def topic_path(topic: str) -> str:
    """A topic's assignment, and all below it."""
    return f"{TOPICS}/{topic}"


def state_path(tp: TopicPartition) -> str:
    """A partition's leader and ISR."""
    return f"{TOPICS}/{tp.topic}/partitions/{tp.partition}/state"


def config_path(topic: str) -> str:
    """A topic's overrides."""
    return f"{TOPIC_CONFIGS}/{topic}"
