"""The keys of the issuer of signed tokens, read from its JWKS document (RFC 7517).

Owns: `IssuerKeys`. A document is read before the first login, again when it is `refresh_ms` old, and when a token names
a key that is not in it; after a failure not before a pause, which doubles. Until then the keys of before are used.

May fail: nothing that a client does not see as a refused token; failures are logged.
Source: Kafka's RefreshingHttpsJwks.
"""

from __future__ import annotations

from functools import partial

from ..host.seam import Host
from ..security.sasl.jwt import RsaKey, keys_of_jwks

__all__ = ["IssuerKeys"]

DOCUMENT_BYTES_MOST = 1_048_576
TIMEOUT_S = 10
REFRESH, BACKOFF, BACKOFF_MOST = (
    "sasl.oauthbearer.jwks.endpoint.refresh.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.ms",
    "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms",
)
"""The settings that are times of this room."""


class IssuerKeys:
    """The keys at `url`; `times_ms`: the settings REFRESH, BACKOFF and BACKOFF_MOST."""

    def __init__(self, host: Host, url: str, times_ms: tuple[int, int, int]) -> None:
        self._host = host
        self._url = url
        self._refresh_ms, self._backoff_ms, self._backoff_ms_most = times_ms
        self._keys: dict[str, RsaKey] = {}
        self._due_ms = 0  # when the document is read again
        self._wanted_ms = 0  # when it may be read for a key that it lacks
        self._failures = 0
        self._is_missing = False

    def key(self, key_id: str) -> RsaKey | None:
        """The key that a token names; None for one that the document lacks."""
        found = self._keys.get(key_id)
        self._is_missing = self._is_missing or found is None
        return found

    async def ready(self) -> None:
        """Read the document where it is due."""
        now_ms = self._host.clock.monotonic_ms()
        if now_ms >= self._due_ms or (self._is_missing and now_ms >= self._wanted_ms):
            # several clients at once read it once
            self._due_ms = self._wanted_ms = now_ms + self._pause_ms()
            await self._read()

    def _pause_ms(self) -> int:
        return min(self._backoff_ms_most, self._backoff_ms << min(self._failures, 30))

    async def _read(self) -> None:
        try:
            text = await self._host.tasks.run_blocking(partial(_document, self._url))
            keys = keys_of_jwks(text)
        except (OSError, ValueError) as error:
            self._failures += 1
            self._host.trace.log("warning", f"the keys at {self._url} cannot be read: {error}")
            return
        self._keys, self._failures, self._is_missing = keys, 0, False
        self._due_ms = self._host.clock.monotonic_ms() + self._refresh_ms


def _document(url: str) -> str:
    import urllib.request  # 20 ms, which only a broker with signed tokens needs

    with urllib.request.urlopen(url, timeout=TIMEOUT_S) as page:  # noqa: S310 - the operator's setting
        return str(page.read(DOCUMENT_BYTES_MOST).decode())
