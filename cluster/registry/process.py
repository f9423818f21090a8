"""The registry as a process: its server, its durable store, and what its control socket answers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..host.seam import ProcessHost
from .paths import CONTROLLER
from .server import RegistryServer
from .store import SqliteStore, Store


class RegistryProcess:
    """Built by `cluster.process` from options; `start`, `stop`, and `failed` which never returns.

    `store` instead of a file in the folder: a simulation keeps what was committed in memory, across lives.
    """

    def __init__(self, host: ProcessHost, options: Mapping[str, Any], store: Store | None = None) -> None:
        self._host = host
        kept = store or SqliteStore(f"{options['folder']}/registry.sqlite")
        self._server = RegistryServer(host, kept)

    async def start(self) -> None:
        """Load the tree and serve it."""
        await self._server.start()
        for op, operation in {
            "tree": self._tree,
            "session.expire": self._expire,
            "controller.depose": self._depose,
        }.items():
            self._host.control.register(op, operation)

    async def stop(self) -> None:
        """Serve no more; everything committed is on disk."""
        await self._server.stop()

    async def failed(self) -> None:
        """Wait for a failure that must end the process: a store that refuses to commit."""
        await self._server.failed()

    def _expire(self, fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"sessions": self._server.expire(str(fields["name"]))}

    def _depose(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"removed": self._server.remove_ephemeral(CONTROLLER)}

    def _tree(self, _fields: Mapping[str, Any]) -> dict[str, Any]:
        return {"tree": self._server.tree.dump()}
