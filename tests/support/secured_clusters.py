"""Clusters with users, ACLs and certificates: their settings, and the settings of a client that is a user of theirs.

The first listener is PLAINTEXT and Harrow's own; the application uses the listener APP.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harrow import Harrow
from harrow.harness.backends.clusters import OwnCluster
from harrow.harness.backends.local import LocalSystem
from harrow.harness.security.certificates import CertificateAuthority

USERS = {"alice": "secret", "bob": 'a "quoted" \\ password'}
LISTENERS = "HARROW://127.0.0.1:0,APP://127.0.0.1:0,BROKERS://127.0.0.1:0"
NO_SETTINGS: Mapping[str, object] = {}
MODULES = "org.apache.kafka.common.security"


def sasl_config() -> dict[str, object]:
    """Settings of a cluster whose users log in by SCRAM (alice), PLAIN or OAUTHBEARER."""
    prefix = "listener.name.app"
    plain = " ".join(f'user_{name}="{_quoted(password)}"' for name, password in USERS.items())
    scram = f"SCRAM-SHA-512=[name=alice,password={USERS['alice']}]"
    return {
        "listeners": LISTENERS,
        "listener.security.protocol.map": "HARROW:PLAINTEXT,APP:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
        "inter.broker.listener.name": "BROKERS",
        "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN,OAUTHBEARER",
        f"{prefix}.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required {plain};",
        f"{prefix}.scram-sha-512.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{MODULES}.oauthbearer.OAuthBearerLoginModule required;",
        "harrow.scram.users": scram,
    }


def with_acls(more: Mapping[str, object] = NO_SETTINGS) -> dict[str, object]:
    """The same with an authorizer, for which Harrow's own clients and bob are super users."""
    return sasl_config() | {
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:ANONYMOUS;User:bob",
        **more,
    }


def _quoted(password: str) -> str:
    return password.replace("\\", "\\\\").replace('"', '\\"')


def servers_of(harrow: Harrow) -> str:
    """The bootstrap servers of the application."""
    brokers: Any = harrow.cluster.brokers
    return ",".join(str(broker.listeners["APP"].advertised) for broker in brokers.values())


def client_config(harrow: Harrow, user: str = "alice", mechanism: str = "SCRAM-SHA-512") -> dict[str, Any]:
    """Settings of librdkafka for a user, on a listener without TLS."""
    return {
        "bootstrap.servers": servers_of(harrow),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "sasl.username": user,
        "sasl.password": USERS[user],
        "log_level": 0,
    }


@dataclass
class TestOwner:
    """An authority and users for a cluster with certificates."""

    __test__ = False
    authority: CertificateAuthority = field(default_factory=CertificateAuthority)

    def passwords(self) -> Mapping[str, str]:
        return USERS


class SecuredCluster(OwnCluster):
    """New clusters whose listener APP has TLS, with certificates in `folder`."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.owner = TestOwner()
        self.folder = folder
        (folder / "ca.pem").write_text(self.owner.authority.certificate)
        (folder / "server.pem").write_text(self.owner.authority.issue("broker").pem)

    def config(self) -> dict[str, object]:
        """Settings of such a cluster."""
        return {
            "listeners": LISTENERS,
            "listener.security.protocol.map": "HARROW:PLAINTEXT,APP:SSL,BROKERS:PLAINTEXT",
            "inter.broker.listener.name": "BROKERS",
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(self.folder / "server.pem"),
        }

    def client_config(self, harrow: Harrow) -> dict[str, Any]:
        """Settings of librdkafka."""
        return {
            "bootstrap.servers": servers_of(harrow),
            "security.protocol": "SSL",
            "ssl.ca.location": str(self.folder / "ca.pem"),
            "log_level": 0,
        }

    def system(self, cluster: Any) -> LocalSystem:
        """The processes, with who made the certificates."""
        system = LocalSystem(cluster)
        system.owned_by(self.owner)
        return system
