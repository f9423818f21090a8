"""Fingerprints: what an observer may know of a secret or a certificate, to see which one is in use.

Owns: `of_secret`, `of_certificate`. May fail: nothing; without a certificate the fingerprint is empty.
"""

from __future__ import annotations

import base64
import hashlib

__all__ = ["of_certificate", "of_secret"]

_BEGIN, _END = "-----BEGIN CERTIFICATE-----", "-----END CERTIFICATE-----"


def of_secret(secret: bytes) -> str:
    """The fingerprint of a password or of a key."""
    return hashlib.sha256(secret).hexdigest()


def of_certificate(chain: str) -> str:
    """The fingerprint of the first certificate of a chain, as PEM."""
    _, _, rest = chain.partition(_BEGIN)
    encoded = rest.partition(_END)[0]
    return hashlib.sha256(base64.b64decode(encoded)).hexdigest() if encoded else ""
