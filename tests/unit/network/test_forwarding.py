"""Requests of operators reach the active controller from every broker, and end in time without one (A4, D1)."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from uuid import UUID

import pytest
from harrow.cluster.authorizer import Principal
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.host.seam import Part, Peer, bytes_of
from harrow.cluster.ids import NO_NODE, NodeId
from harrow.cluster.network import forwarding
from harrow.cluster.network.forwarding import FORWARDED, GRACE_MS, UNTIMED, Forwarding
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.api_table import ApiRow
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.headers import encode_request_header, parse_request_header
from harrow.cluster.wire.request import OnSend, Request, RequestContext
from manual_host import ManualHost
from request_contexts import CLIENT_LISTENER, broker_context

CREATE = ApiKey.CREATE_TOPICS
VERSION = 5
ALICE = Principal("User", "alice")


def creation(timeout_ms: int = 5_000) -> Any:
    topic = {"name": "orders", "num_partitions": 1, "replication_factor": 1}
    return client_request(CREATE, VERSION, topics=[topic], timeout=timeout_ms).entity


def created(request: Request) -> None:
    s = messages.response(request)
    row = s.CreatableTopicResult(name="orders", error_code=ErrorCode.none, configs=())
    request.respond(s.root(topics=(row,)))


class FakeBroker:
    """A broker with a handler of CreateTopics, and links to the brokers of `brokers`."""

    def __init__(self, host: ManualHost, node_id: int, brokers: dict[int, FakeBroker]) -> None:
        self.host, self.node_id = host, NodeId(node_id)
        self.controller_id = NO_NODE
        self.is_active = False
        self.brokers = brokers
        brokers[node_id] = self
        self.seen: list[Request] = []
        self.links: list[FakeLink] = []
        self.serve: Callable[[Request], None] = created
        self.forwarding = Forwarding(host, self, self.connect, lambda: self.is_active)
        self.rows = {row.api_key: row for row in self.forwarding.rows([ApiRow(CREATE, 2, 7, self._create_topics)])}

    async def _create_topics(self, request: Request) -> None:
        self.seen.append(request)
        self.serve(request)

    def peer_endpoint(self, node_id: NodeId, /) -> tuple[str, int] | None:
        return ("127.0.0.1", 9000 + node_id) if node_id > 0 else None

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        await self.host.tasks.sleep(timeout_ms)
        return condition()

    def connect(self, node_id: NodeId) -> Any:
        if self.peer_endpoint(node_id) is None:
            return None
        link = FakeLink(self, node_id)
        self.links.append(link)
        return link

    async def ask(self, timeout_ms: int = 5_000, row: ApiRow | None = None) -> Any:
        """The response to a CreateTopics of a client with the principal `ALICE`."""
        head = encode_request_header(CREATE, VERSION, 7, "admin")
        body = messages.encode_request(CREATE, VERSION, creation(timeout_ms))
        context = RequestContext(peer=Peer("client", "admin", "192.0.2.7"), listener=CLIENT_LISTENER, principal=ALICE)
        response = await self.answered(row or self.rows[CREATE], head + body, context)
        return messages.decode_response(CREATE, VERSION, response)

    async def answered(self, row: ApiRow, frame: bytes, context: RequestContext) -> bytes:
        """Serve a request and return the body of its response."""
        header = parse_request_header(frame)
        found: list[bytes] = []

        def complete(parts: Sequence[Part] | None, _: OnSend | None) -> None:
            found.append(b"".join(bytes(bytes_of(part)) for part in parts or ()))

        now_ns = self.host.clock.monotonic_ns()
        request = Request(*header[:4], frame, header.body_at, context, now_ns, complete)
        running = row.handler(request)
        if running is not None:
            await running
        (response,) = found
        return response


class FakeLink:
    """A connection from a broker to another: an Envelope is served there."""

    def __init__(self, near: FakeBroker, node_id: NodeId) -> None:
        self.near, self.node_id = near, node_id
        self.address = near.peer_endpoint(node_id)
        self.closed = False

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float) -> Any:
        assert not self.closed
        assert timeout_ms >= GRACE_MS
        far = self.near.brokers.get(self.node_id)
        if far is None:
            raise ConnectionResetError("the broker is dead")
        head = encode_request_header(api_key, version, 1, f"broker-{self.near.node_id}")
        frame = head + messages.encode_request(api_key, version, entity)
        context = broker_context(self.near.node_id)
        body = await far.answered(far.rows[api_key], frame, context)
        return messages.decode_response(api_key, version, body)

    def close(self) -> None:
        self.closed = True


class Trio:
    """Three brokers; `controller` is known to all of them."""

    def __init__(self, controller: int) -> None:
        self.host = ManualHost()
        self.brokers: dict[int, FakeBroker] = {}
        self.one, self.two, self.three = (FakeBroker(self.host, node, self.brokers) for node in (1, 2, 3))
        self.elect(controller)
        self.begun_ms = self.host.now_ms

    @property
    def took_ms(self) -> int:
        return self.host.now_ms - self.begun_ms

    def elect(self, controller: int) -> None:
        for broker in self.brokers.values():
            broker.controller_id = NodeId(controller)
            broker.is_active = broker.node_id == controller

    def ask(self, broker: FakeBroker, timeout_ms: int = 5_000) -> ErrorCode:
        (row,) = self.host.run(broker.ask(timeout_ms)).topics
        assert isinstance(row.error_code, ErrorCode)
        return row.error_code


def test_another_broker_forwards_with_the_clients_identity() -> None:
    trio = Trio(controller=2)
    assert trio.ask(trio.one) is ErrorCode.none
    assert trio.one.seen == []
    (request,) = trio.two.seen
    assert (request.client_id, request.principal, request.peer.address, request.from_broker) == (
        "admin",
        ALICE,
        "192.0.2.7",
        False,
    )
    assert request.decode() == creation()
    assert trio.ask(trio.two) is ErrorCode.none
    assert not trio.two.links, "the controller serves its clients itself"


def test_connections_are_used_again_and_are_closed_with_the_broker() -> None:
    trio = Trio(controller=2)
    for _ in range(3):
        trio.ask(trio.one)
    (link,) = trio.one.links
    assert not link.closed
    trio.one.forwarding.close()
    assert link.closed


def test_each_waiting_request_has_a_connection_of_its_own() -> None:
    trio = Trio(controller=2)

    async def both() -> None:
        first, second = trio.host.start(trio.one.ask()), trio.host.start(trio.one.ask())
        await first
        await second

    async def slow(request: Request) -> None:
        trio.two.seen.append(request)
        await trio.host.tasks.sleep(1_000)
        created(request)

    trio.two.rows = {row.api_key: row for row in trio.two.forwarding.rows([ApiRow(CREATE, 2, 7, slow)])}
    trio.host.run(both())
    assert (len(trio.one.links), trio.took_ms) == (2, 1_000)


def test_an_error_of_the_controller_reaches_the_client_with_its_message() -> None:
    trio = Trio(controller=2)

    def refuse(_: Request) -> None:
        raise KafkaError(ErrorCode.invalid_request, "topics are refused here")

    trio.two.serve = refuse
    (row,) = trio.host.run(trio.one.ask()).topics
    assert (row.error_code, row.error_message) == (ErrorCode.invalid_request, "topics are refused here")


@pytest.mark.parametrize("timeout_ms", [0, -1, -(2**31)])
def test_a_request_without_time_is_not_begun(timeout_ms: int) -> None:
    trio = Trio(controller=2)
    for broker in (trio.one, trio.two):
        assert trio.ask(broker, timeout_ms) is ErrorCode.request_timed_out
    assert trio.two.seen == []


def named(api_key: int, version: int, *rows: Mapping[str, Any]) -> Any:
    """A request without time that names these topics."""
    if api_key == ApiKey.DELETE_TOPICS and version < 6:
        topics: dict[str, Any] = {"topic_names": [row["name"] for row in rows]}
    elif api_key == ApiKey.ELECT_LEADERS:
        topics = {"topic_partitions": [{"topic": row["name"]} for row in rows]}
    else:
        topics = {"topics": rows}
    return client_request(api_key, version, timeout=0, **topics).entity


def sent_without_time(api_key: int, version: int) -> Any:
    """A request of `UNTIMED`; one of them has a time all the same."""
    times = {"timeout": 0} if api_key == ApiKey.UPDATE_FEATURES else {}
    return client_request(api_key, version, **times).entity


def reached(api_key: int, version: int, *rows: Mapping[str, Any]) -> bool:
    """Whether a request without time, that names these topics, reaches the handler."""
    host, seen = ManualHost(), list[Request]()
    broker = FakeBroker(host, 1, {})
    broker.controller_id, broker.is_active = broker.node_id, True

    def handler(request: Request) -> None:
        seen.append(request)
        request.fail(ErrorCode.none)

    (row, _) = broker.forwarding.rows([ApiRow(api_key, version, version, handler)])
    frame = encode_request_header(api_key, version, 1, "admin")
    entity = sent_without_time(api_key, version) if api_key in UNTIMED else named(api_key, version, *rows)
    frame += messages.encode_request(api_key, version, entity)
    context = RequestContext(peer=Peer("client", "admin"), listener=CLIENT_LISTENER)
    host.run(broker.answered(row, frame, context))
    return bool(seen)


@pytest.mark.parametrize("api_key", sorted(UNTIMED))
def test_a_request_that_has_no_deadline_in_kafka_is_served_without_time(api_key: int) -> None:
    for version in messages.versions_known(api_key):
        assert reached(api_key, version)


@pytest.mark.parametrize("api_key", sorted(FORWARDED - UNTIMED))
def test_a_request_without_time_is_served_when_it_names_nothing_or_is_about_reassignments(api_key: int) -> None:
    version = messages.versions_known(api_key)[-1]
    lists = api_key == ApiKey.LIST_PARTITION_REASSIGNMENTS
    assert reached(api_key, version)
    assert reached(api_key, version, ROWS[api_key]("a")) == lists


ID = UUID(int=7)
ROWS: Mapping[int, Callable[[str], Mapping[str, Any]]] = {
    ApiKey.CREATE_TOPICS: lambda name: {
        "name": name,
        "num_partitions": 1,
        "replication_factor": 1,
        "assignments": (),
        "configs": (),
    },
    ApiKey.CREATE_PARTITIONS: lambda name: {"name": name, "count": 2, "assignments": None},
    ApiKey.DELETE_TOPICS: lambda name: {"name": name, "topic_id": None},
    ApiKey.ELECT_LEADERS: lambda name: {"name": name},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: lambda name: {"name": name, "partitions": ()},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda name: {"name": name, "partition_indexes": ()},
}


@pytest.mark.parametrize(
    ("api_key", "version"),
    [(ApiKey.CREATE_TOPICS, 7), (ApiKey.CREATE_PARTITIONS, 3), (ApiKey.DELETE_TOPICS, 5), (ApiKey.DELETE_TOPICS, 6)],
)
def test_a_request_without_time_is_served_when_it_names_each_topic_twice(api_key: int, version: int) -> None:
    a, b = ROWS[api_key]("a"), ROWS[api_key]("b")
    assert reached(api_key, version, a, a)
    assert reached(api_key, version, a, b, b, a)
    assert not reached(api_key, version, a, a, b)


def test_a_deletion_without_time_is_served_when_no_row_names_a_topic_rightly() -> None:
    both, neither = {"name": "a", "topic_id": ID}, {"name": None, "topic_id": None}
    by_id = {"name": None, "topic_id": ID}
    assert reached(ApiKey.DELETE_TOPICS, 6, both, neither, by_id, by_id)
    assert not reached(ApiKey.DELETE_TOPICS, 6, both, by_id)


def test_without_a_controller_the_request_times_out_when_its_own_time_is_over() -> None:
    trio = Trio(controller=-1)
    assert trio.ask(trio.one, 3_000) is ErrorCode.request_timed_out
    assert trio.took_ms == 3_000


def test_a_controller_that_is_elected_in_time_serves_the_request() -> None:
    trio = Trio(controller=-1)
    trio.host.tasks.call_later(1_000, trio.elect, 3)
    assert trio.ask(trio.one, 3_000) is ErrorCode.none
    assert len(trio.three.seen) == 1
    assert trio.took_ms < 1_200


@pytest.mark.parametrize("asked", [1, 2])
def test_a_broker_that_is_controller_no_more_is_asked_again_until_another_is(asked: int) -> None:
    trio = Trio(controller=2)

    def deposed(_: Request) -> None:
        raise KafkaError(ErrorCode.not_controller)

    trio.two.serve = deposed
    trio.host.tasks.call_later(500, trio.elect, 3)
    assert trio.ask(trio.brokers[asked]) is ErrorCode.none
    assert len(trio.three.seen) == 1


@pytest.mark.parametrize("asked", [1, 2])
def test_a_broker_whose_session_expired_serves_nothing_though_its_metadata_names_it(asked: int) -> None:
    trio = Trio(controller=2)
    trio.two.is_active = False
    trio.host.tasks.call_later(500, trio.elect, 3)
    assert trio.ask(trio.brokers[asked]) is ErrorCode.none
    assert (len(trio.two.seen), len(trio.three.seen)) == (0, 1)


def test_a_dead_controller_is_replaced_and_its_connection_closed() -> None:
    trio = Trio(controller=2)
    assert trio.ask(trio.one) is ErrorCode.none
    dead = trio.brokers.pop(2)
    trio.host.tasks.call_later(500, trio.elect, 3)
    assert trio.ask(trio.one) is ErrorCode.none
    assert (len(dead.seen), len(trio.three.seen)) == (1, 1)
    assert trio.one.links[0].closed


def test_a_controller_that_hangs_does_not_hold_its_own_clients_for_ever() -> None:
    trio = Trio(controller=1)

    async def hang(_: Request) -> None:
        await trio.host.tasks.sleep(10**7)

    row, _ = trio.one.forwarding.rows([ApiRow(CREATE, 2, 7, hang)])
    (found,) = trio.host.run(trio.one.ask(2_000, row)).topics
    assert found.error_code is ErrorCode.request_timed_out
    assert trio.took_ms == 2_000 + GRACE_MS


def test_an_envelope_carries_nothing_but_the_requests_of_operators() -> None:
    trio = Trio(controller=2)
    inner = encode_request_header(ApiKey.HEARTBEAT, 4, 1, "admin")
    request = client_request(ApiKey.ENVELOPE, 0, request_data=inner, request_principal=None, client_host_address=b"")

    async def ask() -> Any:
        return await FakeLink(trio.one, trio.two.node_id).request(*request, 1_000)

    assert trio.host.run(ask()).error_code is ErrorCode.invalid_request
    assert forwarding.ENVELOPE_VERSION == 0
