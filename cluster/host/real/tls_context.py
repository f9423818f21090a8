"""`TlsOptions` of the seam as contexts of Python's `ssl`.

What may fail: ConfigError, for keys, certificates, versions and cipher suites that OpenSSL does not take.
Renegotiation is off, and so is the resumption of TLS 1.3. As in Java, a trusted certificate that is not self-signed
ends a chain, too.
"""

from __future__ import annotations

import functools
import os
import ssl

from ...errors import ConfigError
from ..seam import TlsOptions

_VERSIONS = {
    "TLSv1": ssl.TLSVersion.TLSv1,
    "TLSv1.1": ssl.TLSVersion.TLSv1_1,
    "TLSv1.2": ssl.TLSVersion.TLSv1_2,
    "TLSv1.3": ssl.TLSVersion.TLSv1_3,
}
_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}


@functools.lru_cache(maxsize=16)
def server_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of accepted links."""
    if not options.key:
        raise ConfigError("TLS on a listener needs a key and a certificate: set ssl.keystore.location")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, options)
    context.verify_mode = _CLIENT_AUTH[options.client_auth]
    # a peer that ends the connection before it has read tickets would reset it, and lose what it has sent
    context.num_tickets = 0
    return context


@functools.lru_cache(maxsize=16)
def client_context(options: TlsOptions) -> ssl.SSLContext:
    """The context of opened links."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = options.verify_host
    _configure(context, options)
    return context


def _configure(context: ssl.SSLContext, options: TlsOptions) -> None:
    context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    context.minimum_version = _VERSIONS[options.versions[0]]
    context.maximum_version = _VERSIONS[options.versions[-1]]
    try:
        if options.ciphers:
            context.set_ciphers(options.ciphers)
        if options.key:
            _load_key(context, options)
        if options.trusted:
            context.load_verify_locations(cadata=options.trusted)
        else:
            context.load_default_certs()
    except (OSError, ValueError) as error:  # SSLError is an OSError
        raise ConfigError(f"TLS cannot use these keys, certificates or cipher suites: {error}") from error


def _load_key(context: ssl.SSLContext, options: TlsOptions) -> None:
    """Python reads keys from files alone: this one is in memory."""
    fd = os.memfd_create("tls-key")
    try:
        with open(fd, "wb", closefd=False) as file:
            file.write(f"{options.key}\n{options.chain}\n".encode())
        context.load_cert_chain(f"/proc/self/fd/{fd}", password=lambda: options.key_password)
    finally:
        os.close(fd)
