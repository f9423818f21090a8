"""`ssl.*` settings of a listener: stores of keys, versions, cipher suites, what is refused and the remedy (A5)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.errors import ConfigError
from harrow.cluster.host.real.tls_context import client_context, server_context
from harrow.cluster.host.seam import TlsOptions
from harrow.cluster.listeners import Address, Listener, SecurityProtocol
from harrow.cluster.security.tls import check_new_certificate, tls_options
from harrow.harness.security.certificates import CertificateAuthority, Identity

ADDRESS = Address("127.0.0.1", 9092)
AUTHORITY = CertificateAuthority()
BROKER = AUTHORITY.issue("broker")
PEM = {"ssl.keystore.type": "PEM", "ssl.keystore.key": BROKER.key, "ssl.keystore.certificate.chain": BROKER.chain}
PASSWORD = "secret"


def options(settings: dict[str, str], protocol: SecurityProtocol = SecurityProtocol.SSL) -> TlsOptions:
    listener = Listener(name="SECURE", bind=ADDRESS, advertised=ADDRESS, security_protocol=protocol)
    return tls_options(BrokerConfig.parse(settings), listener, lambda path: Path(path).read_bytes())


def stores(folder: Path) -> dict[str, str]:
    """A keystore and a truststore of the type PKCS12."""
    (folder / "key").write_bytes(BROKER.pkcs12(PASSWORD))
    (folder / "trust").write_bytes(AUTHORITY.truststore(PASSWORD))
    return {
        "ssl.keystore.location": str(folder / "key"),
        "ssl.keystore.password": PASSWORD,
        "ssl.truststore.location": str(folder / "trust"),
        "ssl.truststore.password": PASSWORD,
    }


@pytest.mark.parametrize("kind", ["PKCS12", "JKS"])
def test_pkcs12_is_read_also_under_the_default_type(tmp_path: Path, kind: str) -> None:
    found = options({**stores(tmp_path), "ssl.keystore.type": kind, "ssl.truststore.type": kind})
    assert found.chain.split() == BROKER.chain.split()
    assert found.trusted.split() == AUTHORITY.certificate.split()
    assert server_context(found).get_ca_certs()


def test_pem_is_read_from_files_and_from_values(tmp_path: Path) -> None:
    (tmp_path / "key").write_text(BROKER.chain + BROKER.encrypted_key(PASSWORD))
    (tmp_path / "trust").write_text("a comment\n" + AUTHORITY.certificate)
    of_files = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(tmp_path / "key"),
        "ssl.key.password": PASSWORD,
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(tmp_path / "trust"),
    }
    of_values = {**PEM, "ssl.truststore.type": "PEM", "ssl.truststore.certificates": AUTHORITY.certificate}
    for settings in (of_files, of_values):
        found = options(settings)
        assert found.trusted.split() == AUTHORITY.certificate.split()
        server_context(found)
        client_context(found)


@pytest.mark.skipif(shutil.which("keytool") is None, reason="no keytool")
def test_stores_of_keytool_are_read(tmp_path: Path) -> None:
    (tmp_path / "ca.pem").write_text(AUTHORITY.certificate)
    common = ["-storepass", PASSWORD, "-storetype", "PKCS12"]
    for command in (
        ["-genkeypair", "-keystore", "key", "-keyalg", "EC", "-dname", "CN=b", "-alias", "b", "-keypass", PASSWORD],
        ["-importcert", "-keystore", "trust", "-file", "ca.pem", "-noprompt", "-alias", "ca"],
    ):
        subprocess.run(["keytool", *command, *common], cwd=tmp_path, check=True, capture_output=True)
    names = {"key": "ssl.keystore", "trust": "ssl.truststore"}
    settings = {f"{setting}.location": str(tmp_path / name) for name, setting in names.items()}
    found = options({**settings, **{f"{setting}.password": PASSWORD for setting in names.values()}})
    assert found.trusted.split() == AUTHORITY.certificate.split()
    server_context(found)


def test_value_of_one_listener_is_before_that_of_all() -> None:
    settings = {**PEM, "ssl.client.auth": "required"}
    own = {"listener.name.secure.ssl.client.auth": "requested", "listener.name.other.ssl.client.auth": "none"}
    assert options(settings).client_auth == "required"
    assert options({**settings, **own}).client_auth == "requested"
    assert options(settings, SecurityProtocol.SASL_SSL).client_auth == "none", "as in Kafka"
    assert options({**settings, **own}, SecurityProtocol.SASL_SSL).client_auth == "requested"


def test_rules_of_the_handshake() -> None:
    found = options({**PEM, "ssl.enabled.protocols": "TLSv1.2", "ssl.endpoint.identification.algorithm": ""})
    assert (found.versions, found.verify_host) == (("TLSv1.2",), False)
    suites = "TLS_ECDHE_ECDSA_WITH_AES_128_GCM_SHA256,TLS_ECDHE_RSA_WITH_CHACHA20_POLY1305_SHA256"
    more = "TLS_RSA_WITH_AES_256_CBC_SHA256,TLS_ECDHE_RSA_WITH_AES_128_CBC_SHA256"
    found = options({**PEM, "ssl.enabled.protocols": "TLSv1.2", "ssl.cipher.suites": f"{suites},{more}"})
    expected = ["ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-RSA-CHACHA20-POLY1305", "AES256-SHA256"]
    assert found.ciphers.split(":") == [*expected, "ECDHE-RSA-AES128-SHA256"]
    assert {row["name"] for row in server_context(found).get_ciphers() if "TLS_" not in row["name"]} == {
        *expected,
        "ECDHE-RSA-AES128-SHA256",
    }


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"ssl.keystore.key": BROKER.key}, "ssl.keystore.key .*: set it together with"),
        ({**PEM, "ssl.keystore.type": "PKCS12"}, "needs ssl.keystore.type=PEM"),
        ({"ssl.truststore.certificates": "x"}, "needs ssl.truststore.type=PEM"),
        ({"ssl.keystore.type": "BKS"}, "expected PEM, PKCS12 or JKS"),
        ({"ssl.keystore.password": PASSWORD}, "nor has an absent store"),
        ({"ssl.keystore.location": "/absent"}, "ssl.keystore.password .*: it is missing"),
        ({"ssl.truststore.location": "/absent"}, "/absent cannot be read: No such file"),
        ({**PEM, "ssl.enabled.protocols": "SSLv3"}, "expected versions in a row"),
        ({**PEM, "ssl.enabled.protocols": "TLSv1.1,TLSv1.3"}, "expected versions in a row"),
        ({**PEM, "ssl.protocol": "SSL"}, "expected TLS or one of"),
        ({**PEM, "ssl.endpoint.identification.algorithm": "ldaps"}, "expected https"),
        ({**PEM, "ssl.cipher.suites": "TLS_AES_128_GCM_SHA256"}, "name them all, or set ssl.enabled.protocols"),
        ({**PEM, "ssl.cipher.suites": "NONE", "ssl.enabled.protocols": "TLSv1.2"}, "no suite that Java names"),
    ],
)
def test_what_cannot_be_used_is_refused(settings: dict[str, str], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        options(settings)


def test_wrong_passwords_and_formats_are_refused(tmp_path: Path) -> None:
    good = stores(tmp_path)
    with pytest.raises(ConfigError, match="is no PKCS12, or"):
        options({**good, "ssl.keystore.password": "other"})
    (tmp_path / "key").write_bytes(bytes.fromhex("feedfeed00000002"))
    with pytest.raises(ConfigError, match="convert it: keytool -importkeystore"):
        options(good)
    (tmp_path / "key").write_bytes(AUTHORITY.truststore(PASSWORD))
    with pytest.raises(ConfigError, match="the file has no private key"):
        options(good)
    for broken in (TlsOptions(), TlsOptions(key=BROKER.key, chain=AUTHORITY.certificate)):
        with pytest.raises(ConfigError, match="TLS"):
            server_context(broken)
    with pytest.raises(ConfigError, match="TLS cannot use"):
        server_context(TlsOptions(chain=BROKER.chain, key=BROKER.encrypted_key(PASSWORD), key_password="other"))


@pytest.mark.parametrize(
    ("new", "allowed", "words"),
    [
        (AUTHORITY.issue("broker"), {}, ""),
        (AUTHORITY.issue("broker", hosts=("127.0.0.1", "localhost", "more")), {}, ""),
        (AUTHORITY.issue("other"), {}, "ssl.allow.dn.changes"),
        (AUTHORITY.issue("other"), {"ssl.allow.dn.changes": "true"}, ""),
        (AUTHORITY.issue("broker", hosts=("localhost",)), {}, "lacks 127.0.0.1"),
        (AUTHORITY.issue("broker", hosts=()), {"ssl.allow.san.changes": "true"}, ""),
    ],
)
def test_new_certificate_keeps_the_names_of_the_old_one(new: Identity, allowed: dict[str, str], words: str) -> None:
    config = BrokerConfig.parse(allowed)
    old, later = (TlsOptions(chain=row.chain, key=row.key) for row in (BROKER, new))
    if words:
        with pytest.raises(ConfigError, match=words):
            check_new_certificate(old, later, config)
    else:
        check_new_certificate(old, later, config)
