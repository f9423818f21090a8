"""Keys and certificates in a folder, and the settings of brokers and clients that use them.

`TlsStores(folder)` writes them once: a certificate for brokers, one for each client that is named, and the authority
that both trust.
"""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Any

from harrow.harness.security.certificates import CertificateAuthority, Identity

PASSWORD = "secret of a test"


class TlsStores:
    """The stores of one cluster and its clients."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = CertificateAuthority()
        (folder / "ca.pem").write_text(self.authority.certificate)
        (folder / "trust.p12").write_bytes(self.authority.truststore(PASSWORD))
        self.write_keystore("broker.p12", self.authority.issue("broker"))

    def write_keystore(self, name: str, identity: Identity) -> str:
        """Write a keystore of the type PKCS12; returns its path."""
        path = self.folder / name
        path.write_bytes(identity.pkcs12(PASSWORD))
        return str(path)

    def broker(self, *, client_auth: str = "required", protocols: str = "CLIENTS:SSL,BROKERS:SSL") -> dict[str, str]:
        """The settings of brokers."""
        return {
            "listener.security.protocol.map": protocols,
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.folder / "broker.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
            "ssl.client.auth": client_auth,
        }

    def _client(self, name: str, authority: CertificateAuthority | None) -> tuple[str, str]:
        chain, key = self.folder / f"{name}.pem", self.folder / f"{name}.key"
        if not key.exists():
            identity = (authority or self.authority).issue(name, hosts=())
            chain.write_text(identity.chain)
            key.write_text(identity.key)
        return str(chain), str(key)

    def context(self, name: str = "", authority: CertificateAuthority | None = None) -> ssl.SSLContext:
        """The context of a client; without a name it shows no certificate."""
        context = ssl.create_default_context(cadata=self.authority.certificate)
        if name:
            context.load_cert_chain(*self._client(name, authority))
        return context

    def confluent(self, name: str = "", authority: CertificateAuthority | None = None) -> dict[str, Any]:
        """The settings of a client of confluent-kafka."""
        settings = {"security.protocol": "SSL", "ssl.ca.location": str(self.folder / "ca.pem"), "log_level": 0}
        if name:
            chain, key = self._client(name, authority)
            settings |= {"ssl.certificate.location": chain, "ssl.key.location": key}
        return settings

    def java(self, name: str) -> dict[str, str]:
        """The settings of a Java client."""
        self.write_keystore(f"{name}.p12", self.authority.issue(name, hosts=()))
        return {
            "security.protocol": "SSL",
            "ssl.keystore.type": "PKCS12",
            "ssl.keystore.location": str(self.folder / f"{name}.p12"),
            "ssl.keystore.password": PASSWORD,
            "ssl.truststore.type": "PKCS12",
            "ssl.truststore.location": str(self.folder / "trust.p12"),
            "ssl.truststore.password": PASSWORD,
        }
