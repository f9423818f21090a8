"""The groups of any running cluster that librdkafka leaves out, because their protocol is not that of consumers.

ListGroups of a broker has the groups that it coordinates, so the same broker describes them.
May fail: HarrowError when a broker does not respond, or refuses ListGroups.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

from harrow.cluster.errors import ClusterError, ErrorCode, error_name
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from .final_groups import LIST_GROUPS_VERSION
from .raw import ask


class ListedGroup(NamedTuple):
    """A group as its coordinator lists it."""

    name: str
    type: str
    """The protocol type, such as `share`."""
    state: str
    coordinator: int
    address: Address

    def row(self, **described: Any) -> dict[str, Any]:
        """The row that `harrow groups --json` prints, with what is described."""
        row = {"group": self.name, "state": self.state.lower(), "assignor": None, "coordinator": self.coordinator}
        return {**row, **described}


def groups_of_types(brokers: Iterable[tuple[int, Address]], timeout_s: float) -> list[ListedGroup]:
    """Ask each broker once for its groups."""
    request = client_request(ApiKey.LIST_GROUPS, LIST_GROUPS_VERSION)
    found: list[ListedGroup] = []
    for node, address in brokers:
        response = ask(address, request, timeout_s=timeout_s)
        if response.error_code is not ErrorCode.none:
            raise ClusterError(f"{address} refused ListGroups: {error_name(response.error_code)}")
        found += [
            ListedGroup(row.group_id, row.protocol_type, row.group_state, node, address) for row in response.groups
        ]
    return found
