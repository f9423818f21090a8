"""The settings with which the client libraries of a user reach a cluster: librdkafka, kafka-python, aiokafka and Java.

Owns: `Access`, what a client needs, and its settings under the names of each library and of environment variables.
`librdkafka` serves confluent-kafka and the libraries over librdkafka in other languages.
What may fail: ConfigError for another library; ImportError for one that is not installed and whose class is needed.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any

from harrow.cluster.errors import ConfigError

__all__ = ["LIBRARIES", "Access", "client_settings", "environment_of"]

_SECURITY = "org.apache.kafka.common.security"
_JAVA_MODULES = {
    "PLAIN": f"{_SECURITY}.plain.PlainLoginModule",
    "OAUTHBEARER": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule",
}
_SCRAM_MODULE = f"{_SECURITY}.scram.ScramLoginModule"
_JAVA_TOKENS = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
OAUTHBEARER = "OAUTHBEARER"


@dataclass(frozen=True, slots=True, kw_only=True)
class Access:
    """What one client needs to reach a cluster; empty texts where the protocol has no such thing."""

    servers: str
    protocol: str
    """Kafka's name."""
    mechanism: str = ""
    user: str = ""
    password: str = ""
    ca: str = ""
    """File with the certificate of the authority, PEM."""
    certificate: str = ""
    """File with the client's certificates, PEM."""
    key: str = ""
    """File with the client's private key, PEM."""
    keystore: str = ""
    """File with both, PEM."""
    token_url: str = ""
    """Where a client gets a token, by the client credentials grant."""
    token: Callable[[], str] = str
    """Makes a token."""


def client_settings(access: Access, library: str) -> dict[str, Any]:
    """Return the settings of a client under the names of `library`; ConfigError for another one."""
    if library not in LIBRARIES:
        raise ConfigError(f"library={library!r}: expected one of {', '.join(LIBRARIES)}")
    return LIBRARIES[library](access)


def environment_of(access: Access) -> dict[str, str]:
    """Return the environment variables of a program; none of a PLAINTEXT listener."""
    if access.protocol == "PLAINTEXT":
        return {}
    found = {
        "KAFKA_SECURITY_PROTOCOL": access.protocol,
        "KAFKA_SASL_MECHANISM": access.mechanism,
        "KAFKA_SASL_USERNAME": access.user if access.mechanism else "",
        "KAFKA_SASL_PASSWORD": access.password,
        "KAFKA_SASL_OAUTHBEARER_TOKEN_ENDPOINT_URL": access.token_url,
        "KAFKA_SSL_CAFILE": access.ca,
        "KAFKA_SSL_CERTFILE": access.certificate,
        "KAFKA_SSL_KEYFILE": access.key,
    }
    return {name: value for name, value in found.items() if value}


def _librdkafka(access: Access) -> dict[str, Any]:
    found: dict[str, Any] = {"bootstrap.servers": access.servers}
    if access.protocol != "PLAINTEXT":
        found["security.protocol"] = access.protocol
    if access.ca:
        found["ssl.ca.location"] = access.ca
    if access.certificate:
        found |= {"ssl.certificate.location": access.certificate, "ssl.key.location": access.key}
    if access.mechanism:
        found["sasl.mechanism"] = access.mechanism
    if access.mechanism == OAUTHBEARER:
        found |= {
            "sasl.oauthbearer.method": "oidc",
            "sasl.oauthbearer.client.id": access.user,
            "sasl.oauthbearer.client.secret": access.password,
            "sasl.oauthbearer.token.endpoint.url": access.token_url,
        }
    elif access.mechanism:
        found |= {"sasl.username": access.user, "sasl.password": access.password}
    return found


def _python(access: Access) -> dict[str, Any]:
    """What kafka-python and aiokafka have in common."""
    found: dict[str, Any] = {"bootstrap_servers": access.servers}
    if access.protocol != "PLAINTEXT":
        found["security_protocol"] = access.protocol
    if access.mechanism:
        found["sasl_mechanism"] = access.mechanism
    if access.mechanism and access.mechanism != OAUTHBEARER:
        found |= {"sasl_plain_username": access.user, "sasl_plain_password": access.password}
    return found


def _kafka_python(access: Access) -> dict[str, Any]:
    found = _python(access)
    if access.ca:
        found["ssl_cafile"] = access.ca
    if access.certificate:
        found |= {"ssl_certfile": access.certificate, "ssl_keyfile": access.key}
    if access.mechanism == OAUTHBEARER:
        found["sasl_oauth_token_provider"] = _token_provider(
            ("kafka.net.sasl.oauth", "kafka.sasl.oauth"), lambda _: access.token()
        )
    return found


def _aiokafka(access: Access) -> dict[str, Any]:
    found = _python(access)
    if access.ca:
        import ssl

        context = ssl.create_default_context(cafile=access.ca)
        if access.certificate:
            context.load_cert_chain(access.certificate, access.key)
        found["ssl_context"] = context
    if access.mechanism == OAUTHBEARER:

        async def token(_: object) -> str:
            return access.token()

        found["sasl_oauth_token_provider"] = _token_provider(("aiokafka.abc",), token)
    return found


def _token_provider(modules: Sequence[str], token: Callable[[Any], Any]) -> object:
    """Return a provider of tokens of a library, whose class is in the first of `modules` that it has."""
    *others, last = modules
    for name in others:
        with contextlib.suppress(ImportError):
            return _with_token(import_module(name).AbstractTokenProvider, token)
    return _with_token(import_module(last).AbstractTokenProvider, token)


def _with_token(base: type, token: Callable[[Any], Any]) -> object:
    return type("Tokens", (base,), {"token": token})()


def _java(access: Access) -> dict[str, Any]:
    found = {"bootstrap.servers": access.servers}
    if access.protocol != "PLAINTEXT":
        found["security.protocol"] = access.protocol
    if access.ca:
        found |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": access.ca}
    if access.keystore:
        found |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": access.keystore}
    if access.mechanism:
        module = _JAVA_MODULES.get(access.mechanism, _SCRAM_MODULE)
        name, secret = ("clientId", "clientSecret") if access.mechanism == OAUTHBEARER else ("username", "password")
        found["sasl.mechanism"] = access.mechanism
        found["sasl.jaas.config"] = f'{module} required {name}="{access.user}" {secret}="{access.password}";'
    if access.mechanism == OAUTHBEARER:
        found["sasl.login.callback.handler.class"] = _JAVA_TOKENS
        found["sasl.oauthbearer.token.endpoint.url"] = access.token_url
    return found


LIBRARIES: dict[str, Callable[[Access], dict[str, Any]]] = {
    "librdkafka": _librdkafka,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "java": _java,
}
