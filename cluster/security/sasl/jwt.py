"""JSON Web Tokens as credentials (RFC 7515, RFC 7519): unsecured ones as Kafka's for tests, and signed ones.

Owns: `UnsecuredTokens` and `SignedTokens`, which check a token and say who it is for; `RsaKey` and `keys_of_jwks`, the
keys of an issuer (RFC 7517); `unsecured_token`. Signatures are RS256, RS384 and RS512.

May fail: TokenError for a token that is not valid; ValueError for a set of keys that cannot be read.

Source: Kafka's OAuthBearerUnsecuredJws, OAuthBearerUnsecuredValidatorCallbackHandler, BrokerJwtValidator.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, cast

from ...errors import HarrowError
from .exchange import Login

__all__ = ["RsaKey", "SignedTokens", "TokenError", "UnsecuredTokens", "keys_of_jwks", "unsecured_token"]

_DIGESTS = {"RS256": "sha256", "RS384": "sha384", "RS512": "sha512"}
_DIGEST_INFO = {
    "sha256": bytes.fromhex("3031300d060960864801650304020105000420"),
    "sha384": bytes.fromhex("3041300d060960864801650304020205000430"),
    "sha512": bytes.fromhex("3051300d060960864801650304020305000440"),
}
"""What EMSA-PKCS1-v1_5 puts before a hash (RFC 8017, section 9.2)."""
MS_PER_S = 1000


class TokenError(HarrowError):
    """A token is not valid. The text is for the log; the client gets `as_json`."""

    def __init__(self, text: str, *, scope: str | None = None) -> None:
        super().__init__(text)
        self.scope = scope
        """The scope that the token lacks."""

    def as_json(self) -> str:
        """The error of RFC 7628, as Kafka writes it."""
        if self.scope is None:
            return '{"status":"invalid_token"}'
        return f'{{"status":"insufficient_scope", "scope":"{self.scope}"}}'


@dataclass(frozen=True, slots=True)
class RsaKey:
    """A public key."""

    modulus: int
    exponent: int

    def verifies(self, digest: str, data: bytes, signature: bytes) -> bool:
        """True when `signature` is that of `data` (RSASSA-PKCS1-v1_5)."""
        size = (self.modulus.bit_length() + 7) // 8
        number = int.from_bytes(signature, "big")
        if len(signature) != size or number >= self.modulus:
            return False
        found = pow(number, self.exponent, self.modulus).to_bytes(size, "big")
        return hmac.compare_digest(found, padded(digest, data, size))


def padded(digest: str, data: bytes, size: int) -> bytes:
    """The message of EMSA-PKCS1-v1_5 of `size` bytes; empty where the key is too short."""
    info = _DIGEST_INFO[digest] + hashlib.new(digest, data).digest()
    filling = size - len(info) - 3
    return b"\0\1" + b"\xff" * filling + b"\0" + info if filling >= 8 else b""


def keys_of_jwks(text: str) -> dict[str, RsaKey]:
    """The RSA keys of a JWKS document by key id; ValueError."""
    found: dict[str, RsaKey] = {}
    for given in _object(json.loads(text)).get("keys", ()):
        row = _object(given)
        if row.get("kty") == "RSA":
            numbers = [int.from_bytes(_bytes_of(str(row.get(name, ""))), "big") for name in ("n", "e")]
            found[str(row.get("kid", ""))] = RsaKey(*numbers)
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Claims:
    """What a token says: its header and its claims, and the bytes that are signed."""

    header: Mapping[str, Any]
    claims: Mapping[str, Any]
    signed: bytes
    signature: bytes

    @classmethod
    def parse(cls, token: str) -> Claims:
        """Read a token in its compact form; TokenError."""
        parts = token.split(".")
        if len(parts) != 3:
            raise TokenError("a token has three parts")
        try:
            header, claims = (_object(json.loads(_bytes_of(part))) for part in parts[:2])
            signature = _bytes_of(parts[2])
        except (ValueError, RecursionError) as error:
            raise TokenError(f"a token that cannot be read: {error}") from None
        signed = f"{parts[0]}.{parts[1]}".encode()
        return cls(header=header, claims=claims, signed=signed, signature=signature)

    def text(self, name: str) -> str:
        """A claim that is a text; TokenError."""
        value = self.claims.get(name)
        if not isinstance(value, str) or not value.strip():
            raise TokenError(f"claim {name} is missing, or no text")
        return value.strip()

    def time_ms(self, name: str, *, required: bool = False) -> int | None:
        """A claim that is a time, in milliseconds; TokenError."""
        value = self.claims.get(name)
        if value is None and not required:
            return None
        if isinstance(value, bool) or not isinstance(value, int | float) or not abs(value) < 2**53:
            raise TokenError(f"claim {name} is missing, or no time")
        return int(value * MS_PER_S)  # not rounded up: a token of this millisecond is valid

    def texts(self, name: str) -> set[str]:
        """A claim that is a text of words or a list of texts."""
        value = self.claims.get(name)
        if isinstance(value, str):
            return set(value.split())
        rows = cast("list[object]", value) if isinstance(value, list) else []
        return {row for row in rows if isinstance(row, str)}

    def check_scopes(self, name: str) -> None:
        """TokenError unless the claim is missing, a text, or a list of different texts."""
        value = self.claims.get(name)
        rows = cast("list[object]", value) if isinstance(value, list) else [value] if isinstance(value, str) else []
        names = [row.strip() if isinstance(row, str) else "" for row in rows]
        if not all(names) or len(set(names)) < len(names):
            raise TokenError(f"claim {name} has a scope that is no text, or that is there twice")


def _login(claims: Claims, name: str, now_ms: int, skew_ms: int, *, issued: bool = False) -> Login:
    """Who the token is for; TokenError for one that is expired, or not issued yet."""
    user = claims.text(name)
    expires_ms = claims.time_ms("exp", required=True)
    issued_ms = claims.time_ms("iat", required=issued)
    assert expires_ms is not None, "the claim is required"
    if issued_ms is not None and issued_ms > now_ms + skew_ms:
        raise TokenError("the token is issued in the future")
    if now_ms - skew_ms >= expires_ms:
        raise TokenError("the token is expired")
    if issued_ms is not None and issued_ms >= expires_ms:
        raise TokenError("the token expires before it is issued")
    return Login(user=user, expires_ms=expires_ms)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnsecuredTokens:
    """Tokens without a signature (`"alg":"none"`), by the options `unsecuredValidator…` of a JAAS entry."""

    now_ms: Callable[[], int]
    options: Mapping[str, str]

    def check(self, token: str) -> Login:
        """Who the token is for; TokenError."""
        claims = Claims.parse(token)
        if claims.header.get("alg") != "none" or claims.signature:
            raise TokenError("a signed token where unsecured ones are expected")
        skew_ms = int(self._option("AllowableClockSkewMs") or 0)
        login = _login(claims, self._option("PrincipalClaimName") or "sub", self.now_ms(), skew_ms)
        needed = self._option("RequiredScope")
        if not set(needed.split()) <= claims.texts(self._option("ScopeClaimName") or "scope"):
            raise TokenError(f"the token lacks a scope of {needed}", scope=needed)
        return login

    def _option(self, name: str) -> str:
        return self.options.get(f"unsecuredValidator{name}", "").strip()


@dataclass(frozen=True, slots=True, kw_only=True)
class SignedTokens:
    """Tokens that an issuer signed; `key` finds one of its keys by its id."""

    now_ms: Callable[[], int]
    key: Callable[[str], RsaKey | None]
    audiences: Sequence[str] = ()
    issuer: str = ""
    skew_ms: int = 30_000
    user_claim: str = "sub"
    scope_claim: str = "scope"
    algorithms: Mapping[str, str] = field(default_factory=lambda: _DIGESTS)

    def check(self, token: str) -> Login:
        """Who the token is for; TokenError."""
        claims = Claims.parse(token)
        digest = self.algorithms.get(str(claims.header.get("alg")))
        key = self.key(str(claims.header.get("kid", "")))
        if digest is None or key is None or not key.verifies(digest, claims.signed, claims.signature):
            raise TokenError(f"no key of the issuer has signed the token ({claims.header})")
        if self.issuer and claims.claims.get("iss") != self.issuer:
            raise TokenError(f"another issuer than {self.issuer}")
        named = claims.claims.get("aud")  # one text is one audience, whatever is in it
        if self.audiences and not ({named} if isinstance(named, str) else claims.texts("aud")) & set(self.audiences):
            raise TokenError(f"none of the audiences {', '.join(self.audiences)}")
        before_ms = claims.time_ms("nbf")
        if before_ms is not None and before_ms > self.now_ms() + self.skew_ms:
            raise TokenError("the token is not valid yet")
        claims.check_scopes(self.scope_claim)
        return _login(claims, self.user_claim, self.now_ms(), self.skew_ms, issued=True)


def unsecured_token(claims: Mapping[str, object]) -> str:
    """A token without a signature."""
    return f"{coded_json({'alg': 'none'})}.{coded_json(claims)}."


def coded_json(value: Mapping[str, object]) -> str:
    """JSON in the alphabet of tokens."""
    return coded(json.dumps(value, separators=(",", ":")).encode())


def coded(data: bytes) -> str:
    """Bytes in the alphabet of tokens, without padding."""
    return base64.urlsafe_b64encode(data).decode().rstrip("=")


def _object(value: object) -> Mapping[str, Any]:
    """A JSON object; an empty one for any other value."""
    return cast("Mapping[str, Any]", value) if isinstance(value, dict) else {}


def _bytes_of(text: str) -> bytes:
    try:
        return base64.b64decode(text + "=" * (-len(text) % 4), altchars=b"-_", validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
