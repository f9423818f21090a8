"""The `ssl.*` settings of a listener as `TlsOptions`, the value from which a host makes TLS.

Owns: `tls_options`; the formats of keystores and truststores; `with_stores`, which is all that changes while a
listener is served, and `check_new_certificate`, the rule for that. A value for one listener (`listener.name.NAME.`) is
before the one for all.

Formats of stores: PEM, in a file or as the value of a setting, and PKCS12. The default type `JKS` takes a file of the
type PKCS12, as Java does. A file in Java's own format is refused: Python has no reader of it.

What may fail: ConfigError, for a combination that Kafka refuses, a file that cannot be read, or a wrong password. Reads
files by the function that the caller gives. Source: Kafka's `DefaultSslEngineFactory`, `SslFactory`.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from ..config import LISTENER_PREFIX, BrokerConfig
from ..errors import ConfigError
from ..host.seam import TLS_VERSIONS, TlsOptions
from ..listeners import Listener, SecurityProtocol

ReadFile = Callable[[str], bytes]
Store = tuple[str, str, str]
KEYSTORE: Store = ("ssl.keystore.location", "ssl.keystore.type", "ssl.keystore.password")
TRUSTSTORE: Store = ("ssl.truststore.location", "ssl.truststore.type", "ssl.truststore.password")
JKS_BEGIN = bytes.fromhex("feedfeed")
TLS_1_3_SUITES = frozenset({"TLS_AES_128_GCM_SHA256", "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256"})
_PEM_BLOCK = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----.*?-----END \1-----", re.DOTALL)


def tls_options(config: BrokerConfig, listener: Listener, read: ReadFile) -> TlsOptions:
    """The TLS of one listener, and of links that a broker opens to it on other brokers."""
    settings = _Settings(config, listener, read)
    versions = settings.versions()
    rules = TlsOptions(
        client_auth=settings.client_auth(),
        versions=versions,
        ciphers=_ciphers(settings.elements("ssl.cipher.suites"), versions),
        verify_host=settings.verifies_host(),
    )
    return with_stores(rules, config, listener, read)


def with_stores(rules: TlsOptions, config: BrokerConfig, listener: Listener, read: ReadFile) -> TlsOptions:
    """The same rules with the keystore and the truststore that settings and files have now."""
    settings = _Settings(config, listener, read)
    key, chain, password = settings.key()
    return replace(rules, key=key, chain=chain, key_password=password, trusted=settings.trusted())


@dataclass(frozen=True, slots=True)
class _Settings:
    """The settings of one listener."""

    config: BrokerConfig
    listener: Listener
    read: ReadFile

    def text(self, name: str) -> str:
        return str(self.config.of_listener(self.listener.name, name))

    def elements(self, name: str) -> list[str]:
        return [element for element in self.text(name).split(",") if element]

    def error(self, name: str, reason: str) -> ConfigError:
        return ConfigError(f"{name} of listener {self.listener.name}: {reason}")

    def client_auth(self) -> str:
        own = f"{LISTENER_PREFIX}{self.listener.name.lower()}.ssl.client.auth"
        if self.listener.security_protocol is SecurityProtocol.SASL_SSL:
            return str(self.config.dynamic.get(own) or self.config.overrides().get(own, "none"))
        return self.text("ssl.client.auth")

    def verifies_host(self) -> bool:
        name = "ssl.endpoint.identification.algorithm"
        text = self.text(name)
        if text.lower() not in ("https", ""):
            raise self.error(name, f"{text!r}: expected https, or '' for no check of the host")
        return bool(text)

    def versions(self) -> tuple[str, ...]:
        name = "ssl.enabled.protocols"
        given = self.elements(name)
        known = tuple(version for version in TLS_VERSIONS if version in given)
        first = TLS_VERSIONS.index(known[0]) if known else 0
        if not known or len(known) < len(given) or known != TLS_VERSIONS[first : first + len(known)]:
            raise self.error(name, f"{','.join(given)!r}: expected versions in a row of {', '.join(TLS_VERSIONS)}")
        protocol = self.text("ssl.protocol")
        if protocol not in ("TLS", *TLS_VERSIONS):
            raise self.error("ssl.protocol", f"{protocol!r}: expected TLS or one of {', '.join(TLS_VERSIONS)}")
        return known

    # ---------------------------------------------------------------- stores

    def key(self) -> tuple[str, str, str]:
        """Key, chain and the password of the key; empty without a keystore."""
        key, chain = self.text("ssl.keystore.key"), self.text("ssl.keystore.certificate.chain")
        if bool(key) != bool(chain):
            raise self.error("ssl.keystore.key", "set it together with ssl.keystore.certificate.chain")
        if key:
            if self.text("ssl.keystore.type") != "PEM":
                raise self.error("ssl.keystore.key", "needs ssl.keystore.type=PEM")
            return key, chain, self.text("ssl.key.password")
        found = self._file(KEYSTORE)
        if isinstance(found, str):
            blocks = pem_blocks(found)
            if "KEY" not in blocks or "CERTIFICATE" not in blocks:
                raise self.error("ssl.keystore.location", "the file needs a private key and its certificates as PEM")
            return blocks["KEY"], blocks["CERTIFICATE"], self.text("ssl.key.password")
        key, chain, _ = ("", "", "") if found is None else self._pkcs12(KEYSTORE, found)
        if found is not None and not key:
            raise self.error("ssl.keystore.location", "the file has no private key")
        return key, chain, ""

    def trusted(self) -> str:
        """Trusted certificates; empty without a truststore."""
        inline = self.text("ssl.truststore.certificates")
        if inline:
            if self.text("ssl.truststore.type") != "PEM":
                raise self.error("ssl.truststore.certificates", "needs ssl.truststore.type=PEM")
            found: str | bytes | None = inline
        else:
            found = self._file(TRUSTSTORE)
        if found is None:
            return ""
        if isinstance(found, str):
            certificates = pem_blocks(found).get("CERTIFICATE", "")
        else:
            _, own, others = self._pkcs12(TRUSTSTORE, found)
            certificates = own + others
        if not certificates:
            raise self.error("ssl.truststore.location", "it has no certificate")
        return certificates

    def _file(self, store: Store) -> str | bytes | None:
        """The content of a store: text of the type PEM, bytes of other types; None without a store."""
        name, of_kind, of_password = store
        path, kind, password = map(self.text, store)
        if kind not in ("PEM", "PKCS12", "JKS"):
            raise self.error(of_kind, f"{kind!r}: expected PEM, PKCS12 or JKS")
        if password and (not path or kind == "PEM"):
            raise self.error(of_password, "a store of the type PEM has none, nor has an absent store")
        if not path:
            return None
        if store is KEYSTORE and kind != "PEM" and not password:
            raise self.error(of_password, "it is missing")
        try:
            data = self.read(path)
        except OSError as error:
            raise self.error(name, f"{path} cannot be read: {error.strerror or error}") from error
        if data.startswith(JKS_BEGIN):
            remedy = f"keytool -importkeystore -srckeystore {path} -destkeystore {path}.p12 -deststoretype PKCS12"
            raise self.error(name, f"{path} has Java's own format, which is not read here; convert it: {remedy}")
        return data.decode("latin-1") if kind == "PEM" else data

    def _pkcs12(self, store: Store, data: bytes) -> tuple[str, str, str]:
        """Key, chain and the other certificates of a file."""
        from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, pkcs12

        name, _, of_password = store
        try:
            found = pkcs12.load_pkcs12(data, self.text(of_password).encode() or None)
        except ValueError as error:
            text = f"{self.text(name)} is no PKCS12, or {of_password} is wrong: {error}"
            raise self.error(name, text) from error
        others = "".join(row.certificate.public_bytes(Encoding.PEM).decode() for row in found.additional_certs)
        own = "" if found.cert is None else found.cert.certificate.public_bytes(Encoding.PEM).decode()
        if found.key is None:
            return "", own, others
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()
        return key, own + others, others


def pem_blocks(text: str) -> dict[str, str]:
    """The blocks of PEM by kind: KEY, CERTIFICATE."""
    found: dict[str, str] = {}
    for block in _PEM_BLOCK.finditer(text):
        kind = "KEY" if block[1].endswith("PRIVATE KEY") else block[1]
        found[kind] = found.get(kind, "") + block[0] + "\n"
    return found


def _ciphers(suites: list[str], versions: tuple[str, ...]) -> str:
    """The suites up to TLS 1.2 in OpenSSL's names; Python chooses no suites of TLS 1.3."""
    if not suites:
        return ""
    of_1_3 = TLS_1_3_SUITES.intersection(suites)
    if "TLSv1.3" in versions and of_1_3 != TLS_1_3_SUITES:
        raise ConfigError(
            f"ssl.cipher.suites={','.join(suites)}: Python's TLS 1.3 has all of {', '.join(sorted(TLS_1_3_SUITES))}; "
            "name them all, or set ssl.enabled.protocols=TLSv1.2"
        )
    older = [_openssl_name(suite) for suite in suites if suite not in TLS_1_3_SUITES]
    if not older and versions != ("TLSv1.3",):
        raise ConfigError(f"ssl.cipher.suites={','.join(suites)}: no suite of {versions[0]}; name one, or disable it")
    return ":".join(older)


def _openssl_name(suite: str) -> str:
    """`TLS_ECDHE_RSA_WITH_AES_128_GCM_SHA256` is `ECDHE-RSA-AES128-GCM-SHA256`."""
    exchange, with_, cipher = suite.removeprefix("TLS_").partition("_WITH_")
    if not with_:
        raise ConfigError(f"ssl.cipher.suites: {suite} is no suite that Java names")
    cipher = re.sub(r"AES_(\d+)", r"AES\1", cipher).replace("_CBC", "").replace("POLY1305_SHA256", "POLY1305")
    return "-".join(filter(None, (exchange.removeprefix("RSA").replace("_", "-"), cipher.replace("_", "-"))))


def check_new_certificate(old: TlsOptions, new: TlsOptions, config: BrokerConfig) -> None:
    """ConfigError where the new certificate lacks a name of the old one, unless a setting allows it (KIP-226)."""
    if old.chain == new.chain or not old.chain or not new.chain:
        return
    (subject, names), (new_subject, new_names) = _names(old.chain), _names(new.chain)
    if subject != new_subject and not config.flag("ssl.allow.dn.changes"):
        raise ConfigError(
            f"the new certificate has the name {new_subject}, and the old one {subject}; "
            "keep the name, or start the broker with ssl.allow.dn.changes=true"
        )
    if not names <= new_names and not config.flag("ssl.allow.san.changes"):
        raise ConfigError(
            f"the new certificate lacks {', '.join(sorted(names - new_names))} of the old one; "
            "keep the subject alternative names, or start the broker with ssl.allow.san.changes=true"
        )


def _names(chain: str) -> tuple[str, set[str]]:
    from cryptography import x509

    certificate = x509.load_pem_x509_certificates(chain.encode())[0]
    try:
        found = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except x509.ExtensionNotFound:
        return certificate.subject.rfc4514_string(), set()
    return certificate.subject.rfc4514_string(), {str(name.value) for name in found}
