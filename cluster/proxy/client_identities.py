"""The certificates of clients that a foreign broker must see although their TLS ends at the proxy (mTLS, A5).

    client --certificate of alice--> proxy --the same certificate, by its key in alice.pem--> broker

Owns: `ClientIdentities`. A client that has shown a trusted certificate with the subject `CN=alice` is `alice`; the
proxy shows the broker this very certificate, whose key is in the folder of the test that made it. So each principal and
each denied operation is the broker's own decision. Files are read when a client of the user first connects.

What may fail: ConfigError for a certificate whose key is not in the folder.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from hashlib import sha256
from typing import NamedTuple

from ..errors import ConfigError
from ..host.seam import TlsOptions
from ..security.certificates import subject_of
from ..security.fingerprints import of_certificate
from ..security.tls import pem_blocks

_SUBJECT = re.compile(r"CN=([A-Za-z0-9._-]+)")


class ClientIdentity(NamedTuple):
    """A client of the proxy as the broker sees it."""

    user: str
    tls: TlsOptions


class ClientIdentities:
    """Keys and certificates of users, as `USER.pem` in a folder; `trusted`: whence that of the broker comes."""

    def __init__(self, folder: str, trusted: str, read: Callable[[str], bytes]) -> None:
        self._folder = folder
        self._trusted = trusted
        self._read = read
        self._known: dict[bytes, ClientIdentity] = {}

    def identity_of(self, certificate: bytes) -> ClientIdentity:
        """Who has shown a certificate (DER), and the TLS with which the broker is reached for this client."""
        found = self._known.get(certificate)
        if found is None:
            found = self._known[certificate] = self._identity_of(certificate)
        return found

    def _identity_of(self, certificate: bytes) -> ClientIdentity:
        subject = subject_of(certificate)
        named = _SUBJECT.fullmatch(subject)
        if named is None:
            raise ConfigError(f"a certificate of {subject!r}: expected CN= and the name of a user")
        path = f"{self._folder}/{named[1]}.pem"
        try:
            blocks = pem_blocks(self._read(path).decode())
        except OSError as error:
            raise ConfigError(f"a certificate of {subject!r}, whose key is not in {path}: {error}") from error
        key, chain = blocks.get("KEY", ""), blocks.get("CERTIFICATE", "")
        if of_certificate(chain) != sha256(certificate).hexdigest():
            raise ConfigError(f"a certificate of {subject!r} that is another one than in {path}")
        return ClientIdentity(named[1], TlsOptions(key=key, chain=chain, trusted=self._trusted))
