"""The control socket of a process, over which faults, probes and the supervisor change a host.

A Unix stream socket; one JSON object a line, `{"op": "ping", …}`, one response a line: `{"ok": true, …}` or
`{"ok": false, "error": "…"}`. An operation takes the object's fields and returns (or awaits) more fields. Operations:

    op                 fields                                         result, effect
    -----------------  ---------------------------------------------  ------------------------------------------------
    ping               none                                           the pid
    links.block        peers ["broker 2", "registry", "client *"],    holds back what these peers send, are sent
                       direction "both", "in" or "out"
    links.slow         peers, delay_ms                                sends to these peers late, in order
    links.throttle     peers, bytes_per_s                             sends to all these peers together no faster
    links.heal         mode "deliver" or "reset", peers               removes rules; delivers or drops what was held
    links.reset        peers                                          resets the links once; how many there were
    links.freeze       peers                                          holds back all on the links that are open now
    links              none                                           the rules, what they hold back, what left late
    rules.add          kind, and the fields of that kind              arms a rule; its id (`rules.py` has the kinds)
    rules.list         kind                                           the rules, what they saw and what they did
    rules.remove       kind, id (without id: all)                     disarms rules
    state              none                                           a broker's replicas: leader, epoch, ISR, offsets
    connections.close  user (without: all clients with TLS)           ends a broker's connections; how many there were
    credentials        user                                           fingerprints of passwords and of certificates
    share-locks.end    group, member (without: all members)           ends their locks on a broker; how many records
    metrics            none                                           a broker's metrics, and the port of their page
    tree               none                                           every node of the registry, by path
    session.expire     name                                           ends the sessions of a client of the registry
    controller.depose  none                                           removes the registry's node of the controller
    proxy              none                                           the brokers behind a proxy, and their addresses

`cluster/host/` registers all down to `rules.remove`, `cluster/registry/process.py` `tree`, `session.expire` and
`controller.depose`, `cluster/broker.py` the others, and `cluster/proxy/process.py` `proxy`.

Owns: `ControlServer` on the host's loop; `ControlClient`, synchronous, for the supervisor's side. What may fail: an
exception of an operation becomes its response (`error`) and does not end the process. The client raises ClusterError,
which names the process, the operation and the remedy.

Paths longer than a Unix address (108 bytes) are reached through a descriptor of their folder.
"""

from __future__ import annotations

import asyncio
import contextlib
import inspect
import json
import os
import socket
from collections.abc import Awaitable, Callable, Mapping
from types import TracebackType
from typing import Any, cast

from ...errors import ClusterError, HarrowError
from ...unix_sockets import reachable
from ..trace import plain

Operation = Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]]

LINE_BYTES_MOST = 64 * 1024 * 1024
"""A request's or answer's length: the state of some ten thousand partitions fits many times."""


class ControlServer:
    """Serves operations on the Unix socket at `path`."""

    def __init__(self, path: str, log: Callable[[str, str], None]) -> None:
        self._path = path
        self._log = log
        self._operations: dict[str, Operation] = {"ping": lambda _fields: {"pid": os.getpid()}}
        self._server: asyncio.AbstractServer | None = None
        self._clients: set[asyncio.Task[Any]] = set()

    def register(self, name: str, operation: Operation) -> None:
        """Serve `name` from now on; a later registration of the same name replaces it."""
        self._operations[name] = operation

    async def start(self) -> None:
        """Bind and serve; a socket file of an earlier process is replaced."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)
        sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        with reachable(self._path) as address:
            sock.bind(address)
        self._server = await asyncio.start_unix_server(self._serve, sock=sock, limit=LINE_BYTES_MOST)

    async def stop(self) -> None:
        """Serve no more and remove the socket file."""
        if self._server is not None:
            self._server.close()
            self._server = None
        for client in list(self._clients):
            client.cancel()
        if self._clients:
            await asyncio.wait(list(self._clients))
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self._path)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._clients.add(task)
        try:
            while line := await reader.readline():
                answer = await self.answer(line)
                text = json.dumps(answer, separators=(",", ":"), default=plain)
                writer.write(text.encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):  # the client has closed, or its line has no end
            pass
        except asyncio.CancelledError:
            pass  # by stop(); suppressed, because streams report a cancelled handler as an error
        finally:
            self._clients.discard(task)
            writer.close()

    async def answer(self, line: bytes) -> dict[str, Any]:
        """The response to one line of any content."""
        try:
            fields: Any = json.loads(line)
            if not isinstance(fields, dict):
                return {"ok": False, "error": "expected one JSON object a line"}
            return await self._run(cast("dict[str, Any]", fields))
        except ValueError as error:
            return {"ok": False, "error": f"not JSON: {error}"}

    async def _run(self, fields: dict[str, Any]) -> dict[str, Any]:
        name = fields.pop("op", None)
        operation = self._operations.get(name) if isinstance(name, str) else None
        if operation is None:
            known = ", ".join(sorted(self._operations))
            return {"ok": False, "error": f"no operation {name!r}; there are {known}"}
        try:
            result = operation(fields)
            if inspect.isawaitable(result):
                result = await result
            return {"ok": True, **result}
        except HarrowError as error:
            return {"ok": False, "error": str(error)}
        except KeyError as error:
            return {"ok": False, "error": f"{name}: {error} is missing"}
        except MemoryError:
            raise  # ends the process
        except Exception as error:  # any error of an operation is in its response
            self._log("error", f"control operation {name} failed: {error!r}")
            return {"ok": False, "error": f"{name}: {type(error).__name__}: {error}"}


class ControlClient:
    """One connection to the control socket at `path`; not for several threads at once."""

    def __init__(self, path: str, *, name: str = "", timeout_s: float = 10.0) -> None:
        self._path = path
        self._name = name or os.path.basename(os.path.dirname(path)) or path
        self._timeout_s = timeout_s
        self._sock: socket.socket | None = None
        self._rest = b""

    def __enter__(self) -> ControlClient:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def call(self, op: str, **fields: object) -> dict[str, Any]:
        """Call an operation and return its response, without `ok`.

        ClusterError when the process cannot be reached, does not answer in time, or refuses.
        """
        line = json.dumps({"op": op, **fields}, default=plain).encode() + b"\n"
        try:
            answer = json.loads(self._exchange(line))
        except TimeoutError:
            self.close()
            raise ClusterError(
                f"{self._name} did not answer {op!r} on {self._path} within {self._timeout_s:g} s; "
                "is it paused (SIGSTOP)? resume it, or raise timeout_s"
            ) from None
        except (OSError, ValueError) as error:
            self.close()
            raise ClusterError(
                f"{self._name} cannot be asked {op!r} on {self._path}: {error}; is it running? "
                f"its last words are in {os.path.join(os.path.dirname(self._path), 'broker.log')}"
            ) from None
        if answer.pop("ok", False) is not True:
            raise ClusterError(f"{self._name} refused {op!r}: {answer.get('error', answer)}")
        return cast("dict[str, Any]", answer)

    def close(self) -> None:
        """Close the connection; a later call opens a new one."""
        if self._sock is not None:
            self._sock.close()
            self._sock, self._rest = None, b""

    def _exchange(self, line: bytes) -> bytes:
        fresh = self._sock is None
        try:
            self._connect().sendall(line)
            return self._read_line()
        except ConnectionError:
            # an open connection may lead to an earlier process: try again with a new connection
            self.close()
            if fresh:
                raise
            self._connect().sendall(line)
            return self._read_line()

    def _connect(self) -> socket.socket:
        if self._sock is None:
            sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            sock.settimeout(self._timeout_s)
            try:
                with reachable(self._path) as address:
                    sock.connect(address)
            except BaseException:
                sock.close()
                raise
            self._sock = sock
        return self._sock

    def _read_line(self) -> bytes:
        sock = self._connect()
        parts = [self._rest]
        while b"\n" not in parts[-1]:
            data = sock.recv(65536)
            if not data:
                raise ConnectionResetError("it closed the connection")
            parts.append(data)
        line, _, self._rest = b"".join(parts).partition(b"\n")
        return line
