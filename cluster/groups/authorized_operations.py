"""The operations on a group that a client is authorized for, as DescribeGroups and ConsumerGroupDescribe show them.

Owns: when they are shown.

Source: KIP-430; Kafka's KafkaApis.handleDescribeGroupsRequest.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ..authorizer import ResourceType
from ..errors import ErrorCode
from ..metadata.metadata_api import OPERATIONS_UNASKED

if TYPE_CHECKING:
    from ..wire.request import Request


def authorized_operations(request: Request, body: Any, group_id: str, error: ErrorCode) -> int:
    """The bit field for a group that is described with `error`; -2^31 where the request does not ask for it."""
    asked: bool = getattr(body, "include_authorized_operations", False)
    if not asked or error is not ErrorCode.none:
        return OPERATIONS_UNASKED
    return request.authorized_operations(ResourceType.GROUP, group_id)
