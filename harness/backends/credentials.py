"""The credentials of a cluster of processes on this machine: `CredentialControl`, and the rules that count who gets in.

Owns: `Credentials`; `credentials_of`, which is None for a cluster without security; `access_arms`, what the host of a
broker arms for logins, denied operations and handshakes, as far as the settings of the cluster have these.

Requests go to a PLAINTEXT listener, so that no fault of credentials keeps Harrow out: the first one for clients, else
the inter-broker listener. What may fail: ConfigError for a change that cannot have an effect.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from harrow.cluster.authorizer import USER_TYPE, Operation, ResourceType
from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import Address, Listener, SecurityProtocol, parse_listeners
from harrow.faults.controls import (
    RUNNING,
    AclRevocation,
    BegunChange,
    CertificateChange,
    CredentialChange,
    PasswordChange,
)
from harrow.faults.rule_kinds import DenialRule, HandshakeRule, LoginRule, Rule, TokenRule

from .knobs import Arm, Call, HostRule, armed

if TYPE_CHECKING:
    from harrow.cluster import Cluster
    from harrow.cluster.config import BrokerConfig

    from ..security.owner import SecurityOwner
    from .credential_changes import Site

SALT_BYTES = 16
OAUTHBEARER = "OAUTHBEARER"
EVENTS: Mapping[type[Rule], str] = {
    LoginRule: "login",
    TokenRule: "login",
    DenialRule: "denial",
    HandshakeRule: "handshake",
}
"""What the host calls the events that a rule counts."""


def access_arms(call: Call, config: BrokerConfig) -> dict[type[Rule], Arm]:
    """Return the rules of who gets in that a broker with these settings can arm."""
    listeners = parse_listeners(config)
    there = {
        LoginRule: any(row.has_sasl for row in listeners),
        TokenRule: bool(listeners_with(config, listeners, OAUTHBEARER)),
        DenialRule: bool(config.text("authorizer.class.name")),
        HandshakeRule: any(row.security_protocol.has_tls for row in listeners),
    }

    def arm(rule: Rule) -> HostRule:
        return armed(call, "access", event=EVENTS[type(rule)], **asdict(rule))

    return {kind: arm for kind, is_there in there.items() if is_there}


def credentials_of(cluster: Cluster, owner: SecurityOwner | None) -> Credentials | None:
    """Return the credentials of a cluster that has users, ACLs or certificates.

    `owner`: who made them; None: the secrets are those in the settings.
    """
    from ..security.owner import ConfiguredOwner

    config = cluster.config
    plain = all(row.security_protocol is SecurityProtocol.PLAINTEXT for row in parse_listeners(config))
    if plain and not config.text("authorizer.class.name"):
        return None
    return Credentials(cluster, ConfiguredOwner(config) if owner is None else owner)


class SecuredCluster(Protocol):
    """A cluster whose brokers have users, ACLs or certificates."""

    @property
    def config(self) -> BrokerConfig:
        """Settings of the brokers."""
        ...

    @property
    def brokers(self) -> Mapping[int, Any]:
        """The brokers by node id."""
        ...

    def control(self, node_id: int, op: str, **fields: object) -> dict[str, Any]:
        """One control operation of a broker, or of the proxy before it."""
        ...


@runtime_checkable
class Owned(Protocol):
    """A system whose users and certificates are those of an owner."""

    def owned_by(self, owner: SecurityOwner) -> None:
        """Let faults change what `owner` made."""
        ...


class Credentials:
    """Users, ACLs and certificates of one cluster."""

    def __init__(self, cluster: SecuredCluster, owner: SecurityOwner) -> None:
        self._cluster = cluster
        self.config = config = cluster.config
        self._owner = owner
        self.listeners = parse_listeners(config)
        has_tls = any(row.security_protocol.has_tls for row in self.listeners)
        there: dict[type[CredentialChange], bool] = {
            PasswordChange: bool(listeners_with(config, self.listeners, "SCRAM-SHA-256", "SCRAM-SHA-512", "PLAIN")),
            AclRevocation: bool(config.text("authorizer.class.name")),
            CertificateChange: has_tls and owner.authority is not None,
        }
        self.kinds = frozenset(kind for kind, is_there in there.items() if is_there)
        """The changes that can be made."""

    def check(self, change: CredentialChange) -> None:
        """ConfigError for an unknown user, and for an operation that no ACL can take from a user."""
        if isinstance(change, PasswordChange) and change.user not in self._owner.passwords():
            known = ", ".join(sorted(self._owner.passwords())) or "none"
            raise ConfigError(f"there is no user {change.user!r} with a password; known: {known}")
        if isinstance(change, AclRevocation):
            if change.operation not in Operation.__members__ or change.type not in ResourceType.__members__:
                raise ConfigError(f"{change.operation} on {change.type}: expected names of Kafka, such as WRITE, TOPIC")
            super_users = [name.strip() for name in self.config.text("super.users").split(";")]
            if f"{USER_TYPE}:{change.user}" in super_users:
                raise ConfigError(f"{change.user} is a super user (super.users): no ACL applies to it")

    def begin(self, change: CredentialChange) -> BegunChange:
        """Begin a change of one of `kinds`."""
        from .credential_changes import AclRevoked, CertificateChanged, PasswordChanged

        begun: AclRevoked | CertificateChanged | PasswordChanged
        match change:
            case PasswordChange():
                begun = PasswordChanged(self.site(), change, secrets.token_bytes(SALT_BYTES))
            case AclRevocation():
                begun = AclRevoked(self.site(), change)
            case CertificateChange():
                begun = CertificateChanged(self.site(), change)
            case _:
                raise ConfigError(f"{change} is unknown here")
        begun.begin()
        return begun

    def close_connections(self, node: int, user: str | None) -> int:
        """End connections at one broker."""
        return int(self._cluster.control(node, "connections.close", user=user)["closed"])

    def site(self) -> Site:
        """What a change needs of the cluster."""
        from .credential_changes import Site

        def credentials(node: int, user: str) -> Mapping[str, Any]:
            return self._cluster.control(node, "credentials", user=user)

        return Site(
            config=self.config,
            listeners=self.listeners,
            owner=self._owner,
            addresses=self.addresses,
            credentials=credentials,
        )

    def addresses(self) -> Mapping[int, Address]:
        """By node id: the PLAINTEXT listener of each broker that runs."""
        running = {node: broker for node, broker in self._cluster.brokers.items() if broker.state == RUNNING}
        return {node: _plain_address(tuple(broker.listeners.values())) for node, broker in running.items()}


def _plain_address(listeners: tuple[Listener, ...]) -> Address:
    plain = [row for row in listeners if row.security_protocol is SecurityProtocol.PLAINTEXT]
    if not plain:
        raise ConfigError("faults of credentials need a PLAINTEXT listener for Harrow's own clients, on loopback")
    found = min(plain, key=lambda row: row.inter_broker)
    return found.bind if found.advertised is None else found.advertised


def listeners_with(config: BrokerConfig, listeners: tuple[Listener, ...], *mechanisms: str) -> list[Listener]:
    """The listeners with SASL that serve one of the mechanisms."""
    return [
        row
        for row in listeners
        if row.has_sasl
        and not set(mechanisms).isdisjoint(str(config.of_listener(row.name, "sasl.enabled.mechanisms")).split(","))
    ]
