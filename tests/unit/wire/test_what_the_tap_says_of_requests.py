"""The first error in a response and the name in a request, in every version (J6)."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import INTER_BROKER_APIS, ApiKey
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.refusals import refusal
from harrow.cluster.wire.tapped_requests import first_error, subject_of

NAMED = {
    ApiKey.OFFSET_COMMIT: "group_id",
    ApiKey.OFFSET_FETCH: "group_id",
    ApiKey.FIND_COORDINATOR: "key",
    ApiKey.JOIN_GROUP: "group_id",
    ApiKey.HEARTBEAT: "group_id",
    ApiKey.LEAVE_GROUP: "group_id",
    ApiKey.SYNC_GROUP: "group_id",
    ApiKey.INIT_PRODUCER_ID: "transactional_id",
    ApiKey.ADD_OFFSETS_TO_TXN: "transactional_id",
    ApiKey.END_TXN: "transactional_id",
    ApiKey.TXN_OFFSET_COMMIT: "transactional_id",
    ApiKey.CONSUMER_GROUP_HEARTBEAT: "group_id",
    ApiKey.SHARE_GROUP_HEARTBEAT: "group_id",
}
ROW = {"name": "orders", "partitions": [{"partition_index": 0}]}
LISTS: dict[ApiKey, dict[str, Any]] = {
    ApiKey.METADATA: {"topics": [{"name": "orders"}]},
    ApiKey.OFFSET_COMMIT: {"topics": [ROW]},
    ApiKey.OFFSET_FETCH: {
        "groups": [{"group_id": "billing", "topics": []}],
        "topics": [{"name": "orders", "partition_indexes": [0]}],
    },
    ApiKey.FIND_COORDINATOR: {"coordinator_keys": ["billing"]},
    ApiKey.LIST_OFFSETS: {"topics": [ROW]},
    ApiKey.TXN_OFFSET_COMMIT: {"topics": [ROW]},
    ApiKey.CREATE_TOPICS: {"topics": [{"name": "orders"}]},
}
"""One item in each list of a request, so that the response has a place for an error."""
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
    ApiKey.SHARE_GROUP_HEARTBEAT,
    ApiKey.CREATE_TOPICS,
)


class Bytes(NamedTuple):
    version: int
    frame: bytes
    body_at: int


def request_of(key: ApiKey, version: int, /, **fields: Any) -> Bytes:
    head = encode_request_header(key, version, 1, "app")
    return Bytes(version, head + client_request(key, version, **fields).body(), len(head))


@pytest.mark.parametrize("key", NAMED, ids=lambda key: key.name)
def test_a_request_names_its_group_or_transactional_id_in_every_version(key: ApiKey) -> None:
    lists = LISTS[key] if key in (ApiKey.OFFSET_FETCH, ApiKey.FIND_COORDINATOR) else {}
    for version in messages.versions_known(key):
        request = request_of(key, version, **{NAMED[key]: "billing"}, **lists)
        assert subject_of(key, request) == "billing", version


def test_a_producer_without_transactions_and_an_empty_list_name_nothing() -> None:
    for version in messages.versions_known(ApiKey.INIT_PRODUCER_ID):
        assert subject_of(ApiKey.INIT_PRODUCER_ID, request_of(ApiKey.INIT_PRODUCER_ID, version)) is None
    assert subject_of(ApiKey.FIND_COORDINATOR, request_of(ApiKey.FIND_COORDINATOR, 4)) is None


def test_requests_that_are_cut_or_of_other_apis_name_nothing() -> None:
    whole = request_of(ApiKey.END_TXN, 3, transactional_id="billing")
    assert subject_of(ApiKey.END_TXN, whole._replace(frame=whole.frame[: whole.body_at + 4])) is None
    assert subject_of(ApiKey.METADATA, whole) is None
    assert subject_of(99, whole) is None


@pytest.mark.parametrize("key", WITH_ERRORS, ids=lambda key: key.name)
def test_the_first_error_of_a_response_is_found_in_every_version(key: ApiKey) -> None:
    assert key not in INTER_BROKER_APIS
    code = ErrorCode.not_coordinator
    for version in messages.versions_known(key):
        request = client_request(key, version, **LISTS.get(key, {}))
        response = refusal(*request, code)
        if key == ApiKey.OFFSET_FETCH and version >= 8:
            assert response.groups
        body = messages.encode(messages.response_writer(key, version), response)
        assert first_error(key, version, (body,)) == int(code), version
        half = len(body) // 2
        assert first_error(key, version, (body[:half], body[half:])) == int(code), version


def test_a_response_without_error_or_that_does_not_decode_has_none() -> None:
    s = messages.schema(ApiKey.FIND_COORDINATOR, 3, "response")
    body = messages.encode(messages.response_writer(ApiKey.FIND_COORDINATOR, 3), s.FindCoordinatorResponse(node_id=1))
    assert first_error(ApiKey.FIND_COORDINATOR, 3, (body,)) == 0
    assert first_error(ApiKey.FIND_COORDINATOR, 3, (b"\xff",)) == 0
    assert first_error(ApiKey.HEARTBEAT, 1, (b"",)) == 0
    assert first_error(ApiKey.FETCH, 12, (bytes(10_000),)) == 0
