"""An operator of a simulated cluster: changed settings, DeleteRecords, elections and reassignments while clients work.

Owns: `SimulatedOperator`. Moments, kinds and values depend only on the world's seed. DeleteRecords removes only records
that the group has committed and readers have read, so that no record is lost which the job or the verdict still needs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from random import Random

from harrow.cluster.errors import WireError
from harrow.cluster.events import TraceEvent
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.client_requests import ClientRequest, client_request

from ..backends.simulated.wire import WireClient
from ..requests.operator import PREFERRED, TIMEOUT_MS, UNCLEAN, election, reassignment
from .events import LeadersElected, PartitionReassigned, RecordsDeleted, SettingAltered, UncleanLeadersElected

ALTER_VERSION, DELETE_VERSION = 1, 2
TOPIC_RESOURCE, SET = 2, 0
SETTINGS: Mapping[str, tuple[str, ...]] = {
    "internal.segment.bytes": ("1500", "6000", "1048576"),
    "cleanup.policy": ("compact", "delete", "compact,delete"),
    "min.cleanable.dirty.ratio": ("0.01", "0.5"),
    "delete.retention.ms": ("0", "86400000"),
    "segment.ms": ("400", "604800000"),
}
"""Of the sink: each key is committed once, so compaction removes only what no reader of committed data receives.

After an unclean election a key may be committed twice; `output_checks.py` knows that."""
REPLICAS = 3
"""Of each partition after a reassignment."""
OF_SOURCE = ("internal.segment.bytes", "segment.ms")
"""Settings of the source; compaction would remove records without a key."""


class SimulatedOperator:
    """Changes one thing every `pause_ms` on average, until `stop`."""

    def __init__(
        self,
        client: WireClient,
        source: str,
        sink: str,
        rng: Random,
        *,
        pause_ms: float,
        operations: Sequence[str],
        brokers: int,
        movable: Sequence[TopicPartition],
        deletable: Callable[[str], Mapping[TopicPartition, int]],
    ) -> None:
        """`operations`: names of steps, drawn as often as they are named.

        `movable`: the partitions that reassignments move among the brokers 1 to `brokers`.
        `deletable`: up to where the records of each partition of a topic may be deleted.
        """
        self._client = client
        self._source, self._sink = source, sink
        self._random = rng
        self._pause_ms = pause_ms
        self._deletable = deletable
        self._brokers, self._movable = range(1, brokers + 1), movable
        steps: Mapping[str, Callable[[], Awaitable[None]]] = {
            "alter": self._alter,
            "delete-records": self._delete_records,
            "delete-output": self._delete_output,
            "elect": self._elect,
            "elect-unclean": self._elect_unclean,
            "reassign": self._reassign,
        }
        self._steps = [steps[name] for name in operations]
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
        while self._steps and not self._stopped:
            await self._client.host.tasks.sleep(self._random.uniform(0, 2 * self._pause_ms))
            try:
                await self._random.choice(self._steps)()
            except (OSError, WireError):
                self.done["without response"] += 1

    async def _alter(self) -> None:
        topic = self._random.choice((self._source, self._sink, self._sink))
        name = self._random.choice(OF_SOURCE if topic == self._source else tuple(SETTINGS))
        value = self._random.choice(SETTINGS[name])
        change = {"name": name, "config_operation": SET, "value": value}
        resource = {"resource_type": TOPIC_RESOURCE, "resource_name": topic, "configs": [change]}
        await self._ask_any(client_request(ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER_VERSION, resources=[resource]))
        self._note("alter", SettingAltered(topic=topic, name=name, value=value))

    async def _delete_records(self) -> None:
        await self._delete(self._source)

    async def _delete_output(self) -> None:
        await self._delete(self._sink)

    async def _delete(self, topic: str) -> None:
        deletable = sorted((tp, end) for tp, end in self._deletable(topic).items() if end)
        if not deletable:
            return
        tp, end = self._random.choice(deletable)
        offset = self._random.randint(0, end)
        leader = await self._client.leader(tp)
        row = {"partition_index": tp.partition, "offset": offset}
        request = client_request(
            ApiKey.DELETE_RECORDS, DELETE_VERSION, topics=[{"name": tp.topic, "partitions": [row]}], timeout=TIMEOUT_MS
        )
        await self._client.ask(leader.address, request, TIMEOUT_MS)
        self._note("delete-records", RecordsDeleted(topic=tp.topic, partition=tp.partition, offset=offset))

    async def _elect(self) -> None:
        """Preferred elections of all partitions."""
        await self._ask_any(election(PREFERRED, None, TIMEOUT_MS))
        self._note("elect", LeadersElected())

    async def _elect_unclean(self) -> None:
        """Unclean elections of the sink, where a partition has no leader."""
        numbers = [tp.partition for tp in self._movable if tp.topic == self._sink]
        await self._ask_any(election(UNCLEAN, {self._sink: numbers}, TIMEOUT_MS))
        self._note("elect-unclean", UncleanLeadersElected())

    async def _reassign(self) -> None:
        """Move a partition to drawn brokers; refused where one of them is not live."""
        tp = self._random.choice(self._movable)
        replicas = tuple(self._random.sample(self._brokers, min(REPLICAS, len(self._brokers))))
        await self._ask_any(reassignment([(tp.topic, tp.partition, replicas)], TIMEOUT_MS))
        event = PartitionReassigned(topic=tp.topic, partition=tp.partition, replicas=replicas)
        self._note("reassign", event)

    async def _ask_any(self, request: ClientRequest) -> None:
        """Send it to a drawn broker, which forwards it to the controller or refuses it."""
        address = self._random.choice(self._client.bootstrap)
        await self._client.ask(address, request, TIMEOUT_MS)

    def _note(self, what: str, event: TraceEvent) -> None:
        self.done[what] += 1
        self._client.host.trace.emit(event)
