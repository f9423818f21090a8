"""The operations on a group that a client is authorized for, as DescribeGroups and ConsumerGroupDescribe show them.

Owns: `GROUP_OPERATIONS`, and when it is shown. Without an authorizer a client may do whatever Kafka has for groups.

Source: KIP-430; Kafka's AclEntry.supportedOperations, KafkaApis.handleDescribeGroupsRequest.
"""

from __future__ import annotations

from typing import Any

from ..errors import ErrorCode
from ..metadata.metadata_api import OPERATIONS_UNASKED

READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS = 3, 6, 8, 10, 11
"""Kafka's AclOperation."""
GROUP_OPERATIONS = sum(1 << operation for operation in (READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS))
"""All operations on a group, as a bit field."""


def authorized_operations(body: Any, error: ErrorCode) -> int:
    """The bit field for a group that is described with `error`; -2^31 where the request does not ask for it."""
    asked: bool = getattr(body, "include_authorized_operations", False)
    return GROUP_OPERATIONS if asked and error is ErrorCode.none else OPERATIONS_UNASKED
