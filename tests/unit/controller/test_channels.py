"""The controller's channels: their order is that of its decisions, also when it loads everything again (D4)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from harrow.cluster.controller.channels import Channels
from harrow.cluster.controller.registration import BrokerInfo, Endpoint
from harrow.cluster.errors import ErrorCode
from harrow.cluster.host.seam import Peer, Promise
from harrow.cluster.host.simulated import Machine, SimHost, World
from harrow.cluster.ids import BrokerEpoch, NodeId

LISTENER = "BROKERS"


class Connection:
    """What one channel sent; the test gives the responses."""

    def __init__(self, host: SimHost) -> None:
        self._host = host
        self.sent: list[str] = []
        self.response: Promise[Any] | None = None
        self.closed = False

    async def request(self, _key: int, _version: int, entity: str, _timeout_ms: float) -> Any:
        self.sent.append(entity)
        self.response = self._host.tasks.promise()
        return await self.response

    def close(self) -> None:
        self.closed = True


def broker(node: int, epoch: int) -> BrokerInfo:
    where = Endpoint(listener=LISTENER, host="127.0.0.1", port=9000 + node)
    return BrokerInfo(node_id=NodeId(node), epoch=BrokerEpoch(epoch), endpoints=(where,))


class Sent:
    """Channels of one controller, and their connections in the order in which they were opened."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.host = Machine(world, "broker-9", Peer("broker", "9")).boot()
        self.connections: list[tuple[NodeId, Connection]] = []
        self.channels = Channels(self.host, self._connect, 30_000, LISTENER, self._response, self._moved)

    def _connect(self, node: NodeId, _host: str, _port: int) -> Connection:
        self.connections.append((node, Connection(self.host)))
        return self.connections[-1][1]

    def _response(self, *_: object) -> None:
        pass

    def _moved(self) -> None:
        raise AssertionError

    def replace(self, *brokers: BrokerInfo) -> None:
        self.channels.replace({broker.node_id: broker for broker in brokers})

    def send(self, node: int, entity: str) -> None:
        self.channels.send(NodeId(node), 6, 8, entity)
        self.world.loop.run_for(1)


class Accepted:
    """A response without an error."""

    error_code = ErrorCode.none


@pytest.fixture
def sent() -> Iterator[Sent]:
    world = World(1)
    yield Sent(world)
    world.close()


def test_a_registration_that_stays_keeps_its_connection_and_what_waits_there(sent: Sent) -> None:
    sent.replace(broker(1, 14))
    sent.send(1, "broker 3 is gone")
    sent.send(1, "broker 3 is back")
    sent.replace(broker(1, 14), broker(3, 30))
    sent.send(1, "all brokers")
    assert [node for node, _ in sent.connections] == [1, 3]
    connection = sent.connections[0][1]
    assert not connection.closed
    for _ in range(3):
        assert connection.response is not None
        connection.response.set_result(Accepted())
        sent.world.loop.run_for(1)
    assert connection.sent == ["broker 3 is gone", "broker 3 is back", "all brokers"]


def test_a_registration_that_is_gone_or_new_gets_nothing_that_was_for_the_old_one(sent: Sent) -> None:
    sent.replace(broker(1, 14), broker(2, 16))
    for node in (1, 2):
        sent.send(node, "first")
        sent.send(node, "waits")
    sent.replace(broker(1, 27))
    sent.send(1, "all brokers")
    sent.send(2, "dropped")
    assert [(node, connection.closed, connection.sent) for node, connection in sent.connections] == [
        (1, True, ["first"]),
        (2, True, ["first"]),
        (1, False, ["all brokers"]),
    ]


def test_a_controller_that_resigned_opens_no_channel(sent: Sent) -> None:
    sent.replace(broker(1, 14))
    sent.channels.end()
    sent.replace(broker(1, 14))
    assert [connection.closed for _, connection in sent.connections] == [True]
