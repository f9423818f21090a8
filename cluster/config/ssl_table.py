"""Settings of TLS: keys and trust of a listener, protocols, client certificates and the principals that they give.

Owns: `SSL_SETTINGS`, which `security/tls.py` reads for each listener: `listener.name.NAME.` before a name gives a value
for one listener. A running broker reads other stores of keys for one listener (KIP-226); a change of the other rules
counts from the next start of the broker.

Types and defaults are Kafka's; the default type `JKS` of a store takes the formats that Python reads, PKCS12 among
them, as Java does.

Source: Apache Kafka's documentation of broker configurations, `SslConfigs`.
"""

from __future__ import annotations

from collections.abc import Iterator

from .setting import Change, Setting


def _rules() -> Iterator[Setting]:
    change = Change.BROKER
    yield Setting(
        name="ssl.client.auth",
        default="none",
        doc="may, or must, a client show a certificate; on SASL_SSL only the value for one listener counts",
        choices=("required", "requested", "none"),
        change=change,
    )
    yield Setting(name="ssl.enabled.protocols", default="TLSv1.2,TLSv1.3", kind="list", change=change, doc="versions")
    yield Setting(
        name="ssl.protocol",
        default="TLSv1.3",
        doc="must be TLS or one of its versions; as in Java, ssl.enabled.protocols says which are spoken",
        change=change,
    )
    yield Setting(
        name="ssl.cipher.suites",
        default="",
        kind="list",
        change=change,
        doc="suites under Java's names; '': OpenSSL's own. All suites of TLS 1.3 are allowed, or none",
    )
    yield Setting(
        name="ssl.endpoint.identification.algorithm",
        default="https",
        change=change,
        doc="https: a broker checks that the certificate of another broker names its host; '': it does not",
    )
    yield Setting(
        name="ssl.principal.mapping.rules",
        default="DEFAULT",
        doc="RULE:pattern/replacement/[LU],…,DEFAULT: the principal's name from the name in a client's certificate",
    )
    for what in ("dn", "san"):
        name = {"dn": "name", "san": "other names"}[what]
        yield Setting(
            name=f"ssl.allow.{what}.changes",
            default=False,
            doc=f"a new certificate of a running broker may lack the {name} of the old one",
        )


def _stores() -> Iterator[Setting]:
    for name, kind, doc in (
        ("ssl.key.password", "password", "decrypts the private key"),
        ("ssl.keystore.certificate.chain", "password", "PEM: the certificates, for ssl.keystore.key"),
        ("ssl.keystore.key", "password", "PEM: the private key, instead of a file"),
        ("ssl.keystore.location", "", "file with the private key and its certificates"),
        ("ssl.keystore.password", "password", "opens that file"),
        ("ssl.truststore.certificates", "password", "PEM: trusted certificates, instead of a file"),
        ("ssl.truststore.location", "", "file with the certificates that others' must come from"),
        ("ssl.truststore.password", "password", "opens that file"),
    ):
        yield Setting(name=name, default="", doc=doc, kind=kind, unset=True, change=Change.LISTENER)
    for store in ("keystore", "truststore"):
        yield Setting(
            name=f"ssl.{store}.type",
            default="JKS",
            doc="PEM, PKCS12, or JKS for a file of the type PKCS12; a file of the type JKS is refused",
            change=Change.LISTENER,
        )


SSL_SETTINGS: tuple[Setting, ...] = (*_rules(), *_stores())
