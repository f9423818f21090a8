"""Sockets that carry frames, and the link rules and lost responses of faults: `Network` of the seam.

Owns: this host's listening sockets (bound before the process starts serving), all its links, the rules on them.

Faults (control operations `links…`, `responses…` and `requests…` of `knobs/control.py`): rules of links apply at once
to live links (see `link.py`). Connecting to a blocked peer waits until it is healed or the caller's time is up, as
behind a firewall that drops packets. An accepted link has no peer name until its first request; naming it applies the
rules of that name.

What may fail: `connect` raises OSError or TimeoutError; running out of descriptors pauses accepting.
"""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from ssl import SSLContext
from typing import Any, cast

from ...errors import ConfigError
from ...events.links import LinksBlocked, LinksFrozen, LinksHealed, LinksReset, LinksSlowed, LinksThrottled
from ..knobs.access_rules import AccessRules
from ..knobs.link_rules import LinkRules, matches_any
from ..knobs.request_faults import RequestFaultRule, RequestFaults
from ..knobs.response_faults import ResponseFaultRule, ResponseFaults
from ..knobs.rules import RulesOfKind
from ..seam import FactsReader, FrameHandler, Link, MakeRawHandler, Peer, RawLink, RequestBody, TlsOptions, Trace
from .link import RealLink
from .link_context import LinkContext
from .raw_link import RealRawLink
from .tls_context import client_context, server_context
from .tls_link import TlsLink

BACKLOG = 1024
ACCEPTS_A_TURN = 64
ACCEPT_PAUSE_S = 1.0
"""How long accepting rests when descriptors ran out; asyncio's own servers do the same."""
OUT_OF_RESOURCES = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM)
FRAME_BYTES_MOST = 2**31 - 1
"""Of links that this host opened: it knows whom it asked."""

MakeHandler = Callable[[Link], FrameHandler]
MakeLink = Callable[..., RealLink]
"""`RealLink` or a class below it."""


class RealAcceptor:
    """A bound and listening address that accepts links."""

    def __init__(
        self,
        network: RealNetwork,
        sock: socket.socket,
        make_handler: MakeHandler,
        max_frame_bytes: int,
        make_link: MakeLink,
    ) -> None:
        self._network = network
        self._sock = sock
        self._make_handler = make_handler
        self._make_link = make_link
        self._max_frame_bytes = max_frame_bytes
        self._port: int = sock.getsockname()[1]
        self._paused = False
        sock.setblocking(False)
        sock.listen(BACKLOG)
        self._watch()

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._port

    def pause(self) -> None:
        """Accept no link until `resume`; the kernel's backlog takes new connections."""
        self._paused = True
        if self._sock.fileno() >= 0:
            self._network.loop.remove_reader(self._sock)

    def resume(self) -> None:
        """Accept links again, first those that wait, from the next turn of the loop on."""
        self._paused = False
        self._watch()

    def renew(self, tls: TlsOptions) -> None:
        """Use other keys of TLS for the links that are accepted from now on; ConfigError for unusable ones."""
        self._make_link = partial(TlsLink, tls=server_context(tls))

    def close(self) -> None:
        """Accept no more connections; open links stay open."""
        if self._sock.fileno() < 0:
            return
        self._network.loop.remove_reader(self._sock)
        # a parent process may have a copy of this descriptor, which would go on listening after close()
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        self._sock.close()

    def _watch(self) -> None:
        if self._sock.fileno() >= 0 and not self._paused:
            self._network.loop.add_reader(self._sock, self._accept)

    def _accept(self) -> None:
        for _ in range(ACCEPTS_A_TURN):
            if self._paused:
                return
            try:
                sock, address = self._sock.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                return
            except OSError as error:
                self._refused(error)
                return
            name = f"{address[0]}:{address[1]}"
            self._network.adopt(
                sock,
                Peer("unknown", name, address[0]),
                self._make_handler,
                self._max_frame_bytes,
                accepted=True,
                make_link=self._make_link,
            )

    def _refused(self, error: OSError) -> None:
        self._network.loop.remove_reader(self._sock)
        if error.errno in OUT_OF_RESOURCES:
            self._network.log("error", f"cannot accept on port {self._port}: {error}; resting")
            self._network.loop.call_later(ACCEPT_PAUSE_S, self._watch)
        else:
            self._network.log("error", f"listener on port {self._port} is broken: {error}")


class RealNetwork:
    """All links of one host."""

    def __init__(self, loop: asyncio.AbstractEventLoop, listeners: Mapping[str, socket.socket], trace: Trace) -> None:
        self.loop = loop
        self._sockets = dict(listeners)
        self._trace = trace
        self._rules = LinkRules()
        self._response_faults = ResponseFaults(trace)
        self._request_faults = RequestFaults(trace)
        self.access = AccessRules(trace)
        self._links: set[RealLink] = set()
        self._context = LinkContext(
            loop=loop, rules=self._rules, log=self.log, links=self._links, on_handshake=self.access.handshake
        )
        self._acceptors: list[RealAcceptor] = []
        self._waiting_connects = 0
        self._healed: asyncio.Future[None] = loop.create_future()

    def log(self, level: str, message: str) -> None:
        """Write a line about the network to the host's log."""
        self._trace.log(level, message)

    def offer(self, name: str, sock: socket.socket) -> None:
        """Take a bound socket for the listener `name`."""
        assert name not in self._sockets, f"listener {name} has a socket that nothing listens on"
        self._sockets[name] = sock

    # ------------------------------------------------------------------ seam

    async def listen(
        self, name: str, make_handler: MakeHandler, *, max_frame_bytes: int, tls: TlsOptions | None = None
    ) -> RealAcceptor:
        """Serve on this host's listener `name`; ConfigError where it was given none of that name."""
        make_link: MakeLink = RealLink if tls is None else partial(TlsLink, tls=server_context(tls))
        sock = self._sockets.pop(name, None)
        if sock is None:
            raise ConfigError(
                f"this host has no free listener {name!r}; it was given sockets for {sorted(self._sockets) or 'none'}"
            )
        return self._accept_on(sock, make_handler, max_frame_bytes, make_link)

    def listen_raw(self, name: str, make_handler: MakeRawHandler) -> None:
        """Serve on a listener whose connections carry any bytes instead of frames (`raw_link.py`)."""
        handlers = cast("MakeHandler", make_handler)
        self._accept_on(self._sockets.pop(name), handlers, FRAME_BYTES_MOST, RealRawLink)

    def _accept_on(
        self, sock: socket.socket, make_handler: MakeHandler, max_frame_bytes: int, make_link: MakeLink
    ) -> RealAcceptor:
        acceptor = RealAcceptor(self, sock, make_handler, max_frame_bytes, make_link)
        self._acceptors.append(acceptor)
        return acceptor

    async def connect(
        self,
        peer: Peer,
        host: str,
        port: int,
        make_handler: MakeHandler,
        *,
        timeout_ms: int,
        tls: TlsOptions | None = None,
    ) -> Link:
        """Open a link to `peer`; OSError or TimeoutError when no process answers, or where a handshake fails."""
        if tls is not None:
            return await self._connect_tls(peer, host, port, make_handler, timeout_ms, client_context(tls))
        sock = await self._connected(peer, host, port, timeout_ms)
        return self.adopt(sock, peer, make_handler, FRAME_BYTES_MOST, accepted=False)

    async def _connect_tls(
        self, peer: Peer, host: str, port: int, make_handler: MakeHandler, timeout_ms: int, context: SSLContext
    ) -> Link:
        until_s = self.loop.time() + timeout_ms / 1000
        sock = await self._connected(peer, host, port, timeout_ms)
        made: list[TlsLink] = []

        def make_link(*args: Any, **more: Any) -> TlsLink:
            made.append(TlsLink(*args, tls=context, server_name=host, **more))
            return made[0]

        self.adopt(sock, peer, make_handler, FRAME_BYTES_MOST, accepted=False, make_link=make_link)
        try:
            async with asyncio.timeout_at(until_s):
                await made[0].opened()
        except BaseException:
            made[0].close(reset=True)
            raise
        return made[0]

    async def connect_raw(
        self, peer: Peer, host: str, port: int, make_handler: MakeRawHandler, *, timeout_ms: int
    ) -> RawLink:
        """Open a link that carries any bytes instead of frames; OSError or TimeoutError when no process answers."""
        sock = await self._connected(peer, host, port, timeout_ms)
        handlers = cast("MakeHandler", make_handler)
        return cast(
            "RawLink", self.adopt(sock, peer, handlers, FRAME_BYTES_MOST, accepted=False, make_link=RealRawLink)
        )

    async def _connected(self, peer: Peer, host: str, port: int, timeout_ms: int) -> socket.socket:
        async with asyncio.timeout(timeout_ms / 1000):
            await self._passable(peer)
            family = socket.AF_INET6 if ":" in host else socket.AF_INET
            sock = socket.socket(family, socket.SOCK_STREAM)
            try:
                sock.setblocking(False)
                await self.loop.sock_connect(sock, (host, port))
                _refuse_itself(sock)
                await self._passable(peer)
            except BaseException:
                sock.close()
                raise
        return sock

    def response_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> ResponseFaultRule | None:
        """Count one response, and return the fault that acts on it."""
        return self._response_faults.fire(peer, request, reader)

    def request_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> RequestFaultRule | None:
        """Count one request, and return the fault that acts on it."""
        return self._request_faults.fire(peer, request, reader)

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Run `call` after the delivery of frames that is in progress; without one, on the next turn of the loop."""
        self._context.after_delivery(call)

    def flush(self) -> None:
        """Send what the delivery in progress has queued now instead of at its end."""
        self._context.flush_answered()

    # -------------------------------------------------------------- its links

    def adopt(
        self,
        sock: socket.socket,
        peer: Peer,
        make_handler: MakeHandler,
        max_frame_bytes: int,
        *,
        accepted: bool,
        make_link: MakeLink = RealLink,
    ) -> RealLink:
        """Make a link of a connected socket and start it."""
        sock.setblocking(False)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)  # detects a half-open connection
        link = make_link(self._context, sock, peer, max_frame_bytes=max_frame_bytes, accepted=accepted)
        link.start(make_handler(link))
        return link

    async def _passable(self, peer: Peer) -> None:
        # a handshake needs both ways; the future is replaced at every healing
        while any(self._rules.blocked(peer)):
            self._waiting_connects += 1
            try:
                await asyncio.shield(self._healed)
            finally:
                self._waiting_connects -= 1

    def block(self, peers: Sequence[str], direction: str = "both") -> None:
        """Block what these peers send, are sent, or both, on live links and new ones."""
        self._rules.block(peers, direction)
        self._apply()
        self._trace.emit(LinksBlocked(peers=tuple(peers), direction=direction))

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late by `delay_ms` to these peers, on live links and new ones."""
        self._rules.slow(peers, delay_ms)
        self._apply()
        self._trace.emit(LinksSlowed(peers=tuple(peers), delay_ms=delay_ms))

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Send at most so much to these peers together, on live links and new ones."""
        self._rules.throttle(peers, bytes_per_s)
        self._apply()
        self._trace.emit(LinksThrottled(peers=tuple(peers), bytes_per_s=bytes_per_s))

    def heal(self, mode: str = "deliver", peers: Sequence[str] | None = None) -> int:
        """Remove rules: "deliver" the held frames in order, or "reset" the links; returns how many links were held."""
        if mode not in ("deliver", "reset"):
            raise ConfigError(f"heal mode {mode!r}: expected deliver or reset")
        held = [link for link in self._links if any(link.blocked)]
        self._rules.heal(peers)
        for link in held:
            link.frozen = False
        self._context.bandwidth.clear()
        freed = [link for link in held if not any(self._rules.blocked(link.peer))]
        if mode == "reset":
            for link in freed:
                link.abort("reset at healing")
        self._apply()
        self._healed.set_result(None)
        self._healed = self.loop.create_future()
        self._trace.emit(LinksHealed(mode=mode, links=len(freed)))
        return len(freed)

    def freeze(self, peers: Sequence[str]) -> int:
        """Hold back everything on the live links that match one of `peers`, not on later ones; how many there were."""
        met = [link for link in self._links if matches_any(str(link.peer), peers)]
        for link in met:
            link.frozen = True
        self._apply()
        self._trace.emit(LinksFrozen(peers=tuple(peers), links=len(met)))
        return len(met)

    def reset(self, peers: Sequence[str]) -> int:
        """Reset every live link with a peer that matches one of `peers`; how many there were."""
        met = [link for link in self._links if matches_any(str(link.peer), peers)]
        for link in met:
            link.abort("reset by a fault")
        self._trace.emit(LinksReset(peers=tuple(peers), links=len(met)))
        return len(met)

    def _apply(self) -> None:
        for link in list(self._links):
            link.apply()

    def close(self) -> None:
        """Close the acceptors and every link; queued frames get one last attempt."""
        for acceptor in self._acceptors:
            acceptor.close()
        for sock in self._sockets.values():
            sock.close()
        for link in list(self._links):
            link.delay(0)  # delayed frames still arrive after the sender has ended
            link.close()
        for link in list(self._links):
            link.abort("the host ends")

    # -------------------------------------------------------------- control

    def operations(self) -> dict[str, Callable[[Mapping[str, Any]], Mapping[str, Any]]]:
        """The control operations of the network."""
        return {
            "links": self._op_links,
            "links.block": self._op_block,
            "links.slow": self._op_slow,
            "links.throttle": self._op_throttle,
            "links.heal": self._op_heal,
            "links.reset": self._op_reset,
            "links.freeze": self._op_freeze,
        }

    def rules(self) -> dict[str, RulesOfKind]:
        """The rules of single requests and responses, by their kind."""
        return {"request": self._request_faults, "response": self._response_faults, "access": self.access}

    def _op_links(self, _fields: Mapping[str, Any]) -> Mapping[str, Any]:
        links = [link.report() for link in self._links]
        return {
            "rules": [*self._rules.report(), *({"frozen": str(link.peer)} for link in self._links if link.frozen)],
            "links": sorted(links, key=lambda link: link["peer"]),
            "held_in_bytes": sum(link["held_in_bytes"] for link in links),
            "held_out_bytes": sum(link["held_out_bytes"] for link in links),
            "delayed_bytes": sum(link["delayed_bytes"] for link in links),
            "waiting_connects": self._waiting_connects,
        }

    def _op_block(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        peers: list[str] = list(fields["peers"])
        self.block(peers, str(fields.get("direction", "both")))
        met = [str(link.peer) for link in self._links if any(link.blocked)]
        return {"links": sorted(met)}

    def _op_slow(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.slow(list(fields["peers"]), int(fields["delay_ms"]))
        met = [str(link.peer) for link in self._links if self._rules.delay_ms(link.peer)]
        return {"links": sorted(met)}

    def _op_throttle(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.throttle(list(fields["peers"]), int(fields["bytes_per_s"]))
        return {}

    def _op_freeze(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.freeze(list(fields["peers"]))}

    def _op_reset(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.reset(list(fields["peers"]))}

    def _op_heal(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.heal(str(fields.get("mode", "deliver")), fields.get("peers"))}


def _refuse_itself(sock: socket.socket) -> None:
    """A free ephemeral port on loopback can be connected to itself: no process listens there."""
    if sock.getsockname() == sock.getpeername():
        raise ConnectionRefusedError(errno.ECONNREFUSED, "no process listens there")
