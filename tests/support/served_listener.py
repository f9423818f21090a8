"""The listeners of one broker over real sockets, with one API that a test handles, and a client of bytes.

The API is Heartbeat; its group id carries the test's text. `serving` binds two listeners, CLIENTS and BROKERS, or those
that the test names; `Serving.port` is that of the listener under test.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
import struct
from collections.abc import AsyncGenerator, Awaitable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from harrow.cluster.authorizer import Authorizer
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.real.host import RealHost
from harrow.cluster.ids import NodeId
from harrow.cluster.listeners import parse_listeners
from harrow.cluster.network.connection import UNANSWERED_MOST
from harrow.cluster.network.peers import PeerClient
from harrow.cluster.network.socket_server import SocketServer
from harrow.cluster.security.sasl.mechanisms import Credentials
from harrow.cluster.tap.recorder import FileTap
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.api_table import ApiRow
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.request import Handler, Request

DEADLINE_S = 20
HEARTBEAT = int(ApiKey.HEARTBEAT)


def run(main: Awaitable[None]) -> None:
    """Run a test's coroutine with a deadline."""

    async def bounded() -> None:
        await asyncio.wait_for(main, DEADLINE_S)

    asyncio.run(bounded())


class Serving:
    """The listeners, their host, and the requests that arrived; a test may set `handler`."""

    def __init__(self, host: RealHost, ports: dict[str, int], listener: str) -> None:
        self.host = host
        self.ports = ports
        self.port = ports[listener]
        self.sockets: SocketServer
        self.requests: asyncio.Queue[Request] = asyncio.Queue()
        self.handler: Handler = self.requests.put_nowait

    def handle(self, request: Request) -> Any:
        return self.handler(request)

    def connections(self, listener: str = "") -> int:
        """Open connections of one listener, or of all."""
        return sum(n for name, n in self.sockets.connections() if listener in ("", name))

    def client(self, **options: Any) -> PeerClient:
        return PeerClient(self.host, NodeId(2), NodeId(1), "127.0.0.1", self.port, **options)

    async def op(self, op: str, **fields: Any) -> dict[str, Any]:
        answer = await self.host.control.answer(json.dumps({"op": op, **fields}).encode())
        assert answer["ok"], answer
        return answer


@asynccontextmanager
async def serving(
    folder: Path,
    *,
    listener: str = "BROKERS",
    names: Sequence[str] = ("CLIENTS", "BROKERS"),
    rows: Sequence[ApiRow] = (),
    authorizer: Authorizer | None = None,
    credentials: Credentials | None = None,
    unanswered_most: int = UNANSWERED_MOST,
    tap: bool = False,
    **settings: object,
) -> AsyncGenerator[Serving]:
    """Serve; `settings` are a broker's, with `_` for each dot."""
    sockets = {name: socket.socket() for name in names}
    for sock in sockets.values():
        sock.bind(("127.0.0.1", 0))
    ports: dict[str, int] = {name: sock.getsockname()[1] for name, sock in sockets.items()}
    config = BrokerConfig.parse(
        {"socket.request.max.bytes": 10_000}
        | {"listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items())}
        | {"listener.security.protocol.map": ",".join(f"{name}:PLAINTEXT" for name in names)}
        | {name.replace("_", "."): value for name, value in settings.items()}
    )
    host = RealHost("broker-1", str(folder), listeners=sockets, make_tap=FileTap if tap else None)
    made = Serving(host, ports, listener)
    made.sockets = SocketServer(
        host,
        config,
        parse_listeners(config),
        (ApiRow(HEARTBEAT, 0, 4, made.handle), *rows),
        authorizer=authorizer,
        credentials=credentials,
        unanswered_most=unanswered_most,
    )
    await made.sockets.start_inter_broker()
    await made.sockets.start_others()
    try:
        yield made
    finally:
        made.sockets.close()
        await host.stop()


def heartbeat(version: int, text: str) -> Any:
    return _heartbeat(version, text).entity


def _heartbeat(version: int, text: str) -> ClientRequest:
    return client_request(HEARTBEAT, version, group_id=text, generation_id=1, member_id="m")


def text_of(request: Request) -> str:
    """The text that the test put into a request."""
    return str(request.decode().group_id)


def answer(request: Request, code: ErrorCode = ErrorCode.none) -> None:
    request.respond(messages.response(request).HeartbeatResponse(error_code=code))


def frame(version: int, correlation_id: int, text: str, client_id: str = "app") -> bytes:
    """A Heartbeat request as the bytes of its frame."""
    return _heartbeat(version, text).frame(correlation_id, client_id)


def framed(api_key: int, version: int, correlation_id: int, client_id: str, body: bytes) -> bytes:
    """Any request as the bytes of its frame."""
    data = encode_request_header(api_key, version, correlation_id, client_id) + body
    return struct.pack(">i", len(data)) + data


async def next_turn() -> None:
    """Let the loop run each task that is ready once."""
    loop = asyncio.get_running_loop()
    turn: asyncio.Future[None] = loop.create_future()
    loop.call_soon(turn.set_result, None)
    await turn


class Raw:
    """A client of bytes."""

    def __init__(self, port: int) -> None:
        self.port = port

    async def __aenter__(self) -> Raw:
        self.reader, self.writer = await asyncio.open_connection("127.0.0.1", self.port)
        return self

    async def __aexit__(self, *_: object) -> None:
        self.writer.close()
        with contextlib.suppress(ConnectionError):
            await self.writer.wait_closed()

    async def frame(self) -> bytes:
        """The next frame of the server."""
        (size,) = struct.unpack(">i", await self.reader.readexactly(4))
        return await self.reader.readexactly(size)

    async def answered(self, correlation_id: int = 1) -> None:
        """Send one Heartbeat and wait for its response."""
        self.writer.write(frame(0, correlation_id, "x"))
        assert struct.unpack_from(">i", await self.frame())[0] == correlation_id


def log_lines(folder: Path) -> list[str]:
    """The lines of the broker's log."""
    return (folder / "broker.log").read_text().splitlines()
