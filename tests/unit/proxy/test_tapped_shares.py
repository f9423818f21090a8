"""Rows of share groups from the requests and responses that pass the proxy (J6, KIP-932)."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import (
    SHARE_ACCEPTED,
    SHARE_ACQUIRED,
    SHARE_REJECTED,
    SHARE_RELEASED,
    SHARE_RENEWED,
    NoTap,
    SharedRecords,
)
from harrow.cluster.listeners import Address
from harrow.cluster.proxy.addresses import rewrite
from harrow.cluster.proxy.pending import PendingRequest
from harrow.cluster.proxy.tap import ProxyTap
from harrow.cluster.proxy.tap_shares import ERROR_UNKNOWN, SHARE_ACKNOWLEDGE, SHARE_FETCH
from harrow.cluster.proxy.tap_transactions import TransactionViews
from harrow.cluster.proxy.topic_names import TopicNames
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import RequestHeader

TOPIC = UUID(int=7)
MEMBER = "m-1"


class SharedTap(NoTap):
    """Keeps the rows of share groups."""

    enabled = True

    def __init__(self) -> None:
        self.rows: list[tuple[int, int, list[SharedRecords], bool]] = []
        self.locks: list[int] = []

    def shared(self, group: str, member: str, client: str, records: Any, *, kind: int, **fields: Any) -> None:
        assert (group, member, client) == ("workers", MEMBER, "app")
        self.rows.append((kind, fields.get("error", 0), list(records), fields.get("lost", False)))
        self.locks.append(fields.get("lock_until_ns", 0))


class Passing:
    """One broker behind the proxy."""

    def __init__(self) -> None:
        names = TopicNames()
        names._names[TOPIC] = "orders"  # pyright: ignore[reportPrivateUsage] - what a Metadata response says
        self.rows = SharedTap()
        self.tap = ProxyTap(self.rows, names, TransactionViews())

    def sent(self, key: int, version: int, batches: list[tuple[int, int, list[int]]], epoch: int) -> PendingRequest:
        s = messages.schema(key, version, "request")
        kept = tuple(
            s.AcknowledgementBatch(first_offset=first, last_offset=last, acknowledge_types=tuple(types))
            for first, last, types in batches
        )
        part = s.FetchPartition if key == SHARE_FETCH else s.AcknowledgePartition
        topic = s.FetchTopic if key == SHARE_FETCH else s.AcknowledgeTopic
        body = s.root(
            group_id="workers",
            member_id=MEMBER,
            share_session_epoch=epoch,
            topics=(topic(topic_id=TOPIC, partitions=(part(partition_index=2, acknowledgement_batches=kept),)),),
            is_renew_ack=any(4 in types for *_, types in batches),
        )
        frame = messages.encode_request(key, version, body)
        request = PendingRequest(RequestHeader(key, version, 1, "app", 0), frame, 1_000)
        self.tap.forwarded(request)
        return request


def fetched(version: int, acquired: list[tuple[int, int, int]], *, error: int = 0, ack_error: int = 0) -> bytes:
    s = messages.schema(SHARE_FETCH, version, "response")
    row = s.PartitionData(
        partition_index=2,
        error_code=ErrorCode(0),
        acknowledge_error_code=ack_error,
        current_leader=s.LeaderIdAndEpoch(leader_id=2, leader_epoch=3),
        records=b"",
        acquired_records=tuple(
            s.AcquiredRecords(first_offset=first, last_offset=last, delivery_count=count)
            for first, last, count in acquired
        ),
    )
    body = s.root(
        error_code=ErrorCode(error),
        acquisition_lock_timeout=timedelta(milliseconds=30),
        responses=() if error else (s.ShareFetchableTopicResponse(topic_id=TOPIC, partitions=(row,)),),
        node_endpoints=(s.NodeEndpoint(node_id=2, host="inside", port=9092),),
    )
    return bytes(messages.encode(messages.response_writer(SHARE_FETCH, version), body))


def acknowledged(version: int, error: int = 0) -> bytes:
    s = messages.schema(SHARE_ACKNOWLEDGE, version, "response")
    row = s.PartitionData(
        partition_index=2, error_code=ErrorCode(error), current_leader=s.LeaderIdAndEpoch(leader_id=2, leader_epoch=3)
    )
    body = s.root(
        acquisition_lock_timeout=timedelta(milliseconds=30),
        responses=(s.ShareAcknowledgeTopicResponse(topic_id=TOPIC, partitions=(row,)),),
        node_endpoints=(s.NodeEndpoint(node_id=2, host="inside", port=9092),),
    )
    return bytes(messages.encode(messages.response_writer(SHARE_ACKNOWLEDGE, version), body))


def row(first: int, last: int, count: int = 0) -> SharedRecords:
    return SharedRecords("orders", 2, first, last, count)


@pytest.mark.parametrize("version", [1, 2])
def test_a_fetch_has_rows_of_its_acknowledgements_and_of_what_it_got(version: int) -> None:
    broker = Passing()
    request = broker.sent(SHARE_FETCH, version, [(5, 9, [1, 1, 0, 2, 3]), (10, 12, [1])], 4)
    assert broker.tap.answered(request, fetched(version, [(13, 20, 1), (3, 3, 2)]), 0, lost=False) == 0
    assert broker.rows.rows == [
        (SHARE_ACCEPTED, 0, [row(5, 6), row(10, 12)], False),
        (SHARE_RELEASED, 0, [row(8, 8)], False),
        (SHARE_REJECTED, 0, [row(9, 9)], False),
        (SHARE_ACQUIRED, 0, [row(13, 20, 1), row(3, 3, 2)], False),
    ]
    assert broker.rows.locks[-1] == 1_000 + 30_000_000


@pytest.mark.parametrize("version", [1, 2])
def test_results_of_share_acknowledge(version: int) -> None:
    broker = Passing()
    types = [1] if version == 1 else [4]
    request = broker.sent(SHARE_ACKNOWLEDGE, version, [(5, 9, types)], 4)
    assert broker.tap.answered(request, acknowledged(version), 0, lost=True) == 0
    request = broker.sent(SHARE_ACKNOWLEDGE, version, [(5, 9, [1])], 5)
    assert broker.tap.answered(request, acknowledged(version, 121), 0, lost=False) == 121
    kind = SHARE_ACCEPTED if version == 1 else SHARE_RENEWED
    assert broker.rows.rows == [(kind, 0, [row(5, 9)], True), (SHARE_ACCEPTED, 121, [row(5, 9)], False)]


def test_an_acknowledgement_without_a_response_has_an_unknown_result() -> None:
    broker = Passing()
    broker.tap.unanswered(broker.sent(SHARE_FETCH, 1, [(5, 9, [1])], 4))
    broker.tap.unanswered(broker.sent(SHARE_ACKNOWLEDGE, 1, [(5, 9, [2])], 4))
    assert [(kind, error) for kind, error, *_ in broker.rows.rows] == [
        (SHARE_ACCEPTED, ERROR_UNKNOWN),
        (SHARE_RELEASED, ERROR_UNKNOWN),
    ]


def test_the_error_of_a_whole_response_is_that_of_each_acknowledgement() -> None:
    broker = Passing()
    request = broker.sent(SHARE_FETCH, 1, [(5, 9, [1])], 4)
    assert broker.tap.answered(request, fetched(1, [], error=123), 0, lost=False) == 123
    assert broker.rows.rows == [(SHARE_ACCEPTED, 123, [row(5, 9)], False)]


@pytest.mark.parametrize("how", ["close", "close without response", "connection"])
def test_a_session_that_ends_may_give_back_all_that_its_member_got(how: str) -> None:
    broker = Passing()
    request = broker.sent(SHARE_FETCH, 1, [], 1)
    broker.tap.answered(request, fetched(1, [(13, 20, 1), (3, 3, 2)]), 0, lost=False)
    if how == "connection":
        broker.tap.connection_ended("another")
        assert len(broker.rows.rows) == 1
        broker.tap.connection_ended("app")
    else:
        closing = broker.sent(SHARE_ACKNOWLEDGE, 1, [], -1)
        if how == "close":
            broker.tap.answered(closing, acknowledged(1), 0, lost=False)
        else:
            broker.tap.unanswered(closing)
    broker.tap.connection_ended("app")
    assert broker.rows.rows[1:] == [(SHARE_RELEASED, ERROR_UNKNOWN, [row(3, 20)], False)]


@pytest.mark.parametrize(("key", "response"), [(SHARE_FETCH, fetched), (SHARE_ACKNOWLEDGE, acknowledged)])
@pytest.mark.parametrize("version", [1, 2])
def test_endpoints_of_new_leaders_are_those_of_the_proxy(key: int, response: Any, version: int) -> None:
    frame = response(version, [(13, 20, 1)]) if key == SHARE_FETCH else response(version)
    seen: list[tuple[int, Address]] = []

    def address_of(node: int, found: Address) -> Address:
        seen.append((node, found))
        return Address("proxy", 1234)

    changed = rewrite(key, version, frame, 0, address_of)
    assert changed is not None
    assert seen == [(2, Address("inside", 9092))]
    endpoint = messages.decode_response(key, version, changed, 0).node_endpoints[0]
    assert (endpoint.host, endpoint.port) == ("proxy", 1234)
