"""A link with a mutant: its handler gets changed requests, and its client changed responses."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.events import TraceEvent
from harrow.cluster.events.requests import RequestChanged
from harrow.cluster.host.seam import FrameHandler, Link, Part, Peer, bytes_of
from harrow.cluster.mutants.changing_link import MUTANT, with_mutant
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.headers import encode_response_header, parse_request_header, parse_response_header

OFFSETS = [{"name": "orders", "partitions": [{"partition_index": 0, "committed_offset": 4}]}]


class FakeTrace:
    def __init__(self) -> None:
        self.events: list[TraceEvent] = []

    def emit(self, event: TraceEvent) -> None:
        self.events.append(event)

    def log(self, level: str, message: str, /, **fields: object) -> None:
        raise AssertionError(f"{level}: {message} {fields}")


class FakeLink:
    """The side of the client: what was sent to it."""

    max_frame_bytes = 1 << 20
    wire_error_level = "warning"
    certificate: bytes | None = None
    unsent_bytes = 0

    def __init__(self) -> None:
        self.peer = Peer("unknown", "", "127.0.0.1")
        self.sent: list[bytes] = []
        self.closed = False

    def when_established(self, call: Callable[[], object]) -> None:
        call()

    def send(self, parts: Sequence[Part]) -> None:
        self.sent.append(b"".join(bytes(bytes_of(part)) for part in parts))

    def close(self, *, reset: bool = False) -> None:
        del reset
        self.closed = True

    def pause(self) -> None:
        raise AssertionError("nothing pauses here")

    def resume(self) -> None:
        raise AssertionError("nothing resumes here")

    def when_unsent_below(self, limit: int, call: Callable[[], object]) -> None:
        raise AssertionError(f"nothing waits for {limit} bytes: {call}")


class Server:
    """A handler that keeps the frames, and answers when it is asked to."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self.frames: list[bytes] = []
        self.ended = ""

    def frame_received(self, frame: bytes) -> None:
        self.frames.append(frame)

    def link_closed(self, reason: str) -> None:
        self.ended = reason

    def request(self) -> Any:
        """The last request."""
        header = parse_request_header(self.frames[-1])
        return messages.request_reader(header.api_key, header.version)(self.frames[-1], header.body_at)[0]

    def answer(self, response: Any) -> None:
        header = parse_request_header(self.frames[-1])
        body = messages.encode(messages.response_writer(header.api_key, header.version), response)
        self.link.send((encode_response_header(header.api_key, header.version, header.correlation_id), body))


class Bed:
    """A link of a listener with a mutant."""

    def __init__(self) -> None:
        self.trace, self.client = FakeTrace(), FakeLink()
        self.servers: list[Server] = []
        self.handler: FrameHandler = with_mutant(self._serve, self.trace)(self.client)

    def _serve(self, link: Link) -> FrameHandler:
        self.servers.append(Server(link))
        return self.servers[-1]

    @property
    def server(self) -> Server:
        (server,) = self.servers
        return server

    def ask(self, request: ClientRequest, correlation_id: int = 1, client_id: str = "billing") -> Any:
        """Send a request; return what the server got."""
        self.handler.frame_received(request.frame(correlation_id, client_id)[4:])
        return self.server.request()


def commit() -> ClientRequest:
    return client_request(ApiKey.TXN_OFFSET_COMMIT, 3, transactional_id="t", group_id="billing", topics=OFFSETS)


@pytest.fixture
def bed(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> Bed:
    monkeypatch.setenv(MUTANT, request.param)
    return Bed()


@pytest.mark.parametrize("mutant", ["", "early-commit", "no-such"])
def test_without_a_mutant_on_the_wire_a_handler_is_what_it_was(monkeypatch: pytest.MonkeyPatch, mutant: str) -> None:
    monkeypatch.setenv(MUTANT, mutant)

    def serve(link: Link) -> FrameHandler:
        raise AssertionError(f"no link is made: {link}")

    assert with_mutant(serve, FakeTrace()) is serve


@pytest.mark.parametrize("bed", ["offset-too-far"], indirect=True)
def test_a_handler_gets_the_changed_request_and_the_trace_its_first_change(bed: Bed) -> None:
    for correlation_id in (1, 2):
        asked = bed.ask(commit(), correlation_id)
        assert asked.topics[0].partitions[0].committed_offset == 5
        assert parse_request_header(bed.server.frames[-1]).correlation_id == correlation_id
    expected = RequestChanged(mutant="offset-too-far", peer="client billing", api_key=int(ApiKey.TXN_OFFSET_COMMIT))
    assert bed.trace.events == [expected]


@pytest.mark.parametrize("client_id", ["harrow", "harrow-drain", "broker-2"])
@pytest.mark.parametrize("bed", ["offset-too-far"], indirect=True)
def test_requests_of_harrow_and_of_brokers_are_not_changed(bed: Bed, client_id: str) -> None:
    asked = bed.ask(commit(), client_id=client_id)
    assert asked.topics[0].partitions[0].committed_offset == 4
    assert bed.trace.events == []


@pytest.mark.parametrize("bed", ["offset-too-far"], indirect=True)
def test_other_requests_and_those_that_do_not_decode_are_passed_on(bed: Bed) -> None:
    other = client_request(ApiKey.METADATA, 9, topics=None).frame(1, "billing")[4:]
    broken = commit().frame(2, "billing")[4:-3]
    for frame in (other, broken):
        bed.handler.frame_received(frame)
        assert bed.server.frames[-1] == frame
    bed.handler.link_closed("over")
    assert bed.server.ended == "over"


@pytest.mark.parametrize("bed", ["offsets-left-out"], indirect=True)
def test_offsets_that_were_left_out_are_answered_as_committed(bed: Bed) -> None:
    assert bed.ask(commit(), 7).topics == ()
    s = messages.schema(int(ApiKey.TXN_OFFSET_COMMIT), 3, "response")
    bed.server.answer(s.root(topics=()))
    (frame,) = bed.client.sent
    correlation_id, body_at = parse_response_header(int(ApiKey.TXN_OFFSET_COMMIT), 3, frame)
    assert correlation_id == 7
    (topic,) = messages.decode_response(int(ApiKey.TXN_OFFSET_COMMIT), 3, frame, body_at).topics
    assert (topic.name, topic.partitions[0].partition_index) == ("orders", 0)
    assert topic.partitions[0].error_code is ErrorCode.none


@pytest.mark.parametrize("bed", ["failed-is-sent"], indirect=True)
def test_the_error_of_a_produce_does_not_reach_the_client(bed: Bed) -> None:
    api = int(ApiKey.PRODUCE)
    rows = [{"name": "orders", "partition_data": [{"index": 0, "records": None}]}]
    bed.ask(client_request(api, 9, acks=-1, timeout=1_000, topic_data=rows), 3)
    s = messages.schema(api, 9, "response")
    row = s.PartitionProduceResponse(index=0, error_code=ErrorCode.not_enough_replicas, base_offset=-1)
    bed.server.answer(s.root(responses=(s.TopicProduceResponse(name="orders", partition_responses=(row,)),)))
    _, body_at = parse_response_header(api, 9, bed.client.sent[-1])
    found = messages.decode_response(api, 9, bed.client.sent[-1], body_at)
    assert found.responses[0].partition_responses[0].error_code is ErrorCode.none
    assert [type(event) for event in bed.trace.events] == [RequestChanged]


@pytest.mark.parametrize("bed", ["failed-is-sent"], indirect=True)
def test_a_produce_without_response_is_not_remembered(bed: Bed) -> None:
    rows = [{"name": "orders", "partition_data": [{"index": 0, "records": None}]}]
    bed.ask(client_request(int(ApiKey.PRODUCE), 9, acks=0, timeout=1_000, topic_data=rows))
    assert bed.handler.awaited == {}  # type: ignore[attr-defined]
