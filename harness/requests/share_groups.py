"""The share groups (KIP-932) of any running cluster, their members and their share-partitions, for `harrow groups`.

None stands for what Kafka's `kafka-share-groups --describe` shows as "-": the start offset until the first
acknowledgement is stored, and the lag until then, or from a broker before 4.2 (DescribeShareGroupOffsets v0). A
partition with an error has neither; Kafka's tool leaves it out. A broker that closes the connection at a request, or
refuses it, leaves a group without members, or without share-partitions.
"""

from __future__ import annotations

import contextlib
from typing import Any

from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from .groups_by_type import ListedGroup
from .raw import ask

SHARE_TYPE = "share"
DESCRIBE_VERSION = 1
OFFSETS_VERSIONS = (1, 0)
"""The newest first; version 0 has no lag."""


def share_row(group: ListedGroup, timeout_s: float) -> dict[str, Any]:
    """Return the row of a share group, as `harrow groups --json` prints it."""
    places = _share_partitions(group.address, group.name, timeout_s)
    return group.row(**{"members": [], "share_partitions": places, **_described(group.address, group.name, timeout_s)})


def _described(address: Address, name: str, timeout_s: float) -> dict[str, Any]:
    """The assignor and the members of a group; empty where the broker does not describe it."""
    request = client_request(ApiKey.SHARE_GROUP_DESCRIBE, DESCRIBE_VERSION, group_ids=[name])
    with contextlib.suppress(HarrowError):
        (group,) = ask(address, request, timeout_s=timeout_s).groups
        if group.error_code is ErrorCode.none:
            members = [_member(row) for row in sorted(group.members, key=lambda row: str(row.member_id))]
            return {"assignor": group.assignor_name or None, "members": members}
    return {}


def _member(row: Any) -> dict[str, Any]:
    return {
        "member_id": row.member_id,
        "client_id": row.client_id,
        "host": row.client_host,
        "partitions": [
            {"topic": topic.topic_name, "partition": number}
            for topic in sorted(row.assignment.topic_partitions, key=lambda topic: str(topic.topic_name))
            for number in sorted(topic.partitions)
        ],
    }


def _share_partitions(address: Address, name: str, timeout_s: float) -> list[dict[str, Any]]:
    """The share-partitions of a group, by topic and number."""
    for version in OFFSETS_VERSIONS:
        request = client_request(
            ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, version, groups=[{"group_id": name, "topics": None}]
        )
        with contextlib.suppress(HarrowError):
            (group,) = ask(address, request, timeout_s=timeout_s).groups
            if group.error_code is ErrorCode.none:
                return sorted(
                    (_share_partition(topic.topic_name, row) for topic in group.topics for row in topic.partitions),
                    key=lambda row: (row["topic"], row["partition"]),
                )
            if group.error_code is not ErrorCode.unsupported_version:
                return []
    return []


def _share_partition(topic: str, row: Any) -> dict[str, Any]:
    known = row.error_code is ErrorCode.none and row.start_offset >= 0
    lag = getattr(row, "lag", -1)
    return {
        "topic": topic,
        "partition": row.partition_index,
        "start_offset": row.start_offset if known else None,
        "lag": lag if known and lag >= 0 else None,
    }
