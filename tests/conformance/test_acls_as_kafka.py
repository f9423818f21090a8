"""Requests under ACLs, and those about ACLs, are answered as by Apache Kafka 4.2 with its StandardAuthorizer (A5)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from apache_kafka import MISSING
from authorized_kafka import EVERY_ACL, Authorized, apache_broker, our_broker
from authorized_requests import SETTINGS, Matrix, matrix
from harrow.cluster.errors import error_name
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from mixed_requests import mixed_items

needs_apache = pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")

REFUSED_WITH_ITEMS = {ApiKey.LIST_PARTITION_REASSIGNMENTS}
"""Requests whose refusal names the requested topics in Kafka, without partitions; in Harrow it names none."""


UNANSWERED = {ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS}
"""Kafka 4.4 leaves it without a response after some of the other requests; alone it responds."""


def differences(ours: Matrix, theirs: Matrix) -> list[str]:
    found: list[str] = []
    for acls, outcomes in ours.items():
        for asked, outcome in outcomes.items():
            other = theirs[acls].get(asked)
            parts = ["errors"] if asked.api in REFUSED_WITH_ITEMS else [*outcome]
            if other is None or any(outcome[part] != other[part] for part in parts):
                found.append(f"{acls}: {asked.api.name} v{asked.version} {asked.kind}: {outcome}, in Kafka {other}")
    return found


@needs_apache
def test_every_request_is_answered_as_in_kafka_whatever_acls_there_are(tmp_path: Path) -> None:
    with our_broker(**SETTINGS) as broker:
        ours = matrix(broker, all_versions=True, without=UNANSWERED)
    with apache_broker(tmp_path / "kafka", **SETTINGS) as broker:
        theirs = matrix(broker, all_versions=True, without=UNANSWERED)
    assert sum(map(len, ours.values())) > 4_000
    assert differences(ours, theirs) == []


@needs_apache
def test_each_item_of_a_request_is_answered_as_in_kafka_where_others_are_refused(tmp_path: Path) -> None:
    with our_broker(**SETTINGS) as broker:
        ours = mixed_items(broker)
    with apache_broker(tmp_path / "kafka", **SETTINGS) as broker:
        theirs = mixed_items(broker)
    assert len(ours) > 1_000
    assert {name: (items, theirs[name]) for name, items in ours.items() if items != theirs[name]} == {}


# -------------------------------------------------------------------- requests

ACL: dict[str, Any] = {
    "resource_type": 2,
    "resource_name": "t",
    "resource_pattern_type": 3,
    "principal": "User:alice",
    "host": "*",
    "operation": 3,
    "permission_type": 3,
}
CREATED: list[dict[str, Any]] = [
    {},
    {"resource_pattern_type": 4},
    {"resource_name": "*"},
    {"resource_name": ""},
    {"resource_type": 3, "resource_name": "a/b%c"},
    {"resource_type": 4},
    {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 9},
    {"resource_type": 7, "resource_name": "User:bob", "operation": 13},
    {"resource_type": 5, "permission_type": 2},
    {"resource_type": 99},
    {"operation": 99},
    {"permission_type": 99},
    {"host": "127.0.0.1", "operation": 2},
    {"host": ""},
    {"principal": "alice"},
    {"resource_type": 4, "resource_name": "kafka-cluster", "operation": 3},
]
"""Without ANY and MATCH: Kafka then refuses the whole request with UNKNOWN_SERVER_ERROR; Harrow refuses that ACL."""
CLOSING: list[dict[str, Any]] = [
    {"resource_type": 0},
    {"resource_pattern_type": 0},
    {"operation": 0},
    {"permission_type": 0},
]
FILTERS: list[dict[str, Any]] = [
    {},
    {"resource_type_filter": 2},
    {"resource_name_filter": "t"},
    {"resource_name_filter": "t", "pattern_type_filter": 2},
    {"resource_name_filter": "tx", "pattern_type_filter": 2},
    {"resource_name_filter": "t", "pattern_type_filter": 4},
    {"resource_name_filter": "*"},
    {"pattern_type_filter": 3},
    {"resource_type_filter": 99},
    {"pattern_type_filter": 99},
    {"operation": 3},
    {"operation": 2},
    {"operation": 99},
    {"permission_type": 2},
    {"permission_type": 99},
    {"principal_filter": "User:alice", "host_filter": "127.0.0.1"},
    {"principal_filter": "User:*"},
    {"host_filter": "*"},
    {"resource_name_filter": ""},
]


def create(broker: Authorized, *rows: dict[str, Any]) -> list[tuple[str, str | None]]:
    s = messages.schema(ApiKey.CREATE_ACLS, 3, "request")
    with broker.client() as link:
        answer = link.ask(ApiKey.CREATE_ACLS, 3, s.root(creations=tuple(s.AclCreation(**ACL | row) for row in rows)))
    return [(error_name(row.error_code), row.error_message) for row in answer.results]


def described(broker: Authorized, wanted: dict[str, Any]) -> tuple[str, list[Any]]:
    s = messages.schema(ApiKey.DESCRIBE_ACLS, 3, "request")
    with broker.client() as link:
        answer = link.ask(ApiKey.DESCRIBE_ACLS, 3, s.root(**EVERY_ACL | wanted))
    rows = [
        (row.resource_type, row.resource_name, row.pattern_type, acl.principal, acl.host, acl.operation)
        for row in answer.resources
        for acl in row.acls
    ]
    return error_name(answer.error_code), sorted(rows)


def deleted(broker: Authorized, *filters: dict[str, Any]) -> list[tuple[str, str | None, int]]:
    s = messages.schema(ApiKey.DELETE_ACLS, 3, "request")
    entity = s.root(filters=tuple(s.DeleteAclsFilter(**EVERY_ACL | row) for row in filters))
    with broker.client() as link:
        answer = link.ask(ApiKey.DELETE_ACLS, 3, entity)
    return [(error_name(row.error_code), row.error_message, len(row.matching_acls)) for row in answer.filter_results]


def closes(broker: Authorized, row: dict[str, Any]) -> bool:
    try:
        create(broker, row)
    except OSError:
        return True
    return False


def conversation(broker: Authorized) -> list[Any]:
    """What a client is answered that may change ACLs."""
    broker.give()
    found: list[Any] = [create(broker, *CREATED), create(broker, *CREATED[:3]), create(broker)]
    count = len([row for row in found[0] if row[0] == "NONE"])
    broker.settled(count)
    found += [described(broker, row) for row in FILTERS]
    found += [closes(broker, row) for row in CLOSING]
    found.append(deleted(broker, {"resource_name_filter": "t", "pattern_type_filter": 4}, {"operation": 99}))
    broker.settled(count - 1)
    found.append(deleted(broker, {"resource_name_filter": "t"}, {"resource_type_filter": 2}, {"principal_filter": "-"}))
    found.append(deleted(broker, {}))
    broker.settled(0)
    return found


@needs_apache
def test_acls_are_created_described_and_deleted_as_in_kafka(tmp_path: Path) -> None:
    settings = {"allow.everyone.if.no.acl.found": True, "super.users": "User:admin;User:ANONYMOUS"}
    with our_broker(**settings) as broker:
        ours = conversation(broker)
    with apache_broker(tmp_path / "kafka", **settings) as broker:
        theirs = conversation(broker)
    assert ours == theirs


def test_without_an_authorizer_requests_about_acls_are_refused(kafka: Any) -> None:
    def refused(api: ApiKey, **fields: Any) -> tuple[str, str | None]:
        s = messages.schema(api, 3, "request")
        lists = {"creations": (s.AclCreation(**ACL),)} if api is ApiKey.CREATE_ACLS else fields
        if api is ApiKey.DELETE_ACLS:
            lists = {"filters": (s.DeleteAclsFilter(**EVERY_ACL),)}
        answer = kafka.raw(1).ask(api, 3, s.root(**lists))
        row = answer if api is ApiKey.DESCRIBE_ACLS else (getattr(answer, "results", ()) or answer.filter_results)[0]
        return error_name(row.error_code), row.error_message

    assert refused(ApiKey.DESCRIBE_ACLS, **EVERY_ACL) == (
        "SECURITY_DISABLED",
        "No Authorizer is configured on the broker",
    )
    for api in (ApiKey.CREATE_ACLS, ApiKey.DELETE_ACLS):
        assert refused(api) == ("SECURITY_DISABLED", "No Authorizer is configured.")
