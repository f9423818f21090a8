"""Blocking connections as the transport of coroutines: each wait blocks the thread, until the client is stopped.

A coroutine over this transport never suspends: `completed` runs it to its end.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Coroutine
from typing import Any, TypeVar

from harrow.cluster.errors import WireError
from harrow.cluster.listeners import Address
from harrow.cluster.wire.client_requests import ClientRequest

from .operator import addresses_of
from .raw import NoResponseError, StoppedError, ask

REQUEST_S = 5.0
PAUSE_MS = 50
PATIENCE_MS = 30_000
"""How long a client looks for a coordinator that serves."""
T = TypeVar("T")


class BlockingTransport:
    """Requests to the brokers of `bootstrap_servers`, each over a connection of its own."""

    def __init__(self, bootstrap_servers: str, client_id: str, stopped: threading.Event) -> None:
        self._addresses = addresses_of(bootstrap_servers)
        self._client_id = client_id
        self._stopped = stopped

    def now_ms(self) -> float:
        """The monotonic clock."""
        return time.monotonic() * 1000

    async def ask(self, address: tuple[str, int], request: ClientRequest, timeout_ms: float | None = None) -> Any:
        """Return the response; NoResponseError, WireError, and StoppedError when the client is stopped."""
        timeout_s = REQUEST_S if timeout_ms is None else timeout_ms / 1000
        return ask(Address(*address), request, timeout_s=timeout_s, client_id=self._client_id, stopped=self._stopped)

    async def ask_any_broker(self, request: ClientRequest) -> Any:
        """Return the response of the next broker that responds: each request begins at another one."""
        self._addresses.append(self._addresses.pop(0))
        found = await self.ask_every_broker(request, most=1)
        if not found:
            raise NoResponseError("no broker responds")
        return found[0]

    async def ask_every_broker(self, request: ClientRequest, *, most: int | None = None) -> list[Any]:
        """Return the responses of the brokers that respond, of the first `most` of them."""
        found: list[Any] = []
        for address in self._addresses:
            if len(found) == most:
                break
            try:
                found.append(await self.ask(address, request))
            except (OSError, WireError):
                continue
        return found

    async def sleep(self, delay_ms: float) -> None:
        """Wait so long; StoppedError when the client is stopped."""
        if self._stopped.wait(delay_ms / 1000):
            raise StoppedError("the client was stopped")

    async def pause(self) -> None:
        """Wait before something is tried again."""
        await self.sleep(PAUSE_MS)


def completed(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that awaits blocking calls only; return its result."""
    try:
        coroutine.send(None)
    except StopIteration as end:
        result: T = end.value
        return result
    raise AssertionError("a blocking coroutine does not suspend")
