"""The fetchers of this broker: one for each leader broker that it follows (C8).

Owns: `FetcherManager`. Source: Kafka's `ReplicaFetcherManager`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from .fetcher import FetcherServices, ReplicaFetcher

if TYPE_CHECKING:
    from ..ids import NodeId
    from .partition import Partition


class FetcherManager:
    """Starts, finds and closes fetchers."""

    def __init__(self, services: FetcherServices) -> None:
        self._services = services
        self._fetchers: dict[NodeId, ReplicaFetcher] = {}

    @property
    def leaders(self) -> list[NodeId]:
        """The brokers for which there is a fetcher."""
        return list(self._fetchers)

    def add(self, partition: Partition) -> None:
        """Follow `partition`'s leader."""
        fetcher = self._fetchers.get(partition.leader)
        if fetcher is None:
            fetcher = ReplicaFetcher(self._services, partition.leader)
            self._fetchers[partition.leader] = fetcher
        fetcher.add(partition)

    def remove(self, partition: Partition) -> None:
        """Follow no broker for `partition`."""
        for fetcher in self._fetchers.values():
            fetcher.remove(partition)

    def flush_finished(self) -> None:
        """An fsync that a log waited for has ended."""
        for fetcher in self._fetchers.values():
            fetcher.flush_finished()

    def close_idle(self) -> None:
        """Close the fetchers that follow nothing (C8)."""
        for leader, fetcher in list(self._fetchers.items()):
            if fetcher.idle:
                del self._fetchers[leader]
                fetcher.close()

    def close(self) -> None:
        """Close all fetchers."""
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
