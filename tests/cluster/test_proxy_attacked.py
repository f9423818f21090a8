"""What the proxy does with broken, slow and hostile peers: one connection ends, memory stays bounded (A6, J6)."""

from __future__ import annotations

import contextlib
import resource
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from harrow.cluster.broker_folder import LOG, broker_name
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.trace import WARNINGS_A_SECOND
from harrow.cluster.proxy_supervisor import Proxy
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.headers import encode_request_header, parse_request_header
from listening_broker import ListeningBroker, behind_a_proxy, connected, frame, read_frame, response
from long_runs import some
from raw_kafka import produce_request
from waiting import until

MIB = 1024 * 1024
FLOOD_BYTES = 100 * MIB
MEMORY_MOST = 48 * MIB
"""More memory than the proxy may take for one connection whose peer does not read: its bounds are 4 and 32 MiB."""
FETCH_VERSION = 12
CLIENT_ID = "attacker"


@pytest.fixture
def path(tmp_path: Path) -> Iterator[tuple[ListeningBroker, Proxy]]:
    """A proxy for each test: a log has at most ten similar warnings in a second."""
    with behind_a_proxy(tmp_path) as both:
        yield both


def header(api_key: int, version: int, correlation_id: int) -> bytes:
    """The frame of a request without a body."""
    return frame(encode_request_header(api_key, version, correlation_id, CLIENT_ID))


def metadata(correlation_id: int) -> bytes:
    return client_request(ApiKey.METADATA, 9, topics=None).frame(correlation_id, CLIENT_ID)


def metadata_answer(correlation_id: int) -> bytes:
    s = messages.schema(ApiKey.METADATA, 9, "response")
    broker = s.MetadataResponseBroker(node_id=1, host="far.example", port=9092, rack=None)
    return response(ApiKey.METADATA, 9, correlation_id, s.root(brokers=(broker,)))


def answer(correlation_id: int, records: bytes = b"") -> bytes:
    s = messages.schema(ApiKey.FETCH, FETCH_VERSION, "response")
    row = s.PartitionData(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=1,
        last_stable_offset=1,
        records=records,
        aborted_transactions=None,
    )
    topic = s.FetchableTopicResponse(topic="t", partitions=(row,))
    return response(ApiKey.FETCH, FETCH_VERSION, correlation_id, s.root(responses=(topic,)))


def fetch(correlation_id: int) -> bytes:
    request = client_request(ApiKey.FETCH, FETCH_VERSION, replica_id=-1, session_epoch=-1)
    return request.frame(correlation_id, CLIENT_ID)


def serves(path: tuple[ListeningBroker, Proxy]) -> None:
    """A new connection works."""
    with connected(*path) as (client, broker):
        client.sendall(metadata(1))
        assert parse_request_header(read_frame(broker)).correlation_id == 1
        broker.sendall(metadata_answer(1))
        found = read_frame(client)
        assert b"far.example" not in found
        assert b"127.0.0.1" in found


def is_closed(client: socket.socket) -> bool:
    """Whether the other side closes the connection, without a byte before."""
    try:
        return client.recv(1) == b""
    except ConnectionError:
        return True


def log_of(proxy: Proxy) -> str:
    return (proxy.folder / broker_name(1) / LOG).read_text()


@pytest.mark.parametrize(
    ("garbage", "logged"),
    [
        (b"GET / HTTP/1.1\r\nHost: kafka\r\n\r\n", "a frame of"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(40), "a frame of"),
        (b"\xff\xff\xff\xff", "a frame of -1 bytes"),
        (frame(b"\x00"), "no request header"),
        (frame(b"\x7f\x00\x00\x00\x00\x00\x00\x01\x00\x00"), "unknown API key"),
        (header(17, 0, 1), "passes the proxy in versions 1 to 1, not 0"),
        (header(52, 0, 1), "does not pass the proxy"),
        (header(3, 99, 1), "0 to 13, not 99"),
        (header(0, 13, 1) + bytes(5), "Produce v13 does not decode"),
        (header(1, 12, 1), "Fetch v12 does not decode"),
    ],
    ids=["http", "tls", "negative", "short", "api", "sasl", "controllers", "version", "produce", "fetch"],
)
def test_bytes_that_do_not_pass_close_their_own_connection_with_a_line_in_the_log(
    path: tuple[ListeningBroker, Proxy], garbage: bytes, logged: str
) -> None:
    with connected(*path) as (client, broker):
        client.sendall(garbage)
        assert is_closed(client)
        assert is_closed(broker), "nothing of it was forwarded"
    assert logged in log_of(path[1])
    serves(path)


def test_an_unknown_version_of_api_versions_gets_the_known_range_and_is_not_forwarded(
    path: tuple[ListeningBroker, Proxy],
) -> None:
    with connected(*path) as (client, broker):
        client.sendall(header(ApiKey.API_VERSIONS, 77, 5) + metadata(6))
        assert parse_request_header(read_frame(broker)).correlation_id == 6
        found = read_frame(client)
        assert found[:4] == b"\0\0\0\5"
        entity = messages.decode_response(ApiKey.API_VERSIONS, 0, found, 4)
        assert entity.error_code == ErrorCode.unsupported_version
        assert [(row.api_key, row.max_version) for row in entity.api_keys] == [(18, 5)]


def test_a_client_that_leaves_in_the_middle_of_a_frame_ends_the_brokers_connection(
    path: tuple[ListeningBroker, Proxy],
) -> None:
    with connected(*path) as (client, broker):
        client.sendall(metadata(1) + metadata(2)[:-3])
        assert parse_request_header(read_frame(broker)).correlation_id == 1
        client.close()
        assert is_closed(broker), "the half frame was not forwarded"
    serves(path)


@pytest.mark.parametrize("share", [0.0, 0.5])
def test_a_broker_that_dies_in_the_middle_of_a_response_ends_the_clients_connection(
    path: tuple[ListeningBroker, Proxy], share: float
) -> None:
    with connected(*path) as (client, broker):
        client.sendall(fetch(1) + fetch(2))
        for _ in range(2):
            read_frame(broker)
        second = answer(2, bytes(200_000))
        broker.sendall(answer(1, b"") + second[: int(len(second) * share)])
        broker.close()
        assert read_frame(client)[:4] == b"\0\0\0\1"
        assert is_closed(client), "no part of the second response arrives"
    serves(path)


@pytest.mark.parametrize(
    ("damaged", "logged"),
    [
        (answer(9), "but the next request is #1"),
        (frame(b"\0\0"), "a response of 2 bytes"),
        (frame(b"\0\0\0\1\0\0\0\0\0\x7f"), "does not decode"),
    ],
)
def test_a_response_that_cannot_be_read_is_not_passed_on(
    path: tuple[ListeningBroker, Proxy], damaged: bytes, logged: str
) -> None:
    with connected(*path) as (client, broker):
        client.sendall(metadata(1))
        read_frame(broker)
        broker.sendall(damaged)
        assert is_closed(client)
    assert logged in log_of(path[1])


def test_a_response_to_no_request_ends_the_connection(path: tuple[ListeningBroker, Proxy]) -> None:
    with connected(*path) as (client, broker):
        broker.sendall(answer(1))
        assert is_closed(client)
    assert "to no request" in log_of(path[1])


def test_pipelined_requests_are_forwarded_and_answered_in_order(path: tuple[ListeningBroker, Proxy]) -> None:
    count = 2_000
    with connected(*path) as (client, broker):
        sender = threading.Thread(target=client.sendall, args=(b"".join(map(metadata, range(count))),))
        sender.start()
        for number in range(count):
            assert parse_request_header(read_frame(broker)).correlation_id == number
            broker.sendall(metadata_answer(number))
        assert [int.from_bytes(read_frame(client)[:4], "big") for _ in range(count)] == list(range(count))
        sender.join()


def test_no_more_than_500_requests_wait_for_a_broker(path: tuple[ListeningBroker, Proxy]) -> None:
    with connected(*path) as (client, broker):
        client.sendall(b"".join(map(metadata, range(600))))
        for number in range(500):
            assert parse_request_header(read_frame(broker)).correlation_id == number
        broker.setblocking(False)
        serves(path)  # the proxy has had its turns
        with pytest.raises(BlockingIOError):
            broker.recv(1)
        broker.setblocking(True)
        broker.sendall(b"".join(map(metadata_answer, range(500))))
        for number in range(500, 600):
            assert parse_request_header(read_frame(broker)).correlation_id == number


def test_two_hundred_connections_are_served(path: tuple[ListeningBroker, Proxy]) -> None:
    listening, proxy = path
    clients = [socket.create_connection(proxy.addresses[1], 30) for _ in range(200)]
    try:
        for number, client in enumerate(clients):
            client.sendall(metadata(number))
        brokers = [listening.accept() for _ in clients]
        for broker in brokers:
            correlation_id = parse_request_header(read_frame(broker)).correlation_id
            broker.sendall(metadata_answer(correlation_id))
        for number, client in enumerate(clients):
            assert int.from_bytes(read_frame(client)[:4], "big") == number
    finally:
        for client in clients:
            client.close()


# ------------------------------------------------------------------------------------ strangers


SLOW = metadata(1)[:7]
HUGE = (100 * MIB).to_bytes(4, "big") + b"\0"
"""A size that is allowed, without the bytes."""


@pytest.mark.parametrize("sent", [b"", SLOW, HUGE], ids=["silent", "slow", "huge"])
def test_a_stranger_ends_when_the_broker_closes_its_idle_connection(
    path: tuple[ListeningBroker, Proxy], sent: bytes
) -> None:
    """The deadline is the broker's connections.max.idle.ms: no byte of an incomplete request reaches it."""
    with connected(*path) as (client, broker):
        for byte in sent:
            client.sendall(bytes((byte,)))
        serves(path)
        broker.setblocking(False)
        with pytest.raises(BlockingIOError):
            broker.recv(1)
        broker.close()
        assert is_closed(client)
    assert log_of(path[1]) == "", "no line"
    serves(path)


def test_strangers_take_neither_memory_nor_lines(path: tuple[ListeningBroker, Proxy]) -> None:
    listening, proxy = path
    before = memory(proxy, "VmRSS")
    count = len(some(range(2_000), 200))
    clients: list[socket.socket] = []
    try:
        for number in range(count):
            clients.append(socket.create_connection(proxy.addresses[1], 30))
            clients[-1].sendall((HUGE, SLOW, b"")[number % 3])
            listening.accept()
        serves(path)
        assert memory(proxy, "VmRSS") - before < count * 64 * 1024, "64 KiB for each connection"
        assert log_of(proxy) == ""
    finally:
        for client in clients:
            client.close()
    serves(path)


def test_garbage_on_many_connections_has_few_lines(path: tuple[ListeningBroker, Proxy]) -> None:
    count = 300
    first_s = time.monotonic_ns() // 1_000_000_000  # the seconds in which a log counts its warnings
    for _ in range(count):
        with connected(*path) as (client, _broker):
            client.sendall(b"\xff" * 8)
            assert is_closed(client)
    lines = log_of(path[1]).splitlines()
    seconds = time.monotonic_ns() // 1_000_000_000 - first_s + 1
    assert 1 <= len(lines) <= (WARNINGS_A_SECOND + 1) * seconds
    serves(path)


def test_a_proxy_without_descriptors_serves_again_when_strangers_leave(tmp_path: Path) -> None:
    with ListeningBroker() as listening, Proxy(tmp_path, {1: listening.address}) as proxy:
        listening.accept()
        pid = proxy.process.pid
        assert pid is not None
        used = len(list(Path(f"/proc/{pid}/fd").iterdir()))
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.prlimit(pid, resource.RLIMIT_NOFILE, (used + 20, hard))
        address = proxy.addresses[1]
        clients = [socket.create_connection(address, 30) for _ in range(100)]
        until(lambda: "resting" in log_of(proxy))
        for client in clients:
            client.close()
        until(lambda: _is_served(listening, address), amid=(OSError,))
        lines = log_of(proxy).splitlines()
        assert len(lines) == len([line for line in lines if "cannot accept" in line]), "no line for each connection"


def _is_served(listening: ListeningBroker, address: tuple[str, int]) -> bool:
    """Whether a request of a new client reaches the broker; connections of earlier clients end without one."""
    with contextlib.closing(socket.create_connection(address, 30)) as client:
        client.sendall(metadata(1))
        while True:
            accepted = listening.accept()
            accepted.settimeout(1.0)
            with contextlib.suppress(OSError):
                return parse_request_header(read_frame(accepted)).correlation_id == 1


# ------------------------------------------------------------------------------------ memory


def memory(proxy: Proxy, field: str) -> int:
    """A field of /proc/PID/status, in bytes."""
    text = Path(f"/proc/{proxy.process.pid}/status").read_text()
    (line,) = [line for line in text.splitlines() if line.startswith(f"{field}:")]
    return int(line.split()[1]) * 1024


def send_until_it_is_not_read(path: tuple[ListeningBroker, Proxy], sender: socket.socket, data: bytes) -> int:
    """Sends `data` until the proxy does not read it while it serves others; how much was sent."""
    sent = 0
    sender.setblocking(False)
    while sent < len(data):
        before = sent
        with contextlib.suppress(BlockingIOError):
            while sent < len(data):
                sent += sender.send(data[sent : sent + MIB])
        serves(path)  # the proxy has had its turns
        if sent == before:
            break
    sender.setblocking(True)
    return sent


def test_requests_to_a_broker_that_does_not_read_take_bounded_memory(tmp_path: Path) -> None:
    count = FLOOD_BYTES // MIB
    with behind_a_proxy(tmp_path) as path, connected(*path) as (client, broker):
        before = memory(path[1], "VmHWM")
        produce = ClientRequest(ApiKey.PRODUCE, 9, produce_request("t", 0, bytes(MIB), -1, 1000, 9))
        requests = b"".join(produce.frame(number, CLIENT_ID) for number in range(count))
        sent = send_until_it_is_not_read(path, client, requests)
        assert sent < FLOOD_BYTES // 2
        sender = threading.Thread(target=client.sendall, args=(requests[sent:],))
        sender.start()
        s = messages.schema(ApiKey.PRODUCE, 9, "response")
        for number in range(count):
            assert parse_request_header(read_frame(broker)).correlation_id == number
            broker.sendall(response(ApiKey.PRODUCE, 9, number, s.root(responses=())))
            assert int.from_bytes(read_frame(client)[:4], "big") == number
        sender.join()
        assert memory(path[1], "VmHWM") - before < MEMORY_MOST


def test_responses_to_a_client_that_does_not_read_take_bounded_memory(tmp_path: Path) -> None:
    count = FLOOD_BYTES // MIB
    with behind_a_proxy(tmp_path) as path, connected(*path) as (client, broker):
        before = memory(path[1], "VmHWM")
        client.sendall(b"".join(map(fetch, range(count))))
        for _ in range(count):
            read_frame(broker)
        answers = b"".join(answer(number, bytes(MIB)) for number in range(count))
        sent = send_until_it_is_not_read(path, broker, answers)
        assert sent < FLOOD_BYTES // 2
        sender = threading.Thread(target=broker.sendall, args=(answers[sent:],))
        sender.start()
        for number in range(count):
            assert int.from_bytes(read_frame(client)[:4], "big") == number
        sender.join()
        assert memory(path[1], "VmHWM") - before < MEMORY_MOST
