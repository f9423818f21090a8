"""Principals of client certificates: the subject as Java writes it, and `ssl.principal.mapping.rules` (A5)."""

from __future__ import annotations

import ssl

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID
from harrow.cluster.authorizer import ANONYMOUS
from harrow.cluster.errors import ConfigError, WireError
from harrow.cluster.host.seam import Peer
from harrow.cluster.listeners import Address, Listener, SecurityProtocol
from harrow.cluster.network.peer_names import principal_of
from harrow.cluster.security.certificates import PrincipalNames, subject_of
from harrow.harness.security.certificates import CertificateAuthority

AUTHORITY = CertificateAuthority()
ALICE = "CN=Alice,OU=Shop,O=Example,C=DE"
Attributes = list[tuple[x509.ObjectIdentifier, str]]


def der(name: str | x509.Name) -> bytes:
    first, _, _ = AUTHORITY.issue(name).chain.partition("-----END CERTIFICATE-----")
    return ssl.PEM_cert_to_DER_cert(f"{first}-----END CERTIFICATE-----\n")


@pytest.mark.parametrize(
    ("attributes", "subject"),
    [
        ([(NameOID.COUNTRY_NAME, "DE"), (NameOID.COMMON_NAME, "alice")], "CN=alice,C=DE"),
        ([(NameOID.EMAIL_ADDRESS, "a@b.c")], "1.2.840.113549.1.9.1=#16056140622e63"),
        ([(NameOID.TITLE, "T"), (NameOID.SERIAL_NUMBER, "12")], "2.5.4.5=#13023132,2.5.4.12=#0c0154"),
        ([(NameOID.DOMAIN_COMPONENT, "com"), (NameOID.USER_ID, "u1")], "UID=u1,DC=com"),
        ([(NameOID.STREET_ADDRESS, "x"), (NameOID.LOCALITY_NAME, "#y")], r"L=\#y,STREET=x"),
        ([(NameOID.STATE_OR_PROVINCE_NAME, " ")], "ST=\\ "),
        ([(NameOID.ORGANIZATIONAL_UNIT_NAME, "  ünï  ")], r"OU=\ \ ünï\ \ "),
        ([(NameOID.ORGANIZATION_NAME, 'E, "am"+ple <x>; #1=\\')], r"O=E\, \"am\"\+ple \<x\>\; \#1\=\\"),
    ],
)
def test_subject_is_written_as_java_writes_it(attributes: Attributes, subject: str) -> None:
    """The right sides are what X500Principal.getName of OpenJDK 21 returns for such certificates."""
    name = x509.Name([x509.NameAttribute(kind, value) for kind, value in attributes])
    assert subject_of(der(name)) == subject


def test_several_attributes_at_one_place_are_joined_by_plus() -> None:
    both = [x509.NameAttribute(NameOID.COMMON_NAME, "z"), x509.NameAttribute(NameOID.USER_ID, "b")]
    other = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, "o")]
    rows = [x509.RelativeDistinguishedName(both), x509.RelativeDistinguishedName(other)]
    assert subject_of(der(x509.Name(rows))) == "O=o,CN=z+UID=b"


@pytest.mark.parametrize(
    ("rules", "name"),
    [
        ("DEFAULT", ALICE),
        ("RULE:^CN=(.*?),.*$/$1/", "Alice"),
        ("RULE:^CN=(.*?),.*$/$1/L", "alice"),
        ("RULE:^CN=(.*?),.*$/$1/U, DEFAULT", "ALICE"),
        ("RULE:^CN=(.*?),OU=(.*?),.*$/$1@$2/", "Alice@Shop"),
        ("RULE:^OU=(.*?),.*$/$1/,RULE:^CN=(.*?),.*$/second-$1/", "second-Alice"),
        ("RULE:^OU=(.*?),.*$/$1/\nDEFAULT", ALICE),
        (r"RULE:^CN=(\w+),.*$/a\/$1\$/", "a/Alice$"),
        ("RULE:^CN=(.*?),.*$/$1$5/", "Alice$5"),
    ],
)
def test_first_rule_that_applies_gives_the_name(rules: str, name: str) -> None:
    assert PrincipalNames(rules).name_of(ALICE) == name


def test_name_to_which_no_rule_applies_is_refused() -> None:
    with pytest.raises(WireError, match="no rule of ssl"):
        PrincipalNames("RULE:^OU=(.*?),.*$/$1/").name_of(ALICE)


@pytest.mark.parametrize("rules", ["RULE:x/y", "default", "DEFAULT;DEFAULT", "RULE:(/x/", "RULE:a/b/X"])
def test_rules_that_cannot_be_read_are_refused(rules: str) -> None:
    with pytest.raises(ConfigError, match=r"is not|is no pattern"):
        PrincipalNames(rules)


def test_principal_of_a_listener_with_ssl_is_that_of_the_certificate() -> None:
    address = Address("127.0.0.1", 9092)
    listener = Listener(
        name="SECURE",
        bind=address,
        advertised=address,
        inter_broker=True,
        security_protocol=SecurityProtocol.SSL,
    )
    names = PrincipalNames("RULE:^CN=(.*?)$/$1/L")
    assert str(principal_of(listener, Peer("broker", "2"), der("Alice"), names)) == "User:alice"
    assert principal_of(listener, Peer("broker", "2"), None, names) == ANONYMOUS
