"""A real link on one end of a socket pair, and the plain socket on the other end."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Awaitable, Callable

from harrow.cluster.host.knobs.link_rules import LinkRules
from harrow.cluster.host.real.link import RealLink
from harrow.cluster.host.real.link_context import LinkContext
from harrow.cluster.host.seam import Link, Peer

DEADLINE_S = 20


def run(main: Awaitable[None]) -> None:
    """Run `main` in an event loop of its own, with a deadline."""

    async def bounded() -> None:
        await asyncio.wait_for(main, DEADLINE_S)

    asyncio.run(bounded())


class LinkEnds:
    """`link` to `peer`, and `theirs`; several links may share a context. Received frames are passed to `on_frame`."""

    def __init__(self, peer: Peer, context: LinkContext[RealLink] | None = None) -> None:
        self.ours, self.theirs = socket.socketpair()
        self.ours.setblocking(False)
        self.theirs.setblocking(False)
        self.loop = asyncio.get_running_loop()
        self.logged: list[str] = []
        if context is None:
            context = LinkContext(loop=self.loop, rules=LinkRules(), log=self.log, links=set[RealLink]())
        self.context = context
        self.rules, self.links = context.rules, context.links
        self.link = RealLink(context, self.ours, peer, max_frame_bytes=1 << 20, accepted=True)
        self.got: list[bytes] = []
        self.on_frame: Callable[[bytes], object] = self.got.append
        self.closed: asyncio.Future[str] = self.loop.create_future()
        self.link.start(self)

    def log(self, level: str, message: str) -> None:
        """Store a line that the link logs."""
        self.logged.append(f"{level}: {message}")

    def close(self) -> None:
        """Close both ends."""
        self.link.close(reset=True)
        self.theirs.close()

    def frame_received(self, frame: bytes) -> None:
        """Receive a frame, as the link's handler."""
        self.on_frame(frame)

    def link_closed(self, reason: str) -> None:
        """Receive the close of the link, as its handler; called once."""
        self.closed.set_result(reason)

    async def read(self, size: int) -> bytes:
        """Read this many bytes at the other end; fewer if it was closed."""
        data = b""
        while len(data) < size:
            more = await self.loop.sock_recv(self.theirs, size - len(data))
            if not more:
                break
            data += more
        return data

    async def frame(self) -> bytes:
        """Return the next frame at the other end."""
        return await self.read(int.from_bytes(await self.read(4)))


class Recorder:
    """A handler that stores its frames, and lets a test wait for them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.frames: asyncio.Queue[bytes] = asyncio.Queue()
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self.on_frame: Callable[[bytes], None] = lambda _frame: None

    def frame_received(self, frame: bytes) -> None:
        self.on_frame(frame)
        self.frames.put_nowait(frame)

    def link_closed(self, reason: str) -> None:
        self.closed.set_result(reason)
