"""Whose certificate a proxy shows a foreign broker in the place of a client's (A5)."""

from __future__ import annotations

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.serialization import Encoding
from harrow.cluster.errors import ConfigError
from harrow.cluster.proxy.client_identities import ClientIdentities
from harrow.harness.security.certificates import CertificateAuthority, Identity


def shown(identity: Identity) -> bytes:
    """The certificate as TLS reports it."""
    return x509.load_pem_x509_certificate(identity.chain.encode()).public_bytes(Encoding.DER)


def test_a_client_is_shown_by_its_own_certificate_and_no_other(tmp_path: Path) -> None:
    authority = CertificateAuthority()
    alice, bob = (authority.issue(name, hosts=()) for name in ("alice", "bob"))
    (tmp_path / "alice.pem").write_text(alice.pem)
    reads: list[str] = []

    def read(path: str) -> bytes:
        reads.append(path)
        return Path(path).read_bytes()

    identities = ClientIdentities(str(tmp_path), authority.certificate, read)
    for _ in range(2):
        user, tls = identities.identity_of(shown(alice))
        assert (user, tls.key, tls.chain, tls.trusted) == ("alice", alice.key, alice.chain, authority.certificate)
    assert reads == [f"{tmp_path}/alice.pem"], "a file is read once"
    with pytest.raises(ConfigError, match="'CN=bob', whose key is not in"):
        identities.identity_of(shown(bob))
    with pytest.raises(ConfigError, match="'CN=alice' that is another one"):
        identities.identity_of(shown(authority.issue("alice", hosts=())))
    with pytest.raises(ConfigError, match="expected CN= and the name of a user"):
        identities.identity_of(shown(authority.issue("../alice", hosts=())))
