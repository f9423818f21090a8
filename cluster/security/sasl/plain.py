"""PLAIN (RFC 4616): the client sends its name and its password.

Owns: `PlainServer`, `PlainClient`. A server knows its users by the JAAS entry of its listener: `user_alice="secret"`.
Passwords are compared in constant time. May fail: SaslRefusedError, with Kafka's text.

Source: Kafka's PlainSaslServer, PlainServerCallbackHandler.
"""

from __future__ import annotations

import hmac
from collections.abc import Mapping

from .exchange import Login, SaslRefusedError

__all__ = ["PlainClient", "PlainServer"]


class PlainServer:
    """The server side; `users`: password by name."""

    def __init__(self, users: Mapping[str, str]) -> None:
        self._users = users
        self.user = ""
        """Who the client says that it is."""
        self.login: Login | None = None
        """Who has authenticated."""

    def evaluate(self, token: bytes) -> bytes:
        """Check name and password; the response is empty."""
        parts = token.decode(errors="replace").split("\0", 3)
        if len(parts) != 3:
            raise SaslRefusedError(f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}")
        asked, user, password = parts
        self.user = user
        if not user or not password:
            missing = "password" if user else "username"
            raise SaslRefusedError(f"Authentication failed: {missing} not specified")
        expected = self._users.get(user)
        if expected is None or not hmac.compare_digest(expected.encode(), password.encode()):
            raise SaslRefusedError("Authentication failed: Invalid username or password")
        if asked and asked != user:
            raise SaslRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        self.login = Login(user=user)
        return b""


class PlainClient:
    """The client side."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password
        self.complete = False
        """True when name and password are sent."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the only token."""
        del token
        self.complete = True
        return f"\0{self._user}\0{self._password}".encode()
