"""A broker's part in controlling the cluster: stand for election, and while elected, decide.

Owns: `Controller`: the queue of events, one at a time (Kafka's ControllerEventManager), the present `Term` if
this broker is elected, and what is done when the registry is out of reach or the session has expired.

Invariants: at most one term at a time in this process; every handler runs to its end before the next begins;
a term whose session has expired is over before anything else happens (D1, D2). A controller that is merely
disconnected keeps its term: nobody else can be elected before the server ends its session, and what it
still sends is refused as soon as somebody is.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, Protocol, TypeVar

from ..config import BrokerConfig
from ..errors import ErrorCode, HarrowError, KafkaError
from ..host.seam import Host, Promise, Task
from ..ids import BrokerEpoch, ControllerEpoch, NodeId, TopicPartition
from ..registry import (
    Event,
    RegistryClient,
    RegistryUnavailableError,
    SessionExpiredError,
)
from ..wire.api import ApiRow
from ..wire.api_keys import ApiKey
from ..wire.internal import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)
from ..wire.request import Request
from .admin_api import AdminApi
from .channels import ClientFactory
from .election import ControllerMovedError, campaign
from .term import TERM_EVENTS, Handler, Term

T = TypeVar("T")

SHUTDOWN_TRIES = 3
"""Kafka's default of controlled.shutdown.max.retries."""
SHUTDOWN_PAUSE_MS = 200
SHUTDOWN_VERSION = 3


class KnownBrokers(Protocol):
    """What the controller asks of the metadata cache."""

    @property
    def controller_id(self) -> NodeId:
        """The controller that this broker last heard of; -1 for none."""
        ...

    def peer_endpoint(self, node_id: NodeId, /) -> tuple[str, int] | None:
        """Where a live broker listens for brokers."""
        ...

    def leader(self, tp: TopicPartition, /) -> NodeId:
        """The node that leads a partition; -1 where nobody does or it is not known."""
        ...

    async def await_leaders(self, topic: str, partitions: int, timeout_ms: float, /) -> bool:
        """Wait until each of a topic's partitions has a live leader; False when the time passed first."""
        ...

    async def await_until(self, condition: Callable[[], bool], timeout_ms: float, /) -> bool:
        """Wait until `condition` holds, tried after each update; False when the time passed first."""
        ...


def _needed(term: Term | None) -> Term:
    if term is None:
        raise KafkaError(ErrorCode.not_controller)
    return term


class Controller:
    """Elects or watches; `start` may be called again after `session_expired`."""

    def __init__(
        self,
        host: Host,
        node_id: NodeId,
        config: BrokerConfig,
        registry: RegistryClient,
        channel_factory: ClientFactory,
        cache: KnownBrokers,
    ) -> None:
        self._host = host
        self._node_id = node_id
        self._config = config
        self._registry = registry
        self._factory = channel_factory
        self._cache = cache
        self.broker_epoch = BrokerEpoch(-1)
        """This broker's registration; set by whoever registers."""
        self._term: Term | None = None
        self._queue: deque[tuple[str, Handler]] = deque()
        self._wake: Promise[None] | None = None
        self._worker: Task | None = None
        self._asked: dict[Promise[Any], None] = {}  # a set that keeps its order
        self._questions = 0
        registry.on_expired.append(self._expired)  # at once: the seat is gone

    @property
    def is_active(self) -> bool:
        """True while this broker is the elected controller, as far as it knows."""
        return self._term is not None

    @property
    def epoch(self) -> ControllerEpoch:
        """The epoch of this broker's term; -1 without one."""
        return ControllerEpoch(-1) if self._term is None else self._term.mandate.epoch

    def figures(self) -> dict[str, int]:
        """Numbers for metrics: all zero but `events` on brokers that are not the controller."""
        found = {"active": int(self.is_active), "events": len(self._queue)}
        return found if self._term is None else found | self._term.state.figures()

    # ------------------------------------------------------------------ life

    async def start(self) -> None:
        """Stand for election; returns at once, the outcome is traced and shows in `is_active`."""
        if self._worker is None:
            self._worker = self._host.tasks.spawn(self._work(), name="controller-events")
        self._enqueue("elect", self._elect)

    async def stop(self) -> None:
        """Give up, without ending the registry's session."""
        if self._worker is not None:
            self._worker.cancel()
            self._worker = None
        self._resign("the broker ends")
        self._drop_events()

    async def session_expired(self) -> None:
        """The registry session is over, and with it the term and all watches; `start` begins anew."""
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
            except Exception as error:
                text = f"{type(error).__name__}: {error}"
                self._host.trace.emit("task.failed", name=f"controller event {name}", error=text)
                self._host.trace.log("error", f"controller: event {name!r} failed: {text}")

    def _drop_events(self) -> None:
        self._queue.clear()
        asked, self._asked = self._asked, {}
        for outcome in asked:
            if not outcome.done():
                outcome.set_exception(KafkaError(ErrorCode.not_controller))

    async def _recover(self) -> None:
        """An event was cut in two: when the registry is back, begin from what it says."""
        self._drop_events()
        try:
            await self._registry.until_connected()
        except RegistryUnavailableError:
            return  # the client is closed
        self._enqueue("elect", self._elect)
        if self._term is not None:
            self._enqueue("load", self._term.load)

    async def _elect(self) -> None:
        mandate = await campaign(
            self._registry, self._node_id, self._host.clock.wall_ms(), self._seat_changed
        )
        if mandate is None:
            self._resign("another broker is the controller")
            return
        if self._term is not None and self._term.mandate == mandate:
            return
        self._resign("elected anew")
        self._host.trace.emit("controller.elected", epoch=mandate.epoch)
        self._term = Term(
            self._host,
            self._node_id,
            self._config,
            self._registry,
            self._factory,
            mandate,
            self._enqueue,
            lambda: self._enqueue("moved", self._told_of_another),
        )
        await self._term.load()

    def _seat_changed(self, _event: Event) -> None:
        self._enqueue("elect", self._elect)

    async def _told_of_another(self) -> None:
        self._moved("a broker knows a newer controller")

    def _moved(self, reason: str) -> None:
        self._resign(reason)
        self._enqueue("elect", self._elect)

    def _resign(self, reason: str) -> None:
        term, self._term = self._term, None
        if term is not None:
            term.close()
            kept = [event for event in self._queue if event[0] not in TERM_EVENTS]
            self._queue = deque(kept)
            self._host.trace.emit("controller.resigned", epoch=term.mandate.epoch, reason=reason)

    # --------------------------------------------------------------- requests

    def handlers(self) -> Iterable[ApiRow]:
        """ControlledShutdown, for brokers that want to end; what administrators ask of the controller."""
        yield ApiRow(
            ApiKey.CONTROLLED_SHUTDOWN, SHUTDOWN_VERSION, SHUTDOWN_VERSION, self._handle_shutdown
        )
        yield from AdminApi(self._host, self, self._cache).handlers()

    async def ask(self, name: str, call: Callable[[Term], Coroutine[Any, Any, T]]) -> T:
        """What `call` finds or does in this broker's term, as one event of the queue.

        KafkaError(not_controller) when this broker is none (any more), and when the registry went out of
        reach meanwhile: then what was asked may have been done in part, and asking again finds out.
        """
        outcome: Promise[T] = self._host.tasks.promise()

        async def handle() -> None:
            term = self._term
            try:
                found = await call(_needed(term))
            except HarrowError as error:
                if not outcome.done():
                    known = isinstance(error, KafkaError)
                    outcome.set_exception(error if known else KafkaError(ErrorCode.not_controller))
                if not isinstance(error, KafkaError):
                    raise
            except Exception:
                if not outcome.done():
                    outcome.set_exception(KafkaError(ErrorCode.unknown_server_error))
                raise
            else:
                if not outcome.done():
                    outcome.set_result(found)

        self._asked[outcome] = None
        # each is an event of its own; no id(): a simulation's trace is its seed's
        self._questions += 1
        self._enqueue(f"{name}, question {self._questions}", handle)
        try:
            return await outcome
        finally:
            self._asked.pop(outcome, None)

    def settings_changed(self) -> None:
        """A topic's or broker's settings changed: an unclean election may be allowed now."""
        if self._term is not None:
            self._enqueue("offline", self._term.offline_changed)

    # ----------------------------------------------------- controlled shutdown

    async def _handle_shutdown(self, request: Request) -> None:
        asked = request.decode()
        try:
            left = await self._shut_down(NodeId(asked.broker_id), BrokerEpoch(asked.broker_epoch))
        except KafkaError as error:
            request.respond(ControlledShutdownResponse(error_code=error.code))
            return
        request.respond(
            ControlledShutdownResponse(
                error_code=ErrorCode.none,
                remaining_partitions=tuple(
                    RemainingPartition(topic_name=tp.topic, partition_index=tp.partition)
                    for tp in left
                ),
            )
        )

    async def _shut_down(self, node_id: NodeId, epoch: BrokerEpoch) -> list[TopicPartition]:
        return await self.ask(f"shutdown of {node_id}", lambda term: term.shut_down(node_id, epoch))

    async def controlled_shutdown(self) -> None:
        """Ask the controller to move this broker's leaderships; a few tries, then go anyway.

        RegistryError, OSError or TimeoutError when the controller cannot be reached.
        """
        for attempt in range(SHUTDOWN_TRIES):
            if attempt:
                await self._host.tasks.sleep(SHUTDOWN_PAUSE_MS)
            left = await self._ask_to_leave()
            if not left:
                return
            self._host.trace.log("info", f"controlled shutdown: still leading {left} partitions")

    async def _ask_to_leave(self) -> int:
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
