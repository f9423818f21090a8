"""Who made the users and the certificates of a cluster, as faults of credentials ask.

Owns: `SecurityOwner`, and `ConfiguredOwner`, which reads the passwords of a cluster that was configured by hand: from
`harrow.scram.users` and from the JAAS entries of PLAIN. It has no authority, so no certificate can be made.
What may fail: ConfigError for settings that the brokers refuse too.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Protocol

from harrow.cluster.config import BrokerConfig
from harrow.cluster.listeners import parse_listeners

if TYPE_CHECKING:
    from harrow.cluster.security.sasl.jaas import JaasEntry

    from .certificates import CertificateAuthority

__all__ = ["ConfiguredOwner", "SecurityOwner", "plain_entry"]

JAAS = "sasl.jaas.config"
PLAIN = "PLAIN"
USER = "user_"
"""Before the name of a user in a JAAS entry."""


class SecurityOwner(Protocol):
    """Knows the secrets of a cluster."""

    @property
    def authority(self) -> CertificateAuthority | None:
        """Who signs the certificates that clients trust; None where none can be made."""
        ...

    def passwords(self) -> Mapping[str, str]:
        """The password of each user."""
        ...


class ConfiguredOwner:
    """The secrets in the settings of a cluster."""

    authority = None
    """Nothing knows the key of the authority."""

    def __init__(self, config: BrokerConfig) -> None:
        self._config = config

    def passwords(self) -> Mapping[str, str]:
        """The password of each user of SCRAM and PLAIN."""
        from harrow.cluster.credentials.users import parse_users

        found = {row.name: row.password for row in parse_users(self._config.text("harrow.scram.users"))}
        for listener in parse_listeners(self._config):
            if listener.has_sasl:
                found |= plain_entry(self._config, listener.name).users()
        return found


def plain_entry(config: BrokerConfig, listener: str) -> JaasEntry:
    """The JAAS entry of PLAIN in the settings of a listener; without a module where there is none."""
    from harrow.cluster.security.sasl.jaas import JaasEntry, parse_jaas

    text = str(config.of_listener(listener, JAAS, PLAIN))
    enabled = str(config.of_listener(listener, "sasl.enabled.mechanisms")).split(",")
    return parse_jaas(JAAS, text) if text and PLAIN in enabled else JaasEntry("", {})
