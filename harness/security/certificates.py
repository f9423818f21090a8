"""A throw-away certificate authority: keys and certificates for tests of TLS, as PEM and PKCS12.

    authority = CertificateAuthority()
    broker = authority.issue("broker", hosts=("127.0.0.1", "localhost"))
    broker.pem                               # a PEM keystore: key and chain
    broker.pkcs12("secret")                  # the same as PKCS12
    authority.certificate                    # a PEM truststore
    authority.truststore("secret")           # the same as PKCS12 that Java reads, too

Keys are on the curve P-256, which costs a broker less than RSA. Nothing here is a secret worth keeping: a certificate
ends after a few days.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
    pkcs12,
)
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["CertificateAuthority", "Identity"]

LOCAL_HOSTS = ("localhost", "127.0.0.1")
DAYS = 30
SKEW = timedelta(days=1)
"""How long before now a certificate begins: clocks that a fault has set back accept it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Identity:
    """A private key and its certificates, as PEM."""

    key: str
    """PKCS#8, not encrypted."""
    chain: str
    """The certificate, then the one of its authority."""

    @property
    def pem(self) -> str:
        """Key and chain in one file: a keystore of the type PEM."""
        return self.key + self.chain

    def encrypted_key(self, password: str) -> str:
        """The key, encrypted."""
        key = load_pem_private_key(self.key.encode(), None)
        encryption = BestAvailableEncryption(password.encode())
        return key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption).decode()

    def pkcs12(self, password: str) -> bytes:
        """Key and chain as a keystore of the type PKCS12."""
        own, *others = x509.load_pem_x509_certificates(self.chain.encode())
        key = load_pem_private_key(self.key.encode(), None)
        assert isinstance(key, ec.EllipticCurvePrivateKey), "an authority makes keys on a curve"
        encryption = BestAvailableEncryption(password.encode())
        return pkcs12.serialize_key_and_certificates(b"key", key, own, others, encryption)


class CertificateAuthority:
    """Signs certificates with a key that exists in memory only."""

    def __init__(self, name: str = "Harrow test authority") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = _common_name(name)
        builder = _builder(self._name, self._name, self._key, days=DAYS)
        usage = x509.KeyUsage(
            digital_signature=True,
            content_commitment=False,
            key_encipherment=False,
            data_encipherment=False,
            key_agreement=False,
            key_cert_sign=True,
            crl_sign=True,
            encipher_only=False,
            decipher_only=False,
        )
        builder = builder.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        self._certificate = builder.add_extension(usage, critical=True).sign(self._key, hashes.SHA256())

    @property
    def certificate(self) -> str:
        """The certificate of the authority, as PEM."""
        return self._certificate.public_bytes(Encoding.PEM).decode()

    def truststore(self, password: str) -> bytes:
        """The certificate of the authority as a truststore of the type PKCS12, with Java's mark of trust."""
        row = pkcs12.PKCS12Certificate(self._certificate, b"authority")
        return pkcs12.serialize_java_truststore([row], BestAvailableEncryption(password.encode()))

    def issue(
        self,
        name: str | x509.Name,
        *,
        hosts: Iterable[str] = LOCAL_HOSTS,
        days: int = DAYS,
    ) -> Identity:
        """A new key and its certificate, for servers and clients.

        `name` is the common name, or the whole subject. `hosts` are names and IP addresses of a server. `days` below
        zero: it has expired.
        """
        subject = _common_name(name) if isinstance(name, str) else name
        key = ec.generate_private_key(ec.SECP256R1())
        builder = _builder(subject, self._name, key, days=days)
        usages = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        builder = builder.add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        names = [_general_name(host) for host in hosts]
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        certificate = builder.sign(self._key, hashes.SHA256())
        private = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return Identity(key=private, chain=certificate.public_bytes(Encoding.PEM).decode() + self.certificate)


def _common_name(name: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, *, days: int
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    end = now + timedelta(days=days)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(min(now, end) - SKEW)
        .not_valid_after(end)
    )


def _general_name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)
