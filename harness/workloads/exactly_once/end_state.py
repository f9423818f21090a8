"""What transactions left behind: transactions that are open, and partitions whose last stable offset is held back.

Both are facts of the cluster that brokers report: ListTransactions (KIP-664), and the state of the replicas.
What may fail: ClusterError and WireError when a broker does not respond; the caller asks again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import client_request

from ...requests.operator import addresses_of
from ...requests.raw import ask

if TYPE_CHECKING:
    from ...running_cluster import RunningCluster

VERSION = 0
OPEN = ("Ongoing", "PrepareCommit", "PrepareAbort", "PrepareEpochFence")


def left_open(cluster: RunningCluster) -> list[str]:
    """Return a line for each open transaction and each partition whose LSO is below its HW."""
    return [*open_transactions(cluster.own_servers), *held_back(cluster)]


def open_transactions(bootstrap_servers: str) -> list[str]:
    """Return a line for each transaction that a coordinator stores as open."""
    found: list[str] = []
    request = client_request(ApiKey.LIST_TRANSACTIONS, VERSION, state_filters=OPEN)
    for address in addresses_of(bootstrap_servers):
        response = ask(address, request)
        if response.error_code is not ErrorCode.none:
            found.append(f"{address} cannot list its transactions: {response.error_code.name}")
        found += [
            f"transaction {row.transactional_id} is {row.transaction_state} at {address}"
            for row in response.transaction_states
        ]
    return sorted(found)


def held_back(cluster: RunningCluster) -> list[str]:
    """Return a line for each partition whose last stable offset is below its high watermark at the leader."""
    rows: Iterable[dict[str, Any]] = (row for rows in cluster.state().values() for row in rows)
    return [
        f"{row['topic']}-{row['partition']}: last stable offset {row['lso']}, high watermark {row['hw']}"
        for row in rows
        if row["is_leader"] and row["lso"] != row["hw"]
    ]
