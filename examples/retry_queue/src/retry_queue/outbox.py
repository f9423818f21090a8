"""Sends records, and knows when Kafka has them.

Invariant: after `settle()` returned, each record that was sent is in Kafka (acks=all), or in the list that it
returned.
"""

from __future__ import annotations

from typing import Any

from confluent_kafka import KafkaError, KafkaException, Message, Producer

from .errors import TooLargeError, UnavailableError
from .records import Record

DELIVERY_MS = 30_000
"""How long a record may take; then the program begins again."""
REQUEST_MS = 5_000
"""How long a broker may take for a request; then the client connects again."""
MESSAGE_BYTES_MOST = 100_000_000
"""The limit of the client: the topics have the limits that count."""
TOO_LARGE = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})


class Outbox:
    """A producer whose delivery reports are all looked at."""

    def __init__(self, servers: str, client_id: str, **settings: Any) -> None:
        self.producer = Producer(
            {
                "bootstrap.servers": servers,
                "client.id": client_id,
                "enable.idempotence": True,
                "linger.ms": 2,
                "delivery.timeout.ms": DELIVERY_MS,
                "request.timeout.ms": REQUEST_MS,
                "socket.timeout.ms": 2 * REQUEST_MS,
                "message.max.bytes": MESSAGE_BYTES_MOST,
                **settings,
            }
        )
        self._failed: list[tuple[Record, KafkaError]] = []
        self._waiting = 0

    def send(self, record: Record) -> None:
        """Send a record; `settle` says whether Kafka has it."""

        def reported(error: KafkaError | None, _: Message) -> None:
            self._waiting -= 1
            if error is not None:
                self._failed.append((record, error))

        place: dict[str, Any] = {} if record.partition < 0 else {"partition": record.partition}
        while True:
            try:
                self.producer.produce(
                    record.topic, record.value, record.key, headers=list(record.headers), on_delivery=reported, **place
                )
                self._waiting += 1
                return
            except BufferError:
                self.producer.poll(0.1)
            except KafkaException as error:
                if error.args[0].code() not in TOO_LARGE:
                    raise
                self._failed.append((record, error.args[0]))
                return

    def settle(self) -> list[Record]:
        """Wait for the delivery report of each record, and return the records that are too large for their topics.

        A broker refuses a whole batch for its size, with the small records in it. So each record of such a batch
        is sent again, alone. UnavailableError: another record was not delivered.
        """
        refused = self._reported()
        if len(refused) == 1:
            return refused
        too_large: list[Record] = []
        for record in refused:
            self.send(record)
            too_large += self._reported()
        return too_large

    def _reported(self) -> list[Record]:
        self.producer.flush(2 * DELIVERY_MS / 1000)
        failed, self._failed = self._failed, []
        if self._waiting:
            raise UnavailableError(f"{self._waiting} records without a delivery report")
        for record, error in failed:
            if error.code() not in TOO_LARGE:
                raise UnavailableError(f"a record for {record.topic} was not delivered: {error}")
        return [record for record, _ in failed]

    def settle_all(self) -> None:
        """Wait for the delivery report of each record. TooLargeError: a topic refused a record for its size."""
        refused = self.settle()
        if refused:
            record = refused[0]
            size = len(record.value or b"") + len(record.key or b"")
            raise TooLargeError(
                f"the topic {record.topic} refused a record with {size} bytes of key and value, and its headers; "
                "raise its max.message.bytes (see Names.configurations), and start again"
            )

    def close(self) -> None:
        """Forget what was not sent: nothing that led to it is committed."""
        self.producer.purge()
        self.producer.flush(1.0)
