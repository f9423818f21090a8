"""The security of clients on Apache Kafka behind the proxy (A5).

    client --TLS--> proxy --plain bytes on loopback--> CLIENTS of the node    its users, as Kafka knows them
    Harrow -------> proxy ---------------------------> HARROW of the node     PLAINTEXT, anonymous

The proxy reads requests, so TLS ends there, with the certificate of the test's authority. SASL passes it unchanged,
re-authentication too: nothing in PLAIN, SCRAM or OAUTHBEARER is bound to TLS. So a node's own listener is
SASL_PLAINTEXT for `sasl_ssl` and PLAINTEXT for `ssl`; for `mtls` it is SSL, where the proxy shows the certificate that
the client has shown (`cluster/proxy/client_identities.py`). Every principal, every login and every denied operation is
Kafka's own decision. The listener HARROW, which no fault of credentials reaches, has a port of its own at the proxy.

Owns: `ClientSecurity`, which reads the settings of `ClusterSecurity` (those of Harrow's brokers) and gives those of the
proxy and the nodes. Users of SCRAM that exist from the start are given to the formatting of the data folders.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from harrow.cluster.listeners import CLIENTS

PROTOCOLS_OF_NODES = {
    "PLAINTEXT": "PLAINTEXT",
    "SSL": "PLAINTEXT",
    "SASL_PLAINTEXT": "SASL_PLAINTEXT",
    "SASL_SSL": "SASL_PLAINTEXT",
}
"""The protocol of clients -> that of the node's listener behind the proxy."""
_OF_LISTENER = f"listener.name.{CLIENTS.lower()}."
KEYSTORE = f"{_OF_LISTENER}ssl.keystore.location"
TRUSTSTORE = f"{_OF_LISTENER}ssl.truststore.location"
PROTOCOL_MAP = "listener.security.protocol.map"
SCRAM_USERS = "harrow.scram.users"
AT_THE_PROXY = frozenset({"listeners", PROTOCOL_MAP, "inter.broker.listener.name", SCRAM_USERS})
"""Settings that a node does not get: `kafka_listeners.py` names the listeners."""
JWKS_URL = ".sasl.oauthbearer.jwks.endpoint.url"
ALLOWED_URLS = "org.apache.kafka.sasl.oauthbearer.allowed.urls"
"""A JVM property: Kafka 4 reads the keys of an issuer from no other URL."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClientSecurity:
    """How clients reach the nodes of one cluster; without arguments PLAINTEXT."""

    protocol: str = "PLAINTEXT"
    """Of clients, by Kafka's name."""
    keystore: str = ""
    """Key and certificates that clients see, a file in PEM; empty without TLS."""
    truststore: str = ""
    """What certificates of clients come from, a file in PEM beside their keys; empty where clients show none."""
    scram_users: tuple[str, ...] = ()
    """`SCRAM-SHA-512=[name=…,password=…]` of each user that exists from the start."""
    jvm_options: tuple[str, ...] = ()

    @classmethod
    def of(cls, settings: Mapping[str, object]) -> ClientSecurity:
        """Read the settings of a cluster."""
        rows = (row.partition(":") for row in str(settings.get(PROTOCOL_MAP, "")).split(","))
        protocol = {name: value for name, _, value in rows}.get(CLIENTS, "PLAINTEXT")
        users = str(settings.get(SCRAM_USERS, ""))
        urls = [str(value) for name, value in settings.items() if name.endswith(JWKS_URL)]
        return cls(
            protocol=protocol,
            keystore=str(settings.get(KEYSTORE, "")),
            truststore=str(settings.get(TRUSTSTORE, "")),
            scram_users=tuple(users.split(";")) if users else (),
            jvm_options=tuple(f"-D{ALLOWED_URLS}={url}" for url in urls),
        )

    @property
    def is_plain(self) -> bool:
        """Whether clients need neither credentials nor TLS, so that Harrow's own need no listener."""
        return self.protocol == "PLAINTEXT"

    @property
    def node_protocol(self) -> str:
        """The protocol of the node's listener behind the proxy."""
        return self.protocol if self.truststore else PROTOCOLS_OF_NODES[self.protocol]

    def without_own(self, settings: Mapping[str, object]) -> dict[str, object]:
        """Return the settings that the nodes get."""
        if self.is_plain:
            return dict(settings)
        at_the_proxy = f"{_OF_LISTENER}ssl."
        return {
            name: value
            for name, value in settings.items()
            if name not in AT_THE_PROXY and (self.truststore or not name.startswith(at_the_proxy))
        }
