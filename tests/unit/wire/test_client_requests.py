"""A client's request is built from plain fields, and is a frame that a broker reads."""

from __future__ import annotations

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import SIZE, client_request
from harrow.cluster.wire.headers import encode_response_header, parse_request_header


def test_structures_arrays_and_times_are_built_from_plain_values() -> None:
    s = messages.schema(ApiKey.DELETE_RECORDS, 2, "request")
    row = s.DeleteRecordsPartition(partition_index=3, offset=5)
    topic = s.DeleteRecordsTopic(name="orders", partitions=(row,))
    wanted = s.DeleteRecordsRequest(topics=(topic,), timeout=messages.milliseconds(2_000))
    rows = [{"partition_index": 3, "offset": 5}]
    for topics in ([{"name": "orders", "partitions": rows}], [{"name": "orders", "partitions": (row,)}], (topic,)):
        request = client_request(ApiKey.DELETE_RECORDS, 2, topics=topics, timeout=2_000)
        assert request.entity == wanted
        assert request.name == "DeleteRecords"


def test_null_stays_null_and_other_fields_have_their_defaults() -> None:
    groups = [{"group_id": "g", "topics": None}]
    (group,) = client_request(ApiKey.OFFSET_FETCH, 8, groups=groups).entity.groups
    assert group.topics is None
    assert client_request(ApiKey.LIST_TRANSACTIONS, 0).entity.state_filters == ()


def test_a_field_of_another_version_is_dropped_and_an_unknown_field_is_an_error() -> None:
    request = client_request(ApiKey.JOIN_GROUP, 0, group_id="g", group_instance_id="i", rebalance_timeout=1)
    assert not hasattr(request.entity, "group_instance_id")
    for fields in ({"grup": "g"}, {"protocols": [{"nam": "range"}]}):
        with pytest.raises(TypeError, match="has a field"):
            client_request(ApiKey.JOIN_GROUP, 7, **fields)


def test_a_frame_has_a_header_that_a_broker_reads_and_its_response_is_decoded() -> None:
    request = client_request(ApiKey.HEARTBEAT, 4, group_id="g", generation_id=1, member_id="m")
    frame = request.frame(7, "billing")
    assert SIZE.unpack_from(frame) == (len(frame) - SIZE.size,)
    header = parse_request_header(frame[SIZE.size :])
    assert header[:4] == (ApiKey.HEARTBEAT, 4, 7, "billing")
    moving = ErrorCode.rebalance_in_progress
    entity = messages.schema(ApiKey.HEARTBEAT, 4, "response").root(error_code=moving)
    body = messages.encode(messages.response_writer(ApiKey.HEARTBEAT, 4), entity)
    assert request.response(encode_response_header(ApiKey.HEARTBEAT, 4, 7) + body).error_code is moving
