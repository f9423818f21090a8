"""Reads back what recording clients wrote, and judges it in this process."""

from __future__ import annotations

from typing import Any, NamedTuple

import polars as pl
from harrow import Harrow, Topic, Verdict
from harrow.harness import run_folder
from harrow.harness.checks import judge
from harrow.harness.clients.final_read import read_all
from harrow.harness.histories.format import OperationFunction, OperationType, history_frame, read_names
from harrow.harness.histories.sent_contents import SUFFIX, sent_records
from harrow.harness.requests.final_groups import record_groups


class RecordedSend(NamedTuple):
    """One send of a history, and its result."""

    topic: str
    outcome: str
    """ok, fail, info; empty without a result."""
    partition: int
    offset: int
    error: int


def rows_of(harrow: Harrow, client: str) -> pl.DataFrame:
    """Return the rows of the client with this name; the final read is a client, too."""
    folders = (run_folder.HISTORY, run_folder.DRAIN)
    files = [path for name in folders for path in sorted((harrow.folder / name).glob("*.ops"))]
    frames = [history_frame(path).filter(pl.col("client") == client) for path in files]
    return pl.concat(frames)


def sends_of(harrow: Harrow, client: str) -> list[RecordedSend]:
    """Return a client's sends in their order."""
    rows = rows_of(harrow, client).filter(pl.col("kind") == OperationFunction.SEND)
    invoked = rows.filter(pl.col("outcome") == OperationType.INVOKE)
    assert invoked["op"].to_list() == list(range(len(invoked)))
    completed = rows.filter(pl.col("outcome") != OperationType.INVOKE)
    assert completed["op"].n_unique() == len(completed), "a send has two results"
    results: dict[int, dict[str, Any]] = {row["op"]: row for row in completed.to_dicts()}
    sends: list[RecordedSend] = []
    for row in invoked.to_dicts():
        result = results.pop(row["op"], None)
        chosen = result or row
        for name in ("topic", "key_hash", "value_hash", "invoked_ns"):
            assert chosen[name] == row[name], name
        outcome = OperationType(chosen["outcome"]).name.lower() if result else ""
        sends.append(RecordedSend(row["topic"], outcome, chosen["partition"], chosen["offset"], chosen["error"]))
    assert not results, "a result without its send"
    return sends


def contents_of(harrow: Harrow, client: str) -> list[bytes | None]:
    """Return the values of a client's sends, in their order."""
    count = len(sends_of(harrow, client))
    found: dict[tuple[str, int], Any] = {}
    for path in (harrow.folder / run_folder.HISTORY).glob(f"*{SUFFIX}"):
        names = read_names(path.with_suffix(".names"))
        found |= sent_records(path, names, [(client, op) for op in range(count)])
    return [found[client, op].value for op in range(count)]


def reads_of(harrow: Harrow, client: str) -> list[tuple[int, int, int]]:
    """Return partition, offset and hash of the value of each record that a client read, in its order."""
    rows = rows_of(harrow, client).filter(pl.col("kind") == OperationFunction.POLL)
    return [(row["partition"], row["offset"], row["value_hash"]) for row in rows.to_dicts()]


def judged(harrow: Harrow, topic: Topic, guarantee: str | None = None) -> Verdict:
    """Read the topic to its end and judge it, as `verify` does, without Spark."""
    harrow.cluster.await_converged()
    read_all(harrow.bootstrap_servers, [topic.name], harrow.folder / run_folder.DRAIN)
    record_groups(harrow.folder, harrow.bootstrap_servers)
    return judge(harrow.folder, topics=[topic.name], guarantee=guarantee, engine="inline")
