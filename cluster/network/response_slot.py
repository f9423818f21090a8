"""The place of a response in the order of the responses of a connection, and what a tap keeps of its request.

Invariant: a slot is completed once; its connection sends it when every earlier slot was sent. Nothing here fails.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from ..host.seam import Part
from ..wire.headers import RequestHeader
from ..wire.request import OnSend
from ..wire.tapped_requests import subject_of


class Slots(Protocol):
    """The connection that has the slots."""

    def completed(self) -> None:
        """Send the responses that are complete at the front of the queue."""
        ...


class ResponseSlot:
    """The place of one response in the order of responses."""

    __slots__ = (
        "_connection",
        "api_key",
        "body_at",
        "client_id",
        "correlation_id",
        "done",
        "error",
        "frame",
        "hit",
        "in_tap",
        "invoked_ns",
        "on_send",
        "parts",
        "refused",
        "size",
        "subject",
        "version",
    )

    def __init__(self, connection: Slots, header: RequestHeader, size: int, frame: bytes, invoked_ns: int) -> None:
        self._connection = connection
        self.size = size
        """Bytes of the request."""
        self.frame = frame
        """The request's bytes: its handler holds them as well, until it responds."""
        self.body_at = header.body_at
        self.client_id = header.client_id
        self.invoked_ns = invoked_ns
        self.api_key = header.api_key
        self.version = header.version
        self.correlation_id = header.correlation_id
        self.done = False
        self.parts: Sequence[Part] | None = None
        self.on_send: OnSend | None = None
        self.hit = False
        """Whether a fault of requests acted on it."""
        self.subject: str | None = None
        """What the request names; known from its response on, on a host with a tap."""
        self.in_tap = False
        """Whether the tap has its row."""
        self.refused = False
        """Whether a fault refuses the request: no other fault then counts its response."""
        self.error = 0
        """The error code that a refusal puts into the response of a request that has to be served for it."""

    def complete(self, parts: Sequence[Part] | None, on_send: OnSend | None) -> None:
        """Take the response; its bytes leave when every earlier response has left."""
        assert not self.done, f"a second response to request #{self.correlation_id}"
        self.parts = parts
        self.on_send = on_send
        self.done = True
        self._connection.completed()

    def learn_subject(self) -> None:
        """Read what the request names, for its row."""
        if self.subject is None:
            self.subject = subject_of(self.api_key, self)
