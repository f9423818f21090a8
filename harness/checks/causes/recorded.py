"""Reads what a run recorded about causes (`evidence.RunEvidence`): faults, traces, taps and histories of a run folder.

Read only for a verdict with anomalies. A file that cannot be read gives no evidence, because the verdict reports it
already. Work is bounded: of traces only the lines with wanted events are decoded, and taps and histories of more than
`BYTES_MOST` together are not searched.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from harrow.cluster.errors import HarrowError, error_name
from harrow.cluster.events import TracedEvent, TraceEvent
from harrow.cluster.events.coordinators import GroupChanged, TransactionChanged
from harrow.cluster.events.partitions import IsrChanged, PartitionEvent, PartitionLeader, PartitionTruncated
from harrow.cluster.host.seam import PREPARE_ABORT, PREPARE_COMMIT

from ... import run_folder
from ...histories.program_ends import ProgramEnd
from ...histories.recorded_faults import read_faults
from ...histories.request_rows import count_requests, read_requests
from ...histories.trace_events import events_of_cluster, read_trace
from ..busy_machine import EVENTS as MACHINE_EVENTS
from ..facts import Fact
from ..verdict import Anomaly
from .coordinator_facts import (
    ended_transactions,
    offset_rows,
    old_offset_reads,
    plain_commits,
    readers,
    uncommitted_readers,
    unfinished_transactions,
)
from .evidence import ClientResponse, DeliveryErrors, Place, Refusals, RunEvidence
from .rules import causes
from .unacknowledged import places_of

EVENTS: tuple[type[TraceEvent], ...] = (
    PartitionLeader,
    IsrChanged,
    PartitionTruncated,
    GroupChanged,
    TransactionChanged,
)
LATER_STATE = re.compile(rb'"transaction\.state"(?!.*"Empty")')
"""A transaction has four states; the first, where a producer began, is evidence."""
BYTES_MOST = 2 << 30
EVENTS_MOST = 20_000
NOT_TIMES = 2**62
_Counted = tuple[str, str, bool]
"""Topic, name of the error, and a property of the records."""


def read_evidence(
    folder: Path,
    topics: Iterable[str],
    *,
    started_ns: int,
    facts: Sequence[Fact],
    clients: Sequence[str],
    places: Collection[Place] = (),
    program_ends: Sequence[ProgramEnd] = (),
) -> RunEvidence:
    """Return the evidence of the run in `folder` about `topics`. `facts` come from the kernels.

    `places`: records whose acknowledgements are wanted.
    """
    wanted = set(topics)
    taps = run_folder.tap_files(folder / run_folder.CLUSTER)
    histories = run_folder.operation_files(folder / run_folder.HISTORY)
    small = sum(path.stat().st_size for path in [*taps, *histories]) <= BYTES_MOST
    return RunEvidence(
        started_ns=started_ns,
        faults=[fault for fault in read_faults(folder / run_folder.FAULTS) if fault.skipped is None],
        events=trace_events(folder, wanted),
        machine=events_of_cluster(folder, MACHINE_EVENTS),
        facts=facts,
        refusals=_refusals(taps if small else [], wanted),
        delivery_errors=_delivery_errors(histories if small else [], wanted),
        acknowledgements=_produced_places(taps if small else [], places, lost=False),
        unacknowledged=_unacknowledged(taps if small else [], places),
        aborted=ended_transactions(folder, wanted, PREPARE_ABORT) if small else (),
        committed=ended_transactions(folder, wanted, PREPARE_COMMIT) if small else (),
        plain_commits=plain_commits(folder, wanted) if small else (),
        old_offset_reads=old_offset_reads(offset_rows(folder, wanted)) if small else (),
        uncommitted_readers=uncommitted_readers(folder, wanted) if small else (),
        unfinished=unfinished_transactions(folder, wanted) if small else (),
        readers=readers(folder, wanted) if small else (),
        requests=read_requests(folder).rows if small else (),
        request_counts=count_requests(folder),
        dependencies=dependency_names(folder),
        program_ends=program_ends,
        clients=clients,
    )


def dependency_names(folder: Path) -> list[str]:
    """Return the names of the dependencies of a run, which have a folder each."""
    return sorted(path.name for path in (folder / run_folder.DEPENDENCIES).glob("*"))


def causes_of_run(
    anomalies: Sequence[Anomaly],
    folder: Path,
    topics: Iterable[str],
    *,
    started_ns: int,
    facts: Sequence[Fact],
    clients: Sequence[str],
    program_ends: Sequence[ProgramEnd] = (),
) -> dict[str, tuple[str, ...]]:
    """Return the sentences on causes for the anomalies of a run; nothing is read when there are none.

    A rule that crashes must not lose the verdict: then the crash is shown instead of the causes.
    """
    if not anomalies:
        return {}
    try:
        evidence = read_evidence(
            folder,
            topics,
            started_ns=started_ns,
            facts=facts,
            clients=clients,
            places=_copies(anomalies),
            program_ends=program_ends,
        )
        return causes(anomalies, evidence)
    except Exception as error:
        return {anomalies[0].name: (f"not known, because Harrow failed to find it: {error!r}",)}


def _copies(anomalies: Sequence[Anomaly]) -> set[Place]:
    """Return where the records are of which the application gave the ids: copies, and what it did not send."""
    return {
        place for anomaly in anomalies if anomaly.name in ("duplicate", "unexpected") for place in places_of(anomaly)
    }


def trace_events(folder: Path, topics: set[str]) -> list[TracedEvent[TraceEvent]]:
    """Return the events of `EVENTS` in every broker's trace that concern `topics` or a group, by time."""
    found = [
        traced
        for path in run_folder.trace_files(folder)
        for traced in read_trace(path, kinds=EVENTS, unless=LATER_STATE)
        if not isinstance(traced.event, PartitionEvent) or traced.event.topic in topics
    ]
    return sorted(found, key=lambda traced: traced.t_ns)[:EVENTS_MOST]


class _Tally:
    """Counts records by topic, error and a property of theirs, with the first and the last time."""

    def __init__(self) -> None:
        self._found: dict[_Counted, tuple[int, int, int]] = {}

    def add(self, key: _Counted, count: int, first_ns: int, last_ns: int) -> None:
        """Add records with these times."""
        records, first, last = self._found.get(key, (0, NOT_TIMES, 0))
        self._found[key] = records + count, min(first, first_ns), max(last, last_ns)

    def result(self) -> list[tuple[_Counted, tuple[int, int, int]]]:
        """Return records, first and last time of each, the most records first."""
        return sorted(sorted(self._found.items()), key=lambda item: -item[1][0])


def _refusals(taps: Sequence[Path], topics: set[str]) -> list[Refusals]:
    """Return the Produce requests that brokers refused, by topic and error."""
    import numpy as np
    from harrow.cluster.tap.layouts import PRODUCED

    from ...histories.tap import read_tap

    tally = _Tally()
    for path in taps:
        for rows, topic in _of_topics(path, read_tap, topics):
            refused = rows[(rows["kind"] == PRODUCED) & (rows["error"] != 0) & (rows["base_offset"] < 0)]
            for error in np.unique(refused["error"]).tolist():
                chosen = refused[refused["error"] == error]
                key = (topic, error_name(error), bool((chosen["producer_id"] < 0).any()))
                ended = chosen["completed_ns"]
                tally.add(key, int(chosen["count"].sum()), int(ended.min()), int(ended.max()))
    return [
        Refusals(
            topic=topic, error=name, without_idempotence=without, records=records, first_ns=first_ns, last_ns=last_ns
        )
        for (topic, name, without), (records, first_ns, last_ns) in tally.result()
    ]


def _unacknowledged(taps: Sequence[Path], places: Collection[Place]) -> dict[Place, ClientResponse | None]:
    """Return the places without an acknowledgement, with the response that was lost where there was one."""
    if not taps:
        return {}
    lost = _produced_places(taps, places, lost=True)
    acknowledged = _produced_places(taps, places, lost=False)
    return {place: lost.get(place) for place in places if place not in acknowledged}


def _produced_places(taps: Sequence[Path], places: Collection[Place], *, lost: bool) -> dict[Place, ClientResponse]:
    """Return who was acknowledged the record at each place, and when; `lost`: by a response that was lost."""
    from harrow.cluster.tap.layouts import FLAG_LOST, PRODUCED

    from ...histories.tap import read_tap

    found: dict[Place, ClientResponse] = {}
    topics = {topic for topic, _, _ in places}
    for path in taps:
        names = read_tap(path).names if places else []
        for rows, topic in _of_topics(path, read_tap, topics):
            answered = (rows["kind"] == PRODUCED) & (rows["error"] == 0)
            acked = rows[answered & (((rows["flags"] & FLAG_LOST) != 0) == lost)]
            for place in (place for place in places if place[0] == topic):
                _, partition, offset = place
                holds = (acked["base_offset"] <= offset) & (acked["last_offset"] >= offset)
                for row in acked[holds & (acked["partition"] == partition)][:1]:
                    client = names[int(row["client"])]
                    found[place] = ClientResponse(client=client, time_ns=int(row["completed_ns"]))
    return found


def _delivery_errors(histories: Sequence[Path], topics: set[str]) -> list[DeliveryErrors]:
    """Return the recorded sends that a delivery report or `produce` ended with an error, by topic and error."""
    import numpy as np

    from ...histories.format import OperationFunction, OperationType, read_history

    tally = _Tally()
    for path in histories:
        for rows, topic in _of_topics(path, read_history, topics):
            sends = rows[(rows["kind"] == OperationFunction.SEND) & (rows["error"] != 0)]
            for outcome in (OperationType.FAIL, OperationType.INFO):
                failed = sends[sends["outcome"] == outcome]
                for error in np.unique(failed["error"]).tolist():
                    ended = failed["time_ns"][failed["error"] == error]
                    key = (topic, _librdkafka_error(error), outcome is OperationType.FAIL)
                    tally.add(key, len(ended), int(ended.min()), int(ended.max()))
    return [
        DeliveryErrors(topic=topic, error=name, refused=refused, records=records, first_ns=first_ns, last_ns=last_ns)
        for (topic, name, refused), (records, first_ns, last_ns) in tally.result()
    ]


def _of_topics(path: Path, read: Any, topics: set[str]) -> Iterator[tuple[Any, str]]:
    """Yield the rows of each wanted topic in a tap or a history."""
    try:
        file = read(path)
    except (HarrowError, OSError):
        return
    for number, name in enumerate(file.names):
        if name in topics:
            yield file.rows[file.rows["topic"] == number], name


def _librdkafka_error(code: int) -> str:
    from confluent_kafka import KafkaError

    return str(KafkaError(code).name())
