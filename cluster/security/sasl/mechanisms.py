"""The mechanisms of a listener, by its settings.

Owns: `ListenerMechanisms`, which begins an exchange as the server; `peer_login`, by which a broker begins one as the
client of another broker, and `password_login`; `Credentials`, where SCRAM finds users and delegation tokens.

Settings are read when an exchange begins, so that those which a running broker changes take effect for new connections.
May fail: ConfigError at the start of a broker, for a mechanism that is not served or has no login module.

Source: Kafka's SaslChannelBuilder, JaasContext.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Protocol

from ...config import BrokerConfig
from ...config.sasl_table import SERVED_MECHANISMS
from ...errors import ConfigError
from ...internal_topics import java_hash
from ...listeners import Listener
from .exchange import Login, SaslClient, SaslServer
from .jaas import JaasEntry, parse_jaas
from .jwt import MS_PER_S, RsaKey, SignedTokens, TokenError, UnsecuredTokens, unsecured_token
from .oauthbearer import OAuthBearerClient, OAuthBearerServer
from .plain import PlainClient, PlainServer
from .scram import MECHANISMS, FoundCredential, ScramClient, ScramMechanism, ScramServer, nonce_of

__all__ = [
    "OAUTHBEARER",
    "Credentials",
    "ListenerMechanisms",
    "NoCredentials",
    "PeerLogin",
    "password_login",
    "peer_login",
]

AUDIENCE, ISSUER = "sasl.oauthbearer.expected.audience", "sasl.oauthbearer.expected.issuer"
CLAIMS = (
    ("audience", AUDIENCE, "sasl.oauthbearer.allow.unverified.audience"),
    ("issuer", ISSUER, "sasl.oauthbearer.allow.unverified.issuer"),
)
"""A claim of a signed token, the setting with its values, and the one that leaves it unchecked."""

PLAIN, OAUTHBEARER = "PLAIN", "OAUTHBEARER"
_JAAS = "sasl.jaas.config"
_SECURITY = "org.apache.kafka.common.security"
_MODULES = {
    PLAIN: f"{_SECURITY}.plain.PlainLoginModule",
    OAUTHBEARER: f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
    **dict.fromkeys(MECHANISMS, f"{_SECURITY}.scram.ScramLoginModule"),
}
TOKEN_LIFETIME_S = 3600
"""How long an unsecured token of a broker is valid (Kafka's `unsecuredLoginLifetimeSeconds`)."""


class Credentials(Protocol):
    """Users with SCRAM credentials, and delegation tokens."""

    def scram(self, mechanism: ScramMechanism, name: str, by_token: bool, /) -> FoundCredential | None:
        """The credential of a user, or of a token by its id; None for an unknown name."""
        ...


class NoCredentials:
    """No user has credentials."""

    def scram(self, mechanism: ScramMechanism, name: str, by_token: bool) -> FoundCredential | None:
        """None."""
        del mechanism, name, by_token
        return None


def _no_key(_key_id: str) -> None:
    return None


def _never(_user: str) -> bool:
    return False


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerMechanisms:
    """Begins exchanges on one listener."""

    config: BrokerConfig
    listener: Listener
    credentials: Credentials
    random: Random
    now_ms: Callable[[], int]
    key: Callable[[str], RsaKey | None] = _no_key
    """Finds a key of the issuer of signed tokens."""
    token_expired: Callable[[str], bool] = _never
    """Whether a valid token of a user counts as expired."""

    def enabled(self) -> tuple[str, ...]:
        """The mechanisms that clients may use, in the order of Kafka's map."""
        return tuple(sorted(self._text("sasl.enabled.mechanisms").split(","), key=_bucket))

    def check(self) -> None:
        """ConfigError where an exchange of an enabled mechanism could not begin."""
        for mechanism in self.enabled():
            if mechanism not in SERVED_MECHANISMS:
                raise ConfigError(
                    f"sasl.enabled.mechanisms={','.join(self.enabled())} of listener {self.listener.name}: {mechanism} "
                    f"is not served here; use {', '.join(SERVED_MECHANISMS)}"
                )
            entry = jaas_entry(self.config, self.listener, mechanism)
            if mechanism == OAUTHBEARER:
                self._check_oauth(entry)

    def _check_oauth(self, entry: JaasEntry) -> None:
        skew = entry.options.get("unsecuredValidatorAllowableClockSkewMs", "0")
        if not skew.strip().isdecimal():
            raise ConfigError(f"unsecuredValidatorAllowableClockSkewMs={skew}: expected milliseconds")
        if self.has_signed_tokens and not self.keys_url:
            raise ConfigError(
                f"listener {self.listener.name} checks signed tokens: set sasl.oauthbearer.jwks.endpoint.url"
            )
        for claim, name, unchecked in CLAIMS if self.has_signed_tokens else ():
            is_unchecked = self.config.of_listener(self.listener.name, unchecked, OAUTHBEARER)
            if not self._text(name, OAUTHBEARER) and not is_unchecked:
                raise ConfigError(
                    f"listener {self.listener.name} checks signed tokens: set {name} to the {claim} that they name, or "
                    f"{unchecked}=true to accept those of any {claim}"
                )

    @property
    def has_signed_tokens(self) -> bool:
        """True when the tokens of OAUTHBEARER are signed."""
        return bool(self._text("sasl.server.callback.handler.class", OAUTHBEARER))

    @property
    def keys_url(self) -> str:
        """Where the keys of the issuer of signed tokens are."""
        return self._text("sasl.oauthbearer.jwks.endpoint.url", OAUTHBEARER)

    def time_ms(self, name: str) -> int:
        """A setting of OAUTHBEARER that is a time."""
        return int(self.config.of_listener(self.listener.name, name, OAUTHBEARER))

    def session_ms(self, mechanism: str) -> int:
        """How long a session may last; 0 without a bound."""
        return int(self.config.of_listener(self.listener.name, "connections.max.reauth.ms", mechanism))

    def server(self, mechanism: str) -> SaslServer:
        """Begin an exchange of an enabled mechanism."""
        if mechanism in MECHANISMS:
            found = MECHANISMS[mechanism]
            return ScramServer(found, partial(self.credentials.scram, found), nonce_of(self.random))
        entry = jaas_entry(self.config, self.listener, mechanism)
        if mechanism == PLAIN:
            return PlainServer(entry.users())
        if self.has_signed_tokens:
            check = self._signed_tokens().check
        else:
            check = UnsecuredTokens(now_ms=self.now_ms, options=entry.options).check
        return OAuthBearerServer(lambda token: self._unexpired(check(token)))

    def _unexpired(self, login: Login) -> Login:
        if self.token_expired(login.user):
            raise TokenError("the token is expired")
        return login

    def plain_users(self) -> Mapping[str, str]:
        """The passwords of PLAIN by user; none where the mechanism is not enabled."""
        return jaas_entry(self.config, self.listener, PLAIN).users() if PLAIN in self.enabled() else {}

    def _signed_tokens(self) -> SignedTokens:
        audiences = self._text(AUDIENCE, OAUTHBEARER)
        skew_s = int(self.config.of_listener(self.listener.name, "sasl.oauthbearer.clock.skew.seconds", OAUTHBEARER))
        return SignedTokens(
            now_ms=self.now_ms,
            key=self.key,
            audiences=tuple(filter(None, audiences.split(","))),
            issuer=self._text(ISSUER, OAUTHBEARER),
            skew_ms=skew_s * MS_PER_S,
            user_claim=self._text("sasl.oauthbearer.sub.claim.name", OAUTHBEARER),
            scope_claim=self._text("sasl.oauthbearer.scope.claim.name", OAUTHBEARER),
        )

    def _text(self, name: str, mechanism: str = "") -> str:
        return str(self.config.of_listener(self.listener.name, name, mechanism))


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerLogin:
    """How a broker logs in to the other brokers, or a client of Harrow's to a broker."""

    mechanism: str
    user: str
    """The name that the other side knows it by."""
    client: Callable[[], SaslClient]
    """Begins an exchange."""


def _bucket(name: str) -> int:
    """The place of a key in a small map of Java."""
    hashed = java_hash(name) & 0xFFFFFFFF
    return (hashed ^ hashed >> 16) & 15


def peer_login(config: BrokerConfig, listener: Listener, random: Random, now_ms: Callable[[], int]) -> PeerLogin:
    """How a broker logs in on the inter-broker listener; ConfigError."""
    mechanism = config.text("sasl.mechanism.inter.broker.protocol")
    if mechanism not in SERVED_MECHANISMS:
        raise ConfigError(
            f"sasl.mechanism.inter.broker.protocol={mechanism}: not served here; use {', '.join(SERVED_MECHANISMS)}"
        )
    options = jaas_entry(config, listener, mechanism).options
    user, password = options.get("username", ""), options.get("password", "")
    if mechanism == OAUTHBEARER:
        user = options.get("unsecuredLoginStringClaim_sub", "")
    if not user:
        needed = "unsecuredLoginStringClaim_sub" if mechanism == OAUTHBEARER else "username and password"
        raise ConfigError(f"{_JAAS} of {mechanism} on listener {listener.name} needs {needed}: brokers log in by it")

    if mechanism != OAUTHBEARER:
        return password_login(mechanism, user, password, random)

    def client() -> SaslClient:
        now_s = now_ms() / MS_PER_S
        return OAuthBearerClient(unsecured_token({"sub": user, "iat": now_s, "exp": now_s + TOKEN_LIFETIME_S}))

    return PeerLogin(mechanism=mechanism, user=user, client=client)


def password_login(mechanism: str, user: str, password: str, random: Random) -> PeerLogin:
    """How a user logs in by PLAIN or SCRAM; nonces are drawn from `random`."""

    def client() -> SaslClient:
        if mechanism in MECHANISMS:
            return ScramClient(MECHANISMS[mechanism], user, password, nonce_of(random))
        return PlainClient(user, password)

    return PeerLogin(mechanism=mechanism, user=user, client=client)


def jaas_entry(config: BrokerConfig, listener: Listener, mechanism: str) -> JaasEntry:
    """The login module of a mechanism on a listener; ConfigError."""
    setting = f"listener.name.{listener.name.lower()}.{mechanism.lower()}.{_JAAS}"
    text = str(config.of_listener(listener.name, _JAAS, mechanism))
    module = _MODULES[mechanism]
    if not text:
        raise ConfigError(f"listener {listener.name} serves {mechanism}: set {setting} to `{module} required …;`")
    entry = parse_jaas(setting, text)
    if entry.module != module:
        raise ConfigError(f"{setting}: {mechanism} needs the login module {module}, not {entry.module}")
    return entry
