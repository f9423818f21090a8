"""A test's own session with a running cluster's registry, for tests that change nodes which the brokers watch."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

from harrow import Cluster
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.registry import RegistryClient

T = TypeVar("T")


def visit(cluster: Cluster, folder: Path, call: Callable[[RegistryClient], Coroutine[Any, Any, T]]) -> T:
    """Run `call` with a client of the cluster's registry."""

    async def main() -> T:
        host = RealHost("visitor", str(folder / "visitor"))
        await host.start()
        port: int = cluster.registry.options["listeners"]["registry"]
        client = RegistryClient(host, ("127.0.0.1", port), "visitor 1", 5_000)
        try:
            await client.start()
            return await call(client)
        finally:
            await client.close()
            await host.stop()

    return asyncio.run(main())
