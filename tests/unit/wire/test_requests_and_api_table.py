"""A request gets one response; an API table serves the handlers that were added to it, and ApiVersions (A2)."""

from __future__ import annotations

from typing import Any

import pytest
from harrow.cluster.authorizer import Operation
from harrow.cluster.errors import ErrorCode, WireError
from harrow.cluster.host.seam import Buffer
from harrow.cluster.wire import headers, messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.api_table import ApiRow, ApiTable, Identity, VersionRange
from harrow.cluster.wire.request import Fate, Request

from .fake_requests import Answer, body_of, request_of


def nothing(request: Request) -> None:
    """A handler."""


def ask_versions(table: ApiTable, version: int, body: bytes) -> bytes:
    answers: list[Answer] = []
    request = request_of(ApiKey.API_VERSIONS, version, body, answers)
    table.lookup(ApiKey.API_VERSIONS, version).handler(request)
    (answer,) = answers
    return body_of(answer)


TABLE = ApiTable((ApiRow(0, 3, 12, nothing), ApiRow(3, 0, 13, nothing), ApiRow(4, 7, 7, nothing)))
SOFTWARE = messages.encode_request(
    18, 3, messages.schema(18, 3, "request").root(client_software_name="librdkafka", client_software_version="2.6.1")
)
SOFTWARE_V5 = messages.encode_request(
    18, 5, messages.schema(18, 5, "request").root(client_software_name="java", client_software_version="4.4.0")
)


def test_lookup_gives_the_handler_of_served_versions_only() -> None:
    assert TABLE.lookup(3, 13).handler is nothing
    for api_key, version in ((3, 14), (3, -1), (1, 12), (999, 0), (0, 2), (4, 6)):
        with pytest.raises(WireError):
            TABLE.lookup(api_key, version)


def test_a_listener_for_clients_serves_and_advertises_no_inter_broker_api() -> None:
    rows = (ApiRow(3, 0, 13, nothing), ApiRow(4, 7, 7, nothing), ApiRow(5, 4, 4, nothing))
    table = ApiTable(rows, inter_broker=False)
    assert [row.api_key for row in table.versions()] == [3, 18]
    with pytest.raises(WireError, match="not served on this listener"):
        table.lookup(4, 7)
    with pytest.raises(AssertionError):
        table.add(5, 4, 4, nothing)


def test_an_api_for_brokers_needs_an_operation_on_the_cluster_and_others_need_none() -> None:
    table = ApiTable((ApiRow(1, 4, 17, nothing), ApiRow(4, 7, 7, nothing), ApiRow(27, 1, 1, nothing)))
    assert table.lookup(1, 4).operations == ()
    assert table.lookup(4, 7).operations == (Operation.CLUSTER_ACTION,)
    assert table.lookup(27, 1).operations == (Operation.ALTER, Operation.CLUSTER_ACTION)


def test_produce_is_advertised_from_version_zero() -> None:
    """KAFKA-18659: librdkafka would send uncompressed otherwise."""
    assert TABLE.versions() == (
        VersionRange(0, 0, 12),
        VersionRange(3, 0, 13),
        VersionRange(4, 7, 7),
        VersionRange(18, 0, 5),
    )


def test_registering_a_row_without_schema_or_twice_fails_an_assertion() -> None:
    with pytest.raises(AssertionError):
        ApiTable((ApiRow(3, 0, 99, nothing),))
    with pytest.raises(AssertionError):
        ApiTable((ApiRow(3, 0, 1, nothing), ApiRow(3, 0, 1, nothing)))


@pytest.mark.parametrize("version", range(6))
def test_api_versions_returns_every_row_of_the_table(version: int) -> None:
    software = SOFTWARE if version < 5 else SOFTWARE_V5
    body = ask_versions(TABLE, version, software if version >= 3 else b"")
    answer = messages.decode_response(18, version, body)
    assert answer.error_code is ErrorCode.none
    listed = [(row.api_key, row.min_version, row.max_version) for row in answer.api_keys]
    assert listed == [tuple(row) for row in TABLE.versions()]


@pytest.mark.parametrize("version", [6, 99, 32767, -1])
def test_an_unknown_api_versions_request_gets_error_35_in_a_v0_body(version: int) -> None:
    answer = messages.decode_response(18, 0, ask_versions(TABLE, version, b"\xff\xff\xff"))
    assert answer.error_code is ErrorCode.unsupported_version
    assert [(r.api_key, r.min_version, r.max_version) for r in answer.api_keys] == [(18, 0, 5)]


@pytest.mark.parametrize(
    ("cluster_id", "node_id", "code"),
    [
        ("ours", 7, ErrorCode.none),
        (None, -1, ErrorCode.none),
        (None, 8, ErrorCode.invalid_request),
        ("ours", 8, ErrorCode.rebootstrap_required),
        ("ours", -1, ErrorCode.invalid_request),
        ("theirs", 7, ErrorCode.rebootstrap_required),
        ("", 7, ErrorCode.rebootstrap_required),
    ],
)
def test_a_client_that_means_another_node_must_bootstrap_again(
    cluster_id: str | None, node_id: int, code: ErrorCode
) -> None:
    """KIP-1242."""
    table = ApiTable(identity=lambda: Identity("ours", 7))
    s = messages.schema(18, 5, "request")
    named = {"client_software_name": "t", "client_software_version": "1", "cluster_id": cluster_id, "node_id": node_id}
    answer = messages.decode_response(18, 5, ask_versions(table, 5, messages.encode_request(18, 5, s.root(**named))))
    assert answer.error_code is code
    assert bool(answer.api_keys) is (code is ErrorCode.none)


def test_an_invalid_client_software_name_is_an_invalid_request() -> None:
    s = messages.schema(18, 3, "request")
    body = messages.encode_request(18, 3, s.root(client_software_name="-bad-"))
    answer = messages.decode_response(18, 3, ask_versions(TABLE, 3, body))
    assert answer.error_code is ErrorCode.invalid_request


def test_responding_twice_fails_an_assertion() -> None:
    answers: list[Answer] = []
    request = request_of(0, 9, b"", answers)
    request.no_response()
    assert answers == [(None, None)]
    assert request.answered
    with pytest.raises(AssertionError):
        request.respond_parts((b"again",))


def test_responding_with_encoded_parts_sends_them_unchanged() -> None:
    answers: list[Answer] = []
    parts: list[Buffer] = [memoryview(b"a"), b"b"]

    def on_send(fate: Fate) -> None:
        """The tap."""

    request_of(1, 12, b"", answers).respond_parts(parts, on_send=on_send)
    assert answers == [(parts, on_send)]


def failed(api_key: int, version: int, body: Any, code: ErrorCode, message: str = "") -> Any:
    answers: list[Answer] = []
    encoded = messages.encode_request(api_key, version, body)
    request_of(api_key, version, encoded, answers).fail(code, message)
    return messages.decode_response(api_key, version, body_of(answers[0]))


@pytest.mark.parametrize("version", messages.versions_known(0))
def test_a_failed_produce_returns_the_error_for_every_partition(version: int) -> None:
    s = messages.schema(0, version, "request")
    rows = tuple(s.PartitionProduceData(index=index, records=b"x") for index in (0, 4))
    asked = s.root(acks=1, topic_data=(s.TopicProduceData(name="t", partition_data=rows),))
    answer = failed(0, version, asked, ErrorCode.not_leader_or_follower)
    (topic,) = answer.responses
    assert [(p.index, p.error_code, p.base_offset) for p in topic.partition_responses] == [
        (0, ErrorCode.not_leader_or_follower, -1),
        (4, ErrorCode.not_leader_or_follower, -1),
    ]


def test_a_failed_produce_without_acks_gets_no_response() -> None:
    answers: list[Answer] = []
    body = messages.encode_request(0, 9, messages.schema(0, 9, "request").root(acks=0))
    request_of(0, 9, body, answers).fail(ErrorCode.unknown_server_error)
    assert answers == [(None, None)]


@pytest.mark.parametrize("version", messages.versions_known(1))
def test_a_failed_fetch_returns_the_error_for_every_partition_and_from_version_13_at_the_top(version: int) -> None:
    s = messages.schema(1, version, "request")
    rows = (s.FetchPartition(partition=2), s.FetchPartition(partition=3))
    asked = s.root(topics=(s.FetchTopic(topic="t", partitions=rows),))
    answer = failed(1, version, asked, ErrorCode.kafka_storage_error)
    if version >= 13:
        assert (answer.error_code, answer.responses) == (ErrorCode.kafka_storage_error, ())
        return
    (topic,) = answer.responses
    assert [(p.partition_index, p.error_code) for p in topic.partitions] == [
        (2, ErrorCode.kafka_storage_error),
        (3, ErrorCode.kafka_storage_error),
    ]


@pytest.mark.parametrize("version", messages.versions_known(9))
def test_a_failed_offset_fetch_returns_the_error_of_the_group_or_of_each_partition(version: int) -> None:
    """As Kafka: a response with an error of the group names no partition."""
    s = messages.schema(9, version, "request")
    topic = s.OffsetFetchRequestTopic(name="t", partition_indexes=(1,))
    group = s.OffsetFetchRequestGroup(
        group_id="g", topics=(s.OffsetFetchRequestTopics(name="t", partition_indexes=(1,)),)
    )
    asked = s.root(group_id="g", topics=(topic,), groups=(group,))
    answer = failed(9, version, asked, ErrorCode.not_coordinator)
    if version >= 8:
        (of_group,) = answer.groups
        assert (of_group.group_id, of_group.error_code) == ("g", ErrorCode.not_coordinator)
        assert not of_group.topics
    elif version >= 2:
        assert answer.error_code is ErrorCode.not_coordinator
        assert not answer.topics
    else:
        (partition,) = answer.topics[0].partitions
        assert (partition.partition_index, partition.error_code, partition.committed_offset) == (
            1,
            ErrorCode.not_coordinator,
            -1,
        )


@pytest.mark.parametrize("version", messages.versions_known(10))
def test_a_failed_find_coordinator_returns_no_node(version: int) -> None:
    s = messages.schema(10, version, "request")
    asked = s.root(key="g", coordinator_keys=("g",))
    answer = failed(10, version, asked, ErrorCode.coordinator_not_available)
    row = answer.coordinators[0] if version >= 4 else answer
    assert (row.error_code, row.node_id) == (ErrorCode.coordinator_not_available, -1)


def test_a_failed_request_returns_its_message_where_the_response_has_the_field() -> None:
    s = messages.schema(19, 7, "request")
    asked = s.root(topics=(s.CreatableTopic(name="a"), s.CreatableTopic(name="b")))
    answer = failed(19, 7, asked, ErrorCode.not_controller, "ask broker 2")
    assert [(t.name, t.error_code, t.error_message) for t in answer.topics] == [
        ("a", ErrorCode.not_controller, "ask broker 2"),
        ("b", ErrorCode.not_controller, "ask broker 2"),
    ]


EVERY_SERVED = [
    (api_key, version)
    for api_key in (*range(1, 29), 32, 33, 37, 42, 44, 47, 60, 61, 65, 68, 69)
    for version in messages.versions_known(api_key)
]


@pytest.mark.parametrize("key", EVERY_SERVED, ids=str)
def test_failing_a_request_of_any_api_and_version_makes_a_response(key: tuple[int, int]) -> None:
    failed(*key, messages.schema(*key, "request").root(), ErrorCode.unknown_server_error)


@pytest.mark.parametrize("client_id", ["", "consumer-1", "π"])
@pytest.mark.parametrize(("api_key", "version"), [(0, 3), (0, 9), (3, 0), (3, 12), (18, 3), (6, 8)])
def test_parsing_an_encoded_header_returns_its_fields(api_key: int, version: int, client_id: str) -> None:
    frame = headers.encode_request_header(api_key, version, 12345, client_id) + b"body"
    header = headers.parse_request_header(frame)
    assert header[:4] == (api_key, version, 12345, client_id)
    assert frame[header.body_at :] == b"body"
    answer = headers.encode_response_header(api_key, version, 12345) + b"body"
    correlation_id, at = headers.parse_response_header(api_key, version, answer)
    assert (correlation_id, answer[at:]) == (12345, b"body")


def test_api_versions_of_an_unknown_version_has_a_readable_header_and_a_v0_response_header() -> None:
    frame = headers.encode_request_header(18, 3, 1, "c")
    newest = frame[:2] + (99).to_bytes(2, "big") + frame[4:]
    assert headers.parse_request_header(newest).version == 99
    assert headers.encode_response_header(18, 3, 1) == b"\0\0\0\1"


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"\0\3",
        b"\0\3\0\0\0\0\0\1\0\x09ab",
        b"\x7f\xff\0\0\0\0\0\1\0\0",
        b"\0\3\0\x0c\0\0\0\1\xff\xff",
        b"\0\3\0\0\0\0\0\1\0\3\xff\xfe",
    ],
)
def test_parsing_a_frame_without_a_valid_header_is_a_wire_error(frame: bytes) -> None:
    with pytest.raises(WireError):
        headers.parse_request_header(frame)


def test_reading_a_connections_headers_equals_parsing_each_alone() -> None:
    frames = [
        headers.encode_request_header(api_key, version, number, client) + b"body"
        for number, (api_key, version, client) in enumerate(
            [
                (1, 17, "a"),
                (1, 17, "a"),
                (1, 17, "b"),
                (1, 17, "bb"),
                (1, 11, "bb"),
                (0, 11, "bb"),
                (0, 11, ""),
                (0, 11, ""),
            ]
        )
    ]
    tagged = frames[0][: headers.parse_request_header(frames[0]).body_at - 1] + b"\1\5\1x" + b"body"
    reader = headers.HeaderReader()
    with pytest.raises(WireError):
        reader.read(b"")
    for frame in [*frames, tagged, tagged, *reversed(frames)]:
        assert reader.read(frame) == headers.parse_request_header(frame)
    for cut in range(8):
        with pytest.raises(WireError):
            reader.read(frames[0][:cut])
    assert reader.read(frames[1]) == headers.parse_request_header(frames[1])


def test_reading_a_large_header_does_not_keep_it_in_memory() -> None:
    plain = headers.encode_request_header(1, 17, 5, "a") + b"body"
    field = bytes(100_000)
    large = plain[:11] + b"\1\0\xa0\x8d\6" + field + b"body"
    reader = headers.HeaderReader()
    for frame in (plain, large, plain, large):
        assert reader.read(frame) == headers.parse_request_header(frame)
    kept = [getattr(reader, name) for name in reader.__slots__]
    assert sum(len(value) for value in kept if isinstance(value, bytes)) < 2_000
