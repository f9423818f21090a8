"""The rows of one client's connection in the tap: its beginning, its requests, its end (J6).

Owns: when the connection was named, and which of its requests have a row, each once. Layout and meaning of the rows:
`tap/layouts.py`. Only a host with a tap has this, and only on listeners for clients.

May fail: `sent` raises OSError where the disk is full, and the response must not leave then; the other rows are left
out in that case.
"""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Protocol

from ..host.seam import (
    CONNECTION_CLOSED,
    CONNECTION_OPENED,
    REQUEST_HIT,
    REQUEST_LOST,
    REQUEST_UNANSWERED,
    Host,
    Part,
    TappedRequest,
)
from ..wire.tapped_requests import first_error


class TappedSlot(Protocol):
    """A request that a connection has read."""

    api_key: int
    version: int
    client_id: str
    invoked_ns: int
    hit: bool
    """Whether a fault of requests acted on it."""
    subject: str | None
    in_tap: bool
    """Whether it has its row."""


class TappedConnection:
    """Writes the rows of one connection."""

    __slots__ = ("_client", "_host", "_opened_ns")

    def __init__(self, host: Host) -> None:
        self._host = host
        self._client: str | None = None
        self._opened_ns = 0

    def opened(self, client: str) -> None:
        """The first request has named the client."""
        self._client, self._opened_ns = client, self._host.clock.monotonic_ns()
        self._about_connection(CONNECTION_OPENED, client)

    def closed(self) -> None:
        """Either side has ended the connection."""
        client, self._client = self._client, None
        if client is not None:
            self._about_connection(CONNECTION_CLOSED, client)

    def sent(self, slot: TappedSlot, parts: Sequence[Part], error: int | None, *, lost: bool) -> None:
        """The response leaves, or is lost; `error`: what its handler says of it, None where it says nothing."""
        if error is None:
            error = first_error(slot.api_key, slot.version, parts)
        self._write(slot, error, REQUEST_LOST if lost else 0)

    def unanswered(self, slot: TappedSlot) -> None:
        """The request ends without a response."""
        if not slot.in_tap:
            with contextlib.suppress(OSError):
                self._write(slot, 0, REQUEST_UNANSWERED)

    def _write(self, slot: TappedSlot, error: int, flags: int) -> None:
        slot.in_tap = True
        now_ns = self._host.clock.monotonic_ns()
        flags |= REQUEST_HIT if slot.hit else 0
        row = TappedRequest(slot.client_id, slot.api_key, error, slot.invoked_ns, now_ns, flags, slot.subject)
        self._host.tap.requested(row)

    def _about_connection(self, api: int, client: str) -> None:
        now_ns = self._host.clock.monotonic_ns()
        with contextlib.suppress(OSError):
            self._host.tap.requested(TappedRequest(client, api, 0, self._opened_ns, now_ns))
