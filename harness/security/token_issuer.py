"""An issuer of signed tokens for tests of OAUTHBEARER: keys, their JWKS document, and tokens by HTTP on loopback.

    with TokenIssuer() as issuer:
        of_tokens = "listener.name.clients.oauthbearer.sasl.oauthbearer."
        config = {
            f"{of_tokens}jwks.endpoint.url": issuer.keys_url,
            f"{of_tokens}expected.issuer": issuer.name,
            f"{of_tokens}expected.audience": issuer.audience,
            …
        }
        token = issuer.token("alice")

Owns: the keys, and the HTTP server, which ends with the `with` block. `GET /keys` is the JWKS document; `POST /token`
is the client credentials grant (RFC 6749, section 4.4): the client id is the user, any secret is right.
What may fail: OSError without a free port.
"""

from __future__ import annotations

import base64
import json
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Self
from urllib.parse import parse_qs

from cryptography.hazmat.primitives.asymmetric import rsa
from harrow.cluster.security.sasl.jwt import coded, coded_json, padded

__all__ = ["IssuerKey", "TokenIssuer"]

KEY_BITS = 2048
EXPONENT = 65_537
LIFETIME_S = 600


@dataclass(frozen=True, slots=True)
class IssuerKey:
    """A private RSA key and the id that tokens name it by."""

    key_id: str
    modulus: int
    private_exponent: int

    @classmethod
    def make(cls, key_id: str) -> IssuerKey:
        """Make a new key."""
        made = rsa.generate_private_key(EXPONENT, KEY_BITS).private_numbers()
        return cls(key_id, made.public_numbers.n, made.d)

    def signature(self, data: bytes) -> bytes:
        """The signature of `data` (RS256)."""
        size = (self.modulus.bit_length() + 7) // 8
        message = int.from_bytes(padded("sha256", data, size), "big")
        return pow(message, self.private_exponent, self.modulus).to_bytes(size, "big")

    def public(self) -> dict[str, str]:
        """The public key as a row of a JWKS document."""
        size = (self.modulus.bit_length() + 7) // 8
        return {
            "kty": "RSA",
            "use": "sig",
            "alg": "RS256",
            "kid": self.key_id,
            "n": coded(self.modulus.to_bytes(size, "big")),
            "e": coded(EXPONENT.to_bytes(3, "big")),
        }


class TokenIssuer:
    """Issues tokens, and serves its keys while it is open."""

    def __init__(self, name: str = "https://issuer.test", audience: str = "kafka") -> None:
        self.name = name
        """The claim `iss`."""
        self.audience = audience
        """The claim `aud`: whom the tokens are for."""
        self.keys = [IssuerKey.make("key-1")]
        """Keys in the JWKS document; the last one signs."""
        self._server: ThreadingHTTPServer | None = None

    def __enter__(self) -> Self:
        self._server = ThreadingHTTPServer(("127.0.0.1", 0), _handler(self))
        threading.Thread(target=self._server.serve_forever, name="token-issuer", daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._server is not None, "closed twice"
        self._server.shutdown()
        self._server.server_close()
        self._server = None

    @property
    def url(self) -> str:
        """The address of the server."""
        assert self._server is not None, "use `with`"
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    @property
    def keys_url(self) -> str:
        """The address of the JWKS document, for `sasl.oauthbearer.jwks.endpoint.url`."""
        return f"{self.url}/keys"

    @property
    def token_url(self) -> str:
        """The address of the client credentials grant, for `sasl.oauthbearer.token.endpoint.url`."""
        return f"{self.url}/token"

    def rotate(self) -> None:
        """Sign with a new key from now on; tokens of the keys before are still valid."""
        self.keys = [*self.keys, IssuerKey.make(f"key-{len(self.keys) + 1}")]

    def token(self, user: str, *, lifetime_s: float = LIFETIME_S, **claims: object) -> str:
        """A token for a user; `claims` replace and add claims."""
        now = int(time.time())
        key = self.keys[-1]
        header = {"alg": "RS256", "typ": "JWT", "kid": key.key_id}
        body = {"iss": self.name, "sub": user, "aud": self.audience, "iat": now, "exp": now + lifetime_s, **claims}
        signed = f"{coded_json(header)}.{coded_json(body)}"
        return f"{signed}.{coded(key.signature(signed.encode()))}"

    def document(self) -> str:
        """The JWKS document."""
        return json.dumps({"keys": [key.public() for key in self.keys]})


def _handler(issuer: TokenIssuer) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._respond(issuer.document() if self.path == "/keys" else "")

        def do_POST(self) -> None:
            size = int(self.headers.get("Content-Length") or 0)
            fields = parse_qs(self.rfile.read(size).decode())
            user = _user_of(dict(self.headers), fields)
            granted = {"access_token": issuer.token(user), "token_type": "Bearer", "expires_in": LIFETIME_S}
            self._respond(json.dumps(granted) if user and self.path == "/token" else "")

        def _respond(self, text: str) -> None:
            self.send_response(200 if text else 404)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(text)))
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Nothing is logged."""

    return Handler


def _user_of(headers: Mapping[str, str], fields: Mapping[str, list[str]]) -> str:
    """The client id, of the header or of the form; "" without one."""
    kind, _, given = headers.get("Authorization", "").partition(" ")
    if kind.lower() == "basic":
        return base64.b64decode(given).decode().partition(":")[0]
    return fields.get("client_id", [""])[0]
