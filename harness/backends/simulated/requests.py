"""What Harrow itself asks the brokers of a simulated cluster: topics, groups, and the final read.

Owns: `SimulatedRequests` (`OwnRequests` of `running_cluster.py`). Requests leave from a machine of Harrow's, by
`WireClient`, on virtual time. The final read takes the records from the log of each leader: the same log that a fetch
would be answered from.

What may fail: HarrowError where no broker responds within a bound of virtual time.
"""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from harrow.cluster.errors import ClusterError, ErrorCode, HarrowError, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.client_requests import client_request
from harrow.cluster.wire.records import Record, decode_records

from ...clients.consumer import record_poll
from ...histories.contents import ContentsWriter, FinalRead
from ...histories.format import FINAL_READ_CLIENT, HistoryWriter, OperationFunction, OperationType
from ...histories.group_states import GroupsAtTheEnd
from ...histories.segments import scan_batches, transaction_ranges
from ...topics import setting_text, state_of
from .replicas import hosted_replicas, leading_replica, log_bytes
from .wire import WireClient

if TYPE_CHECKING:
    from confluent_kafka import Message
    from harrow.cluster.simulation import SimulatedCluster

    from ...running_cluster import RunningCluster

T = TypeVar("T")
CLIENT = "harrow"
"""The client id of Harrow's own requests, which no count of requests has."""
ASK_MS = 30_000
CREATE_VERSION, LIST_GROUPS_VERSION = 5, 4
CREATE_TIME, LOG_APPEND_TIME = 1, 2
LOG_APPEND_BIT = 0x8


class ReadRecord:
    """A record of a log as a consumer would return it: what `ContentsWriter` asks of a `confluent_kafka.Message`."""

    __slots__ = ("_kind", "_partition", "_record", "_topic")

    def __init__(self, place: TopicPartition, record: Record, kind: int) -> None:
        self._topic, self._partition = place
        self._record = record
        self._kind = kind

    def __len__(self) -> int:
        return len(self._record.value or b"")

    def topic(self) -> str:
        """Return its topic."""
        return self._topic

    def partition(self) -> int:
        """Return its partition."""
        return self._partition

    def offset(self) -> int:
        """Return its offset."""
        return self._record.offset

    def key(self) -> bytes | None:
        """Return its key."""
        return self._record.key

    def value(self) -> bytes | None:
        """Return its value."""
        return self._record.value

    def headers(self) -> list[tuple[str, bytes | None]]:
        """Return its headers."""
        return [(_text(name), value) for name, value in self._record.headers]

    def timestamp(self) -> tuple[int, int]:
        """Return the kind of its timestamp, and milliseconds since 1970."""
        return self._kind, self._record.timestamp

    def error(self) -> None:
        """None: it is no event of the client."""


class SimulatedRequests:
    """Requests of Harrow's own to one simulated cluster."""

    def __init__(
        self, cluster: RunningCluster, simulated: SimulatedCluster, export: Callable[[Sequence[str]], None]
    ) -> None:
        """`export`: writes the files of the cluster that a verdict on these topics reads."""
        self._cluster = cluster
        self._export = export
        self._simulated = simulated
        self._client: WireClient | None = None

    def _ask(self, coroutine_of: Callable[[WireClient], Coroutine[Any, Any, Any]], what: str) -> Any:
        """Run a coroutine of the client to its end."""
        if self._client is None:
            self._client = WireClient(self._simulated.client(CLIENT), CLIENT, self._simulated.bootstrap)
        client = self._client
        found: list[Any] = []

        async def run(coroutine: Coroutine[Any, Any, Any]) -> None:
            found.append(await coroutine)

        task = client.host.tasks.spawn(run(coroutine_of(client)), name=what)
        deadline_s = time.monotonic() + ASK_MS / 1000
        while not found:
            if time.monotonic() > deadline_s:
                task.cancel()
                raise ClusterError(f"{what}: no broker responded ({state_of(self._cluster)})")
            time.sleep(0.002)
        return found[0]

    # ----------------------------------------------------------------------------------- topics

    def create_topic(
        self, name: str, *, partitions: int, replication_factor: int, config: Mapping[str, object]
    ) -> None:
        """Create a topic; HarrowError for one that exists, or that the brokers refuse."""
        fields = {
            "name": name,
            "num_partitions": partitions,
            "replication_factor": replication_factor,
            "configs": [{"name": key, "value": setting_text(value)} for key, value in config.items()],
        }
        request = client_request(ApiKey.CREATE_TOPICS, CREATE_VERSION, topics=[fields], timeout=5_000)
        response = self._ask(lambda client: client.ask_any_broker(request), f"topic {name} to be created")
        code, message = response.topics[0].error_code, response.topics[0].error_message
        if code is ErrorCode.topic_already_exists:
            raise HarrowError(
                f"topic {name} could not be created: it exists, and its records are not this test's; choose "
                "another name, or delete it first"
            )
        if code is not ErrorCode.none:
            raise HarrowError(f"topic {name} could not be created: {code.name}: {message}")

    def topic_exists(self, name: str) -> bool:
        """Whether the cluster has a topic."""
        return name in self._cluster.describe().topics

    # ----------------------------------------------------------------------------------- groups

    def list_groups(self) -> GroupsAtTheEnd:
        """Ask each broker for its groups."""
        asked_ns = time.monotonic_ns()
        request = client_request(ApiKey.LIST_GROUPS, LIST_GROUPS_VERSION)
        states: dict[str, str] = {}
        problems: list[str] = []
        for address in self._simulated.bootstrap:

            async def ask(client: WireClient, address: tuple[str, int] = address) -> Any:
                with contextlib.suppress(OSError, WireError):
                    return await client.ask(address, request, 2_000)
                return None

            response = self._ask(ask, "the consumer groups")
            if response is None:
                problems.append(f"{address[0]}:{address[1]} does not respond")
                continue
            if response.error_code is not ErrorCode.none:
                problems.append(f"{address[0]}:{address[1]} refused ListGroups: {response.error_code.name}")
            states |= {row.group_id: row.group_state for row in response.groups}
        return GroupsAtTheEnd(asked_ns=asked_ns, states=states, problems=tuple(problems))

    # ------------------------------------------------------------------------------- final read

    def read_all(
        self, topics: Sequence[str], folder: Path, *, contents: bool, logs: Mapping[tuple[str, int], str] | None
    ) -> list[FinalRead]:
        """Write the files of the cluster (`export`), and what the leaders' logs have into a history in `folder`."""
        del logs  # the objects of the brokers have them
        self._export(topics)
        done: list[FinalRead] = []
        kept = ContentsWriter(folder) if contents else None
        with HistoryWriter(folder, process="drain") as history:
            client, asked_ns = history.name(FINAL_READ_CLIENT), time.monotonic_ns()
            numbers = iter(range(1, 1 << 62))
            for topic in topics:
                for number in sorted(self._cluster.describe().topics[topic]):
                    place = TopicPartition(topic, number)
                    done.append(self._read_partition(place, history, client, numbers, kept, asked_ns))
        if kept is not None:
            kept.finish(done)
        return done

    def _read_partition(
        self,
        place: TopicPartition,
        history: HistoryWriter,
        client: int,
        numbers: Iterator[int],
        kept: ContentsWriter | None,
        asked_ns: int,
    ) -> FinalRead:
        leader = leading_replica(hosted_replicas(self._simulated, place))
        if leader is None:
            raise HarrowError(f"{place} has no leader, so its records cannot be read")
        low, high = leader.log.log_start_offset, leader.high_watermark
        data = log_bytes(leader.log)
        hidden, markers = _uncommitted(data, low, high) if kept is not None else (frozenset[int](), 0)
        records, shown = 0, list[ReadRecord]()
        for record, kind in records_between(data, low, high):
            read = ReadRecord(place, record, kind)
            record_poll(history, client, next(numbers), cast("Message", read), time.monotonic_ns())
            records += 1
            if record.offset not in hidden:
                shown.append(read)
        if kept is not None and shown:
            kept.add(place.topic, cast("list[Message]", shown))
        topic = history.name(place.topic)
        history.append(OperationFunction.BOUNDS, OperationType.OK, client, topic, place.partition, high, low)
        return FinalRead(
            topic=place.topic,
            partition=place.partition,
            low=low,
            high=high,
            records=records,
            markers=markers,
            asked_ns=asked_ns,
        )


def records_between(data: bytes, low: int, high: int) -> Iterator[tuple[Record, int]]:
    """Yield the records of a log from offset `low` up to `high`, without markers, with the kind of their timestamps."""
    for at, size, header in headers(data):
        if header.is_control:
            continue
        kind = LOG_APPEND_TIME if header.attributes & LOG_APPEND_BIT else CREATE_TIME
        for record in decode_records(data[at : at + size]):
            if low <= record.offset < high:
                yield record, kind


def _uncommitted(data: bytes, low: int, high: int) -> tuple[frozenset[int], int]:
    """Return the offsets of records that no reader of committed data receives, and how many markers there are."""
    with memoryview(data) as view:
        rows = scan_batches(view, len(data), "the log", 0, last=True, verify=False)
        found = transaction_ranges((row[0], row[1], row[5], row[7]) for row in rows)
    hidden = frozenset(
        offset for first, last in (*found.aborted, *found.unfinished) for offset in range(first, last + 1)
    )
    return hidden, sum(max(0, min(last + 1, high) - max(first, low)) for first, last in found.markers)


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")
