"""Valid topic names.

Source: Apache Kafka's `org.apache.kafka.common.internals.Topic`.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from .errors import ErrorCode, KafkaError

__all__ = ["CLUSTER_METADATA", "check_topic_name", "colliding_names", "is_valid_topic_name"]

CLUSTER_METADATA = "__cluster_metadata"
"""The name of KRaft's log of metadata: no topic may have it."""
_LENGTH_MAX = 249
_LEGAL = re.compile(r"[a-zA-Z0-9._-]+")


def check_topic_name(name: str) -> None:
    """Return for a valid name; KafkaError(invalid_topic_exception) says why another is invalid."""
    problem = _problem(name)
    if problem:
        raise KafkaError(ErrorCode.invalid_topic_exception, problem)


def is_valid_topic_name(name: str) -> bool:
    """True for a valid topic name."""
    return not _problem(name)


def _problem(name: str) -> str:
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return "Topic name is invalid: '.' or '..' is not allowed"
    if len(name) > _LENGTH_MAX:
        return f"Topic name is invalid: the length of '{name}' is longer than the max allowed length {_LENGTH_MAX}"
    if not _LEGAL.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return ""


def colliding_names(name: str, existing: Iterable[str]) -> list[str]:
    """Other topics whose metric names would be the same: metrics replace '.' by '_'."""
    if "." not in name and "_" not in name:
        return []
    flat = name.replace(".", "_")
    return sorted(other for other in existing if other != name and other.replace(".", "_") == flat)
