"""The registry's client over a real ZooKeeper (D3): same operations, same order, same watches, chosen by configuration.

Owns: `ZooKeeperClient`, a `RegistryClient` whose link is a `SessionLink` (kazoo's, network/kazoo_link.py). Operations
that ZooKeeper does not have are composed by `zookeeper_transactions.py`.

When kazoo reconnects within its session it has dropped the watches: the client sets them again, and the watches whose
change it missed fire.

What may fail: as `RegistryClient`. Link faults (`links.block registry`) do not affect a ZooKeeper's connection.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from typing import Any

from ..errors import RegistryError
from ..host.seam import Host, Promise
from .client import CONNECTION_TIMEOUT_MS, RegistryClient
from .client_link import PendingOperation, Watch
from .errors import RegistryUnavailableError
from .operations import Children, Delete, Event, Exists, Get, Multi, Operation, ReadTree, Set, Stat
from .zookeeper_link import Done, SessionLink
from .zookeeper_transactions import ZooKeeperTransactions, error_of, stat_of


class ZooKeeperClient(RegistryClient):
    """One session with a ZooKeeper."""

    def __init__(
        self,
        host: Host,
        link: SessionLink,
        name: str,
        session_timeout_ms: int,
        *,
        connection_timeout_ms: int = CONNECTION_TIMEOUT_MS,
    ) -> None:
        super().__init__(
            host, ("zookeeper.connect", 0), name, session_timeout_ms, connection_timeout_ms=connection_timeout_ms
        )
        self._link = link
        self._suspended_at = 0
        self._transactions = ZooKeeperTransactions(self, link)

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Connect and begin a session; RegistryUnavailableError when ZooKeeper does not respond in time."""
        self._link.start(self._state_changed, lambda kind, path: self.watch_fired(Event(kind, path)))
        try:
            await self.host.tasks.wait(self.until_connected(), self._connection_timeout_ms)
        except TimeoutError:
            await self.close()
            raise RegistryUnavailableError(
                f"ZooKeeper did not respond within {self._connection_timeout_ms} ms; is it running, and is "
                "zookeeper.connect its address?"
            ) from None

    async def close(self) -> None:
        """End the session now: ZooKeeper deletes its ephemeral nodes at once."""
        if self.state != "closed":
            self._set_state("closed")
            self._fail_waiting()
            await self.host.tasks.run_blocking(self._link.close)

    def _state_changed(self, state: str, session_id: int, zxid: int) -> None:
        if self.state == "closed":
            return
        if state == "expired":
            self.expired()
        elif state == "disconnected":
            self._suspended_at = zxid
            self._set_state("disconnected")
        else:
            resumed = self.session_id == session_id
            self.session_id = session_id
            if resumed:
                self._watch_again()
            self._connected()

    # --------------------------------------------------------------- watches

    def _watch_again(self) -> None:
        """First on the new connection: missed changes fire before any other response arrives."""
        seen = self._suspended_at
        for path in self._watches["data"]:
            self._set_watch_again("data", path, seen)
        for path in self._watches["exists"]:
            self._set_watch_again("exists", path, seen)
        for path in self._watches["children"]:
            self._set_watch_again("children", path, seen)

    def _set_watch_again(self, kind: str, path: str, seen: int) -> None:
        def looked(stat: Any, error: tuple[str, int] | None, _zxid: int) -> None:
            missed: str | None = None
            if error is None and kind == "exists":
                missed = None if stat is None else "created"
            elif error is None and stat is None:
                missed = "deleted"
            elif error is None and (stat.pzxid if kind == "children" else stat.mzxid) > seen:
                missed = "children" if kind == "children" else "changed"
            if missed is not None:
                self.watch_fired(Event(missed, path))

        if kind == "children":
            self._link.children(path, _ignored, watch=True)
            self._link.exists(path, looked, watch=False)
        else:
            self._link.exists(path, looked, watch=True)

    # ------------------------------------------------------------ operations

    def submit(self, operation: Operation, watch: Watch | None = None) -> Promise[Any]:
        """Send an operation now; the promise is for its result."""
        promise: Promise[Any] = self.host.tasks.promise()
        pending = PendingOperation(operation, promise, watch)
        if self.state != "connected":
            pending.fail(RegistryUnavailableError(f"{self._name} has no link to ZooKeeper"))
            return promise
        match operation:
            case Get(path):
                self._link.get(path, self._done(pending, _got), watch=operation.watch)
            case Exists(path):
                self._link.exists(path, self._done(pending, stat_of), watch=operation.watch)
            case Children(path):
                self._link.children(path, self._done(pending, sorted), watch=operation.watch)
            case Set(path, data, version):
                self._link.set(path, data.encode(), version, self._done(pending, stat_of))
            case Delete(path, version):
                self._link.delete(path, version, self._done(pending, _nothing))
            case ReadTree(path):
                self._compose(pending, self._transactions.read_tree(path))
            case Multi(parts):
                self._compose(pending, self._transactions.multi(parts))
            case _:
                self._compose(pending, self._transactions.single(operation))
        return promise

    def _done(self, pending: PendingOperation, convert: Callable[[Any], Any]) -> Done:
        def done(result: Any, error: tuple[str, int] | None, _zxid: int) -> None:
            if error is not None:
                pending.fail(error_of(error, pending.operation, writes=pending.writes))
                return
            found = convert(result)
            self._keep_watch(pending, found)
            pending.succeed(found)

        return done

    def _compose(self, pending: PendingOperation, work: Coroutine[Any, Any, Any]) -> None:
        async def run() -> None:
            try:
                pending.succeed(await work)
            except RegistryError as error:
                pending.fail(error)

        self.host.tasks.spawn(run(), name="zookeeper-operation")


def _got(raw: Any) -> tuple[str, Stat | None]:
    return raw[0].decode(), stat_of(raw[1])


def _nothing(_raw: Any) -> None:
    return None


def _ignored(_result: Any, _error: Any, _zxid: int) -> None:
    """For a response that no caller waits for."""


__all__ = ["ZooKeeperClient"]
