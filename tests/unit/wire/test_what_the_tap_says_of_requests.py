"""The first error in a response and the name in a request, in every version (J6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.refusals import refusal
from harrow.cluster.wire.tapped_requests import first_error, subject_of

NAMED: dict[ApiKey, tuple[str, str, dict[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: ("OffsetCommitRequest", "group_id", {}),
    ApiKey.OFFSET_FETCH: ("OffsetFetchRequest", "group_id", {}),
    ApiKey.FIND_COORDINATOR: ("FindCoordinatorRequest", "key", {}),
    ApiKey.JOIN_GROUP: ("JoinGroupRequest", "group_id", {}),
    ApiKey.HEARTBEAT: ("HeartbeatRequest", "group_id", {}),
    ApiKey.LEAVE_GROUP: ("LeaveGroupRequest", "group_id", {}),
    ApiKey.SYNC_GROUP: ("SyncGroupRequest", "group_id", {}),
    ApiKey.INIT_PRODUCER_ID: ("InitProducerIdRequest", "transactional_id", {}),
    ApiKey.ADD_OFFSETS_TO_TXN: ("AddOffsetsToTxnRequest", "transactional_id", {}),
    ApiKey.END_TXN: ("EndTxnRequest", "transactional_id", {}),
    ApiKey.TXN_OFFSET_COMMIT: ("TxnOffsetCommitRequest", "transactional_id", {}),
    ApiKey.CONSUMER_GROUP_HEARTBEAT: ("ConsumerGroupHeartbeatRequest", "group_id", {}),
}
WITH_ERRORS = (
    ApiKey.METADATA,
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.FIND_COORDINATOR,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.SYNC_GROUP,
    ApiKey.LIST_OFFSETS,
    ApiKey.INIT_PRODUCER_ID,
    ApiKey.END_TXN,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CREATE_TOPICS,
)


class Bytes(NamedTuple):
    version: int
    frame: bytes
    body_at: int


def request_of(key: ApiKey, version: int, entity: Any) -> Bytes:
    head = encode_request_header(key, version, 1, "app")
    return Bytes(version, head + messages.encode_request(key, version, entity), len(head))


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key.name)
def test_a_request_names_its_group_or_transactional_id_in_every_version(key: ApiKey) -> None:
    kind, field, more = NAMED[key]
    for version in messages.versions_known(key):
        s = messages.schema(key, version, "request")
        lists: dict[str, Any] = {}
        if key == ApiKey.OFFSET_FETCH:
            group = s.OffsetFetchRequestGroup(group_id="billing", topics=())
            lists = {"groups": (group,)}
        elif key == ApiKey.FIND_COORDINATOR:
            lists = {"coordinator_keys": ("billing",)}
        entity = getattr(s, kind)(**{field: "billing"}, **lists, **more)
        assert subject_of(key, request_of(key, version, entity)) == "billing", version


def test_a_producer_without_transactions_and_an_empty_list_name_nothing() -> None:
    for version in messages.versions_known(ApiKey.INIT_PRODUCER_ID):
        s = messages.schema(ApiKey.INIT_PRODUCER_ID, version, "request")
        entity = s.InitProducerIdRequest(transactional_id=None)
        assert subject_of(ApiKey.INIT_PRODUCER_ID, request_of(ApiKey.INIT_PRODUCER_ID, version, entity)) is None
    s = messages.schema(ApiKey.FIND_COORDINATOR, 4, "request")
    entity = s.FindCoordinatorRequest(coordinator_keys=())
    assert subject_of(ApiKey.FIND_COORDINATOR, request_of(ApiKey.FIND_COORDINATOR, 4, entity)) is None


def test_requests_that_are_cut_or_of_other_apis_name_nothing() -> None:
    s = messages.schema(ApiKey.END_TXN, 3, "request")
    whole = request_of(ApiKey.END_TXN, 3, s.EndTxnRequest(transactional_id="billing"))
    assert subject_of(ApiKey.END_TXN, whole._replace(frame=whole.frame[: whole.body_at + 4])) is None
    assert subject_of(ApiKey.METADATA, whole) is None
    assert subject_of(99, whole) is None


@pytest.mark.parametrize("key", WITH_ERRORS, ids=lambda key: key.name)
def test_the_first_error_of_a_response_is_found_in_every_version(key: ApiKey) -> None:
    assert key not in INTER_BROKER_APIS
    code = ErrorCode.not_coordinator
    for version in messages.versions_known(key):
        response = refusal(key, version, asking(key, version), code)
        if key == ApiKey.OFFSET_FETCH and version >= 8:
            assert response.groups
        body = messages.encode(messages.response_writer(key, version), response)
        assert first_error(key, version, (body,)) == int(code), version
        half = len(body) // 2
        assert first_error(key, version, (body[:half], body[half:])) == int(code), version


def asking(key: ApiKey, version: int) -> Any:
    """A request with one item in each of its lists, so that the response has a place for an error."""
    s = messages.schema(key, version, "request")
    kind = messages.request_type(key, version).__name__
    lists: dict[ApiKey, dict[str, Any]] = {
        ApiKey.METADATA: {"topics": lambda: (s.MetadataRequestTopic(name="orders"),)},
        ApiKey.OFFSET_COMMIT: {
            "topics": lambda: (
                s.OffsetCommitRequestTopic(
                    name="orders", partitions=(s.OffsetCommitRequestPartition(partition_index=0),)
                ),
            )
        },
        ApiKey.OFFSET_FETCH: {
            "groups": lambda: (s.OffsetFetchRequestGroup(group_id="billing", topics=()),),
            "topics": lambda: (s.OffsetFetchRequestTopic(name="orders", partition_indexes=(0,)),),
        },
        ApiKey.FIND_COORDINATOR: {"coordinator_keys": lambda: ("billing",)},
        ApiKey.LIST_OFFSETS: {
            "topics": lambda: (
                s.ListOffsetsTopic(name="orders", partitions=(s.ListOffsetsPartition(partition_index=0),)),
            )
        },
        ApiKey.TXN_OFFSET_COMMIT: {
            "topics": lambda: (
                s.TxnOffsetCommitRequestTopic(
                    name="orders", partitions=(s.TxnOffsetCommitRequestPartition(partition_index=0),)
                ),
            )
        },
        ApiKey.CREATE_TOPICS: {"topics": lambda: (s.CreatableTopic(name="orders"),)},
    }
    return getattr(s, kind)(**{name: make() for name, make in lists.get(key, {}).items()})


def test_a_response_without_error_or_that_does_not_decode_has_none() -> None:
    s = messages.schema(ApiKey.FIND_COORDINATOR, 3, "response")
    body = messages.encode(messages.response_writer(ApiKey.FIND_COORDINATOR, 3), s.FindCoordinatorResponse(node_id=1))
    assert first_error(ApiKey.FIND_COORDINATOR, 3, (body,)) == 0
    assert first_error(ApiKey.FIND_COORDINATOR, 3, (b"\xff",)) == 0
    assert first_error(ApiKey.HEARTBEAT, 1, (b"",)) == 0
    assert first_error(ApiKey.FETCH, 12, (bytes(10_000),)) == 0
