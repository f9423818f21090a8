"""Broker and topic settings under Apache Kafka's own names, units and defaults.

setting   one setting: type, bounds, default, parsing
table     all settings
values    the settings of one broker or one topic
"""

from .setting import INT_MAX, LONG_MAX, Setting, Value
from .table import BY_NAME, BY_TOPIC_NAME, SETTINGS, TOPIC_SETTINGS
from .values import BrokerConfig, TopicConfig, validate_topic_config

__all__ = [
    "BY_NAME",
    "BY_TOPIC_NAME",
    "INT_MAX",
    "LONG_MAX",
    "SETTINGS",
    "TOPIC_SETTINGS",
    "BrokerConfig",
    "Setting",
    "TopicConfig",
    "Value",
    "validate_topic_config",
]
