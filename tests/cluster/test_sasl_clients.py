"""Real clients that log in by SASL: each mechanism of each client library, and brokers that log in to brokers (A5)."""

from __future__ import annotations

import asyncio
import base64
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.abc import AbstractTokenProvider as AioTokens
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._config import AlterConfigOpType, ConfigEntry, ConfigResource
from confluent_kafka.admin._scram import (
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from confluent_kafka.cimpl import NewTopic
from harrow.cluster import Cluster
from harrow.cluster.config.sasl_table import JWKS_VALIDATOR
from harrow.harness.security.token_issuer import TokenIssuer
from kafka import KafkaConsumer, KafkaProducer
from kafka.net.sasl.oauth import AbstractTokenProvider as KafkaPythonTokens
from waiting import until

SECURITY = "org.apache.kafka.common.security"
SCRAM = f"{SECURITY}.scram.ScramLoginModule required;"
USERS = (
    "SCRAM-SHA-256=[name=kafka,password=k];SCRAM-SHA-256=[name=alice,password=a2,iterations=8192];"
    "SCRAM-SHA-512=[name=alice,password=a5]"
)
SETTINGS: dict[str, object] = {
    "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:SASL_PLAINTEXT",
    "listener.name.clients.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512,OAUTHBEARER",
    "listener.name.clients.plain.sasl.jaas.config": f'{SECURITY}.plain.PlainLoginModule required user_alice="a,=";',
    "listener.name.clients.scram-sha-256.sasl.jaas.config": SCRAM,
    "listener.name.clients.scram-sha-512.sasl.jaas.config": SCRAM,
    "listener.name.clients.oauthbearer.sasl.jaas.config": (
        f'{SECURITY}.oauthbearer.OAuthBearerLoginModule required unsecuredValidatorAllowableClockSkewMs="1000";'
    ),
    "listener.name.clients.connections.max.reauth.ms": 4_000,
    "sasl.enabled.mechanisms": "SCRAM-SHA-256",
    "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256",
    "listener.name.brokers.scram-sha-256.sasl.jaas.config": (
        f'{SECURITY}.scram.ScramLoginModule required username="kafka" password="k";'
    ),
    "listener.name.brokers.connections.max.reauth.ms": 2_000,
    "harrow.scram.users": USERS,
}
PASSWORDS = {"PLAIN": "a,=", "SCRAM-SHA-256": "a2", "SCRAM-SHA-512": "a5"}
MECHANISMS = (*PASSWORDS, "OAUTHBEARER")


def token() -> str:
    """A token without a signature, of alice."""
    parts = ({"alg": "none"}, {"sub": "alice", "iat": time.time(), "exp": time.time() + 600})
    return ".".join(base64.urlsafe_b64encode(json.dumps(part).encode()).decode().rstrip("=") for part in parts) + "."


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=3, config=SETTINGS) as found:
        admin: Any = AdminClient(of_librdkafka(found, "PLAIN"))
        made = admin.create_topics([NewTopic(name, 1, 3) for name in ("librdkafka", "python", "aio", "again")])
        for future in made.values():
            future.result(30)
        yield found


# -------------------------------------------------------------- round trips


def oauth_callback(make: Callable[[], str]) -> Callable[[object], tuple[str, float]]:
    """What librdkafka calls for a token."""
    return lambda _: (make(), time.time() + 600)


def of_librdkafka(cluster: Cluster, mechanism: str, user: str = "alice", password: str = "") -> dict[str, Any]:
    settings: dict[str, Any] = {
        "bootstrap.servers": cluster.bootstrap_servers,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": mechanism,
        "log_level": 0,
    }
    if mechanism == "OAUTHBEARER":
        return settings | {"oauth_cb": oauth_callback(token)}
    return settings | {"sasl.username": user, "sasl.password": password or PASSWORDS[mechanism]}


def librdkafka(cluster: Cluster, mechanism: str, value: bytes) -> bytes:
    producer = Producer(of_librdkafka(cluster, mechanism))
    producer.produce("librdkafka", value)
    assert producer.flush(20) == 0
    consumer = Consumer(
        of_librdkafka(cluster, mechanism) | {"group.id": value.decode(), "auto.offset.reset": "earliest"}
    )
    consumer.subscribe(["librdkafka"])
    found = b""
    while found != value:
        message = consumer.poll(20)
        assert message is not None and message.error() is None
        found = message.value() or b""
    consumer.close()
    return found


class PythonTokens(KafkaPythonTokens):  # type: ignore[misc]
    def token(self) -> Any:
        return token()


def kafka_python(cluster: Cluster, mechanism: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = PythonTokens()
    else:
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS[mechanism]}
    producer: Any = KafkaProducer(**settings)
    producer.send("python", value).get(timeout=20)
    producer.close()
    consumer: Any = KafkaConsumer(
        "python", **settings, group_id=value.decode(), auto_offset_reset="earliest", consumer_timeout_ms=20_000
    )
    found = next(message.value for message in consumer if message.value == value)
    consumer.close()
    return bytes(found)


class AioPythonTokens(AioTokens):  # type: ignore[misc]
    async def token(self) -> Any:
        return token()


def aiokafka(cluster: Cluster, mechanism: str, value: bytes) -> bytes:
    settings: dict[str, Any] = {
        "bootstrap_servers": cluster.bootstrap_servers,
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": mechanism,
    }
    if mechanism == "OAUTHBEARER":
        settings["sasl_oauth_token_provider"] = AioPythonTokens()
    else:
        settings |= {"sasl_plain_username": "alice", "sasl_plain_password": PASSWORDS[mechanism]}

    async def main() -> bytes:
        producer: Any = AIOKafkaProducer(**settings)
        await producer.start()
        await producer.send_and_wait("aio", value)
        await producer.stop()
        consumer: Any = AIOKafkaConsumer("aio", **settings, group_id=value.decode(), auto_offset_reset="earliest")
        await consumer.start()
        found = b""
        while found != value:
            found = (await asyncio.wait_for(consumer.getone(), 20)).value
        await consumer.stop()
        return found

    return asyncio.run(main())


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize("client", [librdkafka, kafka_python, aiokafka], ids=lambda client: client.__name__)
def test_a_client_logs_in_and_gets_what_it_sent(
    cluster: Cluster, client: Callable[[Cluster, str, bytes], bytes], mechanism: str
) -> None:
    value = f"{client.__name__}-{mechanism}".encode()
    assert client(cluster, mechanism, value) == value


# ------------------------------------------------------------------- users


def test_a_user_that_is_deleted_keeps_its_connections_and_gets_no_more(cluster: Cluster) -> None:
    admin: Any = AdminClient(of_librdkafka(cluster, "SCRAM-SHA-512"))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
    added = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("bob", info, b"b")])
    added["bob"].result(20)
    bob = AdminClient(of_librdkafka(cluster, "SCRAM-SHA-256", "bob", "b"))
    until(lambda: has_brokers(bob), "bob logs in")
    described = admin.describe_user_scram_credentials(["bob"])["bob"].result(20)
    assert [(row.mechanism, row.iterations) for row in described.scram_credential_infos] == [(info.mechanism, 4096)]
    admin.alter_user_scram_credentials([UserScramCredentialDeletion("bob", ScramMechanism.SCRAM_SHA_256)])[
        "bob"
    ].result(20)
    until(lambda: not has_brokers(AdminClient(of_librdkafka(cluster, "SCRAM-SHA-256", "bob", "b")), 0.5), "bob is gone")
    changed = admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"new")])
    changed["alice"].result(20)
    until(lambda: has_brokers(AdminClient(of_librdkafka(cluster, "SCRAM-SHA-256", "alice", "new"))), "the new password")
    admin.alter_user_scram_credentials([UserScramCredentialUpsertion("alice", info, b"a2")])["alice"].result(20)
    until(lambda: has_brokers(AdminClient(of_librdkafka(cluster, "SCRAM-SHA-256"))), "the old password again")


def has_brokers(admin: AdminClient, timeout_s: float = 5.0, brokers: int = 3) -> bool:
    try:
        return len(admin.list_topics(timeout=timeout_s).brokers) == brokers
    except KafkaException:
        return False


@pytest.mark.parametrize(("mechanism", "password"), [("PLAIN", "wrong"), ("SCRAM-SHA-256", "a5")])
def test_a_wrong_password_is_an_error_of_authentication(cluster: Cluster, mechanism: str, password: str) -> None:
    errors: list[Any] = []
    settings = of_librdkafka(cluster, mechanism, password=password) | {"error_cb": errors.append}
    producer = Producer(settings)
    until(lambda: producer.poll(0.1) or errors, "an error")
    assert errors[0].name() == "_AUTHENTICATION"


def test_a_running_broker_gets_more_users_of_plain(cluster: Cluster) -> None:
    entry = f'{SECURITY}.plain.PlainLoginModule required user_alice="a,=" user_dora="d";'
    admin: Any = AdminClient(of_librdkafka(cluster, "SCRAM-SHA-512"))
    for node in cluster.brokers:
        row = ConfigResource(ConfigResource.Type.BROKER, str(node))
        name = "listener.name.clients.plain.sasl.jaas.config"
        row.add_incremental_config(ConfigEntry(name, entry, incremental_operation=AlterConfigOpType.SET))
        for future in admin.incremental_alter_configs([row]).values():
            future.result(20)
        described = admin.describe_configs([ConfigResource(ConfigResource.Type.BROKER, str(node))])
        shown = next(iter(described.values())).result(20)
        assert "sasl.jaas.config" in shown and entry not in str({key: found.value for key, found in shown.items()})
    until(lambda: has_brokers(AdminClient(of_librdkafka(cluster, "PLAIN", "dora", "d"))), "dora logs in")


# ------------------------------------------------------------ long sessions


def test_connections_of_clients_and_brokers_outlive_their_sessions(cluster: Cluster) -> None:
    producer = Producer(of_librdkafka(cluster, "SCRAM-SHA-256") | {"acks": "all"})
    end = time.monotonic() + 6
    sent = 0
    while time.monotonic() < end or sent < 50:
        producer.produce("again", str(sent).encode())
        assert producer.flush(30) == 0
        sent += 1
    cluster.await_converged()
    for broker in cluster.brokers.values():
        log = (broker.folder / "broker.log").read_text()
        assert "client broker-" not in log, "a broker was not known as one"
        assert not [line for line in log.splitlines() if "broker " in line and "has not logged in" in line]


def test_brokers_that_start_again_log_in_again(cluster: Cluster) -> None:
    cluster.brokers[2].kill()
    cluster.brokers[2].start()
    cluster.await_converged()
    assert librdkafka(cluster, "PLAIN", b"after") == b"after"


def test_signed_tokens_of_an_issuer_log_in_and_others_do_not() -> None:
    prefix = "listener.name.clients."
    with TokenIssuer() as issuer:
        settings: dict[str, object] = {
            "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,BROKERS:PLAINTEXT",
            f"{prefix}sasl.enabled.mechanisms": "OAUTHBEARER",
            f"{prefix}oauthbearer.sasl.jaas.config": f"{SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
            f"{prefix}oauthbearer.sasl.server.callback.handler.class": JWKS_VALIDATOR,
            f"{prefix}oauthbearer.sasl.oauthbearer.jwks.endpoint.url": issuer.keys_url,
            f"{prefix}oauthbearer.sasl.oauthbearer.expected.audience": issuer.audience,
            f"{prefix}oauthbearer.sasl.oauthbearer.expected.issuer": issuer.name,
        }
        with Cluster(brokers=1, config=settings) as small:

            def logs_in(make: Callable[[], str]) -> bool:
                options: dict[str, Any] = {"oauth_cb": oauth_callback(make)}
                admin = AdminClient(of_librdkafka(small, "OAUTHBEARER") | options)
                admin.poll(0.1)  # calls `oauth_cb`
                return has_brokers(admin, 2.0, 1)

            def is_refused(make: Callable[[], str]) -> bool:
                errors: list[Any] = []
                options: dict[str, Any] = {"oauth_cb": oauth_callback(make), "error_cb": errors.append}
                admin = AdminClient(of_librdkafka(small, "OAUTHBEARER") | options)
                until(lambda: admin.poll(0.1) or errors, "an error")
                return bool(errors[0].name() == "_AUTHENTICATION")

            assert logs_in(lambda: issuer.token("alice"))
            assert is_refused(lambda: issuer.token("alice", aud="other"))
            assert is_refused(lambda: issuer.token("alice", iss="other"))
            assert is_refused(token)
            issuer.rotate()
            until(lambda: logs_in(lambda: issuer.token("alice")), "the new key")
