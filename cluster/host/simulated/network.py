"""The network as one simulated incarnation sees it: `Network` of the seam on the world's `Fabric`.

Owns: this incarnation's acceptors and links, and the fault injection points under the real host's names: `block`,
`heal`, `slow`, `reset`, lost responses. Link rules belong to the machine and stay when its process dies.

What may fail: `connect` raises OSError (no process listens there) or TimeoutError (an isolated peer never answers).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from ...errors import ConfigError
from ...events.links import LinksBlocked, LinksFrozen, LinksHealed, LinksReset, LinksSlowed, LinksThrottled
from ..knobs.access_rules import AccessRules
from ..knobs.link_rules import matches_any
from ..knobs.request_faults import RequestFaultRule, RequestFaults
from ..knobs.response_faults import ResponseFaultRule, ResponseFaults
from ..knobs.rules import RulesOfKind
from ..seam import FactsReader, FrameHandler, Link, Peer, RequestBody, TlsOptions, Trace
from .after_delivery import DeferredCalls
from .fabric import Fabric, LinkDirection, NetworkNode, OpenLink
from .link import SimLink, SimLinkContext
from .loop import NS_PER_MS, Incarnation, SimLoop
from .tasks import SimPromise, SimTasks, set_none

FRAME_BYTES_MOST = 2**31 - 1
MakeHandler = Callable[[Link], FrameHandler]


class SimAcceptor:
    """A bound and listening address that accepts links."""

    __slots__ = ("_backlog", "_make_handler", "_network", "_paused", "_port")

    def __init__(self, network: SimNetwork, port: int, make_handler: MakeHandler) -> None:
        self._network, self._port, self._make_handler = network, port, make_handler
        self._paused = False
        self._backlog: list[SimLink] = []

    @property
    def port(self) -> int:
        """The port that was bound."""
        return self._port

    def pause(self) -> None:
        """Accept no link until `resume`; new connections wait in the backlog."""
        self._paused = True

    def resume(self) -> None:
        """Accept links again, first those that wait, from the next turn of the loop on."""
        self._paused = False
        backlog, self._backlog = self._backlog, []
        for link in backlog:
            self._network.loop.call_soon(self._network.incarnation, self.adopt, link)

    def renew(self, tls: TlsOptions) -> None:
        """ConfigError: TLS is not simulated."""
        _refuse_tls(tls)

    def adopt(self, link: SimLink) -> None:
        """Serve a connected link, or queue it while accepting is paused."""
        if self._paused:
            self._backlog.append(link)
        else:
            link.start(self._make_handler(link))

    def close(self) -> None:
        """Accept no more connections; open links stay open."""
        self._network.unlisten(self._port)


class SimNetwork:
    """All links of one incarnation."""

    def __init__(
        self,
        fabric: Fabric,
        node: NetworkNode,
        incarnation: Incarnation,
        tasks: SimTasks,
        listeners: Mapping[str, int],
        trace: Trace,
    ) -> None:
        self.fabric = fabric
        self.loop: SimLoop = fabric.loop
        self.network_node = node
        self.incarnation = incarnation
        self._tasks = tasks
        self._trace = trace
        self._bound = dict(listeners)
        self._listening: list[int] = []
        self._response_faults = ResponseFaults(trace)
        self._request_faults = RequestFaults(trace)
        self.access = AccessRules(trace)
        self.deferred_calls = DeferredCalls(tasks.call_soon, lambda: incarnation.running)
        self._context = SimLinkContext(
            network_node=node, incarnation=incarnation, deferred_calls=self.deferred_calls, log=trace.log
        )
        self.links = self._context.links
        self._frozen: list[OpenLink] = []
        self.on_end: list[Callable[[], object]] = []
        """Called when the process ends."""

    # ------------------------------------------------------------------ seam

    async def listen(
        self, name: str, make_handler: MakeHandler, *, max_frame_bytes: int, tls: TlsOptions | None = None
    ) -> SimAcceptor:
        """Serve on this host's listener `name`; ConfigError where the host has no free listener of that name."""
        _refuse_tls(tls)
        number = self._bound.pop(name, None)
        if number is None:
            raise ConfigError(f"this host has no free listener {name!r}")

        acceptor = SimAcceptor(self, number, make_handler)

        def accept(client: NetworkNode, inward: LinkDirection, outward: LinkDirection) -> SimLink:
            peer = Peer("unknown", f"{client.name}:{inward.connection}", "127.0.0.1")
            link = SimLink(self._context, peer, inward, outward, max_frame_bytes)
            self.loop.call_soon(self.incarnation, acceptor.adopt, link)
            return link

        self.fabric.listening[number] = accept
        self._listening.append(number)
        return acceptor

    def unlisten(self, number: int) -> None:
        """Accept no more connections on a port."""
        if number in self._listening:
            self._listening.remove(number)
            del self.fabric.listening[number]

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
        """Open a link to `peer`; OSError when no process listens there, TimeoutError when the peer is isolated."""
        _refuse_tls(tls)
        del host  # the machines of a world share an address and differ by port
        link = await self._tasks.wait(self._handshake(peer, port), timeout_ms)
        handler = make_handler(link)
        link.start(handler)
        return link

    async def _handshake(self, peer: Peer, number: int) -> SimLink:
        fabric = self.fabric
        owner = fabric.owners.get(number)
        if owner is None:
            raise ConnectionRefusedError(111, f"no machine has port {number}")
        await self.passable(owner)
        await self.pass_latency(owner)
        await self.passable(owner)
        accept = fabric.listening.get(number)
        if accept is None:
            await self.pass_latency(owner)
            raise ConnectionRefusedError(111, "Connection refused")
        there, back = fabric.connection()
        accepted = accept(self.network_node, there, back)
        link = SimLink(self._context, peer, back, there, FRAME_BYTES_MOST)
        try:
            for direction in (there, back):
                direction.apply()
            await self.pass_latency(owner)
            await self.passable(owner)
        except BaseException:
            link.close(reset=True)
            raise
        assert accepted.network_node is owner
        return link

    async def pass_latency(self, owner: NetworkNode) -> None:
        """Wait as long as a frame to this machine travels."""
        await self._tasks.sleep(self.fabric.latency_ns(self.network_node, owner) / NS_PER_MS)

    async def wait_ms(self, duration_ms: float) -> None:
        """Wait so long."""
        await self._tasks.sleep(duration_ms)

    async def passable(self, owner: NetworkNode) -> None:
        """Wait until nothing blocks the links between this machine and that."""
        while not self.fabric.passable(self.network_node, owner):
            # one promise for each waiter: a waiter that is cancelled cancels no other
            promise: SimPromise[None] = self._tasks.promise()
            self.fabric.when_changed(partial(set_none, promise))
            handshake = (self.incarnation, self.network_node, owner)
            self.fabric.waiting_handshakes.append(handshake)
            try:
                await promise
            finally:
                self.fabric.waiting_handshakes.remove(handshake)

    def response_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> ResponseFaultRule | None:
        """Count one response, and return the fault that acts on it."""
        return self._response_faults.fire(peer, request, reader)

    def request_fault(self, peer: Peer, request: RequestBody, reader: FactsReader) -> RequestFaultRule | None:
        """Count one request, and return the fault that acts on it."""
        return self._request_faults.fire(peer, request, reader)

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Run `call` after the delivery of frames that is in progress; without one, on the next turn of the loop."""
        self.deferred_calls.after(call)

    def flush(self) -> None:
        """Nothing to do: simulated links send at once."""

    # ----------------------------------------------------------------- fault injection

    def block(self, peers: Sequence[str], direction: str = "both") -> None:
        """Block what these peers send, are sent, or both, on live links and new ones."""
        self.network_node.rules.block(peers, direction)
        self.fabric.changed()
        self._trace.emit(LinksBlocked(peers=tuple(peers), direction=direction))

    def slow(self, peers: Sequence[str], delay_ms: int) -> None:
        """Send late by `delay_ms` to these peers, on live links and new ones."""
        self.network_node.rules.slow(peers, delay_ms)
        self.network_node.delayed_frames = 0
        self._trace.emit(LinksSlowed(peers=tuple(peers), delay_ms=delay_ms))

    def throttle(self, peers: Sequence[str], bytes_per_s: int) -> None:
        """Send at most so much to these peers together, on live links and new ones."""
        self.network_node.rules.throttle(peers, bytes_per_s)
        self.network_node.delayed_frames = 0
        self._trace.emit(LinksThrottled(peers=tuple(peers), bytes_per_s=bytes_per_s))

    def heal(self, mode: str = "deliver", peers: Sequence[str] | None = None) -> int:
        """Remove rules: "deliver" the held frames in order, or "reset" the links; returns how many links were held."""
        if mode not in ("deliver", "reset"):
            raise ConfigError(f"heal mode {mode!r}: expected deliver or reset")
        held = [link for link in self.links if link.inward.blocked or link.outward.blocked]
        self.network_node.rules.heal(peers)
        self._unfreeze()
        self.fabric.end_throttle(self.network_node)
        if mode == "reset":
            for link in held:
                link.break_off()
        self.fabric.changed()
        self._trace.emit(LinksHealed(mode=mode, links=len(held)))
        return len(held)

    def freeze(self, peers: Sequence[str]) -> int:
        """Hold back everything on the links that are open now with a matching machine; returns how many links."""
        met = [link for link in self.links if self._matches(link, peers)]
        for link in met:
            link.inward.frozen = link.outward.frozen = True
        self._frozen += met
        self.fabric.changed()
        self._trace.emit(LinksFrozen(peers=tuple(peers), links=len(met)))
        return len(met)

    def _unfreeze(self) -> None:
        for link in self._frozen:
            link.inward.frozen = link.outward.frozen = False
        self._frozen.clear()

    def reset(self, peers: Sequence[str]) -> int:
        """Reset every link with a matching machine; returns how many links."""
        met = [link for link in self.links if self._matches(link, peers)]
        for link in met:
            link.break_off()
        self._trace.emit(LinksReset(peers=tuple(peers), links=len(met)))
        return len(met)

    @staticmethod
    def _matches(link: OpenLink, peers: Sequence[str]) -> bool:
        direction = link.outward
        return not direction.within_machine and matches_any(str(direction.target.network_node.identity), peers)

    def end(self, *, silently: bool) -> None:
        """The process has ended; `silently`: by a power loss."""
        for number in list(self._listening):
            self.unlisten(number)
        if self._frozen:
            self._unfreeze()
            self.fabric.changed()
        for link in list(self.links):
            link.die(silently=silently)
        for call in self.on_end:
            call()

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
        held_in = held_out = 0
        for link in self.links:
            held_in += link.inward.held_bytes
            held_out += link.outward.held_bytes
        return {
            "rules": [*self.network_node.rules.report(), *({"frozen": str(link.peer)} for link in self._frozen)],
            "held_in_bytes": held_in,
            "held_out_bytes": held_out,
            "delayed_frames": self.network_node.delayed_frames,
            "waiting_connects": self.fabric.waiting_connects(self.network_node),
        }

    def _op_slow(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.slow(list(fields["peers"]), int(fields["delay_ms"]))
        return {}

    def _op_throttle(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.throttle(list(fields["peers"]), int(fields["bytes_per_s"]))
        return {}

    def _op_freeze(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.freeze(list(fields["peers"]))}

    def _op_reset(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.reset(list(fields["peers"]))}

    def _op_block(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        self.block(list(fields["peers"]), str(fields.get("direction", "both")))
        return {}

    def _op_heal(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return {"links": self.heal(str(fields.get("mode", "deliver")), fields.get("peers"))}


def _refuse_tls(tls: TlsOptions | None) -> None:
    if tls is not None:
        raise ConfigError("TLS is not simulated: give the listener the protocol PLAINTEXT or SASL_PLAINTEXT")
