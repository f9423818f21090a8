"""Sends that brokers refused, of all partitions: what a verdict says of them (L6).

A kernel says for each client and partition how many refused records cannot be any that were appended later in that
partition (`kernels/refusals.py`). The client may have sent them again in another partition of the topic, so what was
appended there later counts too. What is lacking then is a doubt; all other refused batches are a note, because the wire
does not show whether their records were sent again.

With `record_id=` the ids of the refused records are compared with those of the judged topics
(`promises/refused_ids.py`). This replaces the above: what no topic has is a doubt, with the ids.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from harrow.cluster.errors import error_name

from ..wording import counted
from .promise_findings import RefusedIds
from .rows import PartitionResult

NO_COMMIT = (48, 49, 90, 120)
"""INVALID_TXN_STATE, INVALID_PRODUCER_ID_MAPPING, PRODUCER_FENCED, TRANSACTION_ABORTABLE: no reader of committed data
expects the records, and the application must send them in another transaction."""
FENCED = 47
"""INVALID_PRODUCER_EPOCH: for a transactional producer, that another has taken over and aborted its transaction."""


class Lacking(NamedTuple):
    """Refused records of one client that it cannot have sent again."""

    client: int
    records: int
    errors: tuple[int, ...]


def lacking_records(results: Sequence[PartitionResult]) -> list[Lacking]:
    """Return for each topic and client the most that is lacking in one partition."""
    found: dict[tuple[str, int], Lacking] = {}
    for result in results:
        for row in () if result.refused is None else result.refused.lacking:
            elsewhere = sum(
                appended.records
                for other in results
                if other is not result and other.topic == result.topic
                for appended in other.appended
                if appended.client == row.client and appended.last_ns > row.since_ns
            )
            left = row.records - elsewhere
            known = found.get((result.topic, row.client))
            if left > 0 and (known is None or left > known.records):
                found[result.topic, row.client] = Lacking(row.client, left, tuple(row.errors))
    return list(found.values())


def doubt_of_refused(results: Sequence[PartitionResult], clients: Sequence[str]) -> str:
    """Return the sentence on records that were refused and cannot have been sent again; empty without any."""
    lacking = lacking_records(results)
    if not lacking:
        return ""
    names = _names((row.client for row in lacking), clients)
    errors = _errors(code for row in lacking for code in row.errors)
    records = counted(sum(row.records for row in lacking), "record")
    return (
        f"brokers refused at least {records} of {names} with {errors}, and no record that was appended later can be "
        "one of them"
    )


def note_of_refused(results: Iterable[PartitionResult], clients: Sequence[str]) -> str:
    """Return the sentence on batches that were refused and are not in the log as they were sent; empty without any."""
    rows = [result.refused for result in results if result.refused is not None]
    if not rows:
        return ""
    names = _names((number for row in rows for number in row.clients), clients)
    errors = _errors(code for row in rows for code in row.errors)
    batches = counted(sum(row.batches for row in rows), "batch", "batches")
    return (
        f"brokers refused {batches} of {names} with {errors}, each attempt counted: whether their records were sent "
        "again cannot be seen"
    )


def refused_by_id(found: Mapping[str, RefusedIds]) -> tuple[list[str], list[str]]:
    """Return the sentences on topics of which refused record ids are nowhere, and on those of which none is.

    `found`: `PromiseFindings.refused_ids`.
    """
    lacking: list[str] = []
    there: list[str] = []
    for topic, row in found.items():
        text = f"brokers refused {counted(row.ids, 'record id')} of {topic}"
        if row.lacking:
            more = row.lacking - len(row.shown)
            shown = ", ".join([*row.shown, *([f"{more:,} more"] if more else [])])
            lacking.append(f"{text}, and no judged topic has {row.lacking:,} of them ({shown})")
        else:
            there.append(f"{text}, and the judged topics have all of them")
    return lacking, there


def _names(numbers: Iterable[int], clients: Sequence[str]) -> str:
    return ", ".join(sorted({clients[int(number)] for number in numbers}))


def _errors(codes: Iterable[int]) -> str:
    return ", ".join(error_name(code) for code in sorted(set(codes)))
