"""The streams groups (KIP-1071) of any running cluster, and their members, for `harrow groups`.

librdkafka leaves out groups of other protocols than consumers'. ListGroups of a broker has the groups that it
coordinates, so the same broker describes them. May fail: HarrowError when a broker does not respond, or refuses
ListGroups. A broker that closes the connection at StreamsGroupDescribe, or refuses it, leaves a group without members.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, HarrowError, error_name
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from .final_groups import LIST_GROUPS_VERSION
from .raw import ask

STREAMS_TYPE = "streams"


def streams_groups(brokers: Iterable[tuple[int, Address]], timeout_s: float) -> list[dict[str, Any]]:
    """Return a row for each streams group, by name, as `harrow groups --json` prints it."""
    listing = client_request(ApiKey.LIST_GROUPS, LIST_GROUPS_VERSION)
    rows: dict[str, dict[str, Any]] = {}
    for node, address in brokers:
        response = ask(address, listing, timeout_s=timeout_s)
        if response.error_code is not ErrorCode.none:
            raise ClusterError(f"{address} refused ListGroups: {error_name(response.error_code)}")
        for listed in response.groups:
            if listed.protocol_type == STREAMS_TYPE:
                row = {"group": listed.group_id, "state": listed.group_state.lower(), "assignor": None}
                rows[listed.group_id] = {**row, "coordinator": node, "members": _members(address, listed, timeout_s)}
    return [rows[name] for name in sorted(rows)]


def _members(address: Address, listed: Any, timeout_s: float) -> list[dict[str, Any]]:
    request = client_request(ApiKey.STREAMS_GROUP_DESCRIBE, 0, group_ids=[listed.group_id])
    with contextlib.suppress(HarrowError):
        (group,) = ask(address, request, timeout_s=timeout_s).groups
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
