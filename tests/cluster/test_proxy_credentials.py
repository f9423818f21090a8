"""The proxy ends TLS and reads who logs in: the certificate that it shows, refused logins, denied operations (A5)."""

from __future__ import annotations

import ssl
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from harrow.cluster import Cluster
from harrow.cluster.errors import ClusterError
from harrow.cluster.network.sasl_client import log_in
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.security.fingerprints import of_certificate
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.harness.requests.blocking import completed
from harrow.harness.requests.credentials import create_acl, login_of, refusal
from harrow.harness.requests.operator import addresses_of
from harrow.harness.requests.raw import Connection
from harrow.harness.security.certificates import CertificateAuthority
from harrow.harness.security.choice import Security
from harrow.harness.security.cluster_security import ClusterSecurity
from harrow.harness.security.rights import acl_of
from waiting import until

SCRAM = "SCRAM-SHA-512"


class Secured(NamedTuple):
    """A broker with SASL and ACLs, and a proxy with TLS before it."""

    proxy: Proxy
    security: ClusterSecurity
    folder: Path

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.security.ca_file)

    def refusal(self, user: str = "alice", password: str = "") -> str:
        """Why a login by the proxy is refused; empty where it is not."""
        login = login_of(SCRAM, user, password or self.security.password(user))
        return refusal(self.proxy.addresses[1], login, self.context)

    @contextmanager
    def client(self, user: str = "alice") -> Generator[Connection]:
        """A connection of a user who has logged in."""
        with Connection(self.proxy.addresses[1], "shop", tls=self.context) as connection:

            async def ask(api_key: int, version: int, entity: Any) -> Any:
                return connection.exchange(ClientRequest(api_key, version, entity))

            completed(log_in(ask, login_of(SCRAM, user, self.security.password(user))))
            yield connection

    def arm(self, **fields: object) -> int:
        return int(self.proxy.control(1, "rules.add", kind="access", **fields)["id"])

    def counted(self, number: int) -> tuple[int, int]:
        rows = self.proxy.control(1, "rules.list", kind="access")["rules"]
        [row] = [row for row in rows if row["id"] == number]
        return row["seen"], row["fired"]

    def shown(self) -> str:
        return str(self.proxy.control(1, "credentials")["certificates"]["CLIENTS"])


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    folder = tmp_path_factory.mktemp("secured")
    security = ClusterSecurity(Security("sasl_plaintext", users=("alice", "bob"), acls=True), folder / "security")
    with Cluster(brokers=1, folder=folder / "cluster", config=security.broker_settings) as cluster:
        upstreams = {1: cluster.brokers[1].address}
        with Proxy(folder / "proxied", upstreams, keystore=str(security.broker_file)) as proxy:
            yield Secured(proxy, security, folder / "proxied")


@pytest.fixture
def secured(both: Secured) -> Iterator[Secured]:
    until(lambda: both.proxy.control(1, "connections.close", user=None) == {"closed": 0}, "former clients have gone")
    yield both
    both.proxy.control(1, "rules.remove", kind="access")
    both.proxy.control(1, "certificate")


def test_logins_are_counted_and_refused(secured: Secured) -> None:
    counting = secured.arm(event="login", user="alice")
    assert secured.refusal() == ""
    assert secured.refusal("bob") == ""
    assert "invalid credentials" in secured.refusal(password="wrong")
    assert secured.counted(counting) == (2, 1)
    refusing = secured.arm(event="login", user="alice", refuse="all")
    assert "invalid credentials" in secured.refusal()
    assert secured.refusal("bob") == ""
    assert secured.counted(refusing) == (1, 1)
    secured.proxy.control(1, "rules.remove", kind="access", id=refusing)
    assert secured.refusal() == ""
    written = b"".join(path.read_bytes() for path in secured.folder.rglob("*") if path.is_file())
    assert b"alice" in written, "the trace says whose login was refused"
    assert secured.security.password("alice").encode() not in written


def test_the_connections_of_a_user_are_closed_and_those_of_others_stay(secured: Secured) -> None:
    versions = client_request(ApiKey.API_VERSIONS, 0)
    with secured.client() as alice, secured.client("bob") as bob:
        assert secured.proxy.control(1, "connections.close", user="carol") == {"closed": 0}
        assert secured.proxy.control(1, "connections.close", user="") == {"closed": 0}
        assert secured.proxy.control(1, "connections.close", user="alice") == {"closed": 1}
        with pytest.raises(OSError, match=r".*"):
            alice.exchange(versions)
        assert bob.exchange(versions).api_keys
        assert secured.proxy.control(1, "connections.close", user=None) == {"closed": 1}
        with pytest.raises(OSError, match=r".*"):
            bob.exchange(versions)


def test_new_connections_see_another_certificate_and_open_ones_stay(secured: Secured) -> None:
    first = secured.shown()
    other = CertificateAuthority("another authority").issue("broker")
    expired = secured.security.authority.issue("broker", days=-1)
    counting = secured.arm(event="handshake")
    with secured.client() as before:
        for identity, reason in ((other, "self-signed certificate"), (expired, "certificate has expired")):
            secured.proxy.control(1, "certificate", key=identity.key, chain=identity.chain)
            assert secured.shown() == of_certificate(identity.chain) != first
            with pytest.raises(ssl.SSLCertVerificationError, match=reason):
                secured.refusal()
        assert before.exchange(client_request(ApiKey.API_VERSIONS, 0)).api_keys
        until(lambda: secured.counted(counting) == (3, 2))
        for fields in ({"key": other.key}, {"key": "none", "chain": "none"}):
            with pytest.raises(ClusterError, match=r"a key and a chain|TLS cannot use these keys"):
                secured.proxy.control(1, "certificate", **fields)
        assert secured.shown() == of_certificate(expired.chain), "an unusable one changes nothing"
        secured.proxy.control(1, "certificate")
        assert secured.shown() == first
        assert secured.refusal() == ""


def test_operations_that_the_broker_denies_are_counted_while_a_rule_asks_for_them(secured: Secured) -> None:
    rule = secured.arm(event="denial", user="alice", operations=["DESCRIBE"], type="TOPIC", name="orders")
    group = secured.arm(event="denial", user="alice", operations=["READ"], type="GROUP", name="billing")
    asked = client_request(ApiKey.METADATA, 9, topics=[{"name": "orders"}, {"name": "audit"}])
    heartbeat = client_request(ApiKey.HEARTBEAT, 3, group_id="billing", generation_id=1, member_id="m")
    with secured.client() as alice, secured.client("bob") as bob:
        for client in (alice, bob):
            errors = [int(row.error_code) for row in client.exchange(asked).topics]
            assert errors == [29, 29], "neither has a right"
            assert int(client.exchange(heartbeat).error_code) == 30
    assert secured.counted(rule) == (1, 1)
    assert secured.counted(group) == (1, 1)


def test_the_broker_sees_the_certificate_that_the_client_has_shown(tmp_path: Path) -> None:
    security = ClusterSecurity(Security("mtls", acls=True), tmp_path / "security")
    for user in ("alice", "bob"):
        security.access(user, "")  # writes the files of the user
    (tmp_path / "stranger.pem").write_text(security.authority.issue("stranger", hosts=()).pem)

    def connection(proxy: Proxy, certificate: Path | None) -> Connection:
        context = ssl.create_default_context(cafile=security.ca_file)
        if certificate is not None:
            context.load_cert_chain(certificate)
        return Connection(proxy.addresses[1], "shop", tls=context)

    with Cluster(brokers=1, folder=tmp_path / "cluster", config=security.broker_settings) as cluster:
        own = addresses_of(cluster.own_servers)
        create_acl(own, lambda: own, acl_of("alice", "DESCRIBE", topic="orders", group=None, transactional_id=None))
        upstreams = {1: cluster.brokers[1].address}
        keystore, truststore = str(security.broker_file), str(security.ca_file)
        with Proxy(tmp_path / "proxied", upstreams, keystore=keystore, truststore=truststore) as proxy:
            asked = client_request(ApiKey.METADATA, 9, topics=[{"name": "orders"}], allow_auto_topic_creation=False)
            for user, error in (("alice", 3), ("bob", 29)):
                with connection(proxy, security.folder / f"{user}.pem") as client:
                    assert [int(row.error_code) for row in client.exchange(asked).topics] == [error]
                    assert proxy.control(1, "connections.close", user=user) == {"closed": 1}
            for refused in (None, tmp_path / "stranger.pem"):
                with pytest.raises(OSError, match=r".*"), connection(proxy, refused) as client:
                    client.exchange(asked)
            other = security.authority.issue("broker")
            proxy.control(1, "certificate", key=other.key, chain=other.chain)
            with pytest.raises(OSError, match=r".*"), connection(proxy, None) as client:
                client.exchange(asked)  # clients still show certificates
