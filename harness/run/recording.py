"""The recording clients of a run: creates them, waits for their sends and closes them (J6).

A library is imported at the first use of its clients. Each client writes a history file of its own in the run folder.
"""

from __future__ import annotations

import contextlib
import warnings
from functools import cached_property, partial
from importlib import import_module
from typing import TYPE_CHECKING, Any

from harrow.cluster.argument_types import checked
from harrow.cluster.errors import ConfigError
from harrow.cluster.wait_notes import noted
from harrow.faults.errors import CapabilityError

from .. import run_folder
from ..backends.simulated.process import is_simulated
from ..security.choice import APP
from ..topics import Topic

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from pathlib import Path

    from ..clients.aiokafka_consumer import RecordingAIOKafkaConsumer
    from ..clients.aiokafka_producer import RecordingAIOKafkaProducer
    from ..clients.consumer import Consumer
    from ..clients.kafka_python_consumer import RecordingKafkaConsumer
    from ..clients.kafka_python_producer import RecordingKafkaProducer
    from ..clients.producer import Producer
    from ..clients.recorder import ClientHandle

QUIET_LOG_LEVEL = 2
"""librdkafka's level "critical": faults break connections, and each attempt to connect again would be a line."""
PRODUCER_ID_TIMEOUT_S = 0.5
"""librdkafka itself asks for a producer id after this time."""
SENDS_TIMEOUT_S = 10.0
"""How long a verdict waits for the results of a client's sends."""
UNDERSCORED = frozenset({"log_level", "error_cb", "stats_cb", "throttle_cb", "on_commit", "on_delivery"})
"""Settings of librdkafka and confluent-kafka whose names contain underscores."""
NOT_IDEMPOTENT_WITH = ("retries", "max_in_flight_requests_per_connection")
"""With these settings kafka-python itself decides about idempotence."""
FROM_THE_BEGINNING: dict[str, object] = {"group_id": "harrow", "auto_offset_reset": "earliest"}


def refuse_in_simulations(what: str) -> None:
    """Raise CapabilityError for clients with threads, where the test is simulated."""
    if is_simulated():
        raise CapabilityError(
            f"{what} has threads and real sockets, and this test is simulated: use aiokafka, or the backend local"
        )


class RecordingClients:
    """The recording clients of one run; `settings_of` returns those of a user's client under a library's names."""

    def __init__(self, folder: Path, settings_of: Callable[[object, str], dict[str, Any]]) -> None:
        self._folder = folder
        self._settings_of = settings_of
        self._clients: list[ClientHandle] = []
        self.produced_with: dict[str, Any] = {}
        """Settings of the last producer, with dots in their names; a recorded schedule has them."""

    def producer(self, **config: object) -> Producer:
        """Return a confluent-kafka Producer that records its operations; `Harrow.producer`."""
        from ..clients.producer import Producer
        from ..clients.recorder import ClientHandle

        refuse_in_simulations("harrow.producer(…), a client of confluent-kafka,")
        user = config.pop("user", APP)
        settings: dict[str, Any] = {"enable.idempotence": True}
        if str(config.get("acks", "all")) not in ("all", "-1"):
            settings = {}
        self.produced_with = settings | _dotted(config)
        producer = Producer(self._for_librdkafka(user, self.produced_with), history=self._history)
        self._clients.append(ClientHandle(partial(_await_reports, producer), producer.close))
        producer.acquire_producer_id(PRODUCER_ID_TIMEOUT_S)
        return producer

    def consumer(self, **config: object) -> Consumer:
        """Return a confluent-kafka Consumer that records its operations; `Harrow.consumer`."""
        from ..clients.consumer import Consumer
        from ..clients.recorder import ClientHandle, no_sends

        refuse_in_simulations("harrow.consumer(…), a client of confluent-kafka,")
        user = config.pop("user", APP)
        settings = {"group.id": "harrow", "auto.offset.reset": "earliest"} | _dotted(config)
        consumer = Consumer(self._for_librdkafka(user, settings), history=self._history)
        self._clients.append(ClientHandle(no_sends, consumer.close))
        return consumer

    @cached_property
    def kafka_python(self) -> KafkaPythonClients:
        """Recording clients of kafka-python: `harrow.kafka_python.producer()`, `.consumer("orders")`."""
        refuse_in_simulations("harrow.kafka_python")
        return KafkaPythonClients(partial(self._open, "kafka-python"))

    @cached_property
    def aiokafka(self) -> AIOKafkaClients:
        """Recording clients of aiokafka: `harrow.aiokafka.producer()`, `.consumer("orders")`."""
        return AIOKafkaClients(partial(self._open, "aiokafka"))

    @property
    def _history(self) -> Path:
        run_folder.note(self._folder, histories=len(self._clients) + 1)
        return self._folder / run_folder.HISTORY

    def _for_librdkafka(self, user: object, settings: Mapping[str, Any]) -> dict[str, Any]:
        return {**self._settings_of(user, "librdkafka"), "log_level": QUIET_LOG_LEVEL, **settings}

    def _open(
        self,
        library: str,
        make: Callable[..., Any],
        kind: str,
        topics: Iterable[object],
        settings: Mapping[str, Any],
    ) -> Any:
        """Create a client of kafka-python or aiokafka; brokers know it by the name that its history has."""
        from ..clients.recorder import client_name

        settings = dict(settings)
        user = settings.pop("user", APP)
        name = client_name(settings.get("client_id"), kind)
        defaults = {**self._settings_of(user, library), "client_id": name}
        client = make(*map(str, topics), history=self._history, name=name, **(defaults | settings))
        self._clients.append(client.handle())
        if kind == "producer":
            used = client.recorder  # the libraries have different defaults
            self.produced_with = _dotted(settings) | {"acks": used.acks, "enable.idempotence": used.idempotent}
        return client

    def await_sends(self) -> list[str]:
        """Wait for the results of the clients' sends, whose records may still arrive; return what is missing."""
        with noted("the results of the clients' sends", most_s=SENDS_TIMEOUT_S * len(self._clients)):
            missing = [client.await_sends(SENDS_TIMEOUT_S) for client in self._clients]
        return [text for text in missing if text]

    def close(self) -> None:
        """Close every client."""
        clients, self._clients = self._clients, []
        for client in clients:
            with contextlib.suppress(RuntimeError):  # closed by the test
                client.close()


@checked
class KafkaPythonClients:
    """Creates recording clients of kafka-python: its own classes, settings, calls and results.

    They need the library: `pip install 'pytest-harrow[kafka-python]'`.
    """

    def __init__(self, open_client: Callable[..., Any]) -> None:
        self._open = open_client

    def producer(self, **settings: object) -> RecordingKafkaProducer:
        """Return a KafkaProducer that records its operations. Defaults: acks=all, idempotent."""
        _require("kafka", "kafka_python", "kafka-python")
        from ..clients.kafka_python_producer import RecordingKafkaProducer

        chosen = _idempotent(settings, *NOT_IDEMPOTENT_WITH)
        producer: RecordingKafkaProducer = self._open(RecordingKafkaProducer, "producer", (), chosen)
        return producer

    def consumer(self, *topics: Topic | str, **settings: object) -> RecordingKafkaConsumer:
        """Return a KafkaConsumer that records its operations. Defaults: group `harrow`, earliest offset."""
        _require("kafka", "kafka_python", "kafka-python")
        from ..clients.kafka_python_consumer import RecordingKafkaConsumer

        chosen = FROM_THE_BEGINNING | settings
        consumer: RecordingKafkaConsumer = self._open(RecordingKafkaConsumer, "consumer", topics, chosen)
        return consumer


@checked
class AIOKafkaClients:
    """Creates recording clients of aiokafka, inside the event loop: its own classes, settings, calls and results.

    They need the library: `pip install 'pytest-harrow[aiokafka]'`.
    """

    def __init__(self, open_client: Callable[..., Any]) -> None:
        self._open = open_client

    def producer(self, **settings: object) -> RecordingAIOKafkaProducer:
        """Return an AIOKafkaProducer that records its operations. Defaults: acks=all, idempotent."""
        _require("aiokafka", "aiokafka", "aiokafka")
        from ..clients.aiokafka_producer import RecordingAIOKafkaProducer

        producer: RecordingAIOKafkaProducer = self._open(
            RecordingAIOKafkaProducer, "producer", (), _idempotent(settings)
        )
        return producer

    def consumer(self, *topics: Topic | str, **settings: object) -> RecordingAIOKafkaConsumer:
        """Return an AIOKafkaConsumer that records its operations. Defaults: group `harrow`, earliest offset."""
        _require("aiokafka", "aiokafka", "aiokafka")
        from ..clients.aiokafka_consumer import RecordingAIOKafkaConsumer

        chosen = FROM_THE_BEGINNING | settings
        consumer: RecordingAIOKafkaConsumer = self._open(RecordingAIOKafkaConsumer, "consumer", topics, chosen)
        return consumer


def _require(module: str, attribute: str, distribution: str) -> None:
    """Import a library, without its own warnings; ConfigError where it is not installed."""
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module:
            raise
        raise ConfigError(f"harrow.{attribute} needs {distribution}: install pytest-harrow[{distribution}]") from None


def _idempotent(settings: Mapping[str, Any], *unless: str) -> dict[str, Any]:
    """Return the settings of an idempotent producer, unless they contradict it."""
    if str(settings.get("acks", "all")) not in ("all", "-1") or settings.keys() & unless:
        return dict(settings)
    return {"enable_idempotence": True, **settings}


def _await_reports(producer: Producer, timeout_s: float) -> str:
    from confluent_kafka import KafkaException

    with contextlib.suppress(KafkaException):  # fatal: the records already have their delivery reports
        producer.flush(timeout_s)
    return ""


def _dotted(config: Mapping[str, object]) -> dict[str, Any]:
    """Convert keyword arguments to librdkafka's setting names: `linger_ms` becomes `linger.ms`."""
    return {name if name in UNDERSCORED else name.replace("_", "."): value for name, value in config.items()}
