"""Asks the brokers for the states of their consumer groups when a run ends (ListGroups), for `groups.json` (L4).

A group that is not at rest is asked for again where no tap shows since when: a rebalance of living members takes
seconds. What prevents asking is stored beside the groups, and does not end a run.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from typing import Any

from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

from ..histories.group_states import AT_REST, GroupsAtTheEnd, read_group_rows, write_groups
from .operator import addresses_of
from .raw import TIMEOUT_S, ask

LIST_GROUPS_VERSION = 4
"""The first version with states."""
UNTAPPED_REST_S = 10.0
"""How long groups without rows of a tap may take until they are at rest."""
POLL_S = 0.25


def record_groups(run: Path, bootstrap_servers: str) -> None:
    """Ask every broker and write `groups.json`."""
    deadline = time.monotonic() + UNTAPPED_REST_S
    found = list_groups(bootstrap_servers)
    while _untapped(run, found) and time.monotonic() < deadline:
        time.sleep(POLL_S)
        found = list_groups(bootstrap_servers)
    write_groups(run, found)


def _untapped(run: Path, found: GroupsAtTheEnd) -> set[str]:
    """The groups that are not at rest and have no row of a tap."""
    moving = {name for name, state in found.states.items() if state not in AT_REST}
    return moving - {row.group for row in read_group_rows(run)} if moving else moving


def list_groups(bootstrap_servers: str, timeout_s: float = TIMEOUT_S) -> GroupsAtTheEnd:
    """Ask each broker once; its error, or that it does not respond, is a problem."""
    return groups_of(addresses_of(bootstrap_servers), partial(ask, timeout_s=timeout_s))


def groups_of(addresses: Iterable[Address], ask_one: Callable[[Address, ClientRequest], Any]) -> GroupsAtTheEnd:
    """Ask each of these brokers by `ask_one`, which raises HarrowError where a broker does not respond."""
    states: dict[str, str] = {}
    problems: list[str] = []
    asked_ns = time.monotonic_ns()
    request = client_request(ApiKey.LIST_GROUPS, LIST_GROUPS_VERSION)
    for address in addresses:
        try:
            response = ask_one(address, request)
        except HarrowError as error:
            problems.append(str(error))
            continue
        if response.error_code is not ErrorCode.none:
            problems.append(f"{address} refused ListGroups: {response.error_code.name}")
        states |= {row.group_id: row.group_state for row in response.groups}
    return GroupsAtTheEnd(asked_ns=asked_ns, states=states, problems=tuple(problems))
