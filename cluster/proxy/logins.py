"""The login of a client of a foreign broker, as the bytes show it that pass the proxy (A5).

Owns: `ClientLogin`, one for each connection on which a client logs in. The broker decides. A login has ended with the
response to its last token, or with the first response that says SASL_AUTHENTICATION_FAILED; each is counted by the
rules of the host (`host/knobs/access_rules.py`), with the name of the user.

    mechanism        tokens of the client    the user is
    ---------------  ----------------------  ----------------------------------------------------
    PLAIN            1                       the second field of the token
    SCRAM-SHA-*      2                       `n` of the first token; none for a delegation token
    OAUTHBEARER      1, or 2 where refused   the claim `sub` of the first token, which the broker checks

Of another mechanism nothing is known, and nothing is counted. A login by OAUTHBEARER has succeeded with an empty
challenge; a refused one gets its error with the client's second token. A rule may let a token be expired: then the
client gets the error in the place of the challenge that the broker would send. A login that ends because the broker
closes the connection is not counted: a broker that is killed refuses no login.

Invariants: a token is read when it is forwarded, and nothing of it is kept but the name. Nothing is raised for bytes of
a client: one that does not decode, or has more than `TOKEN_BYTES_MOST` bytes, passes, and names no user.
May fail: WireError for a response without an error code.
"""

from __future__ import annotations

import contextlib
import struct
from collections.abc import Mapping
from typing import NamedTuple, Protocol

from ..errors import ErrorCode, WireError
from ..host.seam import AccessFaults, RequestBody
from ..security.sasl.exchange import Login, SaslError
from ..security.sasl.jwt import Claims, TokenError
from ..security.sasl.oauthbearer import OAuthBearerServer
from ..security.sasl.plain import PlainServer
from ..security.sasl.scram import MECHANISMS, FoundCredential, ScramServer
from ..wire import messages
from ..wire.api_keys import ApiKey
from ..wire.refusals import refusal

SASL_APIS = frozenset((ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE))
PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
TOKENS: Mapping[str, int] = {PLAIN: 1, **dict.fromkeys((*MECHANISMS, OAUTHBEARER), 2)}
"""How many tokens a client sends in one login at most."""
TOKEN_BYTES_MOST = 16 * 1024
"""Of a token whose user is read; Kafka's bound of all tokens is `sasl.server.max.receive.size`."""
FAILURE_DELAY_MS = 100
"""Kafka's default of connection.failed.authentication.delay.ms: a refused client is closed after this time."""
_ERROR = struct.Struct(">h")


class SaslStep(NamedTuple):
    """One token of a login."""

    user: str
    """Who logs in; empty where the tokens do not say it."""
    mechanism: str
    is_last: bool


class SaslRequest(RequestBody, Protocol):
    """A SaslHandshake or a SaslAuthenticate."""

    def replace_body(self, body: bytes, /) -> None:
        """Keep another body."""
        ...


class ClientLogin:
    """Who has logged in on one connection, and the login that is in progress."""

    __slots__ = ("_access", "_is_open", "_left", "_mechanism", "_named", "user")

    def __init__(self, access: AccessFaults, user: str = "") -> None:
        """`user`: whom a certificate names."""
        self._access = access
        self.user = user
        """Who has logged in; empty before, and where the tokens did not say it."""
        self._is_open = False
        """Whether a login has succeeded, so that another one is a re-authentication."""
        self._mechanism = self._named = ""
        self._left = 0
        """How many tokens of the login in progress were not forwarded."""

    def forwarded(self, request: SaslRequest) -> SaslStep | None:
        """Read a request that is about to be forwarded, and keep its token no longer; None without a known token."""
        if request.api_key == ApiKey.SASL_HANDSHAKE:
            self._mechanism, self._named = _mechanism_of(request), ""
            self._left = TOKENS.get(self._mechanism, 0)
            return None
        step = self._next_step(request) if self._left else None
        request.replace_body(_no_token(request.version))
        return step

    def _next_step(self, request: SaslRequest) -> SaslStep:
        if self._left == TOKENS[self._mechanism]:
            self._named = named_user(self._mechanism, _token_of(request))
        self._left -= 1
        assert self._left >= 0, f"{self._mechanism} has {TOKENS[self._mechanism]} tokens"
        return SaslStep(self._named, self._mechanism, self._left == 0)

    def answered(self, step: SaslStep, version: int, response: bytes, body_at: int) -> bool:
        """Count what a response ends; True where a rule refuses the login that has succeeded at the broker."""
        if len(response) < body_at + _ERROR.size:
            raise WireError(f"a SaslAuthenticate response of {len(response)} bytes")
        code = _ERROR.unpack_from(response, body_at)[0]
        failed = code == int(ErrorCode.sasl_authentication_failed)
        by_bearer = step.mechanism == OAUTHBEARER
        is_last = not _challenge(version, response, body_at) if by_bearer and code == 0 else step.is_last
        if not failed and (code != int(ErrorCode.none) or not is_last):
            return False  # with another error the broker takes no token: of a client that is too early, or not asked
        self._left = 0
        expired = by_bearer and not failed and self._access.token_expired(step.user)
        refused = self._access.login(step.user, again=self._is_open, failed=failed or expired) or expired
        if not failed and not refused:
            self._is_open, self.user = True, step.user
        return refused

    def refused_body(self, step: SaslStep, version: int) -> bytes:
        """The body of the response to a login that a rule refuses, as Kafka gives it for a wrong password."""
        doing = "re-authentication" if self._is_open else "authentication"
        text = f"Authentication failed during {doing} due to invalid credentials with SASL mechanism {step.mechanism}"
        key = ApiKey.SASL_AUTHENTICATE
        entity = refusal(key, version, None, ErrorCode.sasl_authentication_failed, text)
        return messages.encode(messages.response_writer(key, version), entity)


def named_user(mechanism: str, token: bytes) -> str:
    """Who the first token of a login names; empty where it names none."""
    by_tokens: list[bool] = []

    def find(_name: str, by_token: bool) -> FoundCredential | None:
        by_tokens.append(by_token)
        return None

    if mechanism == OAUTHBEARER:
        return _subject_of(token)
    server = PlainServer({}) if mechanism == PLAIN else ScramServer(MECHANISMS[mechanism], find, "")
    with contextlib.suppress(SaslError):  # always: no user is known here
        server.evaluate(token)
    return "" if any(by_tokens) else server.user


def _subject_of(message: bytes) -> str:
    """Whom a bearer token names; empty for bytes that are none. Nothing of the token is checked here."""
    subjects: list[str] = []

    def read(token: str) -> Login:
        subjects.append(Claims.parse(token).text("sub"))
        raise TokenError("the broker decides")

    with contextlib.suppress(SaslError):
        OAuthBearerServer(read).evaluate(message)
    return "".join(subjects)


def _challenge(version: int, response: bytes, body_at: int) -> bytes:
    entity = messages.decode_response(ApiKey.SASL_AUTHENTICATE, version, response, body_at)
    return bytes(entity.auth_bytes)


def _mechanism_of(request: SaslRequest) -> str:
    if len(request.frame) > TOKEN_BYTES_MOST:
        return ""
    try:
        entity = messages.request_reader(request.api_key, request.version)(request.frame, request.body_at)[0]
    except WireError:
        return ""
    return str(entity.mechanism)


def _token_of(request: SaslRequest) -> bytes:
    """The token; empty for one that does not decode, or that is too large to be read here."""
    if len(request.frame) > TOKEN_BYTES_MOST:
        return b""
    try:
        entity = messages.request_reader(request.api_key, request.version)(request.frame, request.body_at)[0]
    except WireError:
        return b""
    return bytes(entity.auth_bytes)


def _no_token(version: int) -> bytes:
    key = ApiKey.SASL_AUTHENTICATE
    entity = messages.schema(key, version, "request").root(auth_bytes=b"")
    return messages.encode(messages.request_writer(key, version), entity)
