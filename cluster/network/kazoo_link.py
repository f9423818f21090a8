"""A ZooKeeper session through kazoo, whose results arrive on the broker's loop (D3).

Owns: `KazooLink`: kazoo's client, whose connection thread reads and writes. Every callback of kazoo runs inline on that
thread, in the order in which ZooKeeper responded, and only passes the result to the loop
(`call_soon_threadsafe`). So responses and watch events arrive on the loop in ZooKeeper's order, and no broker
code runs on another thread. kazoo's own worker threads are never started.

The callback of a request is linked to kazoo's result before the request can be sent. Linked afterwards, on the loop, it
could miss a response that is there by then: kazoo would run it on the loop's thread, and a watch event that arrived
meanwhile would reach the loop before the response that sets the watch, and would be lost.

Errors have the registry's names: the codes of `registry/errors.py`, or "expired" and "lost".
What may fail: RegistryError where kazoo is not installed or the connect string cannot be parsed.
"""

from __future__ import annotations

import asyncio
import importlib
import logging
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import RegistryError

StateChanged = Callable[[str, int, int], None]
"""`on_state(state, session's id, zxid of the newest response)`, called on the loop."""
Done = Callable[[Any, tuple[str, int] | None, int], None]
"""`done(result, (error code, index in a multi) or None, zxid of the response)`, called on the loop."""

_CODES = {
    "NoNodeError": "no-node",
    "NodeExistsError": "node-exists",
    "BadVersionError": "bad-version",
    "NotEmptyError": "not-empty",
    "NoChildrenForEphemeralsError": "bad-request",
    "BadArgumentsError": "bad-request",
    "ValueError": "bad-request",
    "SessionExpiredError": "expired",
}
_KINDS = {"CREATED": "created", "CHANGED": "changed", "DELETED": "deleted", "CHILD": "children"}
_ROLLED_BACK = ("RolledBackError", "RuntimeInconsistency")
_NEXT_CONNECTION = ("ConnectionLoss", "SessionExpiredError")
RETRY = {"max_tries": -1, "delay": 0.02, "backoff": 2, "max_jitter": 0.5, "max_delay": 0.2}


class _Inline:
    """A queue that runs each call in `put`."""

    def put(self, call: Callable[[], object]) -> None:
        """Run the call now."""
        call()


def _call(callback: Any) -> None:
    """Run the callback of a watch now; kazoo's handler would put it into a queue."""
    callback.func(*callback.args)


class KazooLink:
    """One client of a ZooKeeper ensemble; made and used on the loop."""

    def __init__(self, connect: str, session_timeout_ms: int) -> None:
        try:
            client: Any = importlib.import_module("kazoo.client")
            threading: Any = importlib.import_module("kazoo.handlers.threading")
        except ImportError as error:
            raise RegistryError(
                "zookeeper.connect is set and kazoo is not installed: pip install pytest-harrow[zookeeper]"
            ) from error
        logging.getLogger("kazoo").addHandler(logging.NullHandler())
        self._loop = asyncio.get_running_loop()
        handler: Any = threading.SequentialThreadingHandler()
        handler.completion_queue = _Inline()
        handler.start = lambda: setattr(handler, "_running", True)
        handler.stop = lambda: setattr(handler, "_running", False)
        handler.dispatch_callback = _call
        self._new_result: Callable[[], Any] = handler.async_result
        handler.async_result = self._linked_result
        self._next_callback: Callable[[Any], None] | None = None
        try:
            self._client: Any = client.KazooClient(
                hosts=connect, timeout=session_timeout_ms / 1000, handler=handler, connection_retry=RETRY
            )
        except ValueError as error:
            raise RegistryError(f"zookeeper.connect={connect!r}: {error}") from error
        self._rooted = False
        self._on_state: StateChanged = lambda _state, _session, _zxid: None
        self._on_event: Callable[[str, str], None] = lambda _kind, _path: None

    def start(self, on_state: StateChanged, on_event: Callable[[str, str], None]) -> None:
        """Begin to connect; `on_state` gets "connected", "disconnected" or "expired", the session's id and a zxid."""
        self._on_state, self._on_event = on_state, on_event
        self._client.add_listener(self._state_changed)
        self._client.start_async()

    def close(self) -> None:
        """BLOCKS. End the session and the connection's thread."""
        self._client.stop()
        self._client.close()

    # ------------------------------------------------------------ operations

    def exists(self, path: str, done: Done, *, watch: bool) -> None:
        """Look for a node; the result is its stat, or None."""
        self._begin(lambda: self._client.exists_async(path, watch=self._watch(watch)), done)

    def get(self, path: str, done: Done, *, watch: bool) -> None:
        """Read a node; the result is its data and stat."""
        self._begin(lambda: self._client.get_async(path, watch=self._watch(watch)), done)

    def children(self, path: str, done: Done, *, watch: bool) -> None:
        """List a node's children; the result is their names."""
        self._begin(lambda: self._client.get_children_async(path, watch=self._watch(watch)), done)

    def set(self, path: str, data: bytes, version: int, done: Done) -> None:
        """Replace a node's data; the result is the stat."""
        self._begin(lambda: self._client.set_async(path, data, version=version), done)

    def delete(self, path: str, version: int, done: Done) -> None:
        """Delete a node."""
        self._begin(lambda: self._client.delete_async(path, version=version), done)

    def multi(self, operations: Sequence[tuple[Any, ...]], done: Done) -> None:
        """Apply all operations or none; the result lists the result of each.

        `("create", path, data, ephemeral, sequential)`, `("set", path, data, version)`,
        `("delete", path, version)`, `("check", path, version)`.
        """
        transaction = self._client.transaction()

        def create(path: str, data: bytes, ephemeral: bool, sequential: bool) -> None:
            transaction.create(path, data, ephemeral=ephemeral, sequence=sequential)

        add: dict[str, Callable[..., Any]] = {
            "create": create,
            "set": transaction.set_data,
            "delete": transaction.delete,
            "check": transaction.check,
        }

        def commit() -> Any:
            for kind, *arguments in operations:
                add[kind](*arguments)
            return transaction.commit_async()

        self._begin(commit, done, parts=True)

    # --------------------------------------------------------------- threads

    def _begin(self, send: Callable[[], Any], done: Done, *, parts: bool = False) -> None:
        def answered(result: Any) -> None:  # on kazoo's thread
            zxid: int = (
                self._client.last_zxid
            )  # the zxid of this response: the thread that reads the responses runs this function
            error, value = result.exception, None
            if error is None:
                value = result.get()
            found = _failure(error, value if parts and value else ())
            self._run_on_loop(done, value, found, zxid)

        self._next_callback = answered
        try:
            send()
        except MemoryError:
            raise  # ends the process
        except Exception as error:  # refused before it was sent: an invalid path, a closed session
            self._next_callback = None
            self._loop.call_soon(done, None, _failure(error, ()), self._client.last_zxid)
            return
        assert self._next_callback is None, "kazoo asks for the result of each operation before it sends it"

    def _linked_result(self) -> Any:
        """A result of kazoo with the callback of the operation that is about to be sent.

        kazoo's thread asks for results too, while it creates the root: then no operation can be sent yet.
        """
        result = self._new_result()
        callback, self._next_callback = self._next_callback, None
        if callback is not None:
            result.rawlink(callback)
        return result

    def _watch(self, wanted: bool) -> Callable[[Any], None] | None:
        return self._happened if wanted else None

    def _happened(self, event: Any) -> None:  # on kazoo's thread
        kind = _KINDS.get(str(event.type))
        if kind is not None:  # the owner sets a watch again that ended with its connection
            self._run_on_loop(self._on_event, kind, event.path)

    def _state_changed(self, state: Any) -> None:  # on kazoo's thread
        words = {"CONNECTED": "connected", "SUSPENDED": "disconnected", "LOST": "expired"}
        session = self._client.client_id
        word, number, zxid = words[str(state)], session[0] if session else 0, self._client.last_zxid
        if word == "connected" and self._client.chroot and not self._rooted:
            made = self._client.ensure_path_async("/")  # the root of all paths must exist before any request

            def rooted(made: Any) -> None:
                if type(made.exception).__name__ in _NEXT_CONNECTION:
                    return  # the next connection creates it
                self._rooted = True
                self._run_on_loop(self._on_state, word, number, zxid)

            made.rawlink(rooted)
            return
        self._run_on_loop(self._on_state, word, number, zxid)

    def _run_on_loop(self, call: Callable[..., None], *arguments: object) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(call, *arguments)


def _failure(error: Any, parts: Sequence[Any]) -> tuple[str, int] | None:
    """The registry's code for the error of a response; for a multi, that of the operation which failed."""
    if error is not None:
        return _CODES.get(type(error).__name__, "lost"), -1
    for index, part in enumerate(parts):
        if isinstance(part, Exception) and type(part).__name__ not in _ROLLED_BACK:
            return _CODES.get(type(part).__name__, "bad-request"), index
    return None
