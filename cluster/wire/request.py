"""One request as a handler sees it: who asks what, and the one answer it gets.

Owns: `Request`, `Handler`. The connection makes it from a frame and is told of the answer by `complete`.
Invariants: a request is completed exactly once (a second answer is our bug: AssertionError); the bytes of
the frame are never changed.
May fail: `decode` with `WireError` when the body is not what the version says.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from ..errors import ErrorCode
from ..host.seam import Part, Peer
from . import messages
from .api_keys import ApiKey
from .refusals import refusal

__all__ = ["Complete", "Handler", "Request"]

Complete = Callable[[Sequence[Part] | None, Callable[[bool], None] | None], None]
"""`complete(parts of the body, on_send)`; parts None: there is no response (acks=0)."""


class Request:
    """One decoded header and the bytes behind it; answered by exactly one of its last four methods."""

    __slots__ = (
        "_complete",
        "api_key",
        "body_at",
        "client_id",
        "correlation_id",
        "frame",
        "peer",
        "received_ns",
        "version",
    )

    def __init__(
        self,
        api_key: int,
        version: int,
        correlation_id: int,
        client_id: str,
        frame: bytes,
        body_at: int,
        peer: Peer,
        received_ns: int,
        complete: Complete,
    ) -> None:
        self.api_key = api_key
        self.version = version
        self.correlation_id = correlation_id
        self.client_id = client_id
        self.frame = frame
        self.body_at = body_at
        self.peer = peer
        self.received_ns = received_ns
        self._complete: Complete | None = complete

    def __repr__(self) -> str:
        return (
            f"<Request {self.api_key} v{self.version} #{self.correlation_id} "
            f"of {self.client_id!r} from {self.peer}>"
        )

    @property
    def answered(self) -> bool:
        """True when one of the answers below was given."""
        return self._complete is None

    def decode(self) -> Any:
        """The entity of (api_key, version); WireError when malformed."""
        return messages.request_reader(self.api_key, self.version)(self.frame, self.body_at)[0]

    def respond(self, response: Any) -> None:
        """Answer with an entity of the response's same version."""
        write = messages.response_writer(self.api_key, self.version)
        self.respond_parts((messages.encode(write, response),))

    def respond_parts(
        self, parts: Sequence[Part], *, on_send: Callable[[bool], None] | None = None
    ) -> None:
        """Answer with body bytes written by hand; `on_send(lost)` runs just before they leave."""
        self._finish(parts, on_send)

    def no_response(self) -> None:
        """Answer nothing: a produce with acks=0."""
        self._finish(None, None)

    def fail(self, code: ErrorCode, message: str = "") -> None:
        """Answer the API's own error response: `code` for everything that was asked.

        `message` goes where the API has a place for one. A produce with acks=0 gets no response: the client
        would take it for the next request's.
        """
        asked = self.decode()
        if self.api_key == ApiKey.PRODUCE and asked.acks == 0:
            self.no_response()
            return
        self.respond(refusal(self.api_key, self.version, asked, code, message))

    def _finish(self, parts: Sequence[Part] | None, on_send: Callable[[bool], None] | None) -> None:
        complete = self._complete
        assert complete is not None, f"{self!r} was answered twice"
        self._complete = None
        complete(parts, on_send)


Handler = Callable[[Request], Coroutine[Any, Any, None] | None]
"""Serves a request, at once or as a coroutine; the response may come later than either ends."""
