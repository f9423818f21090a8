"""Error codes in responses: which of Kafka's an API has, and at which place of the response (K2)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_errors import API_ERRORS, errors_after, errors_of
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.error_versions import SINCE
from harrow.cluster.wire.refusals import is_served, refusal_bytes, struck_bytes
from message_samples import errors_in, filled

NONE = ErrorCode.none
NO_PLACE = {(ApiKey.DESCRIBE_LOG_DIRS, 1), (ApiKey.DESCRIBE_LOG_DIRS, 2)}
"""Kafka lists no directory there, which is all that it says."""


def refused(api: int, version: int, code: ErrorCode, request: Any = None) -> Any:
    """The decoded response."""
    entity = filled(messages.request_type(api, version)) if request is None else request
    frame = messages.encode(messages.request_writer(api, version), entity)
    body = refusal_bytes(api, version, frame, 0, code)
    answered = 0 if api == ApiKey.API_VERSIONS and code is ErrorCode.unsupported_version else version
    return messages.decode_response(api, answered, body, 0)


def test_every_served_api_has_a_row() -> None:
    assert set(API_ERRORS) == set(ApiKey)


@pytest.mark.parametrize("api", sorted(API_ERRORS), ids=lambda api: ApiKey(api).name)
def test_every_code_reaches_the_wire_in_every_version(api: int) -> None:
    for version in messages.versions_known(api):
        for name in errors_of(api):
            code = ErrorCode[name.lower()]
            if is_served(api, version, code) or (api, version) in NO_PLACE:
                continue
            shown = {row for row in errors_in(refused(api, version, code)).values() if row is not NONE}
            earlier = SINCE.get((api, name), (0, None))
            given = ErrorCode[earlier[1].lower()] if earlier[1] and version < earlier[0] else code
            assert shown == {given}, f"v{version} {name}"


# API, version, code → the paths of the error fields that have it; the other error fields are NONE
FETCHED, COMMITTED, GROUPED = ("/responses/partitions", "/topics/partitions", "/groups/topics/partitions")
ADDED = "/results_by_transaction/topic_results/results_by_partition"
PLACES: list[tuple[ApiKey, int, str, set[str]]] = [
    (ApiKey.FETCH, 4, "OFFSET_OUT_OF_RANGE", {FETCHED}),
    (ApiKey.FETCH, 7, "OFFSET_OUT_OF_RANGE", {FETCHED}),
    (ApiKey.FETCH, 17, "OFFSET_OUT_OF_RANGE", {FETCHED}),
    (ApiKey.FETCH, 11, "INVALID_FETCH_SESSION_EPOCH", {""}),
    (ApiKey.FETCH, 5, "KAFKA_STORAGE_ERROR", {FETCHED}),
    (ApiKey.FETCH, 12, "BROKER_NOT_AVAILABLE", {"", FETCHED}),
    (ApiKey.FETCH, 13, "BROKER_NOT_AVAILABLE", {""}),
    (ApiKey.PRODUCE, 3, "NOT_ENOUGH_REPLICAS", {"/responses/partition_responses"}),
    (ApiKey.PRODUCE, 13, "UNKNOWN_TOPIC_ID", {"/responses/partition_responses"}),
    (ApiKey.OFFSET_FETCH, 1, "NOT_COORDINATOR", {COMMITTED}),
    (ApiKey.OFFSET_FETCH, 2, "NOT_COORDINATOR", {""}),
    (ApiKey.OFFSET_FETCH, 7, "UNSTABLE_OFFSET_COMMIT", {COMMITTED}),
    (ApiKey.OFFSET_FETCH, 9, "NOT_COORDINATOR", {"/groups"}),
    (ApiKey.OFFSET_FETCH, 9, "UNSTABLE_OFFSET_COMMIT", {GROUPED}),
    (ApiKey.FIND_COORDINATOR, 3, "COORDINATOR_NOT_AVAILABLE", {""}),
    (ApiKey.FIND_COORDINATOR, 4, "COORDINATOR_NOT_AVAILABLE", {"/coordinators"}),
    (ApiKey.LEAVE_GROUP, 2, "UNKNOWN_MEMBER_ID", {""}),
    (ApiKey.LEAVE_GROUP, 5, "UNKNOWN_MEMBER_ID", {"/members"}),
    (ApiKey.LEAVE_GROUP, 5, "NOT_COORDINATOR", {""}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 3, "NOT_COORDINATOR", {"/results_by_topic_v3_and_below/results_by_partition"}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 5, "INVALID_TXN_STATE", {ADDED}),
    (ApiKey.ADD_PARTITIONS_TO_TXN, 5, "CLUSTER_AUTHORIZATION_FAILED", {""}),
    (ApiKey.ELECT_LEADERS, 0, "NOT_CONTROLLER", {"/replica_election_results/partition_result"}),
    (ApiKey.ELECT_LEADERS, 2, "NOT_CONTROLLER", {"", "/replica_election_results/partition_result"}),
    (ApiKey.OFFSET_DELETE, 0, "GROUP_SUBSCRIBED_TO_TOPIC", {COMMITTED}),
    (ApiKey.WRITE_TXN_MARKERS, 1, "NOT_LEADER_OR_FOLLOWER", {"/markers/topics/partitions"}),
    (ApiKey.DESCRIBE_GROUPS, 5, "NOT_COORDINATOR", {"/groups"}),
]


@pytest.mark.parametrize(("api", "version", "name", "paths"), PLACES)
def test_the_error_is_at_its_place_alone(api: ApiKey, version: int, name: str, paths: set[str]) -> None:
    found = errors_in(refused(api, version, ErrorCode[name.lower()]))
    assert {path for path, error in found.items() if error is not NONE} == paths


def test_a_refused_partition_has_no_records_and_no_offsets() -> None:
    fetched = refused(ApiKey.FETCH, 12, ErrorCode.offset_out_of_range).responses[0].partitions[0]
    assert (fetched.high_watermark, fetched.last_stable_offset, fetched.log_start_offset) == (-1, -1, -1)
    assert not fetched.records
    assert fetched.partition_index == 3
    listed = refused(ApiKey.LIST_OFFSETS, 7, ErrorCode.not_leader_or_follower).topics[0].partitions[0]
    assert (listed.offset, listed.leader_epoch) == (-1, -1)
    committed = refused(ApiKey.OFFSET_FETCH, 9, ErrorCode.unstable_offset_commit)
    assert committed.groups[0].topics[0].partitions[0].committed_offset == -1
    epoch = refused(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ErrorCode.fenced_leader_epoch).topics[0]
    assert (epoch.partitions[0].leader_epoch, epoch.partitions[0].end_offset) == (-1, -1)


def test_an_error_in_items_that_the_request_does_not_name_is_one_place_above() -> None:
    request = messages.schema(ApiKey.OFFSET_FETCH, 7, "request").OffsetFetchRequest(group_id="billing", topics=None)
    found = refused(ApiKey.OFFSET_FETCH, 7, ErrorCode.unstable_offset_commit, request)
    assert errors_in(found) == {"": ErrorCode.unstable_offset_commit}


def test_an_unsupported_version_of_api_versions_is_refused_in_the_oldest_one() -> None:
    found = refused(ApiKey.API_VERSIONS, 3, ErrorCode.unsupported_version)
    assert found.error_code is ErrorCode.unsupported_version


def test_an_error_of_metadata_keeps_the_brokers_of_the_response() -> None:
    s = messages.schema(ApiKey.METADATA, 9, "response")
    partition = s.MetadataResponsePartition(partition_index=0, leader_id=2, replica_nodes=(2, 3))
    topic = s.MetadataResponseTopic(name="orders", partitions=(partition,))
    broker = s.MetadataResponseBroker(node_id=2, host="localhost", port=9092)
    served = s.MetadataResponse(brokers=(broker,), topics=(topic,), controller_id=2)
    body = messages.encode(messages.response_writer(ApiKey.METADATA, 9), served)

    def struck(name: str) -> Any:
        return messages.decode_response(
            ApiKey.METADATA, 9, struck_bytes(ApiKey.METADATA, 9, body, ErrorCode[name.lower()])
        )

    for name in ("LEADER_NOT_AVAILABLE", "UNKNOWN_TOPIC_OR_PARTITION"):
        assert is_served(ApiKey.METADATA, 9, ErrorCode[name.lower()])
        assert (struck(name).brokers, struck(name).controller_id) == (served.brokers, 2)
    unknown = struck("UNKNOWN_TOPIC_OR_PARTITION").topics[0]
    assert (unknown.error_code, unknown.partitions) == (ErrorCode.unknown_topic_or_partition, ())
    lost = struck("LEADER_NOT_AVAILABLE").topics[0]
    assert (lost.error_code, lost.partitions[0].leader_id) == (NONE, -1)
    assert lost.partitions[0].error_code is ErrorCode.leader_not_available
    assert not is_served(ApiKey.METADATA, 13, ErrorCode.rebootstrap_required)


def test_codes_after_an_effect_are_codes_of_the_api_and_reads_have_none() -> None:
    for api in API_ERRORS:
        assert set(errors_after(api)) <= set(errors_of(api))
    assert errors_after(ApiKey.FETCH) == errors_after(ApiKey.LIST_OFFSETS) == ()
    assert "NOT_ENOUGH_REPLICAS_AFTER_APPEND" in errors_after(ApiKey.PRODUCE)
    assert "REQUEST_TIMED_OUT" in errors_after(ApiKey.OFFSET_COMMIT)


def test_each_code_that_changed_its_meaning_has_a_place_before_and_after() -> None:
    for (api, name), (first, before) in SINCE.items():
        assert name in errors_of(api)
        assert before is None or before in errors_of(api)
        assert 0 < first <= messages.versions_known(api)[-1]
