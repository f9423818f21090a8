"""OAUTHBEARER (RFC 7628): the client sends a token that says who it is; the server checks the token.

Owns: `OAuthBearerServer`, `OAuthBearerClient`. What is in a token is `jwt.py`.

As in Kafka a token that is refused is responded to with JSON, and the exchange fails with the client's next token.
May fail: SaslError for a first message that is none; SaslRefusedError.

Source: Kafka's OAuthBearerSaslServer, OAuthBearerClientInitialResponse.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from .exchange import Login, SaslError, SaslRefusedError
from .jwt import TokenError

__all__ = ["OAuthBearerClient", "OAuthBearerServer"]

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_PAIRS = r"(?:[A-Za-z]+=[\x21-\x7e \t\r\n]+\x01)*"
_FIRST = re.compile(rf"n,(?:a=(?P<asked>{_NAME}))?,\x01(?P<pairs>{_PAIRS})\x01")
_AUTH = re.compile(r"(?P<scheme>\w+)[ ]+(?P<token>[-_~+/.a-zA-Z0-9]+=*)", re.ASCII)
_GO_ON = b"\x01"


class OAuthBearerServer:
    """The server side; `check` returns who a token is for, or raises TokenError."""

    def __init__(self, check: Callable[[str], Login]) -> None:
        self._check = check
        self._refused = ""
        self.user = ""
        """Always empty: only a valid token says who the client is."""
        self.login: Login | None = None
        """Who has authenticated."""

    def evaluate(self, token: bytes) -> bytes:
        """Check the token in the client's message; the response is empty, or says why it is refused."""
        if token == _GO_ON and self._refused:
            raise SaslRefusedError(self._refused)
        self._refused = ""
        asked, written = _parsed(token)
        try:
            login = self._check(written)
        except TokenError as error:
            self._refused = error.as_json()
            return self._refused.encode()
        if asked and asked != login.user:
            raise SaslRefusedError(
                f"Authentication failed: Client requested an authorization id ({asked}) that is different from the "
                f"token's principal name ({login.user})"
            )
        self.login = login
        return b""


class OAuthBearerClient:
    """The client side."""

    def __init__(self, token: str) -> None:
        self._token = token
        self._step = 0
        self.complete = False
        """True when the server has accepted the token."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the message with the token; SaslError when the server refuses it."""
        self._step += 1
        if self._step == 1:
            return f"n,,\x01auth=Bearer {self._token}\x01\x01".encode()
        if token:
            raise SaslError(f"the server refuses the token: {token.decode(errors='replace')}")
        self.complete = True
        return b""


def _parsed(message: bytes) -> tuple[str, str]:
    """The name that the client asks for, and its token."""
    found = _FIRST.fullmatch(message.decode(errors="surrogateescape"))
    if found is None:
        raise SaslError("not an OAUTHBEARER client first message")
    pairs = dict(pair.split("=", 1) for pair in found["pairs"].split("\x01") if pair)
    auth = _AUTH.fullmatch(pairs.get("auth", ""))
    if auth is None or auth["scheme"].lower() != "bearer":
        raise SaslError("an OAUTHBEARER client first message without a bearer token")
    return found["asked"] or "", auth["token"]
