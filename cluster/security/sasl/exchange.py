"""One SASL exchange as the network sees it, whatever its mechanism.

Owns: `SaslServer` and `SaslClient`, the two sides of an exchange; `Login`, what a completed exchange says of the
client; `SaslError` and `SaslRefusedError`.

An exchange is a sequence of tokens, the client's first. It ends when the server is complete, or with an error.

May fail: `SaslError` for a token or for credentials that cannot be accepted. Its text is for the log: a client that was
not authenticated learns nothing of it, because it may say that a user exists. The text of a `SaslRefusedError` is sent
to the client. Source: Java's `SaslServer`, Kafka's `SaslAuthenticationException`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from ...errors import HarrowError

__all__ = ["Login", "SaslClient", "SaslError", "SaslRefusedError", "SaslServer"]


class SaslError(HarrowError):
    """An exchange has failed; the client learns that its credentials are invalid, and no more."""


class SaslRefusedError(SaslError):
    """An exchange has failed; the client gets the text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """Who has authenticated."""

    user: str
    expires_ms: int | None = None
    """The wall time at which the credentials expire; None for credentials that do not."""
    by_token: bool = False
    """True where the credentials are those of a delegation token (KIP-48)."""


class SaslServer(Protocol):
    """The server side of one exchange."""

    user: str
    """Who the client says that it is; empty before it has said so, and where only a valid token says it."""

    @property
    def login(self) -> Login | None:
        """Who has authenticated; None before the exchange is complete."""
        ...

    def evaluate(self, token: bytes, /) -> bytes:
        """Return the token that responds to a client's token; SaslError, SaslRefusedError."""
        ...


class SaslClient(Protocol):
    """The client side of one exchange."""

    @property
    def complete(self) -> bool:
        """True when the client expects no more tokens."""
        ...

    def evaluate(self, token: bytes, /) -> bytes:
        """Return the token that follows a server's token, which is empty at the beginning; SaslError."""
        ...
