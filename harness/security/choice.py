"""`Security`: how a cluster asks its clients who they are, and what they may do (A5).

    none                     PLAINTEXT: every client may do everything
    ssl                      TLS; clients are anonymous
    mtls                     TLS; each client shows a certificate
    sasl_plaintext, sasl_ssl clients log in, without and with TLS; `sasl_ssl:PLAIN` names the mechanism

Owns: the protocols and mechanisms by name, and what can be combined. The plugin imports this when pytest starts, so
modules of the cluster are imported only where something is refused or chosen.
What may fail: ConfigError, which names the valid values.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Sequence
from dataclasses import dataclass

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
        raise _refusal(f"user {user!r}: expected 1 to 64 of a-z, A-Z, 0-9, . _ -")
    return user


def _refusal(text: str) -> Exception:
    from harrow.cluster.errors import ConfigError

    return ConfigError(text)


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
    users: Sequence[str] = ()
    acls: bool = False
    reauthenticate_after: float = 0.0

    def __post_init__(self) -> None:
        if (self.protocol, self.users, self.acls, self.reauthenticate_after) == (NONE, (), False, 0.0):
            return
        from harrow.cluster.argument_types import check_fields

        check_fields(self, "Security")
        object.__setattr__(self, "users", tuple(map(check_user, self.users)))
        kind, colon, mechanism = self.protocol.partition(":")
        has_sasl = kind in (SASL_PLAINTEXT, SASL_SSL)
        if kind not in PROTOCOLS:
            near = difflib.get_close_matches(kind, PROTOCOLS, n=1, cutoff=0.5)
            hint = f"; did you mean {near[0]}?" if near else ""
            raise self._refused(f"expected {', '.join(PROTOCOLS[:-1])} or {PROTOCOLS[-1]}{hint}")
        if colon and not has_sasl:
            raise self._refused("only sasl_plaintext and sasl_ssl have a mechanism")
        if colon and mechanism not in MECHANISMS:
            raise self._refused(f"expected one of the mechanisms {', '.join(MECHANISMS)}")
        if has_sasl and not colon:
            object.__setattr__(self, "protocol", f"{kind}:{DEFAULT_MECHANISM}")
        if (self.acls or self.users) and not self.has_users:
            raise self._refused("all clients are anonymous, without users and acls; choose mtls or SASL")
        if self.reauthenticate_after < 0 or (self.reauthenticate_after and not has_sasl):
            raise self._refused(f"reauthenticate_after={self.reauthenticate_after}: expected 0 or more, and SASL")

    def _refused(self, text: str) -> Exception:
        return _refusal(f"security={self.protocol!r}: {text}")

    def __str__(self) -> str:
        """The protocol with its mechanism, as the option has it."""
        return self.protocol

    @property
    def kind(self) -> str:
        """The protocol without its mechanism."""
        return self.protocol.partition(":")[0]

    @property
    def mechanism(self) -> str:
        """The mechanism of SASL; empty without SASL."""
        return self.protocol.partition(":")[2]

    @property
    def words(self) -> str:
        """The security as a report says it."""
        more = ["ACLs"] if self.acls else []
        more += [f"sessions of {self.reauthenticate_after:g} s"] if self.reauthenticate_after else []
        return f"{self} with {' and '.join(more)}" if more else str(self)

    @property
    def kafka_protocol(self) -> str:
        """Kafka's name of the protocol."""
        return KAFKA_PROTOCOLS[self.kind]

    @property
    def has_tls(self) -> bool:
        """Whether the bytes of a connection are TLS."""
        return self.kind in (SSL, MTLS, SASL_SSL)

    @property
    def has_users(self) -> bool:
        """Whether clients say who they are."""
        return self.kind not in (NONE, SSL)

    @classmethod
    def of(cls, value: Security | str) -> Security:
        """Return a `Security` for itself, or for the text of the option; ConfigError."""
        return value if isinstance(value, Security) else cls(value)


INSECURE = Security()
