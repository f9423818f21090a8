"""What TLS needs on the links of a listener, or on a link that a host opens: keys, trust, and rules, as a value."""

from __future__ import annotations

from dataclasses import dataclass

TLS_VERSIONS = ("TLSv1", "TLSv1.1", "TLSv1.2", "TLSv1.3")
"""The versions under the names of Java, oldest first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """Keys and rules of TLS. Certificates and keys are PEM; two equal values are the same TLS."""

    chain: str = ""
    """The own certificate and those between it and its authority; empty: no certificate."""
    key: str = ""
    """The private key of the own certificate."""
    key_password: str = ""
    """What decrypts `key`; empty for a key that is not encrypted."""
    trusted: str = ""
    """The certificates that the other side's must come from; empty: those of the machine."""
    client_auth: str = "none"
    """Whether an accepted link needs a certificate: `none`, `requested`, `required`."""
    versions: tuple[str, ...] = TLS_VERSIONS[-2:]
    """The versions that are spoken, of `TLS_VERSIONS`, without a gap."""
    ciphers: str = ""
    """Cipher suites up to TLS 1.2 in OpenSSL's notation; empty: OpenSSL's own."""
    verify_host: bool = True
    """Whether the certificate of an opened link must name the host that was asked for."""
