"""Broker and topic settings under Apache Kafka's own names, units and defaults.

setting   one setting: type, bounds, default, parsing
table     all settings
dynamic_table the part of them that running brokers only store
kafka_only names that Apache Kafka has and Harrow has not
acl_table the part of them about ACLs
log_table the part of them about logs and topics
group_table the settings of single groups
ssl_table the part of them about TLS
sasl_table the part of them about SASL and delegation tokens
share_table the part of them about share groups
streams_table the part of them about tasks of streams groups
values    the settings of one broker or one topic
"""

from .dynamic_table import THREAD_COUNTS
from .group_table import GROUP_SETTINGS, parse_group_settings, validate_group_settings
from .kafka_only import KAFKA_ONLY
from .log_table import THROTTLE_RATES, TOPIC_SETTINGS
from .setting import INT_MAX, LONG_MAX, Change, Setting, Value
from .table import BROKER_SETTINGS, BY_NAME, BY_TOPIC_NAME, COARSE, LISTENER_PREFIX, SETTINGS, setting_of
from .values import BrokerConfig, TopicConfig, check_compaction_lags, validate_topic_config

__all__ = [
    "BROKER_SETTINGS",
    "BY_NAME",
    "BY_TOPIC_NAME",
    "COARSE",
    "GROUP_SETTINGS",
    "INT_MAX",
    "KAFKA_ONLY",
    "LISTENER_PREFIX",
    "LONG_MAX",
    "SETTINGS",
    "THREAD_COUNTS",
    "THROTTLE_RATES",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Change",
    "Setting",
    "TopicConfig",
    "Value",
    "check_compaction_lags",
    "parse_group_settings",
    "setting_of",
    "validate_group_settings",
    "validate_topic_config",
]
