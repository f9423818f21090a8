"""Fixtures for the copies of clients' own test suites: a broker that runs already, in place of a container or Java.

Owns: the fixtures of aiokafka's `tests/conftest.py` (`kafka_server`, `ssl_folder`, `acl_manager`, `kafka_config`), and
`running`, which derives kafka-python's `KafkaFixture`. `secured_suites.py` copies this file into a checkout's copy and
adds the lines that import it; the tests are unchanged. ACLs and SCRAM credentials are made by confluent-kafka, as the
user `admin`, and each call returns when the broker acts by them. Needs `waiting.py` beside it, and no other module of
the project.
"""

from __future__ import annotations

import json
import os
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaException, admin
from waiting import until

API: Any = admin
"""Its annotations are narrower than what it takes."""
HOST = "127.0.0.1"
PORTS: dict[str, int] = json.loads(os.environ["HARROW_SUITE_PORTS"])
CERTIFICATES = Path(os.environ["HARROW_SUITE_CERTIFICATES"])
LIMIT_S = 30.0
ITERATIONS = 4096
SCRAM = {"SCRAM-SHA-256": API.ScramMechanism.SCRAM_SHA_256, "SCRAM-SHA-512": API.ScramMechanism.SCRAM_SHA_512}
EVERY_ACL = API.AclBindingFilter(
    API.ResourceType.ANY, None, API.ResourcePatternType.ANY, None, None, API.AclOperation.ANY, API.AclPermissionType.ANY
)

__all__ = [
    "acl_manager",
    "docker",
    "kafka_config",
    "kafka_image",
    "kafka_server",
    "kerberos_utils",
    "ssl_folder",
]
"""What aiokafka's `conftest.py` imports over its own."""


def client_of(user: str, password: str, mechanism: str) -> Any:
    """Return a client that logs in on the SASL_PLAINTEXT listener."""
    return API.AdminClient(
        {
            "bootstrap.servers": f"{HOST}:{PORTS['SASL_PLAINTEXT']}",
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": mechanism,
            "sasl.username": user,
            "sasl.password": password,
            "log_level": 0,
        }
    )


def administrator() -> Any:
    """Return a client that may do everything."""
    user, _, password = os.environ["HARROW_SUITE_ADMIN"].partition(":")
    return client_of(user, password, "PLAIN")


def logs_in(user: str, password: str, mechanism: str) -> bool:
    """Return whether the broker lets the user log in."""
    try:
        client_of(user, password, mechanism).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


def add_scram_user(user: str, password: str) -> None:
    """Store the credentials of a user for both mechanisms."""
    client = administrator()  # librdkafka answers nothing after its client is gone
    for name, mechanism in SCRAM.items():  # one request changes one credential of a user
        change = API.UserScramCredentialUpsertion(
            user, API.ScramCredentialInfo(mechanism, ITERATIONS), password.encode()
        )
        client.alter_user_scram_credentials([change])[user].result(LIMIT_S)
        until(partial(logs_in, user, password, name), f"{user} logs in by {name}")


# --------------------------------------------------------------- aiokafka


class Acls:
    """Adds, lists and removes ACLs by the arguments that aiokafka's tests have for Kafka's shell tool."""

    def __init__(self) -> None:
        self._admin = administrator()
        self._added: list[Any] = []

    def add_acl(self, **described: Any) -> None:
        """Add one ACL."""
        wanted = binding_of(**described)
        for future in self._admin.create_acls([wanted]).values():
            future.result(LIMIT_S)
        self._added.append(wanted)
        until(lambda: wanted in self.list_acl(), f"the broker has {wanted}")

    def list_acl(self) -> list[Any]:
        """Return the ACLs by which the broker decides."""
        return list(self._admin.describe_acls(EVERY_ACL).result(LIMIT_S))

    def cleanup(self) -> None:
        """Remove what was added."""
        filters = [
            API.AclBindingFilter(
                added.restype,
                added.name,
                added.resource_pattern_type,
                added.principal,
                added.host,
                added.operation,
                added.permission_type,
            )
            for added in self._added
        ]
        if filters:
            for future in self._admin.delete_acls(filters).values():
                future.result(LIMIT_S)
        until(lambda: not set(self._added).intersection(self.list_acl()), "the broker has no ACL of the test")
        self._added.clear()


def binding_of(
    *,
    operation: str,
    allow_principal: str | None = None,
    deny_principal: str | None = None,
    cluster: bool = False,
    topic: str | None = None,
    group: str | None = None,
    transactional_id: str | None = None,
) -> Any:
    """Return one ACL on exactly one resource."""
    named = {
        API.ResourceType.BROKER: "kafka-cluster" if cluster else None,
        API.ResourceType.TOPIC: topic,
        API.ResourceType.GROUP: group,
        API.ResourceType.TRANSACTIONAL_ID: transactional_id,
    }
    ((kind, name),) = ((kind, name) for kind, name in named.items() if name is not None)
    ((permission, user),) = (
        (permission, user)
        for permission, user in (
            (API.AclPermissionType.ALLOW, allow_principal),
            (API.AclPermissionType.DENY, deny_principal),
        )
        if user is not None
    )
    wanted = API.AclOperation[operation.upper()]
    return API.AclBinding(kind, name, API.ResourcePatternType.LITERAL, f"User:{user}", "*", wanted, permission)


@pytest.fixture(scope="session")
def docker() -> None:
    """No container runs."""


@pytest.fixture(scope="session")
def kafka_image(request: pytest.FixtureRequest) -> str:
    """The name whose last part is the version of Kafka for which the tests choose themselves."""
    return str(request.config.getoption("--docker-image"))


@pytest.fixture(scope="session")
def ssl_folder() -> Path:
    """The folder with the certificates of the authority and of the client."""
    return CERTIFICATES


@pytest.fixture(scope="session")
def kafka_server() -> SimpleNamespace:
    """The addresses of the broker."""
    return SimpleNamespace(
        host=HOST,
        port=PORTS["PLAINTEXT"],
        ssl_port=PORTS["SSL"],
        sasl_plain_port=PORTS["SASL_PLAINTEXT"],
        sasl_ssl_port=PORTS["SASL_SSL"],
        hosts=[f"{HOST}:{PORTS['PLAINTEXT']}"],
    )


@pytest.fixture(scope="class")
def acl_manager() -> Acls:
    """Adds and removes ACLs."""
    return Acls()


@pytest.fixture(scope="class")
def kafka_config() -> SimpleNamespace:
    """Stores SCRAM credentials."""
    return SimpleNamespace(add_scram_user=add_scram_user)


@pytest.fixture(scope="class")
def kerberos_utils() -> None:
    """No key distribution centre runs: the tests of GSSAPI are left out."""


# --------------------------------------------------------------- kafka-python


def running(fixture: Any, admin_client: Any) -> Any:
    """Return kafka-python's `KafkaFixture` as one that gives the broker that runs; SASL_SSL where a test names none."""

    class Running(fixture):  # type: ignore[misc]
        """A listener of the broker that runs."""

        @classmethod
        def instance(cls, broker_id: int, *_: Any, **named: Any) -> Any:
            """Return the listener of a transport, for a user who is there."""
            transport = named.get("transport", "SASL_SSL")
            mechanism = named.get("sasl_mechanism", "SCRAM-SHA-512" if transport.startswith("SASL") else None)
            found = cls(
                "localhost",
                PORTS[transport],
                broker_id,
                external=True,
                transport=transport,
                sasl_mechanism=mechanism,
                partitions=named.get("partitions", 4),
            )
            found.ssl_dir = str(CERTIFICATES)  # pyright: ignore[reportUnknownMemberType]
            if mechanism in SCRAM:
                add_scram_user(cls.broker_user, cls.broker_password)
            return found

        def close(self) -> None:
            """Leave the broker running."""

        def get_topic_names(self) -> list[str]:
            """Return what Kafka's shell tool would print."""
            with admin_client(**self._enrich_client_params({})) as admin:
                return list(admin.list_topics())

    return Running
