"""Transactions that are being ended when a run ends: committed or aborted, with a marker not written everywhere yet.

Their offsets may be committed already and their records not, each for some milliseconds: a final read at that moment
would miss records that a consumer of committed records gets. What prevents asking does not end a run.

Source: KIP-664 (ListTransactions); PrepareCommit and PrepareAbort are the states of Kafka's TransactionState.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

from .operator import addresses_of
from .raw import TIMEOUT_S, ask

ENDING = ("PrepareCommit", "PrepareAbort")
MOST_S = 10.0
"""A transaction that takes longer is judged as it is: its records are not committed."""
POLL_S = 0.05


def ending_transactions(bootstrap_servers: str, timeout_s: float = TIMEOUT_S) -> list[str]:
    """Ask each broker once for the transactional ids whose transaction is being ended."""
    return ending_of(addresses_of(bootstrap_servers), partial(ask, timeout_s=timeout_s))


def ending_of(addresses: Iterable[Address], ask_one: Callable[[Address, ClientRequest], Any]) -> list[str]:
    """Ask each of these brokers by `ask_one`, which raises HarrowError where a broker does not respond."""
    request = client_request(ApiKey.LIST_TRANSACTIONS, 0, state_filters=ENDING, producer_id_filters=())
    found: list[str] = []
    for address in addresses:
        try:
            response = ask_one(address, request)
        except HarrowError:
            continue  # a broker that does not run ends no transaction
        if response.error_code is ErrorCode.none:
            found += [row.transactional_id for row in response.transaction_states]
    return found


def await_ended(ending: Callable[[], list[str]]) -> None:
    """Wait for the transactions that are being ended now, for a bounded time; others may begin to end meanwhile."""
    deadline = time.monotonic() + MOST_S
    left = set(ending())
    while left and time.monotonic() < deadline:
        time.sleep(POLL_S)
        left &= set(ending())
