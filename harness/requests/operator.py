"""Requests of an operator for faults of the cluster (K7): reassignments, preferred and unclean elections.

`sent_in_thread` sends one to the brokers in turn, in a thread of its own, until the controller responds: an action of a
fault returns at once. Nothing is known of the outcome; the fault looks at the cluster.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from harrow.cluster.errors import ErrorCode, HarrowError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

from .raw import ask

ELECT_VERSION, REASSIGN_VERSION = 2, 0
TIMEOUT_MS = 2_000
"""How long one broker has to respond."""
CONTROLLER_MS = 1_000
"""How long a broker tries to reach the controller: one that is cut off from it must leave time for the next."""
PREFERRED, UNCLEAN = 0, 1


Moves = Sequence[tuple[str, int, Sequence[int]]]
"""Topic, partition, and its new replicas."""


def reassignment(moves: Moves, timeout_ms: int = CONTROLLER_MS) -> ClientRequest:
    """AlterPartitionReassignments; a broker that is not the controller forwards it, or refuses it (before KRaft)."""
    topics: dict[str, list[dict[str, Any]]] = {}
    for topic, partition, replicas in moves:
        topics.setdefault(topic, []).append({"partition_index": partition, "replicas": replicas})
    rows = [{"name": topic, "partitions": partitions} for topic, partitions in topics.items()]
    return client_request(ApiKey.ALTER_PARTITION_REASSIGNMENTS, REASSIGN_VERSION, topics=rows, timeout=timeout_ms)


def election(
    kind: int, partitions: Mapping[str, Sequence[int]] | None, timeout_ms: int = CONTROLLER_MS
) -> ClientRequest:
    """ElectLeaders of some partitions by topic, None: of all; forwarded or refused as a reassignment."""
    rows = partitions and [{"topic": topic, "partitions": numbers} for topic, numbers in partitions.items()]
    return client_request(
        ApiKey.ELECT_LEADERS, ELECT_VERSION, election_type=kind, topic_partitions=rows, timeout=timeout_ms
    )


def is_final(response: Any) -> bool:
    """Whether the controller responded, or a broker that forwarded the request to it.

    REQUEST_TIMED_OUT is of a broker that cannot reach the controller: another one may. What is asked for twice takes
    effect once.
    """
    return int(response.error_code) not in (ErrorCode.not_controller, ErrorCode.request_timed_out)


def addresses_of(bootstrap_servers: str) -> list[Address]:
    """Return the addresses of `host:port,…`."""
    pairs = (server.rpartition(":") for server in bootstrap_servers.split(","))
    return [Address(host.strip("[]"), int(port)) for host, _, port in pairs]


def sent_in_thread(bootstrap_servers: str, *requests: ClientRequest) -> threading.Thread:
    """Begin to send the requests, one after the other."""

    def send() -> None:
        for request in requests:
            for address in addresses_of(bootstrap_servers):
                with contextlib.suppress(HarrowError, OSError):
                    if is_final(ask(address, request, timeout_s=TIMEOUT_MS / 1000)):
                        break

    thread = threading.Thread(target=send, name="harrow-operator", daemon=True)
    thread.start()
    return thread


class Operator:
    """Sends requests of an operator to `bootstrap_servers`: `OperatorControl` of the faults."""

    def __init__(self, bootstrap_servers: Callable[[], str]) -> None:
        self._bootstrap_servers = bootstrap_servers

    def reassign(self, moves: Moves) -> None:
        """Begin to reassign several partitions."""
        sent_in_thread(self._bootstrap_servers(), reassignment(moves))

    def elect(self, topic: str, partition: int, *, unclean: bool = False) -> None:
        """Begin a preferred election, or an unclean one."""
        kind = UNCLEAN if unclean else PREFERRED
        sent_in_thread(self._bootstrap_servers(), election(kind, {topic: [partition]}))
