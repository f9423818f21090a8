"""The settings of SASL and of delegation tokens (see `table.py`; A5).

Owns: `SASL_SETTINGS`, and `MECHANISM_SETTINGS`, those that a mechanism of a listener may have for itself, as
`listener.name.clients.scram-sha-256.sasl.jaas.config`.

Source: Apache Kafka's documentation of broker configurations.
"""

from __future__ import annotations

from collections.abc import Iterator

from .setting import Change, Setting, int_setting, long_setting

SERVED_MECHANISMS = ("OAUTHBEARER", "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
_MECHANISMS = ("GSSAPI", *SERVED_MECHANISMS)
JWKS_VALIDATOR = "org.apache.kafka.common.security.oauthbearer.OAuthBearerValidatorCallbackHandler"


def _exchange() -> Iterator[Setting]:
    yield Setting(
        name="sasl.enabled.mechanisms",
        default="GSSAPI",
        doc=f"mechanisms of the listeners with SASL; served: {', '.join(SERVED_MECHANISMS)}",
        kind="list",
        choices=_MECHANISMS,
        change=Change.BROKER,
    )
    yield Setting(
        name="sasl.jaas.config",
        default="",
        doc="the login module of a mechanism of a listener: `listener.name.NAME.MECHANISM.sasl.jaas.config`",
        kind="password",
        unset=True,
        change=Change.BROKER,
    )
    yield Setting(
        name="sasl.mechanism.inter.broker.protocol",
        default="GSSAPI",
        doc="the mechanism by which brokers log in to brokers",
        choices=_MECHANISMS,
        change=Change.BROKER,
    )
    yield int_setting("sasl.server.max.receive.size", 524_288, "largest token or request before a client has logged in")
    yield int_setting("connection.failed.authentication.delay.ms", 100, "how long a failed login waits for its end")
    yield long_setting(
        "connections.max.reauth.ms", 0, "a client with SASL logs in again within this time (KIP-368); 0: never", low=0
    )
    yield Setting(
        name="sasl.server.callback.handler.class",
        default="",
        doc="what checks tokens of OAUTHBEARER; '': Kafka's unsecured tokens, for tests",
        kind="class",
        choices=("", JWKS_VALIDATOR),
        unset=True,
    )


def _tokens_of_oauth() -> Iterator[Setting]:
    for name, default, kind, doc in (
        ("jwks.endpoint.url", "", "", "where the keys of the issuer of tokens are, as http:, https: or file:"),
        ("expected.audience", "", "list", "audiences of which a signed token names one"),
        ("expected.issuer", "", "", "the issuer that a signed token names"),
        ("sub.claim.name", "sub", "", "the claim of a token with the name of the user"),
        ("scope.claim.name", "scope", "", "the claim of a signed token with its scopes; each is there once"),
    ):
        yield Setting(
            name=f"sasl.oauthbearer.{name}", default=default, doc=doc, kind=kind, unset=not default and not kind
        )
    for claim in ("audience", "issuer"):
        yield Setting(
            name=f"sasl.oauthbearer.allow.unverified.{claim}",
            default=False,
            doc=f"whether signed tokens of any {claim} are accepted where none is expected",
        )
    yield int_setting("sasl.oauthbearer.clock.skew.seconds", 30, "how far the clock of the issuer may be off")
    yield long_setting("sasl.oauthbearer.jwks.endpoint.refresh.ms", 3_600_000, "how long keys are kept")
    yield long_setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", 100, "first pause before keys are read again")
    yield long_setting("sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms", 10_000, "longest such pause")


def _delegation_tokens() -> Iterator[Setting]:
    yield Setting(
        name="delegation.token.secret.key",
        default="",
        doc="the key that signs delegation tokens, the same on all brokers; '': there are no tokens",
        kind="password",
        unset=True,
    )
    for name, default, doc in (
        ("max.lifetime.ms", 604_800_000, "how long a delegation token may be renewed"),
        ("expiry.time.ms", 86_400_000, "how long a delegation token is valid without a renewal"),
        ("expiry.check.interval.ms", 3_600_000, "how often expired delegation tokens are removed"),
    ):
        yield long_setting(f"delegation.token.{name}", default, doc, low=1)


USERS_AT_START = Setting(
    name="harrow.scram.users",
    default="",
    doc="SCRAM users of a new cluster, as `SCRAM-SHA-256=[name=alice,password=…];…` (kafka-storage --add-scram)",
    kind="password",
)

SASL_SETTINGS: tuple[Setting, ...] = (*_exchange(), *_tokens_of_oauth(), USERS_AT_START)
TOKEN_SETTINGS: tuple[Setting, ...] = tuple(_delegation_tokens())
MECHANISM_SETTINGS = frozenset(
    {"sasl.jaas.config", "connections.max.reauth.ms", "sasl.server.callback.handler.class"}
    | {row.name for row in SASL_SETTINGS if row.name.startswith("sasl.oauthbearer.")}
)
