"""The controller channels: one ordered queue of requests to each broker, with one request in flight.

Owns: `Channels`, one `BrokerChannel` for each registration. The order makes them correct: a broker never receives an
older decision of a controller after a newer one. A request is repeated until the broker responds, its registration is
gone (the channel is closed) or the controller resigns; brokers refuse repetitions that are stale. A response
STALE_CONTROLLER_EPOCH says that another controller was elected: `on_moved` is called.

Source: Kafka's ControllerChannelManager, RequestSendThread.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Any, Protocol

from ..errors import ErrorCode, HarrowError
from ..host.seam import Host, Promise, Task
from ..ids import NodeId
from ..wire.api_keys import ApiKey
from .registration import BrokerInfo

RETRY_MS = 100
"""Pause before a request is repeated, as Kafka's."""


class RequestClient(Protocol):
    """A `PeerClient`, as a channel needs it."""

    async def request(self, api_key: int, version: int, entity: Any, timeout_ms: float, /) -> Any:
        """The response entity; OSError, TimeoutError or HarrowError without one."""
        ...

    def close(self) -> None:
        """End the link for good."""
        ...


ClientFactory = Callable[[NodeId, str, int], RequestClient]
OnResponse = Callable[[NodeId, int, Any], None]
"""`on_response(broker, api key, response)`"""


class BrokerChannel:
    """One broker's queue."""

    def __init__(
        self, host: Host, broker: BrokerInfo, client: RequestClient, timeout_ms: int, on_response: OnResponse
    ) -> None:
        self.broker = broker
        self._host = host
        self._client = client
        self._timeout_ms = timeout_ms
        self._on_response = on_response
        self._queue: deque[tuple[int, int, Any]] = deque()
        self._wake: Promise[None] | None = None
        self._task: Task = host.tasks.spawn(self._run(), name=f"controller-to-{broker.node_id}")

    def send(self, api_key: int, version: int, entity: Any) -> None:
        """Queue one request."""
        self._queue.append((api_key, version, entity))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    def close(self) -> None:
        """Send nothing more."""
        self._queue.clear()
        self._task.cancel()
        self._client.close()

    async def _run(self) -> None:
        while True:
            while not self._queue:
                self._wake = self._host.tasks.promise()
                await self._wake
            api_key, version, entity = self._queue.popleft()
            response = await self._until_response(api_key, version, entity)
            self._on_response(self.broker.node_id, api_key, response)

    async def _until_response(self, api_key: int, version: int, entity: Any) -> Any:
        level = "warning"
        while True:
            try:
                return await self._client.request(api_key, version, entity, self._timeout_ms)
            except (OSError, TimeoutError, HarrowError) as error:
                self._host.trace.log(
                    level,
                    f"controller: {ApiKey(api_key).name} to broker {self.broker.node_id} failed "
                    f"({error}); again in {RETRY_MS} ms while it is registered",
                )
                level = "debug"  # the log line of the first failure is enough
                await self._host.tasks.sleep(RETRY_MS)


class Channels:
    """One channel for each live broker, of one active controller."""

    def __init__(
        self,
        host: Host,
        factory: ClientFactory,
        timeout_ms: int,
        inter_broker_listener: str,
        on_response: OnResponse,
        on_moved: Callable[[], None],
    ) -> None:
        self._host = host
        self.inter_broker_listener = inter_broker_listener
        """Name of the listener by which the controller reaches brokers."""
        self._factory = factory
        self._timeout_ms = timeout_ms
        self._on_response = on_response
        self._on_moved = on_moved
        self._channels: dict[NodeId, BrokerChannel] = {}
        self._ended = False

    def replace(self, brokers: Mapping[NodeId, BrokerInfo]) -> None:
        """Have a channel for each of these registrations, and no other; none once the controller has resigned.

        The channel of a registration that has one stays, with its queue: over a second connection, a newer decision of
        the same controller epoch could overtake an older one, and the broker would keep the older one.
        """
        for node_id, channel in list(self._channels.items()):
            if brokers.get(node_id) != channel.broker:
                channel.close()
                del self._channels[node_id]
        if self._ended:
            return  # the controller resigned while it handled an event
        for node_id, broker in sorted(brokers.items()):
            if node_id not in self._channels:
                self._channels[node_id] = self._open(broker)

    def _open(self, broker: BrokerInfo) -> BrokerChannel:
        where = broker.endpoint(self.inter_broker_listener)
        client = self._factory(broker.node_id, where.host, where.port)
        return BrokerChannel(self._host, broker, client, self._timeout_ms, self._response_received)

    def end(self) -> None:
        """The controller resigns: no channel, now or later."""
        self._ended = True
        self.replace({})

    def send(self, node_id: NodeId, api_key: int, version: int, entity: Any) -> None:
        """Queue one request; dropped when the broker has no channel any more."""
        channel = self._channels.get(node_id)
        if channel is not None:
            channel.send(api_key, version, entity)

    def _response_received(self, node_id: NodeId, api_key: int, response: Any) -> None:
        code: ErrorCode = response.error_code
        if code is ErrorCode.stale_controller_epoch:
            self._on_moved()
        elif code is not ErrorCode.none:
            # stale_broker_epoch: the broker has registered again, and the watch on /brokers/ids reports it
            self._host.trace.log(
                "info", f"controller: broker {node_id} responded to {ApiKey(api_key).name} with {code.name}"
            )
        self._on_response(node_id, api_key, response)
