"""A request asks the authorizer for its sender; without an authorizer it asks nothing (A5)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest
from harrow.cluster.authorizer import CLUSTER, Operation, Principal, Resource, ResourceType
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.host.seam import Peer
from harrow.cluster.wire.request import Request, denial
from request_contexts import client_context

TOPIC = ResourceType.TOPIC
READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE


class RecordingAuthorizer:
    """Allows READ and DESCRIBE of the topic `mine`, and records what it is asked."""

    def __init__(self, *, unrestricted: bool = False) -> None:
        self.unrestricted = unrestricted
        self.asked: list[tuple[str, str, Operation, str]] = []

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource, /) -> bool:
        self.asked.append((str(principal), host, operation, str(resource)))
        return operation in (READ, DESCRIBE) and resource.name == "mine"

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, /) -> bool:
        return self.authorize(principal, host, operation, Resource(kind, "mine"))


def request_of(authorizer: RecordingAuthorizer) -> Request:
    sender = Principal("User", "alice")
    context = replace(
        client_context(), peer=Peer("client", "test", "10.0.0.7"), principal=sender, authorizer=authorizer
    )
    return Request(3, 0, 1, "test", b"", 0, context, 0, lambda _parts, _on_send: None)


def test_a_request_asks_with_the_principal_and_the_address_of_its_sender() -> None:
    authorizer = RecordingAuthorizer()
    request = request_of(authorizer)
    request.require(READ, TOPIC, "mine")
    with pytest.raises(KafkaError, match="Topic authorization failed") as refused:
        request.require(WRITE, TOPIC, "mine")
    assert refused.value.code is ErrorCode.topic_authorization_failed
    assert authorizer.asked == [
        ("User:alice", "10.0.0.7", READ, "TOPIC:mine"),
        ("User:alice", "10.0.0.7", WRITE, "TOPIC:mine"),
    ]
    assert request.allows_any(READ, TOPIC)
    assert not request.allows_any(WRITE, TOPIC)


def test_each_name_is_asked_for_once() -> None:
    authorizer = RecordingAuthorizer()
    assert request_of(authorizer).denied(READ, TOPIC, ["mine", "yours", "mine", "yours"]) == {"yours"}
    assert len(authorizer.asked) == 2


def test_authorized_operations_are_a_bit_field() -> None:
    assert request_of(RecordingAuthorizer()).authorized_operations(TOPIC, "mine") == 1 << READ | 1 << DESCRIBE
    assert request_of(RecordingAuthorizer()).authorized_operations(*CLUSTER) == 0


def test_without_an_authorizer_nothing_is_asked_and_no_name_is_looked_at() -> None:
    authorizer = RecordingAuthorizer(unrestricted=True)
    request = request_of(authorizer)

    def names() -> Iterator[str]:
        raise AssertionError("a name was looked at")
        yield ""

    request.require(WRITE, TOPIC, "yours")
    assert request.denied(WRITE, TOPIC, names()) == frozenset()
    assert request.authorized_operations(TOPIC, "yours") == 0b1101_1111_1000
    assert request.authorized_operations(*CLUSTER) == 8096
    assert authorizer.asked == []


@pytest.mark.parametrize(
    ("kind", "code", "message"),
    [
        (TOPIC, ErrorCode.topic_authorization_failed, "Topic authorization failed."),
        (ResourceType.GROUP, ErrorCode.group_authorization_failed, "Group authorization failed."),
        (CLUSTER.type, ErrorCode.cluster_authorization_failed, "Cluster authorization failed."),
        (
            ResourceType.TRANSACTIONAL_ID,
            ErrorCode.transactional_id_authorization_failed,
            "Transactional Id authorization failed.",
        ),
        (
            ResourceType.DELEGATION_TOKEN,
            ErrorCode.delegation_token_authorization_failed,
            "Delegation Token authorization failed.",
        ),
    ],
)
def test_each_type_of_resource_has_an_error_with_kafkas_words(
    kind: ResourceType, code: ErrorCode, message: str
) -> None:
    assert (denial(kind).code, denial(kind).message) == (code, message)
