"""The registry as a process: its server, its durable store, and what its control socket answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host.real import RealHost
from .server import RegistryServer
from .store import SqliteStore


class RegistryProcess:
    """Built by `cluster.process` from options; `start`, `stop`, and `failed` which never returns."""

    def __init__(self, host: RealHost, options: Mapping[str, Any]) -> None:
        self._host = host
        self._server = RegistryServer(host, SqliteStore(f"{options['folder']}/registry.sqlite"))

    async def start(self) -> None:
        """Load the tree and serve it."""
        await self._server.start()
        self._host.control.register("tree", self._tree)

    async def stop(self) -> None:
        """Serve no more; everything committed is on disk."""
        await self._server.stop()

    async def failed(self) -> None:
        """Wait for a failure that must end the process: a store that refuses to commit."""
        await self._server.failed()

    def _tree(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"tree": self._server.tree.dump()}
