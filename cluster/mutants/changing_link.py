"""Links whose requests, and their responses, a mutant changes; the handler of a link sees changed requests only.

Owns: `with_mutant`, which a listener for clients calls. Invariants: without a mutant it returns what it was given, so
that a run without one pays nothing; a request is changed alike when the link delivers it again; a response finds its
request by the correlation id, and a request without a response (acks=0) is not remembered.

May fail: a request that does not decode is passed on as it is, so that its handler refuses it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import NamedTuple, cast

from ..errors import WireError
from ..events.requests import RequestChanged
from ..host.seam import FrameHandler, Link, Part, Peer, Trace, bytes_of
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.headers import HeaderReader, RequestHeader, parse_response_header
from ..wire.refusals import refusal_bytes
from .changes import CHANGES, Change

MUTANT = "HARROW_MUTANT"
"""The environment variable that names the mutant."""
OWN = "harrow"
"""How the ids of Harrow's own clients begin."""
BROKERS = "broker-"
links_changed = [0]
"""How many links of this process had a changed request: simulated brokers keep no traces of valid runs."""
MakeHandler = Callable[[Link], FrameHandler]


def chosen_mutant() -> str:
    """Return the name in the environment; empty without a mutant."""
    return os.environ.get(MUTANT, "")


def with_mutant(make_handler: MakeHandler, trace: Trace) -> MakeHandler:
    """Return what makes the handlers of a listener's links, with the changes of the chosen mutant."""
    mutant = chosen_mutant()
    if mutant not in CHANGES:
        return make_handler
    return lambda link: _ChangingHandler(mutant, link, make_handler, trace)


class _Changed(NamedTuple):
    """A request whose response is changed, too."""

    change: Change
    header: RequestHeader
    frame: bytes


class _ChangingHandler:
    """Changes the requests of one link."""

    def __init__(self, mutant: str, link: Link, make_handler: MakeHandler, trace: Trace) -> None:
        self._mutant = mutant
        self._trace = trace
        self._headers = HeaderReader()
        self._changes = {int(change.api_key): change for change in CHANGES[mutant]}
        self._noted: set[int] = set()
        self._link = _ChangingLink(link, self)
        self._handler = make_handler(cast("Link", self._link))
        self.awaited: dict[int, _Changed] = {}
        """By correlation id."""

    def frame_received(self, frame: bytes) -> None:
        """Pass on one request, changed."""
        self._handler.frame_received(self._changed(frame))

    def link_closed(self, reason: str) -> None:
        """Pass it on."""
        self.awaited.clear()
        self._handler.link_closed(reason)

    def _changed(self, frame: bytes) -> bytes:
        header = self._headers.read(frame)
        change = self._changes.get(header.api_key)
        if change is None or header.client_id.startswith((OWN, BROKERS)):
            return frame
        try:
            request = messages.request_reader(header.api_key, header.version)(frame, header.body_at)[0]
        except (WireError, ValueError, TypeError, LookupError):
            return frame
        is_answered = header.api_key != ApiKey.PRODUCE or request.acks != 0
        if is_answered and (change.response is not None or not change.served):
            self.awaited[header.correlation_id] = _Changed(change, header, frame)
        if change.request is None or (changed := change.request(request)) is None:
            return frame
        self.note(header)
        return frame[: header.body_at] + messages.encode_request(header.api_key, header.version, changed)

    def note(self, header: RequestHeader) -> None:
        """Trace the first change of an API on this link."""
        if header.api_key not in self._noted:
            self._noted.add(header.api_key)
            links_changed[0] += 1
            peer = Peer("client", header.client_id, self._link.peer.address)
            self._trace.emit(RequestChanged(mutant=self._mutant, peer=str(peer), api_key=header.api_key))

    def response(self, parts: Sequence[Part]) -> Sequence[Part]:
        """Return the parts of the response to a client."""
        if not self.awaited:
            return parts
        correlation_id = int.from_bytes(bytes(bytes_of(parts[0]))[:4], "big", signed=True)
        found = self.awaited.pop(correlation_id, None)
        if found is None:
            return parts
        header = found.header
        frame = b"".join(bytes(bytes_of(part)) for part in parts)
        _, body_at = parse_response_header(header.api_key, header.version, frame)
        if not found.change.served:
            body = refusal_bytes(header.api_key, header.version, found.frame, header.body_at, 0)
            return (frame[:body_at] + body,)
        assert found.change.response is not None, f"{self._mutant} changes no response"
        response = messages.decode_response(header.api_key, header.version, frame, body_at)
        changed = found.change.response(response)
        if changed is None:
            return parts
        self.note(header)
        write = messages.response_writer(header.api_key, header.version)
        return (frame[:body_at] + messages.encode(write, changed),)


class _ChangingLink:
    """The link as its handler sees it: what it sends is changed before it leaves."""

    def __init__(self, link: Link, owner: _ChangingHandler) -> None:
        self._link = link
        self._owner = owner

    @property
    def max_frame_bytes(self) -> int:
        return self._link.max_frame_bytes

    @max_frame_bytes.setter
    def max_frame_bytes(self, most: int) -> None:
        self._link.max_frame_bytes = most

    @property
    def wire_error_level(self) -> str:
        return self._link.wire_error_level

    @wire_error_level.setter
    def wire_error_level(self, level: str) -> None:
        self._link.wire_error_level = level

    @property
    def peer(self) -> Peer:
        return self._link.peer

    @peer.setter
    def peer(self, peer: Peer) -> None:
        self._link.peer = peer

    @property
    def certificate(self) -> bytes | None:
        return self._link.certificate

    def when_established(self, call: Callable[[], object]) -> None:
        self._link.when_established(call)

    def send(self, parts: Sequence[Part]) -> None:
        self._link.send(self._owner.response(parts))

    def close(self, *, reset: bool = False) -> None:
        self._link.close(reset=reset)

    def pause(self) -> None:
        self._link.pause()

    def resume(self) -> None:
        self._link.resume()

    @property
    def unsent_bytes(self) -> int:
        return self._link.unsent_bytes

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:
        self._link.when_unsent_below(limit, call)
