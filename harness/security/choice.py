"""`Security`: how a cluster asks its clients who they are, and what they may do (A5).

    none                     PLAINTEXT: every client may do everything
    ssl                      TLS; clients are anonymous
    mtls                     TLS; each client shows a certificate
    sasl_plaintext, sasl_ssl clients log in, without and with TLS; `sasl_ssl:PLAIN` names the mechanism

Owns: the protocols and mechanisms by name, and what can be combined. The plugin imports this when pytest starts.
What may fail: ConfigError, which names the valid values.
"""

from __future__ import annotations

import difflib
import re
from dataclasses import dataclass

from harrow.cluster.errors import ConfigError

__all__ = ["APP", "INSECURE", "PROTOCOLS", "Security", "check_user"]

NONE, SSL, MTLS, SASL_PLAINTEXT, SASL_SSL = PROTOCOLS = ("none", "ssl", "mtls", "sasl_plaintext", "sasl_ssl")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
DEFAULT_MECHANISM = "SCRAM-SHA-512"
KAFKA_PROTOCOLS = {NONE: "PLAINTEXT", SSL: "SSL", MTLS: "SSL", SASL_PLAINTEXT: "SASL_PLAINTEXT", SASL_SSL: "SASL_SSL"}
APP = "app"
"""The user of the recording clients and of programs, where a test names no other."""
_USER = re.compile(r"[A-Za-z0-9._-]{1,64}")


def check_user(user: object) -> str:
    """Return the name of a user; ConfigError for one that cannot be used."""
    if not isinstance(user, str) or not _USER.fullmatch(user):
        raise ConfigError(f"user {user!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -")
    return user


@dataclass(frozen=True, slots=True)
class Security:
    """The security of a cluster's listener for clients.

    `protocol`: `none`, `ssl`, `mtls`, `sasl_plaintext` or `sasl_ssl`; for SASL with a mechanism after a colon, as
    `sasl_ssl:PLAIN` (PLAIN, SCRAM-SHA-256, SCRAM-SHA-512, which is the default, or OAUTHBEARER).
    `users`: who exists from the start, beside `app`; others are made when `Harrow.client_config` first names them.
    `acls`: clients may do what `Harrow.allow` says, and nothing else.
    `reauthenticate_after`: seconds after which clients with SASL must have logged in again (KIP-368); 0: never.
    """

    protocol: str = NONE
    users: tuple[str, ...] = ()
    acls: bool = False
    reauthenticate_after: float = 0.0
    mechanism: str = ""
    """Of SASL; empty without SASL."""

    def __post_init__(self) -> None:
        text: object = self.protocol
        protocol, colon, mechanism = text.partition(":") if isinstance(text, str) else ("", "", "")
        if protocol not in PROTOCOLS:
            near = difflib.get_close_matches(protocol, PROTOCOLS, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise ConfigError(f"security={text!r}: expected {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}{hint}")
        has_sasl = protocol.startswith("sasl")
        chosen = mechanism or self.mechanism or (DEFAULT_MECHANISM if has_sasl else "")
        if (colon or chosen) and not has_sasl:
            raise ConfigError(f"security={text!r}: only sasl_plaintext and sasl_ssl have a mechanism")
        if has_sasl and (chosen not in MECHANISMS or (colon and not mechanism)):
            raise ConfigError(f"security={text!r}: expected one of the mechanisms {', '.join(MECHANISMS)}")
        users: object = self.users
        if isinstance(users, str) or not isinstance(users, tuple | list):
            raise ConfigError(f"users={users!r}: expected names, as users=('alice', 'bob')")
        values = {"protocol": protocol, "mechanism": chosen, "users": tuple(map(check_user, self.users))}
        for name, value in values.items():
            object.__setattr__(self, name, value)
        if self.acls and protocol in (NONE, SSL):
            raise ConfigError(f"security={protocol}, acls=True: all clients are anonymous; choose mtls or SASL")
        if self.users and protocol in (NONE, SSL):
            raise ConfigError(
                f"security={protocol}, users={self.users}: all clients are anonymous; choose mtls or SASL"
            )
        if self.reauthenticate_after < 0 or (self.reauthenticate_after and not has_sasl):
            raise ConfigError(
                f"reauthenticate_after={self.reauthenticate_after}: expected seconds, 0 or more, and SASL"
            )

    def __str__(self) -> str:
        """The protocol with its mechanism, as the option has it."""
        return f"{self.protocol}:{self.mechanism}" if self.mechanism else self.protocol

    @property
    def words(self) -> str:
        """The security as a report says it."""
        more = ["ACLs"] if self.acls else []
        more += [f"sessions of {self.reauthenticate_after:g} s"] if self.reauthenticate_after else []
        return f"{self} with {' and '.join(more)}" if more else str(self)

    @property
    def kafka_protocol(self) -> str:
        """Kafka's name of the protocol."""
        return KAFKA_PROTOCOLS[self.protocol]

    @property
    def has_tls(self) -> bool:
        """Whether the bytes of a connection are TLS."""
        return self.protocol in (SSL, MTLS, SASL_SSL)

    @property
    def has_users(self) -> bool:
        """Whether clients say who they are."""
        return self.protocol not in (NONE, SSL)

    @classmethod
    def of(cls, value: object) -> Security:
        """Return a `Security` for itself, or for the text of the option; ConfigError."""
        return value if isinstance(value, Security) else cls(value)  # type: ignore[arg-type]


INSECURE = Security()
