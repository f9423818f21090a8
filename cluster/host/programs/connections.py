"""What a program connects to, and what it serves: brokers by frames, programs by bytes.

Owns: `Connections`, the connections and the servers of one incarnation of a program. A server is asyncio's own
`asyncio.Server` over sockets of the simulation. The name of a program is the name of its machine (`addresses.py`).

What may fail: FenceError for TLS, real sockets and what is no machine of the simulation; OSError as of a real network.
"""

from __future__ import annotations

import asyncio
import contextvars
import itertools
import socket
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

from ..seam import Link, Peer
from ..simulated.fabric import NetworkNode
from ..simulated.stream import SimStream, StreamListener, connect_stream
from .addresses import EVERY_ADDRESS, LOCAL_NAMES, LOOPBACK, Target, address_of, target_of
from .fence import FENCE
from .stream_transport import Address, ProgramSocket, StreamTransport
from .transports import LinkTransport

if TYPE_CHECKING:
    from ..simulated import SimHost

T = TypeVar("T")
Protocols = Callable[[], asyncio.BaseProtocol]

CONNECT_TIMEOUT_MS = 130_000
"""How long the kernel waits for a connection."""
CLIENT_PORTS = 40_000
PORT_MOST = 65_535


class ServerSocket(ProgramSocket):
    """The socket of a server, bound to a port of the program's machine."""

    def __init__(self, own: Address) -> None:
        super().__init__(own)
        self.listener: StreamListener | None = None

    def listen(self, backlog: int) -> None:
        """Nothing to do: `Connections.start_serving` listens."""

    def close(self) -> None:
        """Serve no more."""
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.close()


class Connections:
    """The connections and the servers of a program."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: SimHost) -> None:
        self._loop = loop
        self._host = host
        self._ports = CLIENT_PORTS
        self._made = itertools.count()
        self._of_sockets: dict[socket.socket, tuple[SimStream, Address]] = {}
        """What `connect_socket` has connected, and where to."""

    def resolve(self, host: Any, port: Any) -> list[Any]:
        """Return what getaddrinfo does for a name."""
        try:
            address = address_of(self._host.machine, host)
        except LookupError as error:
            raise FENCE.refuse(f"getaddrinfo({host!r}): {error.args[0]}") from None
        return [(socket.AF_INET, socket.SOCK_STREAM, socket.IPPROTO_TCP, "", (address, int(port or 0)))]

    # ------------------------------------------------------------------------------------- clients

    async def create_connection(
        self, protocol_factory: Protocols, host: Any, port: Any, *, ssl: object, sock: object
    ) -> tuple[LinkTransport | StreamTransport, asyncio.BaseProtocol]:
        """Connect to a broker, or to a program."""
        if ssl:
            raise FENCE.refuse("create_connection(ssl=…): TLS is not simulated")
        if isinstance(sock, socket.socket) and (pair := self._of_sockets.pop(sock, None)) is not None:
            sock.close()
            return self._started(*pair, protocol_factory)
        if sock is not None:
            raise FENCE.refuse("create_connection(sock=…): this socket is not simulated")
        number = int(port)
        target = self._target("create_connection", host, number)
        if target.node is not None:
            stream = await self._connected_stream(target.node, number)
            return self._started(stream, (target.address, number), protocol_factory)
        self._ports += 1
        transport = await self._connected(number, (LOOPBACK, self._ports))
        protocol = protocol_factory()
        transport.set_protocol(protocol)
        protocol.connection_made(transport)
        return transport, protocol

    async def _connected(self, port: int, own: Address) -> LinkTransport:
        made: list[LinkTransport] = []

        def handler(link: Link) -> LinkTransport:
            made.append(LinkTransport(self._loop, link, (LOOPBACK, port), own))
            return made[0]

        async def connect() -> LinkTransport:
            await self._host.network.connect(
                Peer("broker", str(port)), LOOPBACK, port, handler, timeout_ms=CONNECT_TIMEOUT_MS
            )
            return made[0]

        return await self._awaited(connect(), LinkTransport.abort, made)

    async def connect_socket(self, sock: socket.socket, address: Address) -> None:
        """Connect to a program for a socket that `create_connection(sock=…)` gets next; the socket itself stays unused.

        This is how aiohttp's client connects.
        """
        host, number = address[:2]
        target = self._target("sock_connect", host, number)
        if target.node is None:
            raise FENCE.refuse(f"sock_connect(…, {address!r}): a broker's connection has no socket")
        self._of_sockets[sock] = await self._connected_stream(target.node, number), (target.address, number)

    def _target(self, call: str, host: Any, port: int) -> Target:
        try:
            return target_of(self._host.machine, host, port)
        except LookupError as error:
            raise FENCE.refuse(f"{call}({host!r}, {port}): {error.args[0]}") from None

    async def _connected_stream(self, node: NetworkNode, port: int) -> SimStream:
        connect = self._host.tasks.wait(connect_stream(self._host.knobs, node, port), CONNECT_TIMEOUT_MS)
        return await self._awaited(connect, SimStream.close, [])

    def _started(
        self, stream: SimStream, peer: Address, protocol_factory: Protocols
    ) -> tuple[StreamTransport, asyncio.BaseProtocol]:
        own = LOOPBACK if peer[0] == LOOPBACK else self._host.machine.network_node.address
        protocol = protocol_factory()
        transport = StreamTransport(self._loop, stream, next(self._made), own=(own, _client_port(stream)), peer=peer)
        transport.start(protocol)
        return transport, protocol

    async def _awaited(self, connect: Coroutine[Any, Any, T], give_up: Callable[[T], object], made: Sequence[T]) -> T:
        """Await what the machine does; where the program is cancelled meanwhile, give up what was made."""
        waiting: asyncio.Future[T] = self._loop.create_future()

        def succeed(result: T) -> None:
            if not waiting.done():
                waiting.set_result(result)
            else:
                give_up(result)

        def fail(error: OSError) -> None:
            if not waiting.done():
                waiting.set_exception(error)

        async def run() -> None:
            try:
                result = await connect
            except OSError as error:
                self._loop.call_soon(fail, error)
            else:
                self._loop.call_soon(succeed, result)

        task = self._host.tasks.spawn(run(), name="connect")
        try:
            return await waiting
        except asyncio.CancelledError:
            task.cancel()
            for result in made:
                give_up(result)
            raise

    def _free_port(self) -> int:
        taken = self._host.machine.world.fabric.streams_listening
        self._ports += 1
        while (self._host.machine.name, self._ports) in taken:
            self._ports += 1
        return self._ports

    # ------------------------------------------------------------------------------------- servers

    def new_server(
        self, protocol_factory: Protocols, host: Any, port: Any, *, ssl: object, sock: object, backlog: int
    ) -> asyncio.Server:
        """Return a server that is bound to a port of the program's machine."""
        if ssl:
            raise FENCE.refuse("create_server(ssl=…): TLS is not simulated")
        if sock is not None:
            raise FENCE.refuse("create_server(sock=…): a socket is not simulated; give it host and port")
        if host is None and port is None:
            raise ValueError("Neither host/port nor sock were specified")
        hosts: Iterable[Any] = [host] if host is None or isinstance(host, str | bytes) else host
        addresses = dict.fromkeys(self._own_address(name) for name in hosts)
        number = int(port or 0) or self._free_port()
        if not 0 < number <= PORT_MOST:
            raise OverflowError("bind(): port must be 0-65535.")
        if number in self._host.machine.world.fabric.owners:
            raise OSError(98, f"error while attempting to bind on port {number}: address already in use by a broker")
        address = next(iter(addresses)) if len(addresses) == 1 else "0.0.0.0"  # noqa: S104 - of a simulated machine
        made: Any = asyncio.Server
        server: asyncio.Server = made(
            self._loop, [ServerSocket((address, number))], protocol_factory, None, backlog, None
        )
        return server

    def _own_address(self, host: Any) -> str:
        name = host.decode() if isinstance(host, bytes) else host
        if name is None or name in EVERY_ADDRESS:
            return "0.0.0.0"  # noqa: S104 - of a simulated machine
        if name in LOCAL_NAMES:
            return LOOPBACK
        own = self._host.machine.network_node
        if name in (own.address, own.identity.name):
            return own.address
        raise OSError(99, f"error while attempting to bind on address {name!r}: it is no address of this machine")

    def start_serving(
        self, protocol_factory: Protocols, sock: ServerSocket, server: asyncio.Server, backlog: int
    ) -> None:
        """Accept connections: what `asyncio.Server` asks of its loop."""
        address, port = sock.getsockname()
        context = contextvars.copy_context()

        def accept(stream: SimStream) -> None:
            self._loop.call_soon(self._accept, stream, protocol_factory, server, port, context=context)

        sock.listener = StreamListener(
            self._host.knobs, port, own_only=address == LOOPBACK, backlog=backlog, accept=accept
        )

    def _accept(self, stream: SimStream, protocol_factory: Protocols, server: asyncio.Server, port: int) -> None:
        own = self._host.machine.network_node
        client = stream.outward.target.network_node
        addresses = (LOOPBACK, LOOPBACK) if client is own else (own.address, client.address)
        protocol = protocol_factory()
        transport = StreamTransport(
            self._loop,
            stream,
            next(self._made),
            own=(addresses[0], port),
            peer=(addresses[1], _client_port(stream)),
            on_lost=lambda transport: _count(server, "_detach", transport),
        )
        _count(server, "_attach", transport)
        transport.start(protocol)


def _client_port(stream: SimStream) -> int:
    """Return the port of the side that has connected; both sides see the same."""
    return CLIENT_PORTS + stream.inward.connection % (PORT_MOST - CLIENT_PORTS)


def _count(server: asyncio.Server, name: str, transport: StreamTransport) -> None:
    """Tell a server of a connection: since Python 3.13 it knows which one."""
    call: Any = getattr(server, name)
    call(*((transport,) if hasattr(asyncio.Server, "close_clients") else ()))
