"""What can be chosen as the security of a test's cluster, and the settings of clients for each library (A5)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from harrow import Harrow, HarrowError, Security
from harrow.cluster.config import BrokerConfig
from harrow.cluster.listeners import CLIENTS, HARROW, parse_listeners
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.clusters import OwnCluster
from harrow.harness.plugin.options import OPTIONS
from harrow.harness.security.choice import INSECURE
from harrow.harness.security.client_settings import Access, client_settings, environment_of
from harrow.harness.security.cluster_security import ClusterSecurity

PARSE = next(row.parse for row in OPTIONS if row.name == "security")


@pytest.mark.parametrize(
    ("text", "kind", "mechanism", "shown"),
    [
        ("none", "none", "", "none"),
        ("ssl", "ssl", "", "ssl"),
        ("mtls", "mtls", "", "mtls"),
        ("sasl_plaintext:PLAIN", "sasl_plaintext", "PLAIN", "sasl_plaintext:PLAIN"),
        ("sasl_ssl", "sasl_ssl", "SCRAM-SHA-512", "sasl_ssl:SCRAM-SHA-512"),
        ("sasl_ssl:OAUTHBEARER", "sasl_ssl", "OAUTHBEARER", "sasl_ssl:OAUTHBEARER"),
    ],
)
def test_a_text_names_protocol_and_mechanism(text: str, kind: str, mechanism: str, shown: str) -> None:
    found = PARSE(text)
    assert (found.kind, found.mechanism, str(found)) == (kind, mechanism, shown)
    assert PARSE(shown) == found
    assert PARSE(Security(text)) == found


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"protocol": "sasl-ssl"}, "expected none, ssl, mtls, sasl_plaintext or sasl_ssl; did you mean sasl_ssl?"),
        ({"protocol": 5}, "Security(protocol=5): expected a text"),
        ({"protocol": "sasl_ssl:GSSAPI"}, "expected one of the mechanisms PLAIN, SCRAM-SHA-256"),
        ({"protocol": "sasl_ssl:"}, "expected one of the mechanisms"),
        ({"protocol": "ssl:PLAIN"}, "only sasl_plaintext and sasl_ssl have a mechanism"),
        ({"protocol": "ssl", "acls": True}, "all clients are anonymous, without users and acls; choose mtls or SASL"),
        ({"protocol": "none", "users": ("alice",)}, "all clients are anonymous"),
        ({"protocol": "mtls", "reauthenticate_after": 1.0}, "expected 0 or more, and SASL"),
        ({"protocol": "sasl_ssl", "reauthenticate_after": -1.0}, "expected 0 or more"),
        ({"protocol": "sasl_ssl", "acls": 1}, "Security(acls=1): expected True or False"),
        (
            {"protocol": "sasl_ssl", "reauthenticate_after": "2"},
            "Security(reauthenticate_after='2'): expected a number",
        ),
        ({"protocol": "sasl_ssl", "users": "alice"}, "Security(users='alice'): expected a list of texts"),
        ({"protocol": "sasl_ssl", "users": ("a b",)}, "user 'a b': expected 1 to 64"),
    ],
)
def test_what_cannot_be_is_refused_with_the_valid_values(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises(HarrowError, match=re.escape(words)):
        Security(**arguments)


def test_reports_say_what_is_more_than_the_protocol() -> None:
    assert Security("sasl_ssl", acls=True, reauthenticate_after=2.0).words == (
        "sasl_ssl:SCRAM-SHA-512 with ACLs and sessions of 2 s"
    )
    assert INSECURE.words == "none"


ACCESS = Access(
    servers="127.0.0.1:9092", protocol="SASL_SSL", mechanism="SCRAM-SHA-512", user="alice", password="x", ca="ca.pem"
)


def test_java_gets_properties() -> None:
    module = "org.apache.kafka.common.security.scram.ScramLoginModule"
    assert client_settings(ACCESS, "java") == {
        "bootstrap.servers": "127.0.0.1:9092",
        "security.protocol": "SASL_SSL",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "ca.pem",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{module} required username="alice" password="x";',
    }


def test_a_cluster_without_security_gives_its_address_alone() -> None:
    plain = Access(servers="127.0.0.1:9092", protocol="PLAINTEXT")
    for library, name in (
        ("librdkafka", "bootstrap.servers"),
        ("java", "bootstrap.servers"),
        ("kafka-python", "bootstrap_servers"),
        ("aiokafka", "bootstrap_servers"),
    ):
        assert client_settings(plain, library) == {name: "127.0.0.1:9092"}
    assert environment_of(plain) == {}


def test_programs_get_what_their_protocol_needs() -> None:
    assert environment_of(ACCESS) == {
        "KAFKA_SECURITY_PROTOCOL": "SASL_SSL",
        "KAFKA_SASL_MECHANISM": "SCRAM-SHA-512",
        "KAFKA_SASL_USERNAME": "alice",
        "KAFKA_SASL_PASSWORD": "x",
        "KAFKA_SSL_CAFILE": "ca.pem",
    }


@pytest.mark.parametrize("text", ["ssl", "mtls", "sasl_plaintext:PLAIN", "sasl_ssl", "sasl_ssl:SCRAM-SHA-256"])
def test_the_settings_of_brokers_have_a_secured_listener_and_a_plain_one_for_harrow(text: str, tmp_path: Path) -> None:
    security = Security(text, acls=text != "ssl")
    found = ClusterSecurity(security, tmp_path)
    config = BrokerConfig.parse(found.broker_settings)
    protocols = {row.name: row.security_protocol.name for row in parse_listeners(config)}
    assert protocols[CLIENTS] == security.kafka_protocol
    assert protocols[HARROW] == "PLAINTEXT"
    assert config.text("super.users") == ("User:ANONYMOUS" if security.acls else "")


def test_a_password_belongs_to_its_user_and_faults_know_those_of_all_users(tmp_path: Path) -> None:
    found = ClusterSecurity(Security("sasl_ssl:PLAIN", users=("alice",)), tmp_path)
    assert found.password("alice") == found.access("alice", "").password != found.password("app")
    assert found.passwords() == {name: found.password(name) for name in ("app", "alice")}


class Elsewhere(OwnCluster):
    backend = "external"


def test_another_backend_refuses_it_with_the_remedy(tmp_path: Path) -> None:
    harrow = Harrow(tmp_path, security="ssl", clusters=Elsewhere(), engine="inline")
    with pytest.raises(CapabilityError, match="give your clients their own settings, and Harrow a PLAINTEXT listener"):
        _ = harrow.bootstrap_servers
