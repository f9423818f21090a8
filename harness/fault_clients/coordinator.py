"""The coordinator of a group or a transactional id, as a client that can be stopped asks it.

Owns: the coordinator's address, which is looked up again when a broker says that it does not coordinate or does not
respond. Every wait ends when the client is stopped (StoppedError).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

from harrow.cluster.errors import ClusterError, ErrorCode, HarrowError, error_name
from harrow.cluster.listeners import Address
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from ..requests.operator import addresses_of
from ..requests.raw import StoppedError, ask

CLIENT_ID = "harrow-fault"
GROUP, TRANSACTION = 0, 1
FIND_VERSION = 4
PAUSE_S = 0.05
REQUEST_S = 5.0
TRIED_AGAIN = frozenset(
    {
        ErrorCode.coordinator_not_available,
        ErrorCode.coordinator_load_in_progress,
        ErrorCode.not_coordinator,
        ErrorCode.concurrent_transactions,
        ErrorCode.request_timed_out,
    }
)


def refused(what: str, error: ErrorCode) -> ClusterError:
    """Return the error for a request that a coordinator refused."""
    return ClusterError(f"{what} was refused: {error_name(int(error))}")


class Coordinator:
    """The coordinator of `name`; `kind`: GROUP or TRANSACTION."""

    def __init__(self, bootstrap_servers: str, kind: int, name: str, stopped: threading.Event) -> None:
        self.name = name
        self.stopped = stopped
        self._servers = bootstrap_servers
        self._kind = kind
        self._address: Address | None = None

    def unstopped(self) -> Coordinator:
        """Return the same coordinator for what a stopped client has to do, such as to leave its group."""
        return Coordinator(self._servers, self._kind, self.name, threading.Event())

    def ask(self, key: ApiKey, version: int, request: str, *, timeout_s: float = REQUEST_S, **given: Any) -> Any:
        """Return the response to one request, whatever it says; `given`: fields of the entity `request`."""
        entity = getattr(messages.schema(key, version, "request"), request)(**given)
        if self._address is None:
            self._address = self._find()
        try:
            return self._ask(self._address, key, version, entity, timeout_s)
        except ClusterError:
            self._address = None
            raise

    def patiently(self, send: Callable[[], Any], error_of: Callable[[Any], ErrorCode], for_s: float = 30.0) -> Any:
        """Return the first response of `send` whose error is not one to try again; ClusterError after `for_s`."""
        deadline = time.monotonic() + for_s
        while True:
            try:
                response = send()
                error = error_of(response)
                if error not in TRIED_AGAIN:
                    return response
                trouble = error_name(int(error))
                if error is not ErrorCode.concurrent_transactions:
                    self._address = None
            except StoppedError:
                raise
            except HarrowError as error:
                trouble = str(error)
            if time.monotonic() > deadline:
                raise ClusterError(f"the coordinator of {self.name!r} did not serve: {trouble}")
            self.pause(PAUSE_S)

    def pause(self, seconds: float) -> None:
        """Wait so long; StoppedError when the client is stopped."""
        if self.stopped.wait(seconds):
            raise StoppedError("the client was stopped")

    def every_broker(self, key: ApiKey, version: int, entity: Any) -> list[Any]:
        """Return the response of each broker that responds."""
        found: list[Any] = []
        for address in addresses_of(self._servers):
            try:
                found.append(self._ask(address, key, version, entity, REQUEST_S))
            except ClusterError:
                continue
        return found

    def _find(self) -> Address:
        schema = messages.schema(ApiKey.FIND_COORDINATOR, FIND_VERSION, "request")
        entity = schema.FindCoordinatorRequest(key_type=self._kind, coordinator_keys=(self.name,))
        trouble = "no broker responds"
        for address in addresses_of(self._servers):
            try:
                response = self._ask(address, ApiKey.FIND_COORDINATOR, FIND_VERSION, entity, REQUEST_S)
            except ClusterError as error:
                trouble = str(error)
                continue
            (row,) = response.coordinators
            if row.error_code is ErrorCode.none:
                return Address(row.host, row.port)
            trouble = error_name(int(row.error_code))
        raise ClusterError(f"the coordinator of {self.name!r} was not found: {trouble}")

    def _ask(self, address: Address, key: ApiKey, version: int, entity: Any, timeout_s: float) -> Any:
        return ask(address, key, version, entity, timeout_s=timeout_s, client_id=CLIENT_ID, stopped=self.stopped)
