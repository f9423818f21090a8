"""An operator of a simulated cluster: changed settings, DeleteRecords and preferred elections while clients work.

Owns: `SimulatedOperator`. Moments, kinds and values depend only on the world's seed. DeleteRecords removes only records
that the group has committed, so that no record is lost which the job still needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from harrow.cluster.errors import WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire import messages
from harrow.cluster.wire.api_keys import ApiKey

from .wire import WireClient

ALTER_VERSION, DELETE_VERSION, ELECT_VERSION = 1, 2, 2
TOPIC_RESOURCE, SET = 2, 0
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "segment.bytes": ("1500", "6000", "1048576"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "min.cleanable.dirty.ratio": ("0.01", "0.5"),
    "delete.retention.ms": ("0", "86400000"),
    "segment.ms": ("400", "604800000"),
}
"""Of the sink: each key is written once, so compaction removes only what no reader of committed data receives."""
OF_SOURCE = ("segment.bytes", "segment.ms")
"""Settings of the source; compaction would remove records without a key."""
TIMEOUT_MS = 2_000


class SimulatedOperator:
    """Changes one thing every `pause_ms` on average, until `stop`."""

    def __init__(
        self, client: WireClient, source: str, sink: str, rng: Random, *, pause_ms: float,
        deletable: Callable[[], Mapping[TopicPartition, int]],
    ) -> None:  # fmt: skip
        """`deletable`: up to where the records of each partition may be deleted."""
        self._client = client
        self._source, self._sink = source, sink
        self._random = rng
        self._pause_ms = pause_ms
        self._deletable = deletable
        self._stopped = False
        self.done: Counter[str] = Counter()
        """Operations that a broker has confirmed."""

    def start(self) -> None:
        """Begin."""
        self._client.host.tasks.spawn(self._run(), name="operator")

    def stop(self) -> None:
        """Change nothing more."""
        self._stopped = True

    async def _run(self) -> None:
        steps = (self._alter, self._alter, self._delete_records, self._elect)
        while not self._stopped:
            await self._client.host.tasks.sleep(self._random.uniform(0, 2 * self._pause_ms))
            try:
                await self._random.choice(steps)()
            except (OSError, TimeoutError, WireError):
                self.done["without response"] += 1

    async def _alter(self) -> None:
        topic = self._random.choice((self._source, self._sink, self._sink))
        name = self._random.choice(OF_SOURCE if topic == self._source else tuple(SETTINGS))
        value = self._random.choice(SETTINGS[name])
        schema = messages.schema(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, "request")
        change = schema.AlterableConfig(name=name, config_operation=SET, value=value)
        resource = schema.AlterConfigsResource(
            resource_type=TOPIC_RESOURCE, resource_name=topic, configs=(change,)
        )
        entity = schema.IncrementalAlterConfigsRequest(resources=(resource,), validate_only=False)
        await self._ask_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, entity)
        self._note("alter", topic=topic, name=name, value=value)

    async def _delete_records(self) -> None:
        deletable = sorted((tp, end) for tp, end in self._deletable().items() if end)
        if not deletable:
            return
        tp, end = self._random.choice(deletable)
        offset = self._random.randint(0, end)
        leader = await self._client.leader(tp)
        schema = messages.schema(ApiKey.DELETE_RECORDS, DELETE_VERSION, "request")
        row = schema.DeleteRecordsPartition(partition_index=tp.partition, offset=offset)
        entity = schema.DeleteRecordsRequest(
            topics=(schema.DeleteRecordsTopic(name=tp.topic, partitions=(row,)),),
            timeout=messages.milliseconds(TIMEOUT_MS),
        )
        await self._client.ask(
            leader.address, ApiKey.DELETE_RECORDS, DELETE_VERSION, entity, TIMEOUT_MS
        )
        self._note("delete-records", topic=tp.topic, partition=tp.partition, offset=offset)

    async def _elect(self) -> None:
        schema = messages.schema(ApiKey.ELECT_LEADERS, ELECT_VERSION, "request")
        entity = schema.ElectLeadersRequest(
            election_type=0, topic_partitions=None, timeout=messages.milliseconds(TIMEOUT_MS)
        )
        await self._ask_any(ApiKey.ELECT_LEADERS, ELECT_VERSION, entity)
        self._note("elect")

    async def _ask_any(self, api_key: int, version: int, entity: Any) -> None:
        """Send it to a drawn broker, which forwards it to the controller or refuses it."""
        address = self._random.choice(self._client.bootstrap)
        await self._client.ask(address, api_key, version, entity, TIMEOUT_MS)

    def _note(self, what: str, **fields: object) -> None:
        self.done[what] += 1
        self._client.host.trace.emit(f"client.operator.{what}", **fields)
