"""(A5) Faults of credentials on real brokers: what clients meet, that they go on, and clients that lose records."""

from __future__ import annotations

import contextlib
import ssl
from collections.abc import Generator
from typing import Any

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from harrow import (
    Harrow,
    VerdictError,
    expire_certificate,
    expire_token,
    refuse_reauthentication,
    revoke_acl,
    rotate_certificate,
    rotate_credentials,
)
from harrow.cluster.authorizer import Operation, ResourceType
from harrow.cluster.errors import ConfigError
from harrow.cluster.listeners import Address
from harrow.cluster.security.acls import Acl, AclEntry, PatternType, Permission, ResourcePattern
from harrow.faults import Fault
from harrow.faults.errors import NemesisError
from harrow.harness.requests.operator import addresses_of
from harrow.harness.requests.security_requests import create_acls, describe_acls
from long_runs import long_run, some
from persistent_app import App, run, running
from secured_clusters import SecuredCluster, client_config, sasl_config, servers_of, with_acls
from waiting import until


@pytest.mark.parametrize(
    ("user", "mechanism"), some([("bob", "PLAIN"), ("alice", "SCRAM-SHA-512"), ("alice", "PLAIN")], 1)
)
@pytest.mark.harrow(config=sasl_config())
def test_a_client_with_the_former_password_cannot_log_in_until_it_is_back(
    harrow: Harrow, user: str, mechanism: str
) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, client_config(harrow, user, mechanism))
    rows = run(harrow, app, rotate_credentials(user, seconds=1))
    assert rows["effect"]["evidence"]["refused_logins"] > 0
    assert rows["effect"]["evidence"]["closed"] > 0
    assert rows["healed"]["evidence"] == {"as_before": True, "armed": []}
    assert "_AUTHENTICATION" in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


@pytest.mark.harrow(config=sasl_config())
def test_an_application_that_drops_what_cannot_be_sent_meanwhile_loses_records(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    config = {**client_config(harrow), "message.timeout.ms": 500}
    app = App(harrow, topic, config, drops=True)
    run(harrow, app, rotate_credentials("alice", seconds=2))
    assert "_MSG_TIMED_OUT" in app.errors
    with pytest.raises(VerdictError) as found:
        harrow.verify(topic, record_id="id", expected=app.sent)
    assert found.value.verdict.status == "invalid"


@pytest.mark.harrow(config=sasl_config())
def test_connections_that_stay_open_go_on_and_the_new_password_is_accepted(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, client_config(harrow))
    fault = rotate_credentials("alice", password="other", close=False, seconds=3)
    with running(app), harrow.chaos(fault) as chaos:
        until(lambda: can_log_in({**client_config(harrow), "sasl.password": "other"}), "the new password is accepted")
        assert not can_log_in(client_config(harrow))
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=60)
    assert can_log_in(client_config(harrow))
    assert app.errors == set()
    harrow.verify(topic, record_id="id", expected=app.sent)


@long_run
@pytest.mark.parametrize("mechanism", some(["SCRAM-SHA-512", "PLAIN"], 1))
@pytest.mark.harrow(config=sasl_config())
def test_a_broker_that_starts_meanwhile_has_the_new_password_and_then_the_former_one(
    harrow: Harrow, mechanism: str
) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, client_config(harrow, mechanism=mechanism))
    of_broker = {**client_config(harrow, mechanism=mechanism), "bootstrap.servers": servers_of(harrow).split(",")[0]}
    harrow.cluster.brokers[1].kill()
    with running(app), harrow.chaos(rotate_credentials("alice", password="other", seconds=4)) as chaos:
        until(lambda: chaos.effects, "the effect", timeout_s=60)
        harrow.cluster.brokers[1].start()
        until(lambda: can_log_in({**of_broker, "sasl.password": "other"}), "it has the new password")
        assert not can_log_in(of_broker)
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=60)
    assert can_log_in(of_broker)
    harrow.verify(topic, record_id="id", expected=app.sent)


def can_log_in(config: dict[str, Any]) -> bool:
    try:
        AdminClient(config).list_topics(timeout=2)
    except KafkaException:
        return False
    return True


# ------------------------------------------------------------------------------------------- ACLs


def own_address(harrow: Harrow) -> Address:
    return addresses_of(harrow.bootstrap_servers)[0]


def acls_of(harrow: Harrow) -> set[Acl]:
    return set(describe_acls(own_address(harrow), ResourceType.TOPIC, "orders"))


def allow(harrow: Harrow, *names: tuple[str, PatternType, Operation]) -> None:
    """Creates ACLs of alice; returns when the broker that describes them has them all."""
    rows = [
        Acl(
            ResourcePattern(ResourceType.TOPIC, name, pattern), AclEntry("User:alice", "*", operation, Permission.ALLOW)
        )
        for name, pattern, operation in names
    ]
    create_acls(own_address(harrow), rows)
    until(lambda: acls_of(harrow) >= set(rows), "the broker has the ACLs")


LITERAL, PREFIXED = PatternType.LITERAL, PatternType.PREFIXED
OWN = ("orders", LITERAL, Operation.WRITE)


@pytest.mark.parametrize(
    ("others", "added"),
    some(
        [
            pytest.param([("ord", PREFIXED, Operation.ALL)], 1, id="prefix"),
            pytest.param([("*", LITERAL, Operation.WRITE)], 1, id="wildcard"),
            pytest.param([], 0, id="own"),
        ],
        suite=1,
    ),
)
@pytest.mark.harrow(config=with_acls())
def test_a_client_without_the_acl_is_refused_until_it_is_back(harrow: Harrow, others: Any, added: int) -> None:
    topic = harrow.topic("orders", partitions=2)
    allow(harrow, OWN, ("orders", LITERAL, Operation.READ), *others)
    before = acls_of(harrow)
    app = App(harrow, topic, client_config(harrow))
    rows = run(harrow, app, revoke_acl("alice", "WRITE", topic, seconds=1))
    evidence = rows["effect"]["evidence"]
    assert evidence["denied_operations"] > 0
    assert (evidence["acls_removed"], evidence["acls_added"]) == (1, added)
    assert "TOPIC_AUTHORIZATION_FAILED" in app.errors
    assert acls_of(harrow) == before
    harrow.verify(topic, record_id="id", expected=app.sent, guarantee="no-loss")


@pytest.mark.harrow(config=with_acls())
def test_an_application_that_drops_records_which_it_may_not_send_loses_them(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    allow(harrow, OWN)
    app = App(harrow, topic, client_config(harrow), drops=True)
    run(harrow, app, revoke_acl("alice", "WRITE", topic, seconds=1))
    with pytest.raises(VerdictError) as found:
        harrow.verify(topic, record_id="id", expected=app.sent, guarantee="no-loss")
    assert found.value.verdict.status == "invalid"


@pytest.mark.harrow(config=with_acls())
def test_an_operation_that_is_not_allowed_or_that_of_a_super_user_cannot_be_revoked(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    allow(harrow, OWN)
    app = App(harrow, topic, client_config(harrow))
    with pytest.raises(ConfigError, match="bob is a super user"), harrow.chaos(revoke_acl("bob", "WRITE", topic)):
        pass
    with pytest.raises(NemesisError, match="alice has no READ on topic orders"):
        run(harrow, app, revoke_acl("alice", "READ", topic))


# ----------------------------------------------------------------------------------- certificates


@pytest.fixture
def secured(tmp_path: Any) -> Generator[tuple[Harrow, dict[str, Any]]]:
    folder = tmp_path / "certificates"
    folder.mkdir()
    clusters = SecuredCluster(folder)
    with Harrow(tmp_path / "run", clusters=clusters, config=clusters.config()) as harrow:
        yield harrow, clusters.client_config(harrow)


@pytest.mark.parametrize("fault", some([rotate_certificate(ca="new", seconds=1), expire_certificate(seconds=1)], 1))
def test_a_client_refuses_the_certificate_until_the_former_one_is_back(
    secured: tuple[Harrow, dict[str, Any]], fault: Fault
) -> None:
    harrow, config = secured
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, config)
    rows = run(harrow, app, fault)
    assert rows["effect"]["evidence"]["handshakes"] > 0
    assert rows["healed"]["evidence"]["as_before"] is True
    assert "_SSL" in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


def test_an_application_that_does_not_send_again_after_a_wrong_certificate_loses_records(
    secured: tuple[Harrow, dict[str, Any]],
) -> None:
    harrow, config = secured
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, {**config, "message.timeout.ms": 500}, drops=True)
    run(harrow, app, expire_certificate(seconds=2))
    with pytest.raises(VerdictError):
        harrow.verify(topic, record_id="id", expected=app.sent)


def test_clients_accept_another_certificate_of_the_same_authority(secured: tuple[Harrow, dict[str, Any]]) -> None:
    harrow, config = secured
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, config)
    first = shown(harrow)
    seen: set[str] = set()
    with running(app), harrow.chaos(rotate_certificate(seconds=1)) as chaos:
        while chaos.running:
            with contextlib.suppress(OSError):  # the fault closes this connection, too
                seen.add(shown(harrow))
    assert len(seen) == 2
    assert shown(harrow) == first
    assert "_SSL" not in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


def shown(harrow: Harrow) -> str:
    """The certificate that the first broker shows, as a client that pins it sees it."""
    host, _, port = servers_of(harrow).split(",")[0].rpartition(":")
    return ssl.get_server_certificate((host, int(port)))


# ---------------------------------------------------------------------------- sessions and tokens


@pytest.mark.parametrize("first_logins", some([True, False], 1))
@pytest.mark.harrow(config=sasl_config() | {"connections.max.reauth.ms": 1000})
def test_sessions_that_cannot_be_renewed_end(harrow: Harrow, first_logins: bool) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, client_config(harrow))
    rows = run(harrow, app, refuse_reauthentication("alice", first_logins=first_logins, seconds=1))
    assert rows["effect"]["evidence"]["refused_logins"] > 0
    assert "_AUTHENTICATION" in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


@pytest.mark.harrow(config=sasl_config())
def test_a_client_with_an_expired_token_cannot_log_in_until_tokens_are_valid(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    config = {
        "bootstrap.servers": servers_of(harrow),
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.oauthbearer.config": "principal=alice",
        "enable.sasl.oauthbearer.unsecure.jwt": True,
        "log_level": 0,
    }
    app = App(harrow, topic, config)
    rows = run(harrow, app, expire_token("alice", seconds=1))
    assert rows["effect"]["evidence"]["refused_tokens"] > 0
    assert rows["effect"]["evidence"]["closed"] > 0
    assert "_AUTHENTICATION" in app.errors
    harrow.verify(topic, record_id="id", expected=app.sent)


@pytest.mark.harrow(config=sasl_config())
def test_a_fault_that_no_client_meets_fails_the_run(harrow: Harrow) -> None:
    topic = harrow.topic("orders", partitions=2)
    app = App(harrow, topic, client_config(harrow))
    with (
        pytest.raises(NemesisError, match="no login of bob was refused"),
        running(app),
        harrow.chaos(rotate_credentials("bob"), reached_within=2) as chaos,
    ):
        until(lambda: not chaos.running, "the end of the schedule", timeout_s=60)
    assert app.errors == set()
