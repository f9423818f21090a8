"""SCRAM-SHA-256 and SCRAM-SHA-512 (RFC 5802, RFC 7677): the password is never sent, and the server proves itself, too.

Owns: `ScramMechanism`, `ScramCredential` with its text in the registry, `ScramServer`, `ScramClient`.

    client  n,,n=user,r=NONCE
    server  r=NONCE+MORE,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+MORE,p=PROOF
    server  v=SIGNATURE

Invariants: channel binding is not supported (`n` only); the nonces are the caller's, so that a simulation repeats.
A first message with `tokenauth=true` asks for a delegation token: the name is a token's id (KIP-48).
May fail: SaslError; ValueError for the text of a credential that is none.

Source: Kafka's ScramSaslServer, ScramMessages, ScramFormatter, ScramCredentialUtils.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from random import Random
from typing import NamedTuple

from .exchange import Login, SaslError, SaslRefusedError

__all__ = [
    "ITERATIONS_MOST",
    "MECHANISMS",
    "FoundCredential",
    "ScramClient",
    "ScramCredential",
    "ScramMechanism",
    "ScramServer",
    "nonce_of",
]

ITERATIONS_LEAST, ITERATIONS_MOST = 4096, 16384
_NONCE_BITS = 130
_DIGITS = "0123456789abcdefghijklmnopqrstuvwxyz"

_NAME = r"(?:[\x01-\x2b\x2d-\x3c\x3e-\x7f]|=2C|=3D)+"
_VALUE = r"[\x01-\x2b\x2d-\x7f]+"
_PRINTABLE = r"[\x21-\x2b\x2d-\x7e]+"
_BASE64 = r"(?:[a-zA-Z0-9/+]{4})*(?:[a-zA-Z0-9/+]{3}=|[a-zA-Z0-9/+]{2}==)?"
_EXTENSIONS = rf"(?:,[A-Za-z]+={_VALUE})*"
_CLIENT_FIRST = re.compile(
    rf"n,(?:a=(?P<asked>{_NAME}))?,(?P<bare>(?:m={_VALUE},)?n=(?P<name>{_NAME}),r=(?P<nonce>{_PRINTABLE})"
    rf"(?P<extensions>{_EXTENSIONS}))"
)
_SERVER_FIRST = re.compile(
    rf"(?:m={_VALUE},)?r=(?P<nonce>{_PRINTABLE}),s=(?P<salt>{_BASE64}),i=(?P<iterations>[0-9]+){_EXTENSIONS}"
)
_CLIENT_FINAL = re.compile(
    rf"(?P<bare>c=(?P<channel>{_BASE64}),r=(?P<nonce>{_PRINTABLE}){_EXTENSIONS}),p=(?P<proof>{_BASE64})"
)
_SERVER_FINAL = re.compile(rf"(?:e=(?P<error>{_VALUE})|v=(?P<signature>{_BASE64})){_EXTENSIONS}")
_CREDENTIAL = re.compile(r"[a-z_]+=[^,]*(,[a-z_]+=[^,]*){3}")
_SURROGATE = "surrogateescape"


class ScramMechanism(Enum):
    """A hash function, under Kafka's number for it."""

    SHA_256 = 1
    SHA_512 = 2

    @property
    def text(self) -> str:
        """The name of the mechanism: `SCRAM-SHA-256`."""
        return f"SCRAM-{self.name.replace('_', '-')}"

    @property
    def digest(self) -> str:
        """The name of the hash function for `hashlib`."""
        return self.name.lower().replace("_", "")

    def hash(self, data: bytes) -> bytes:
        """H of RFC 5802."""
        return hashlib.new(self.digest, data).digest()

    def hmac(self, key: bytes, data: bytes) -> bytes:
        """HMAC of RFC 5802."""
        return hmac.digest(key, data, self.digest)

    def salted_password(self, password: str, salt: bytes, iterations: int) -> bytes:
        """SaltedPassword of RFC 5802, without SASLprep."""
        return _salted_password(self.digest, password, salt, iterations)

    def credential(self, salted_password: bytes, salt: bytes, iterations: int) -> ScramCredential:
        """What a server keeps of a password."""
        return ScramCredential(
            salt=salt,
            stored_key=self.hash(self.hmac(salted_password, b"Client Key")),
            server_key=self.hmac(salted_password, b"Server Key"),
            iterations=iterations,
        )

    def credential_of(self, password: str, salt: bytes, iterations: int) -> ScramCredential:
        """What a server keeps of a password that it gets."""
        return self.credential(self.salted_password(password, salt, iterations), salt, iterations)


MECHANISMS = {mechanism.text: mechanism for mechanism in ScramMechanism}


@lru_cache(maxsize=64)  # a broker connects often, with one password
def _salted_password(digest: str, password: str, salt: bytes, iterations: int) -> bytes:
    return hashlib.pbkdf2_hmac(digest, password.encode(), salt, iterations)


@dataclass(frozen=True, slots=True, kw_only=True)
class ScramCredential:
    """What a server keeps of a user's password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __str__(self) -> str:
        salt, stored, server = (_coded(part) for part in (self.salt, self.stored_key, self.server_key))
        return f"salt={salt},stored_key={stored},server_key={server},iterations={self.iterations}"

    @classmethod
    def parse(cls, text: str) -> ScramCredential:
        """Read the text in the registry; ValueError."""
        if _CREDENTIAL.fullmatch(text) is None:
            raise ValueError("not a SCRAM credential")
        parts = dict(part.split("=", 1) for part in text.split(","))
        try:
            keys = {name: base64.b64decode(parts[name], validate=True) for name in ("salt", "stored_key", "server_key")}
            return cls(**keys, iterations=int(parts["iterations"]))
        except KeyError as error:
            raise ValueError(f"a SCRAM credential without {error}") from None


class FoundCredential(NamedTuple):
    """The credential behind a name, and who logs in by it."""

    credential: ScramCredential
    login: Login


Lookup = Callable[[str, bool], FoundCredential | None]
"""`find(name, by token)`: None for an unknown name."""


class ScramServer:
    """The server side; `find` has the credentials."""

    def __init__(self, mechanism: ScramMechanism, find: Lookup, nonce: str) -> None:
        self._mechanism = mechanism
        self._find = find
        self._nonce = nonce
        self._found: FoundCredential | None = None
        self._messages = ""  # the first two, as both sides sign them
        self.user = ""
        """Who the client says that it is."""
        self.login: Login | None = None
        """Who has authenticated."""

    def evaluate(self, token: bytes) -> bytes:
        """Respond to the client's first or final message."""
        if self.login is not None:
            raise SaslError("a token after the end of the exchange")
        text = token.decode(errors=_SURROGATE)
        return (self._first(text) if self._found is None else self._final(text, self._found)).encode(errors=_SURROGATE)

    def _first(self, text: str) -> str:
        message = _parsed(_CLIENT_FIRST, text, "client first message")
        name = _name_of(message["name"])
        by_token = "tokenauth=true" in message["extensions"].lower().split(",")
        found = self._find(name, by_token)
        self.user = name if found is None else found.login.user
        if found is None:
            raise SaslError(f"no credential of {name!r}")
        if message["asked"] and message["asked"] != name:
            raise SaslRefusedError(
                "Authentication failed: Client requested an authorization id that is different from username"
            )
        credential = found.credential
        if credential.iterations < ITERATIONS_LEAST:
            raise SaslError(f"{credential.iterations} iterations, fewer than {ITERATIONS_LEAST}")
        self._found = found
        self._nonce = message["nonce"] + self._nonce
        answer = f"r={self._nonce},s={_coded(credential.salt)},i={credential.iterations}"
        self._messages = f"{message['bare']},{answer}"
        return answer

    def _final(self, text: str, found: FoundCredential) -> str:
        message = _parsed(_CLIENT_FINAL, text, "client final message")
        if message["nonce"] != self._nonce:
            raise SaslError("the final message has another nonce")
        signed = f"{self._messages},{message['bare']}".encode()
        mechanism, credential = self._mechanism, found.credential
        signature = mechanism.hmac(credential.stored_key, signed)
        proof = base64.b64decode(message["proof"])
        if len(proof) != len(signature):
            raise SaslError("a proof of another length")
        if not hmac.compare_digest(mechanism.hash(_xor(proof, signature)), credential.stored_key):
            raise SaslError(f"a wrong password of {found.login.user!r}")
        self.login = found.login
        return f"v={_coded(mechanism.hmac(credential.server_key, signed))}"


class ScramClient:
    """The client side."""

    def __init__(
        self, mechanism: ScramMechanism, user: str, password: str, nonce: str, *, by_token: bool = False
    ) -> None:
        self._mechanism = mechanism
        self._password = password
        self._nonce = nonce
        name = user.replace("=", "=3D").replace(",", "=2C")
        self._messages = f"n={name},r={nonce}" + (",tokenauth=true" if by_token else "")
        self._step = 0
        self._server_signature = b""
        self.complete = False
        """True when the server has proved that it knows the user."""

    def evaluate(self, token: bytes) -> bytes:
        """Return the next message; SaslError when the server does not prove itself."""
        self._step += 1
        if self._step == 1:
            return f"n,,{self._messages}".encode()
        text = token.decode(errors=_SURROGATE)
        if self._step == 2:
            return self._final(text)
        message = _parsed(_SERVER_FINAL, text, "server final message")
        if message["error"]:
            raise SaslError(f"the server refuses: {message['error']}")
        if not hmac.compare_digest(base64.b64decode(message["signature"]), self._server_signature):
            raise SaslError("the server does not know the password")
        self.complete = True
        return b""

    def _final(self, text: str) -> bytes:
        message = _parsed(_SERVER_FIRST, text, "server first message")
        iterations = int(message["iterations"])
        if not message["nonce"].startswith(self._nonce) or not ITERATIONS_LEAST <= iterations <= ITERATIONS_MOST:
            raise SaslError(f"the server has another nonce, or not {ITERATIONS_LEAST} to {ITERATIONS_MOST} iterations")
        mechanism = self._mechanism
        salted = mechanism.salted_password(self._password, base64.b64decode(message["salt"]), iterations)
        bare = f"c=biws,r={message['nonce']}"
        signed = f"{self._messages},{text},{bare}".encode()
        client_key = mechanism.hmac(salted, b"Client Key")
        proof = _xor(client_key, mechanism.hmac(mechanism.hash(client_key), signed))
        self._server_signature = mechanism.hmac(mechanism.hmac(salted, b"Server Key"), signed)
        return f"{bare},p={_coded(proof)}".encode()


def nonce_of(random: Random) -> str:
    """130 random bits as letters and digits, as Kafka's nonces and salts are."""
    number = random.getrandbits(_NONCE_BITS)
    digits = ""
    while number:
        number, digit = divmod(number, len(_DIGITS))
        digits = _DIGITS[digit] + digits
    return digits or "0"


def _parsed(pattern: re.Pattern[str], text: str, what: str) -> dict[str, str]:
    found = pattern.fullmatch(text)
    if found is None:
        raise SaslError(f"not a SCRAM {what}")
    return found.groupdict(default="")


def _name_of(written: str) -> str:
    return written.replace("=2C", ",").replace("=3D", "=")


def _xor(left: bytes, right: bytes) -> bytes:
    return bytes(a ^ b for a, b in zip(left, right, strict=True))


def _coded(data: bytes) -> str:
    return base64.b64encode(data).decode()
