"""Single requests of the Kafka protocol to one broker, each on a connection of its own.

For questions that no client library asks: open transactions, leader epochs, the log end offset of a follower. Blocking;
ClusterError when the broker does not respond in time.
"""

from __future__ import annotations

import socket
import struct
from typing import Any

from harrow.cluster.errors import ClusterError
from harrow.cluster.listeners import Address
from harrow.cluster.wire import messages
from harrow.cluster.wire.headers import encode_request_header, parse_response_header

CLIENT_ID = "harrow"
TIMEOUT_S = 10.0
SIZE = struct.Struct(">i")


def ask(
    address: Address, api_key: int, version: int, entity: Any, *, timeout_s: float = TIMEOUT_S
) -> Any:
    """Send one request and return the response, as entities of `cluster.wire.messages`."""
    body = messages.encode_request(api_key, version, entity)
    header = encode_request_header(api_key, version, 1, CLIENT_ID)
    try:
        with socket.create_connection(address, timeout_s) as connection:
            connection.sendall(SIZE.pack(len(header) + len(body)) + header + body)
            with connection.makefile("rb") as responses:
                frame = _exactly(responses, SIZE.unpack(_exactly(responses, SIZE.size))[0])
    except OSError as error:
        raise ClusterError(f"{address} did not answer API {api_key}: {error}") from error
    _, at = parse_response_header(api_key, version, frame)
    return messages.decode_response(api_key, version, frame, at)


def _exactly(responses: Any, size: int) -> bytes:
    data: bytes = responses.read(size)
    if len(data) != size:
        raise ConnectionResetError("the broker closed the connection before its response")
    return data
