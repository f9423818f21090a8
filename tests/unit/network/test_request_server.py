"""The server side of a connection, driven over real sockets by raw bytes and by PeerClient."""

from __future__ import annotations

import asyncio
import struct
from pathlib import Path

import pytest
from harrow.cluster.authorizer import ANONYMOUS, Operation, Principal, Resource, ResourceType
from harrow.cluster.errors import ErrorCode, KafkaError
from harrow.cluster.host.seam import Peer
from harrow.cluster.network.connection import UNANSWERED_BYTES_MOST
from harrow.cluster.network.peer_names import peer_of, principal_of
from harrow.cluster.security.certificates import PrincipalNames
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.api_table import ApiRow
from harrow.cluster.wire.headers import encode_request_header
from harrow.cluster.wire.request import Fate, Handler, Request
from request_contexts import BROKER_LISTENER, CLIENT_LISTENER
from served_listener import (
    HEARTBEAT,
    Raw,
    answer,
    frame,
    framed,
    heartbeat,
    log_lines,
    next_turn,
    run,
    serving,
    text_of,
)


@pytest.mark.parametrize("version", [0, 4])
def test_requests_of_old_and_flexible_versions_are_answered(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            s.handler = answer
            raw.writer.write(frame(version, 77, "group"))
            header = struct.pack(">i", 77) + (b"\0" if version == 4 else b"")
            got = await raw.frame()
            assert got.startswith(header)
            entity = messages.decode_response(HEARTBEAT, version, got, len(header))
            assert entity.error_code == ErrorCode.none

    run(main())


def test_responses_leave_in_the_order_of_requests(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            raw.writer.write(b"".join(frame(0, i, str(i)) for i in range(5)))
            asked = [await s.requests.get() for _ in range(5)]
            assert [text_of(request) for request in asked] == list("01234")
            for i in (3, 1, 4, 0):
                answer(asked[i])
            asked[2].no_response()
            got = [struct.unpack_from(">i", await raw.frame())[0] for _ in range(4)]
            assert got == [0, 1, 3, 4]

    run(main())


def test_the_next_request_waits_for_a_coroutine_and_not_for_a_response(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            begun: list[str] = []

            async def first_waits(request: Request) -> None:
                begun.append(text_of(request))
                if begun == ["0"]:
                    s.host.tasks.call_later(5, gate.set_result, None)
                    await gate
                    assert begun == ["0"]
                answer(request)

            s.handler = first_waits
            raw.writer.write(frame(0, 0, "0") + frame(0, 1, "1"))
            for i in range(2):
                assert struct.unpack_from(">i", await raw.frame())[0] == i
            assert begun == ["0", "1"]

    run(main())


async def refuses_later(request: Request) -> None:
    await next_turn()
    refuses(request)


def refuses(request: Request) -> None:
    raise KafkaError(ErrorCode.not_coordinator)


async def breaks_later(request: Request) -> None:
    await next_turn()
    breaks(request)


def breaks(request: Request) -> None:
    raise RuntimeError("a bug")


@pytest.mark.parametrize(
    ("handler", "code"),
    [
        (refuses, ErrorCode.not_coordinator),
        (refuses_later, ErrorCode.not_coordinator),
        (breaks, ErrorCode.unknown_server_error),
        (breaks_later, ErrorCode.unknown_server_error),
    ],
)
def test_the_error_of_a_handler_is_the_response(tmp_path: Path, handler: Handler, code: ErrorCode) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            s.handler = handler
            client = s.client()
            for _ in range(2):
                response = await client.request(HEARTBEAT, 4, heartbeat(4, "g"), 5000)
                assert response.error_code == code
            client.close()

    run(main())
    bugs = [line for line in log_lines(tmp_path) if "RuntimeError: a bug" in line]
    assert len(bugs) == (2 if code == ErrorCode.unknown_server_error else 0)
    failed = (tmp_path / "trace.jsonl").read_text().count('"task.failed"')
    assert failed == len(bugs)


GARBAGE = {
    "unknown key": struct.pack(">hhih", 999, 0, 1, -1),
    "unserved key": struct.pack(">hhih", 3, 1, 1, -1),
    "unsupported version": struct.pack(">hhih", HEARTBEAT, 5, 1, -1),
    "short": b"\0",
    "client id too long": struct.pack(">hhih", HEARTBEAT, 0, 1, 3000) + b"x",
    "http": b"GET / HTTP/1.1\r\n\r\n",
}


@pytest.mark.parametrize("name", GARBAGE)
def test_garbage_closes_its_connection_with_one_log_line(tmp_path: Path, name: str) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as good, Raw(s.port) as bad:
            s.handler = answer
            bad.writer.write(struct.pack(">i", len(GARBAGE[name])) + GARBAGE[name])
            assert await bad.reader.read() == b""
            good.writer.write(frame(0, 5, "fine"))
            assert await good.frame()

    run(main())
    assert len(log_lines(tmp_path)) == 1


def test_a_malformed_body_closes_the_connection_also_from_a_coroutine(tmp_path: Path) -> None:
    async def decodes(request: Request) -> None:
        await next_turn()
        request.decode()

    def decodes_at_once(request: Request) -> None:
        request.decode()

    handlers: list[Handler] = [decodes, decodes_at_once]

    async def main() -> None:
        for handler in handlers:
            async with serving(tmp_path) as s, Raw(s.port) as raw:
                s.handler = handler
                data = encode_request_header(HEARTBEAT, 0, 1, "app") + b"\x7f\xffno"
                raw.writer.write(struct.pack(">i", len(data)) + data)
                assert await raw.reader.read() == b""

    run(main())
    assert len(log_lines(tmp_path)) == 2


@pytest.mark.parametrize("version", [0, 3, 99])
def test_api_versions_of_every_version_gets_a_response(tmp_path: Path, version: int) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            known = min(version, 3)
            schema = messages.schema(ApiKey.API_VERSIONS, known, "request")
            body = messages.encode_request(
                ApiKey.API_VERSIONS,
                known,
                schema.ApiVersionsRequest(client_software_name="x", client_software_version="1"),
            )
            data = encode_request_header(ApiKey.API_VERSIONS, version, 9, "app") + body
            raw.writer.write(struct.pack(">i", len(data)) + data)
            got = await raw.frame()
            of = 0 if version == 99 else version
            response = messages.decode_response(ApiKey.API_VERSIONS, of, got, 4)
            assert struct.unpack_from(">i", got)[0] == 9
            expected = ErrorCode.unsupported_version if version == 99 else ErrorCode.none
            assert response.error_code == expected

    run(main())


def test_links_are_named_by_their_first_request(tmp_path: Path) -> None:
    broker, client = Peer("broker", "12"), Peer("client", "broker-12")
    assert peer_of(BROKER_LISTENER, "broker-12") == broker
    assert peer_of(CLIENT_LISTENER, "broker-12") == client
    assert peer_of(BROKER_LISTENER, "broker-x") == Peer("client", "broker-x")
    assert str(peer_of(CLIENT_LISTENER, "")).startswith("client ")
    names = PrincipalNames()
    assert principal_of(BROKER_LISTENER, broker, None, names) == Principal("Broker", "12")
    assert principal_of(CLIENT_LISTENER, client, None, names) == ANONYMOUS
    assert principal_of(BROKER_LISTENER, client, None, names) == ANONYMOUS

    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            raw.writer.write(frame(0, 1, "hi", "broker-3"))
            request = await s.requests.get()
            assert request.peer == Peer("broker", "3")
            assert request.client_id == "broker-3"

    run(main())


class RecordingAuthorizer:
    """An authorizer that records its questions and gives each the same result."""

    def __init__(self, *, allows: bool) -> None:
        self.allows = allows
        self.asked: list[tuple[str, Operation, str]] = []

    unrestricted = False

    def authorize_any(self, principal: Principal, host: str, operation: Operation, kind: ResourceType, /) -> bool:
        del principal, host, operation, kind
        return self.allows

    def authorize(self, principal: Principal, host: str, operation: Operation, resource: Resource, /) -> bool:
        assert host == "127.0.0.1"
        self.asked.append((str(principal), operation, str(resource)))
        return self.allows


def write_markers(listener: str, authorizer: RecordingAuthorizer | None, folder: Path) -> ErrorCode:
    """The error code of a WriteTxnMarkers request, which every listener serves; the handler writes no marker."""
    s = messages.schema(ApiKey.WRITE_TXN_MARKERS, 1, "request")
    row = s.WritableTxnMarkerTopic(name="t", partition_indexes=(0,))
    marker = s.WritableTxnMarker(
        producer_id=1, producer_epoch=0, transaction_result=True, topics=(row,), coordinator_epoch=0
    )
    body = messages.encode_request(ApiKey.WRITE_TXN_MARKERS, 1, s.WriteTxnMarkersRequest(markers=(marker,)))
    row_of_table = ApiRow(ApiKey.WRITE_TXN_MARKERS, 1, 1, lambda request: request.fail(ErrorCode.none))
    answers: list[ErrorCode] = []

    async def main() -> None:
        async with (
            serving(folder, listener=listener, rows=(row_of_table,), authorizer=authorizer) as s,
            Raw(s.port) as raw,
        ):
            raw.writer.write(framed(ApiKey.WRITE_TXN_MARKERS, 1, 7, "broker-2", body))
            got = messages.decode_response(ApiKey.WRITE_TXN_MARKERS, 1, await raw.frame(), 5)
            answers.append(got.markers[0].topics[0].partitions[0].error_code)

    run(main())
    return answers[0]


@pytest.mark.parametrize("listener", ["CLIENTS", "BROKERS"])
def test_the_default_authorizer_lets_clients_and_brokers_write_transaction_markers(
    tmp_path: Path, listener: str
) -> None:
    assert write_markers(listener, None, tmp_path) is ErrorCode.none


def test_a_sender_without_the_operation_gets_cluster_authorization_failed(tmp_path: Path) -> None:
    authorizer = RecordingAuthorizer(allows=False)
    code = write_markers("CLIENTS", authorizer, tmp_path)
    assert code is ErrorCode.cluster_authorization_failed
    assert authorizer.asked == [
        ("User:ANONYMOUS", Operation.ALTER, "CLUSTER:kafka-cluster"),
        ("User:ANONYMOUS", Operation.CLUSTER_ACTION, "CLUSTER:kafka-cluster"),
    ]


def test_the_authorizer_is_asked_once_for_a_brokers_whole_connection(tmp_path: Path) -> None:
    authorizer = RecordingAuthorizer(allows=True)
    contexts: list[object] = []

    def noting(request: Request) -> None:
        contexts.append(request.context)
        answer(request)

    async def main() -> None:
        async with serving(tmp_path, authorizer=authorizer) as s, Raw(s.port) as raw:
            s.handler = noting
            for number in range(3):
                raw.writer.write(frame(0, number, "x", "broker-3"))
                await raw.frame()

    run(main())
    assert authorizer.asked == [("Broker:3", Operation.CLUSTER_ACTION, "CLUSTER:kafka-cluster")]
    assert len({id(context) for context in contexts}) == 1


def test_each_of_three_listeners_gives_its_requests_its_own_context(tmp_path: Path) -> None:
    async def main() -> None:
        names = ("CLIENTS", "BROKERS", "INSIDE")
        async with serving(tmp_path, names=names) as s:
            for name, port in s.ports.items():
                async with Raw(port) as raw:
                    raw.writer.write(frame(0, 1, "x", "broker-2"))
                    request = await s.requests.get()
                    is_broker = name == "BROKERS"
                    assert (request.listener.name, request.from_broker) == (name, is_broker)
                    assert str(request.principal) == ("Broker:2" if is_broker else "User:ANONYMOUS")
                    assert request.listener.advertised == ("127.0.0.1", port)
                    assert s.connections(name) == 1

    run(main())


def test_a_blocked_brokers_first_request_takes_no_effect_before_healing(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            await s.op("links.block", peers=["broker 3"], direction="in")
            raw.writer.write(frame(0, 1, "first", "broker-3") + frame(0, 2, "second", "broker-3"))
            async with Raw(s.port) as other:
                while (await s.op("links"))["held_in_bytes"] == 0:
                    other.writer.write(frame(0, 1, "other", "broker-4"))
                    assert text_of(await s.requests.get()) == "other"
            assert s.requests.empty()
            await s.op("links.heal")
            assert text_of(await s.requests.get()) == "first"
            assert text_of(await s.requests.get()) == "second"

    run(main())


def test_a_lost_response_resets_the_connection_after_the_request_took_effect(tmp_path: Path) -> None:
    sent: list[Fate] = []

    def handler(request: Request) -> None:
        request.respond_parts((b"\0\0\0\0\0\0",), on_send=sent.append)

    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS") as s:
            s.handler = handler
            await s.op("rules.add", kind="response", action="lose", api_key=HEARTBEAT, nth=2, client="app-*")
            async with Raw(s.port) as other:
                other.writer.write(frame(1, 1, "x", "other") * 3)
                for _ in range(3):
                    await other.frame()
            async with Raw(s.port) as raw:
                raw.writer.write(frame(1, 1, "x", "app-7"))
                assert await raw.frame()
                raw.writer.write(frame(1, 2, "x", "app-7"))
                with pytest.raises(ConnectionResetError):
                    await raw.reader.read()
            async with Raw(s.port) as raw:
                raw.writer.write(frame(1, 3, "x", "app-7"))
                assert await raw.frame()
            assert [fate.lost for fate in sent] == [False] * 4 + [True] + [False]
            [rule] = (await s.op("rules.list", kind="response"))["rules"]
            assert (rule["client"], rule["api_key"]) == ("app-*", HEARTBEAT)
            assert (rule["seen"], rule["fired"], rule["armed"]) == (2, 1, False)

    run(main())


def test_after_a_held_response_the_connection_is_open_and_serves_nothing(tmp_path: Path) -> None:
    """The first handler ends after its response: the connection is not free for the next request then."""
    sent: list[Fate] = []
    served: list[int] = []

    async def handler(request: Request) -> None:
        served.append(request.correlation_id)
        await next_turn()
        request.respond_parts((b"\0\0\0\0\0\0",), on_send=sent.append)
        await next_turn()

    async def main() -> None:
        async with serving(tmp_path, listener="CLIENTS") as s:
            s.handler = handler
            await s.op("rules.add", kind="response", action="hold", api_key=HEARTBEAT, nth=1, client="app-*")
            async with Raw(s.port) as raw, Raw(s.port) as other:
                raw.writer.write(frame(1, 1, "x", "app-7") + frame(1, 2, "x", "app-7"))
                while not sent:
                    await s.host.tasks.sleep(1)
                raw.writer.write(frame(1, 3, "x", "app-7"))
                await raw.writer.drain()
                for number in range(4, 8):  # the turns of another connection pass meanwhile
                    other.writer.write(frame(1, number, "x", "other"))
                    assert await other.frame()
                assert served == [1, 4, 5, 6, 7]
                assert [fate.lost for fate in sent] == [True] + [False] * 4
                assert s.connections() == 2
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(raw.reader.read(1), 0.05)
            while s.connections():  # its end is seen
                await s.host.tasks.sleep(1)
            [rule] = (await s.op("rules.list", kind="response"))["rules"]
            assert (rule["seen"], rule["fired"], rule["armed"]) == (1, 1, False)

    run(main())


def test_a_response_that_the_tap_cannot_write_is_not_sent(tmp_path: Path) -> None:
    def full(_fate: Fate) -> None:
        raise OSError("disk full")

    async def main() -> None:
        async with serving(tmp_path) as s, Raw(s.port) as raw:
            s.handler = lambda request: request.respond_parts((b"x",), on_send=full)
            raw.writer.write(frame(0, 1, "x"))
            assert await raw.reader.read() == b""

    run(main())
    assert "disk full" in log_lines(tmp_path)[0]


def test_a_late_response_to_a_closed_connection_is_dropped(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path) as s:
            async with Raw(s.port) as raw:
                raw.writer.write(frame(0, 1, "a") + frame(0, 2, "b"))
                asked = [await s.requests.get() for _ in range(2)]
            while s.connections():
                await s.host.tasks.sleep(0)
            for request in asked:
                answer(request)

    run(main())
    assert log_lines(tmp_path) == []


def test_a_connection_stops_reading_at_its_bound_of_unanswered_requests(tmp_path: Path) -> None:
    async def main() -> None:
        async with serving(tmp_path, unanswered_most=4) as s, Raw(s.port) as raw:
            raw.writer.write(b"".join(frame(0, i, str(i)) for i in range(40)))
            for i in range(40):
                request = await s.requests.get()
                assert text_of(request) == str(i)
                assert s.requests.qsize() <= 3
                answer(request)
                assert struct.unpack_from(">i", await raw.frame())[0] == i

    run(main())


ANY_BYTES = 10 * UNANSWERED_BYTES_MOST


def test_a_connection_stops_reading_at_its_bound_of_unanswered_bytes(tmp_path: Path) -> None:
    text = "x" * 30_000  # a group id has at most 32,767 bytes
    most = UNANSWERED_BYTES_MOST // len(text) + 1

    async def main() -> None:
        async with serving(tmp_path, socket_request_max_bytes=ANY_BYTES) as s, Raw(s.port) as raw:
            raw.writer.write(b"".join(frame(0, i, text) for i in range(3 * most)))
            for i in range(3 * most):
                request = await s.requests.get()
                assert s.requests.qsize() < most
                answer(request)
                assert struct.unpack_from(">i", await raw.frame())[0] == i

    run(main())


def test_after_a_large_request_a_connection_reads_no_other_until_it_has_responded(tmp_path: Path) -> None:
    padding = messages.encode_request(HEARTBEAT, 0, heartbeat(0, "a")) + bytes(UNANSWERED_BYTES_MOST)
    large = framed(HEARTBEAT, 0, 0, "app", padding)

    async def main() -> None:
        async with serving(tmp_path, socket_request_max_bytes=ANY_BYTES) as s, Raw(s.port) as raw:
            raw.writer.write(large + frame(0, 1, "b") + frame(0, 2, "c"))
            first = await s.requests.get()
            async with Raw(s.port) as other:
                for i in range(5):  # other connections are read meanwhile
                    other.writer.write(frame(0, i, "d"))
                    request = await s.requests.get()
                    assert text_of(request) == "d"
                    answer(request)
                    await other.frame()
            answer(first)
            assert [text_of(await s.requests.get()) for _ in range(2)] == ["b", "c"]

    run(main())
