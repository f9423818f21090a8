"""The streams groups (KIP-1071) of any running cluster, and their members, for `harrow groups`.

A broker that closes the connection at StreamsGroupDescribe, or refuses it, leaves a group without members.
"""

from __future__ import annotations

import contextlib
from typing import Any

from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from .groups_by_type import ListedGroup
from .raw import ask

STREAMS_TYPE = "streams"


def streams_row(group: ListedGroup, timeout_s: float) -> dict[str, Any]:
    """Return the row of a streams group, as `harrow groups --json` prints it."""
    return group.row(members=_members(group, timeout_s))


def _members(listed: ListedGroup, timeout_s: float) -> list[dict[str, Any]]:
    request = client_request(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=[listed.name])
    with contextlib.suppress(HarrowError):
        (group,) = ask(listed.address, request, timeout_s=timeout_s).groups
        if group.error_code is ErrorCode.none:
            return [_member(row) for row in group.members]
    return []


def _member(row: Any) -> dict[str, Any]:
    return {
        "member_id": row.member_id,
        "client_id": row.client_id,
        "host": row.client_host,
        "partitions": [],
        "tasks": [
            {"subtopology": tasks.subtopology_id, "partition": number}
            for tasks in row.assignment.active_tasks
            for number in tasks.partitions
        ],
    }
