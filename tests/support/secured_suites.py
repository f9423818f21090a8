"""The listeners and certificates of clients' tests that need TLS, SASL and ACLs (tests/client_suites.py).

One broker has a listener of each protocol, on the ports after the given one, with the mechanisms PLAIN, SCRAM-SHA-256
and SCRAM-SHA-512, and decides by ACLs: what no ACL is about is allowed, and `admin` may do everything. Apache Kafka and
Harrow get the same settings; Kafka's controller needs a listener of its own, where brokers are `admin`. The copy of
a checkout gets `suite_overlay.py`, which gives its fixtures addresses, users and certificates in place of containers.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from harrow.harness.security.certificates import CertificateAuthority

ADMIN, ADMIN_PASSWORD = "admin", "admin"
PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
OVERLAY = tuple(Path(__file__).with_name(name) for name in ("suite_overlay.py", "waiting.py"))
BROKERS_LISTENER = "SASL_PLAINTEXT"
CONTROLLER_DISTANCE = 10_000
"""The tool that starts Apache Kafka has its controller so many ports below the first listener."""
STORE_PASSWORD = "abcdefgh"
_MODULES = "org.apache.kafka.common.security"


@dataclass(frozen=True, slots=True, kw_only=True)
class SecuredListeners:
    """What the fixtures of one client configure."""

    users: Mapping[str, str]
    """Users of PLAIN and their passwords, beside `admin`."""
    client_auth: str
    """`ssl.client.auth` of the SSL listener."""
    overlay: tuple[str, str]
    """A file of the checkout, and the lines that are added to it."""

    @staticmethod
    def ports(port: int) -> dict[str, int]:
        """Return the port of each listener; that of PLAINTEXT is the one after `port`."""
        return {protocol: port + number for number, protocol in enumerate(PROTOCOLS, start=1)}

    def settings(self, port: int, folder: Path, *, has_controller: bool) -> dict[str, object]:
        """Return the settings of the broker; `folder` has the stores of `write_certificates`."""
        listeners = {name: f"127.0.0.1:{number}" for name, number in self.ports(port).items()}
        addresses = ",".join(f"{name}://{address}" for name, address in listeners.items())
        passwords = {ADMIN: ADMIN_PASSWORD, **self.users}
        rows = " ".join(f'user_{name}="{password}"' for name, password in passwords.items())
        login = f'username="{ADMIN}" password="{ADMIN_PASSWORD}"'
        plain = f"{_MODULES}.plain.PlainLoginModule required {login} {rows};"
        found: dict[str, object] = {
            "listeners": addresses,
            "advertised.listeners": addresses,
            "listener.security.protocol.map": ",".join(f"{name}:{name}" for name in listeners),
            "inter.broker.listener.name": BROKERS_LISTENER,
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.enabled.mechanisms": ",".join(MECHANISMS),
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "allow.everyone.if.no.acl.found": "true",
            "super.users": f"User:{ADMIN}",
            "ssl.client.auth": self.client_auth,
        }
        for store in ("keystore", "truststore"):
            found[f"ssl.{store}.type"] = "PKCS12"
            found[f"ssl.{store}.location"] = str(folder / f"{store}.p12")
            found[f"ssl.{store}.password"] = STORE_PASSWORD
        for name in ("sasl_plaintext", "sasl_ssl"):
            found[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
            for mechanism in MECHANISMS[1:]:
                setting = f"listener.name.{name}.{mechanism.lower()}.sasl.jaas.config"
                found[setting] = f"{_MODULES}.scram.ScramLoginModule required;"
        if has_controller:
            found["listeners"] = f"{addresses},CONTROLLER://127.0.0.1:{port + 1 - CONTROLLER_DISTANCE}"
            protocols = found["listener.security.protocol.map"]
            found["listener.security.protocol.map"] = f"{protocols},CONTROLLER:SASL_PLAINTEXT"
            found["sasl.mechanism.controller.protocol"] = "PLAIN"
            found["listener.name.controller.sasl.enabled.mechanisms"] = "PLAIN"
            found["listener.name.controller.plain.sasl.jaas.config"] = plain
        return found

    def environment(self, port: int, folder: Path) -> dict[str, str]:
        """Return the variables that `suite_overlay.py` reads."""
        return {
            "HARROW_SUITE_PORTS": json.dumps(self.ports(port)),
            "HARROW_SUITE_CERTIFICATES": str(folder),
            "HARROW_SUITE_ADMIN": f"{ADMIN}:{ADMIN_PASSWORD}",
        }

    def add_overlay(self, copy: Path) -> None:
        """Give the fixtures of a copy what the checkout's own start."""
        for module in OVERLAY:
            (copy / module.name).write_text(module.read_text())
        name, lines = self.overlay
        path = copy / name
        path.write_text(f"{path.read_text()}\n{lines}\n")


def write_certificates(folder: Path) -> None:
    """Write a keystore and a truststore for the broker, and PEM files by the names that the clients' tests use."""
    folder.mkdir(parents=True, exist_ok=True)
    authority = CertificateAuthority()
    client = authority.issue("client", hosts=())
    files = {
        "keystore.p12": authority.issue("server").pkcs12(STORE_PASSWORD),
        "truststore.p12": authority.truststore(STORE_PASSWORD),
        "ca.crt": authority.certificate.encode(),
        "ca-cert": authority.certificate.encode(),
        "client.crt": client.chain.encode(),
        "client.key": client.key.encode(),
    }
    for name, content in files.items():
        (folder / name).write_bytes(content)
        os.chmod(folder / name, 0o600)
