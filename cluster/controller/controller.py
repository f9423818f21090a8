"""A broker's part in controlling the cluster: take part in elections, and act while elected.

Owns: `Controller`: the queue of events, handled one at a time (Kafka's ControllerEventManager), the `ActiveController`
while this broker is elected, and what happens when the registry is unreachable or the session has expired.

Invariants: a process has at most one active controller at a time, each of a larger controller epoch than the one
before; every handler ends before the next begins; the expiry of the session ends the active controller before
anything else happens (D1, D2). A controller that is only disconnected stays active: no other broker can be elected
before the registry ends its session, and brokers refuse its requests as soon as another is elected. A controller that
has not loaded the whole cluster handles no event but that load: it would tell the brokers that topics do not exist. A
load that the registry interrupted is repeated; a load that failed otherwise makes the controller give its seat up, as
Kafka's does.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from ..config import BrokerConfig
from ..errors import ErrorCode, HarrowError, KafkaError
from ..events.controllers import ControllerElected, ControllerResigned
from ..events.processes import TaskFailed
from ..host.seam import Host, Promise, Task
from ..host.seam.failpoints import AFTER_ELECTION, passes
from ..ids import BrokerEpoch, ControllerEpoch, NodeId, TopicPartition
from ..listeners import inter_broker_listener_name
from ..registry import Event, RegistryClient, RegistryUnavailableError, SessionExpiredError
from ..wire.api_keys import ApiKey
from ..wire.api_table import ApiRow
from ..wire.features import Feature
from ..wire.internal import ControlledShutdownRequest, ControlledShutdownResponse, RemainingPartition
from ..wire.request import Request
from .active_controller import ACTIVE_CONTROLLER_EVENTS, ActiveController
from .admin_api import ControllerAdminApi
from .channels import ClientFactory
from .controller_core import Handler
from .controller_election import ControllerMovedError, campaign, delete_seat
from .operator_api import OperatorApi

T = TypeVar("T")

SHUTDOWN_TRIES = 3
"""Kafka's default of controlled.shutdown.max.retries."""
SHUTDOWN_PAUSE_MS = 200
GIVE_UP_MS = 1_000
"""After a failed load, before the next election: what is wrong in the registry may fail every controller's load."""
SHUTDOWN_VERSION = 3


class BrokerLookup(Protocol):
    """The metadata cache, as the controller needs it."""

    @property
    def controller_id(self) -> NodeId:
        """The controller of the last UpdateMetadata; -1 before the first."""
        ...

    def peer_endpoint(self, node_id: NodeId, /) -> tuple[str, int] | None:
        """Address of a live broker's listener for brokers."""
        ...

    def leader(self, tp: TopicPartition, /) -> NodeId:
        """The leader of a partition; -1 when it has none or is not known."""
        ...

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float, /) -> bool:
        """Wait until each partition of a topic has a live leader; False after the timeout."""
        ...

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        """Wait until `condition` holds, evaluated after each update; False after the timeout."""
        ...


def _required(active: ActiveController | None) -> ActiveController:
    if active is None:
        raise KafkaError(ErrorCode.not_controller)
    return active


class Controller:
    """Campaigns or watches `/controller`; `start` may be called again after `session_expired`."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        registry: RegistryClient,
        channel_factory: ClientFactory,
        cache: BrokerLookup,
    ) -> None:
        self._host = host
        self._node_id = node_id
        self._config = config
        self._registry = registry
        self._factory = channel_factory
        self._cache = cache
        self.broker_epoch = BrokerEpoch(-1)
        """Epoch of this broker's registration; the broker sets it when it has registered."""
        self.features: tuple[Feature, ...] = ()
        """The features that the broker's listeners name; the broker sets them."""
        self._active: ActiveController | None = None
        self._last_epoch = -1
        self._queue: deque[tuple[str, Handler]] = deque()
        self._wake: Promise[None] | None = None
        self._worker: Task | None = None
        self._waiting: dict[Promise[Any], None] = {}
        self._requests = 0
        registry.on_expired.append(self._expired)  # at once: /controller is deleted

    @property
    def is_active(self) -> bool:
        """True while this broker is the elected controller, as far as it knows."""
        return self._active is not None

    @property
    def epoch(self) -> ControllerEpoch:
        """The controller epoch that this broker won; -1 while it is not the controller."""
        return ControllerEpoch(-1) if self._active is None else self._active.won.epoch

    def figures(self) -> dict[str, int]:
        """Counts for the metrics; on a broker that is not the controller only `events` may be above zero."""
        found = {"active": int(self.is_active), "events": len(self._queue)}
        return found if self._active is None else found | self._active.context.figures()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Take part in the election; returns at once, the result is traced and shows in `is_active`."""
        if self._worker is None:
            self._worker = self._host.tasks.spawn(self._work(), name="controller-events")
        self._enqueue("elect", self._elect)

    async def stop(self) -> None:
        """Resign and handle no more events; the registry session stays open."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        self._resign("the broker ends")
        self._drop_events()

    async def session_expired(self) -> None:
        """The registry session has expired, and with it the election and all watches; `start` begins again."""
        self._expired()

    def _expired(self) -> None:
        self._resign("the registry session has expired")
        self._drop_events()

    # ---------------------------------------------------------------- events

    def _enqueue(self, name: str, handler: Handler) -> None:
        if any(waiting == name for waiting, _ in self._queue):
            return
        self._queue.append((name, handler))
        if self._wake is not None and not self._wake.done():
            self._wake.set_result(None)

    async def _work(self) -> None:
        while True:
            while not self._queue:
                self._wake = self._host.tasks.promise()
                await self._wake
            name, handler = self._queue.popleft()
            try:
                await handler()
            except ControllerMovedError as error:
                self._moved(str(error))
            except SessionExpiredError:
                self._resign("the registry session has expired")
            except RegistryUnavailableError as error:
                self._host.trace.log("warning", f"controller: event {name!r} waits: {error}")
                await self._recover()
            except MemoryError as error:
                self._host.tasks.out_of_memory(error)
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self._host.trace.emit(TaskFailed(name=f"controller event {name}", error=text))
                self._host.trace.log("error", f"controller: event {name!r} failed: {text}")

    def _drop_events(self) -> None:
        self._queue.clear()
        waiting, self._waiting = self._waiting, {}
        for result in waiting:
            if not result.done():
                result.set_exception(KafkaError(ErrorCode.not_controller))

    async def _recover(self) -> None:
        """An event was interrupted: load everything again when the registry is reachable."""
        self._drop_events()
        try:
            await self._registry.until_connected()
        except RegistryUnavailableError:
            return  # the client is closed
        # Watches may have fired since the link is back. No event comes before the load, which reads what they report:
        # before a controller's first load its context is empty, and it would tell the brokers that no topic is left.
        self._drop_events()
        self._enqueue("elect", self._elect)
        if self._active is not None:
            self._enqueue("load", self._load)

    async def _elect(self) -> None:
        won = await campaign(self._registry, self._node_id, self._host.clock.wall_ms(), self._seat_changed)
        if won is None:
            self._resign("another broker is the controller")
            return
        if self._active is not None and self._active.won == won:
            return
        self._resign("elected again")
        assert won.epoch >= self._last_epoch, f"epoch {won.epoch} won after {self._last_epoch}"
        self._last_epoch = won.epoch
        self._host.trace.emit(ControllerElected(epoch=won.epoch))
        passes(self._host.failpoints, self._host.trace, AFTER_ELECTION)
        self._active = ActiveController(
            self._host,
            self._node_id,
            self._config,
            self._registry,
            self._factory,
            won,
            self._enqueue,
            lambda: self._enqueue("moved", self._newer_controller_found),
        )
        await self._load()

    async def _load(self) -> None:
        """Load the cluster, or resign: an event would be handled on what a load that failed has left."""
        active = _required(self._active)
        try:
            await active.load()
        except (ControllerMovedError, SessionExpiredError, RegistryUnavailableError, MemoryError):
            raise  # handled as for each event
        except Exception:
            self._give_up(active)
            raise

    def _give_up(self, active: ActiveController) -> None:
        if self._active is not active:
            return  # the session expired during the load
        self._resign("it could not load the cluster")

        async def give_up() -> None:
            await self._host.tasks.sleep(GIVE_UP_MS)
            await delete_seat(self._registry, active.won)

        self._enqueue("give up", give_up)

    def _seat_changed(self, _event: Event) -> None:
        self._enqueue("elect", self._elect)

    async def _newer_controller_found(self) -> None:
        self._moved("a broker knows a newer controller")

    def _moved(self, reason: str) -> None:
        self._resign(reason)
        self._enqueue("elect", self._elect)

    def _resign(self, reason: str) -> None:
        active, self._active = self._active, None
        if active is not None:
            active.close()
            kept = [event for event in self._queue if event[0] not in ACTIVE_CONTROLLER_EVENTS]
            self._queue = deque(kept)
            self._host.trace.emit(ControllerResigned(epoch=active.won.epoch, reason=reason))

    # --------------------------------------------------------------- requests

    def handlers(self) -> Iterable[ApiRow]:
        """ControlledShutdown, and the admin requests that need the controller."""
        yield ApiRow(ApiKey.CONTROLLED_SHUTDOWN, SHUTDOWN_VERSION, SHUTDOWN_VERSION, self._handle_shutdown)
        yield from ControllerAdminApi(self._host, self, self._cache).handlers()
        yield from OperatorApi(
            self._host.clock,
            self._node_id,
            inter_broker_listener_name(self._config),
            self,
            lambda: self.features,
        ).handlers()

    async def run_event(self, name: str, call: Callable[[ActiveController], Coroutine[Any, Any, T]]) -> T:
        """Run `call` as one event of the queue and return its result.

        KafkaError(not_controller) when this broker is not the controller (any more), and when the registry became
        unreachable in between: then a part may have been done, and a repeated request finds that.
        """
        result: Promise[T] = self._host.tasks.promise()

        async def handle() -> None:
            active = self._active
            try:
                found = await call(_required(active))
            except HarrowError as error:
                if not result.done():
                    known = isinstance(error, KafkaError)
                    result.set_exception(error if known else KafkaError(ErrorCode.not_controller))
                if not isinstance(error, KafkaError):
                    raise
            except Exception:
                if not result.done():
                    result.set_exception(KafkaError(ErrorCode.unknown_server_error))
                raise
            else:
                if not result.done():
                    result.set_result(found)

        self._waiting[result] = None
        # a number makes each event distinct; an id() would make simulations differ
        self._requests += 1
        self._enqueue(f"{name}, request {self._requests}", handle)
        try:
            return await result
        finally:
            self._waiting.pop(result, None)

    def settings_changed(self) -> None:
        """A topic's or broker's settings changed: an unclean election may be allowed now."""
        if self._active is not None:
            self._enqueue("offline", self._active.offline_changed)

    # ----------------------------------------------------- controlled shutdown

    async def _handle_shutdown(self, request: Request) -> None:
        entity = request.decode()
        try:
            left = await self._shut_down(NodeId(entity.broker_id), BrokerEpoch(entity.broker_epoch))
        except KafkaError as error:
            request.respond(ControlledShutdownResponse(error_code=error.code))
            return
        request.respond(
            ControlledShutdownResponse(
                error_code=ErrorCode.none,
                remaining_partitions=tuple(
                    RemainingPartition(topic_name=tp.topic, partition_index=tp.partition) for tp in left
                ),
            )
        )

    async def _shut_down(self, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
        return await self.run_event(f"shutdown of {node_id}", lambda active: active.shut_down(node_id, epoch))

    async def controlled_shutdown(self) -> None:
        """Ask the controller to move this broker's leaderships away; after a few tries return anyway.

        RegistryError, OSError or TimeoutError when the controller cannot be reached.
        """
        for attempt in range(SHUTDOWN_TRIES):
            if attempt:
                await self._host.tasks.sleep(SHUTDOWN_PAUSE_MS)
            left = await self._request_shutdown()
            if not left:
                return
            self._host.trace.log("info", f"controlled shutdown: still leading {left} partitions")

    async def _request_shutdown(self) -> int:
        if self.is_active:
            try:
                return len(await self._shut_down(self._node_id, self.broker_epoch))
            except KafkaError:
                return -1
        controller = self._cache.controller_id
        where = self._cache.peer_endpoint(controller)
        if where is None:
            return -1
        client = self._factory(controller, *where)
        try:
            response = await client.request(
                ApiKey.CONTROLLED_SHUTDOWN,
                SHUTDOWN_VERSION,
                ControlledShutdownRequest(broker_id=self._node_id, broker_epoch=self.broker_epoch),
                self._config.number("controller.socket.timeout.ms"),
            )
        finally:
            client.close()
        if response.error_code is not ErrorCode.none:
            return -1
        return len(response.remaining_partitions)
