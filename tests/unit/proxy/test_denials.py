"""Which operations of which resources a response denies (`cluster/proxy/denials.py`)."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import RequestFacts
from harrow.cluster.proxy.apis import passing_versions
from harrow.cluster.proxy.denials import ERRORS, OPERATIONS, TOPIC, Answered, Denial, denied_operations
from harrow.cluster.proxy.pending import PendingRequest
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_errors import place_of
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.headers import encode_request_header, parse_request_header
from harrow.cluster.wire.refusals import refusal
from harrow.cluster.wire.request_facts import request_facts
from message_samples import TOPIC_ID, filled

PAGE = Path(__file__).parents[3] / "docs" / "authorization.md"
ROW = re.compile(r"\| (\d+) \| \w+ \| ([^|]+) \| ([^|]+) \|")
NOT_IN_THE_PAGE = {
    (ApiKey.DELETE_TOPICS, "DELETE on TOPIC"),
    (ApiKey.SHARE_FETCH, "READ on TOPIC"),
    (ApiKey.SHARE_ACKNOWLEDGE, "READ on TOPIC"),
    (ApiKey.ALTER_SHARE_GROUP_OFFSETS, "READ on TOPIC"),
    (ApiKey.DELETE_SHARE_GROUP_OFFSETS, "READ on TOPIC"),
}
"""What the requests of which the page is made do not reach, or reach with another error."""
DIFFERS = {
    (ApiKey.DELETE_TOPICS, "DESCRIBE on TOPIC"),  # counted as DELETE
    (ApiKey.INIT_PRODUCER_ID, "WRITE on TOPIC"),  # the error is that of the cluster
    (ApiKey.STREAMS_GROUP_HEARTBEAT, "DESCRIBE on TOPIC"),  # the error names no topic
}
"""What the page has and the table has not."""


class Known:
    """The proxy knows the name of the only topic."""

    def topic_name(self, topic_id: Any) -> str | None:
        return {TOPIC_ID: "a-name"}.get(topic_id)

    def session_partitions(self, session_id: int) -> tuple[tuple[str, int], ...]:
        del session_id
        return ()


KNOWN = Known()


def answered(key: int, version: int, kind: str, facts: RequestFacts | None = None) -> Answered:
    """The response of a broker that denies everything of this type."""
    entity = filled(messages.request_type(key, version))
    code = ErrorCode[ERRORS[kind]]
    response = refusal(key, version, entity, code, place=place_of(key, code))
    body = messages.encode(messages.response_writer(key, version), response)
    frame = encode_request_header(key, version, 1, "app") + messages.encode_request(key, version, entity)
    request = PendingRequest(parse_request_header(frame), frame, 0)

    def read() -> RequestFacts:
        return request_facts(request.whole(), KNOWN) if facts is None else facts

    return Answered(key, version, body, 0, read, KNOWN.topic_name)


CASES = [
    pytest.param(key, version, kind, operation, id=f"{kind} {ApiKey(key).name} v{version}")
    for kind, apis in OPERATIONS.items()
    for key, operation in apis.items()
    for version in sorted({passing_versions(key)[0], passing_versions(key)[-1]})
    if (key, version, kind) != (ApiKey.FIND_COORDINATOR, 0, "TRANSACTIONAL_ID")  # it knows groups alone
]


@pytest.mark.parametrize(("key", "version", "kind", "operation"), CASES)
def test_each_error_names_the_operation_and_the_resource(key: int, version: int, kind: str, operation: str) -> None:
    assert list(denied_operations(answered(key, version, kind))) == [Denial(operation, kind, "a-name")]


def test_an_error_that_names_no_resource_of_several_is_not_counted() -> None:
    heartbeat, version = ApiKey.CONSUMER_GROUP_HEARTBEAT, 1
    one, two = (RequestFacts(topics=frozenset(names)) for names in (("a",), ("a", "b")))
    assert list(denied_operations(answered(heartbeat, version, TOPIC, one))) == [Denial("DESCRIBE", TOPIC, "a")]
    assert list(denied_operations(answered(heartbeat, version, TOPIC, two))) == []


def test_only_the_topics_with_the_error_are_denied() -> None:
    key, version = ApiKey.PRODUCE, 9
    s = messages.schema(key, version, "response")
    denied, served = int(ErrorCode.topic_authorization_failed), 29
    rows = tuple(
        s.TopicProduceResponse(
            name=name,
            partition_responses=tuple(
                s.PartitionProduceResponse(index=0, error_code=ErrorCode(code), base_offset=served) for code in codes
            ),
        )
        for name, codes in (("orders", (denied, denied)), ("audit", (0,)), ("returns", (0, denied)), ("late", (6,)))
    )
    body = messages.encode(messages.response_writer(key, version), s.root(responses=rows))
    found = denied_operations(Answered(key, version, body, 0, RequestFacts, KNOWN.topic_name))
    assert list(found) == [Denial("WRITE", TOPIC, "orders"), Denial("WRITE", TOPIC, "returns")]


def test_the_operations_are_those_of_the_page_that_a_broker_has_written() -> None:
    rows = {int(key): (needs, errors) for key, needs, errors in ROW.findall(PAGE.read_text(encoding="utf-8"))}
    assert len(rows) > 50
    table = {(key, f"{operation} on {kind}") for kind, apis in OPERATIONS.items() for key, operation in apis.items()}
    page = {
        (key, f"{operation} on {kind}")
        for key, (needs, errors) in rows.items()
        for operation, kind in re.findall(r"(\w+) on (\w+)", needs)
        if kind in ERRORS and errors != "none"
    }
    assert table - page == NOT_IN_THE_PAGE
    assert page - table == DIFFERS
