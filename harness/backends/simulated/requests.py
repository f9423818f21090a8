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
from typing import TYPE_CHECKING, Any, cast

from harrow.cluster.errors import ClusterError, ErrorCode, HarrowError, WireError
from harrow.cluster.ids import TopicPartition
from harrow.cluster.listeners import Address
from harrow.cluster.wire.api_keys import ApiKey
from harrow.cluster.wire.batch_header import headers
from harrow.cluster.wire.client_requests import ClientRequest, client_request
from harrow.cluster.wire.records import Record, decode_records

from ...clients.consumer import record_poll
from ...histories.contents import ContentsWriter, FinalRead
from ...histories.format import FINAL_READ_CLIENT, HistoryWriter, OperationFunction, OperationType
from ...histories.group_states import GroupsAtTheEnd
from ...histories.segments import batches_in, transaction_ranges
from ...requests.ending_transactions import ending_of
from ...requests.final_groups import groups_of
from ...topics import EXISTS, setting_text, state_of
from .replicas import hosted_replicas, leading_replica, log_bytes
from .waiting import holds_within
from .wire import WireClient

if TYPE_CHECKING:
    from confluent_kafka import Message
    from harrow.cluster.simulation import SimulatedCluster

    from ...running_cluster import RunningCluster

CLIENT = "harrow"
"""The client id of Harrow's own requests, which no count of requests has."""
ASK_S, ASK_POLL_S = 30.0, 0.002
CREATE_VERSION = 5
LIST_MS = 2_000
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
        if not holds_within(lambda: found, ASK_S, poll_s=ASK_POLL_S):
            task.cancel()
            raise ClusterError(f"{what}: no broker responded ({state_of(self._cluster)})")
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
            raise HarrowError(f"topic {name} could not be created: {EXISTS}")
        if code is not ErrorCode.none:
            raise HarrowError(f"topic {name} could not be created: {code.name}: {message}")

    def topic_exists(self, name: str) -> bool:
        """Whether the cluster has a topic."""
        return name in self._cluster.describe().topics

    # ----------------------------------------------------------------------------------- groups

    def list_groups(self) -> GroupsAtTheEnd:
        """Ask each broker for its groups."""
        return groups_of((Address(*pair) for pair in self._simulated.bootstrap), self._ask_broker)

    def ending_transactions(self) -> list[str]:
        """Ask each broker for the transactional ids whose transaction is being ended."""
        return ending_of((Address(*pair) for pair in self._simulated.bootstrap), self._ask_broker)

    def _ask_broker(self, address: Address, request: ClientRequest) -> Any:
        """Ask one broker; ClusterError where it does not respond."""

        async def asked(client: WireClient) -> Any:
            with contextlib.suppress(OSError, WireError):
                return await client.ask(address, request, LIST_MS)
            return None

        response = self._ask(asked, f"{request.name} of {address}")
        if response is None:
            raise ClusterError(f"{address} does not respond")
        return response

    # ------------------------------------------------------------------------------- final read

    def read_all(self, topics: Sequence[str], folder: Path, *, contents: bool) -> list[FinalRead]:
        """Write the files of the cluster (`export`), and what the leaders' logs have into a history in `folder`."""
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
    rows = batches_in(data, "the log", verify=False)
    found = transaction_ranges((row[0], row[1], row[5], row[7]) for row in rows)
    hidden = frozenset(
        offset for first, last in (*found.aborted, *found.unfinished) for offset in range(first, last + 1)
    )
    return hidden, found.markers_between(low, high)


def _text(name: str | bytes) -> str:
    return name if isinstance(name, str) else name.decode(errors="replace")
