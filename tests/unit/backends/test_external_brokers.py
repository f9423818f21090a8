"""The backend `external` without a cluster: what a bootstrap address must be, and what stands behind it (J2)."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress

import pytest
from harrow.cluster.errors import ErrorCode
from harrow.cluster.listeners import Address
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey
from harrow.faults.errors import CapabilityError
from harrow.harness.backends.external.bootstrap import NEEDED, find_brokers, parse_bootstrap
from harrow.harness.backends.external.broker_settings import check_settings, session_timeout_ms
from harrow.harness.backends.external.created_topics import CreatedTopics

SIZE = struct.Struct(">i")
Answer = Callable[[int], bytes | None]
"""By API key; None: close the connection."""


@pytest.fixture
def listener() -> Iterator[Callable[[Answer], Address]]:
    """Makes listeners that answer each request."""
    servers: list[socket.socket] = []
    threads: list[threading.Thread] = []

    def make(answer: Answer) -> Address:
        server = socket.create_server(("127.0.0.1", 0))
        servers.append(server)
        threads.append(threading.Thread(target=serve, args=(server, answer)))
        threads[-1].start()
        return Address(*server.getsockname()[:2])

    yield make
    for server in servers:
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        server.close()
    for thread in threads:
        thread.join()


def serve(server: socket.socket, answer: Answer) -> None:
    while True:
        try:
            connection, _ = server.accept()
        except OSError:
            return
        with closing(connection), connection.makefile("rb") as requests:
            while len(head := requests.read(SIZE.size)) == SIZE.size:
                frame = requests.read(SIZE.unpack(head)[0])
                api_key, _, correlation = struct.unpack_from(">hhi", frame)
                body = answer(api_key)
                if body is None:
                    break
                connection.sendall(SIZE.pack(4 + len(body)) + struct.pack(">i", correlation) + body)


def api_versions(most: int = 20) -> bytes:
    s = messages.schema(ApiKey.API_VERSIONS, 0, "response")
    keys = [s.ApiVersion(api_key=key, min_version=0, max_version=most) for key in NEEDED]
    entity = s.ApiVersionsResponse(error_code=ErrorCode.none, api_keys=tuple(keys))
    return messages.encode(messages.response_writer(ApiKey.API_VERSIONS, 0), entity)


def test_an_address_is_a_host_and_a_port() -> None:
    assert parse_bootstrap("localhost:9092, [::1]:9093") == (Address("localhost", 9092), Address("::1", 9093))
    for text in ("localhost", "localhost:", "localhost:0", "localhost:70000", "kafka://a:1", "a b:1"):
        with pytest.raises(CapabilityError, match="is not HOST:PORT"):
            parse_bootstrap(text)
    for text in ("", " , "):
        with pytest.raises(CapabilityError, match=r"no cluster is named: .*--harrow-bootstrap=localhost:9092"):
            parse_bootstrap(text)


def test_an_address_without_a_listener_is_named() -> None:
    with socket.socket() as bound:
        bound.bind(("127.0.0.1", 0))
        place = f"127.0.0.1:{bound.getsockname()[1]}"
        with pytest.raises(CapabilityError, match=f"{place} cannot be reached: .*refused.*; {place} cannot"):
            find_brokers(f"{place},{place}")


def test_a_listener_for_tls_is_recognised(listener: Callable[[Answer], Address]) -> None:
    with pytest.raises(CapabilityError, match=r"as a listener for TLS does; .*PLAINTEXT listener"):
        find_brokers(str(listener(lambda _: None)))


def test_a_listener_for_sasl_is_recognised(listener: Callable[[Answer], Address]) -> None:
    address = listener(lambda key: api_versions() if key == ApiKey.API_VERSIONS else None)
    with pytest.raises(CapabilityError, match=r"as a listener for SASL does; .*PLAINTEXT listener"):
        find_brokers(str(address))


def test_brokers_that_are_too_old_are_named(listener: Callable[[Answer], Address]) -> None:
    address = listener(lambda _: api_versions(most=5))
    with pytest.raises(CapabilityError, match=r"serves METADATA in versions 0 to 5, and Harrow needs 12; .*2\.8"):
        find_brokers(str(address))


def test_settings_that_a_test_asks_for_must_be_there() -> None:
    actual = {"min.insync.replicas": "2", "auto.create.topics.enable": "false"}
    check_settings({"min.insync.replicas": 2, "auto.create.topics.enable": False}, actual)
    with pytest.raises(CapabilityError, match=r"log\.dirs=/x, and log\.dirs of these brokers is not known"):
        check_settings({"log.dirs": "/x"}, actual)


def test_the_session_timeout_has_the_name_of_the_brokers_mode() -> None:
    assert session_timeout_ms({"broker.session.timeout.ms": "500"}) == 500
    assert session_timeout_ms({"zookeeper.session.timeout.ms": "700"}) == 700
    assert session_timeout_ms({}) == 9000


def test_a_topic_whose_id_is_known_late_is_deleted_by_its_id() -> None:
    answers: list[dict[str, str]] = [{}, {"orders": "id-1"}, {"orders": "id-2"}]
    topics = CreatedTopics(lambda: answers.pop(0) if len(answers) > 1 else answers[0])
    topics.add("orders")
    assert topics.names == {"orders"}
    topics.delete("127.0.0.1:1")  # no request is sent: the topic of this name has another id
    assert topics.names == frozenset()
