"""The client side of SASL on a connection to a broker.

Owns: `log_in`, the exchange before the first request, and `again_ms`, when to log in again before a session ends
(KIP-368). What may fail: `LoginError` where one of the two refuses, and what a request to it may raise.

Source: Kafka's SaslClientAuthenticator.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

from ..errors import ErrorCode, HarrowError
from ..security.sasl.exchange import SaslError
from ..security.sasl.mechanisms import PeerLogin
from ..wire import messages
from ..wire.api_keys import ApiKey

__all__ = ["LoginError", "again_ms", "log_in"]

HANDSHAKE_VERSION, AUTHENTICATE_VERSION = 1, 2
AGAIN_AT, AGAIN_SPREAD = 0.85, 0.10
"""The part of a session after which a client logs in again: 0.85 to 0.95, drawn, as in Kafka."""

Ask = Callable[[int, int, Any], Awaitable[Any]]
"""`ask(api key, version, entity)`: the response entity."""


class LoginError(HarrowError, ConnectionError):
    """A login has failed: there is no connection for requests, as where no process listens."""


async def log_in(ask: Ask, login: PeerLogin) -> int:
    """Log in; return how long the session lasts in ms, 0 without a bound. LoginError."""
    s = messages.schema(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, "request")
    shaken = await ask(ApiKey.SASL_HANDSHAKE, HANDSHAKE_VERSION, s.SaslHandshakeRequest(mechanism=login.mechanism))
    if shaken.error_code is not ErrorCode.none:
        raise LoginError(
            f"{login.mechanism} is refused ({shaken.error_code.name}); it is served: {', '.join(shaken.mechanisms)}"
        )
    try:
        return await _exchange(ask, login)
    except SaslError as error:
        raise LoginError(f"{login.mechanism} with the broker: {error}") from error


async def _exchange(ask: Ask, login: PeerLogin) -> int:
    client = login.client()
    s = messages.schema(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, "request")
    token = client.evaluate(b"")
    while True:
        entity = s.SaslAuthenticateRequest(auth_bytes=token)
        answer = await ask(ApiKey.SASL_AUTHENTICATE, AUTHENTICATE_VERSION, entity)
        if answer.error_code is not ErrorCode.none:
            raise LoginError(f"{login.user} is refused by {login.mechanism}: {answer.error_message}")
        lifetime_ms = messages.to_milliseconds(answer.session_lifetime)
        if client.complete:
            return lifetime_ms
        token = client.evaluate(answer.auth_bytes)
        if client.complete:
            return lifetime_ms


def again_ms(lifetime_ms: int, random: Random) -> int:
    """When to log in again, after the login."""
    return int(lifetime_ms * (AGAIN_AT + random.random() * AGAIN_SPREAD))
