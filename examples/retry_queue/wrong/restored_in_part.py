"""The bug: at a start the store is not read to its end.

The embedded store stops reading as soon as a short poll returns nothing; that of Redis does not look at what an earlier
scheduler had taken.
"""

from __future__ import annotations

from collections.abc import Collection

from confluent_kafka import Consumer, TopicPartition
from retry_queue.reading import record_of
from retry_queue.records import Record
from retry_queue.restoring import keep_last
from retry_queue.stores import embedded

SHORT_S = 0.001


def plant() -> None:
    """Replace what `take_over` reads."""

    def restored(servers: str, client_id: str, topic: str, partition: int) -> dict[bytes, Record]:
        reading = Consumer({"bootstrap.servers": servers, "client.id": client_id, "group.id": client_id})
        reading.assign([TopicPartition(topic, partition, 0)])
        found: dict[bytes, Record] = {}
        while (message := reading.poll(SHORT_S)) is not None:
            keep_last(record_of(message), found)
        reading.close()
        return found

    embedded.restored = restored
    try:
        from retry_queue.stores.redis_set import RedisStore
    except ImportError:  # without the client of Redis there is no such store
        return

    def take_over(self: RedisStore, partitions: Collection[int]) -> None:
        print(f"{self} takes {sorted(partitions)} over", flush=True)

    RedisStore.take_over = take_over
