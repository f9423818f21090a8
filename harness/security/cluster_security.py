"""`ClusterSecurity`: certificates, passwords and files of one secured cluster, and the settings of its brokers (A5).

    security/ca.pem, ca.p12             the authority that clients trust
    security/broker.pem, broker.p12     key and certificates of the brokers
    security/USER.pem, USER.p12         the same of a user (mtls); USER.crt.pem and USER.key.pem are their halves
    security/jwks.json                  the keys of the issuer of tokens (OAUTHBEARER)

The keystores in PKCS12 have the password `KEYSTORE_PASSWORD`. The authority, the brokers' certificate and the issuer of
tokens are made once in a process; files are written when they are first needed, and are for this run alone.

Clients log in on the listener CLIENTS. Brokers reach each other on BROKERS, and Harrow's own clients the brokers on
HARROW: both are PLAINTEXT on loopback, so that no fault of credentials blinds a verdict. With ACLs `User:ANONYMOUS`,
which only these two have, is a super user.

What may fail: ConfigError for a user that cannot be used; OSError where a file cannot be written.
"""

from __future__ import annotations

import hashlib
import secrets
from collections.abc import Mapping
from functools import cache, cached_property
from pathlib import Path

from harrow.cluster.config.acl_table import AUTHORIZERS
from harrow.cluster.config.sasl_table import JWKS_VALIDATOR
from harrow.cluster.listeners import BROKERS, CLIENTS, HARROW
from harrow.cluster.ports import LOOPBACK

from .certificates import CertificateAuthority, Identity
from .choice import APP, MTLS, Security, check_user
from .client_settings import OAUTHBEARER, Access
from .token_issuer import TokenIssuer

__all__ = ["KEYSTORE_PASSWORD", "ClusterSecurity", "security_of"]

KEYSTORE_PASSWORD = "harrow-test"  # noqa: S105 - of files for one run
CN_IS_THE_USER = "RULE:^CN=([^,]+).*$/$1/,DEFAULT"
PLAIN = "PLAIN"
_MODULES = "org.apache.kafka.common.security"
_CLIENTS = f"listener.name.{CLIENTS.lower()}."
_SECRET = secrets.token_hex(16)
"""Of this process: passwords derive from it."""


class ClusterSecurity:
    """Certificates, users and files of a cluster with one `Security`; files are in `folder`."""

    def __init__(self, security: Security, folder: Path) -> None:
        self.security = security
        self.folder = folder
        self.users: dict[str, None] = dict.fromkeys(self.first_users)
        """The users of the cluster so far, in the order in which they were made."""

    # ------------------------------------------------------------------ users

    def password(self, user: str) -> str:
        """The password of a user, which derives from the name."""
        return hashlib.sha256(f"{_SECRET} {check_user(user)}".encode()).hexdigest()[:24]

    def passwords(self) -> Mapping[str, str]:
        """The password of each user."""
        return {user: self.password(user) for user in self.users}

    @property
    def first_users(self) -> tuple[str, ...]:
        """The users that exist when the cluster starts."""
        return tuple(dict.fromkeys((APP, *self.security.users)))

    def plain_module(self, users: tuple[str, ...]) -> str:
        """The value of `sasl.jaas.config` of PLAIN with these users."""
        options = "".join(f' user_{name}="{self.password(name)}"' for name in users)
        return f"{_MODULES}.plain.PlainLoginModule required{options};"

    def access(self, user: str, servers: str) -> Access:
        """What a client of this user needs."""
        check_user(user)
        security = self.security
        stored = {"certificate": "crt.pem", "key": "key.pem", "keystore": "pem"}
        files = {name: str(self._user_file(user, end)) for name, end in stored.items() if security.kind == MTLS}
        return Access(
            servers=servers,
            protocol=security.kafka_protocol,
            mechanism=security.mechanism,
            user=user,
            password=self.password(user) if security.mechanism else "",
            ca=str(self.ca_file) if security.has_tls else "",
            token_url=token_issuer().token_url if security.mechanism == OAUTHBEARER else "",
            token=lambda: token_issuer().token(user),
            **files,
        )

    # ------------------------------------------------------------------ files

    @property
    def authority(self) -> CertificateAuthority:
        """The authority that clients trust."""
        return authority()

    @cached_property
    def ca_file(self) -> Path:
        """The certificate of the authority, as PEM."""
        self._write("ca.p12", authority().truststore(KEYSTORE_PASSWORD))
        return self._write("ca.pem", authority().certificate.encode())

    @cached_property
    def broker_file(self) -> Path:
        """Key and certificates of the brokers, as PEM."""
        return self.write_identity("broker", broker_identity())

    def write_identity(self, name: str, identity: Identity) -> Path:
        """Write `NAME.pem` and `NAME.p12`; return the first."""
        self._write(f"{name}.p12", identity.pkcs12(KEYSTORE_PASSWORD))
        return self._write(f"{name}.pem", identity.pem.encode())

    def _user_file(self, user: str, end: str) -> Path:
        path = self.folder / f"{user}.{end}"
        if not path.exists():
            identity = user_identity(user)
            self.write_identity(user, identity)
            self._write(f"{user}.crt.pem", identity.chain.encode())
            self._write(f"{user}.key.pem", identity.key.encode())
        return path

    @cached_property
    def _jwks_file(self) -> Path:
        return self._write("jwks.json", token_issuer().document().encode())

    def _write(self, name: str, data: bytes) -> Path:
        self.folder.mkdir(parents=True, exist_ok=True)
        path = self.folder / name
        path.write_bytes(data)
        path.chmod(0o600)
        return path

    # --------------------------------------------------------------- settings

    @cached_property
    def broker_settings(self) -> dict[str, object]:
        """The settings of Harrow's own brokers."""
        security = self.security
        protocols = {CLIENTS: security.kafka_protocol, BROKERS: "PLAINTEXT", HARROW: "PLAINTEXT"}
        found: dict[str, object] = {
            "listeners": ",".join(f"{name}://{LOOPBACK}:0" for name in protocols),
            "listener.security.protocol.map": ",".join(f"{name}:{value}" for name, value in protocols.items()),
            "inter.broker.listener.name": BROKERS,
        }
        if security.has_tls:
            found[f"{_CLIENTS}ssl.keystore.type"] = "PEM"
            found[f"{_CLIENTS}ssl.keystore.location"] = str(self.broker_file)
        if security.kind == MTLS:
            found[f"{_CLIENTS}ssl.client.auth"] = "required"
            found[f"{_CLIENTS}ssl.truststore.type"] = "PEM"
            found[f"{_CLIENTS}ssl.truststore.location"] = str(self.ca_file)
            found["ssl.principal.mapping.rules"] = CN_IS_THE_USER
        if security.mechanism:
            found |= self._sasl_settings()
        if security.acls:
            found["authorizer.class.name"] = AUTHORIZERS[0]
            found["super.users"] = "User:ANONYMOUS"
        return found

    @property
    def plain_setting(self) -> str:
        """The name of the setting with the users of PLAIN."""
        return f"{_CLIENTS}plain.sasl.jaas.config"

    def _sasl_settings(self) -> dict[str, object]:
        mechanism = self.security.mechanism
        of_mechanism = f"{_CLIENTS}{mechanism.lower()}."
        found: dict[str, object] = {f"{_CLIENTS}sasl.enabled.mechanisms": mechanism}
        if mechanism == PLAIN:
            found[self.plain_setting] = self.plain_module(self.first_users)
        elif mechanism == OAUTHBEARER:
            found[f"{of_mechanism}sasl.jaas.config"] = f"{_MODULES}.oauthbearer.OAuthBearerLoginModule required;"
            found[f"{of_mechanism}sasl.server.callback.handler.class"] = JWKS_VALIDATOR
            found[f"{of_mechanism}sasl.oauthbearer.jwks.endpoint.url"] = self._jwks_file.as_uri()
            found[f"{of_mechanism}sasl.oauthbearer.expected.issuer"] = token_issuer().name
            found[f"{of_mechanism}sasl.oauthbearer.expected.audience"] = token_issuer().audience
        else:
            found[f"{of_mechanism}sasl.jaas.config"] = f"{_MODULES}.scram.ScramLoginModule required;"
            users = (f"{mechanism}=[name={name},password={self.password(name)}]" for name in self.first_users)
            found["harrow.scram.users"] = ";".join(users)
        if self.security.reauthenticate_after:
            found[f"{of_mechanism}connections.max.reauth.ms"] = round(self.security.reauthenticate_after * 1000)
        return found


@cache
def security_of(security: Security, folder: Path) -> ClusterSecurity:
    """Return the security of the cluster with these files; one object in a process."""
    return ClusterSecurity(security, folder)


@cache
def authority() -> CertificateAuthority:
    """Return the authority of this process."""
    return CertificateAuthority()


@cache
def broker_identity() -> Identity:
    """Return key and certificates of every broker of this process's clusters."""
    return authority().issue("broker")


@cache
def user_identity(user: str) -> Identity:
    """Return key and certificates of a user."""
    return authority().issue(user, hosts=())


@cache
def token_issuer() -> TokenIssuer:
    """Return the issuer of tokens, which serves while this process lives."""
    return TokenIssuer().__enter__()
