"""Broker and topic settings under Apache Kafka's own names, units and defaults.

setting   one setting: type, bounds, default, parsing
table     all settings
log_table the part of them about logs and topics
group_table the settings of single groups
values    the settings of one broker or one topic
"""

from .group_table import GROUP_SETTINGS, parse_group_settings, validate_group_settings
from .log_table import THROTTLE_RATES, TOPIC_SETTINGS
from .setting import INT_MAX, LONG_MAX, Setting, Value
from .table import BY_NAME, BY_TOPIC_NAME, SETTINGS
from .values import BrokerConfig, TopicConfig, validate_topic_config

__all__ = [
    "BY_NAME",
    "BY_TOPIC_NAME",
    "GROUP_SETTINGS",
    "INT_MAX",
    "LONG_MAX",
    "SETTINGS",
    "THROTTLE_RATES",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Setting",
    "TopicConfig",
    "Value",
    "parse_group_settings",
    "validate_group_settings",
    "validate_topic_config",
]
