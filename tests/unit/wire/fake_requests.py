"""Requests without a connection, for tests."""

from __future__ import annotations

from collections.abc import Sequence

from harrow.cluster.host.seam import Part, bytes_of
from harrow.cluster.wire.request import OnSend, Request
from request_contexts import client_context

Answer = tuple[Sequence[Part] | None, OnSend | None]


def request_of(api_key: int, version: int, body: bytes, answers: list[Answer] | None = None) -> Request:
    """Returns a request with some header and `body`; its responses are appended to `answers`."""
    into: list[Answer] = [] if answers is None else answers

    def complete(parts: Sequence[Part] | None, on_send: OnSend | None) -> None:
        into.append((parts, on_send))

    context = client_context()
    return Request(api_key, version, 7, "test", b"header" + body, 6, context, 0, complete)


def body_of(answer: Answer) -> bytes:
    """Returns the body of a response in one piece."""
    parts = answer[0]
    assert parts is not None
    return joined_bytes(parts)


def joined_bytes(parts: Sequence[Part]) -> bytes:
    """Joins the parts."""
    return b"".join(map(bytes_of, parts))
