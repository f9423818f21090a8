"""The lay-out of a run: each judged row is in the ranges of its topic-partition, in order, and no other row is (L1)."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from harrow.cluster.broker_folder import TAP, TAP_NAMES
from harrow.cluster.tap.layouts import TAP_DTYPE
from harrow.harness.checks.kernels.inputs import BATCH_SCHEMA, OPS_SCHEMA
from harrow.harness.checks.kernels.loading import Files
from harrow.harness.histories import layout as layouts
from harrow.harness.histories import row_index
from harrow.harness.histories.format import HistoryWriter, OperationFunction, OperationType, history_frame
from harrow.harness.histories.layout import DRAINED, RECORDED, Layout, lay_out
from harrow.harness.histories.row_index import RowRange
from harrow.harness.histories.row_ranges import RangeReader

TOPICS = ("a", "b", "not-judged")
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let short files have many chunks and blocks, on threads, too."""
    monkeypatch.setattr(layouts, "CHUNK_ROWS", 37)
    monkeypatch.setattr(layouts, "FEW_ROWS", 20)
    monkeypatch.setattr(layouts, "BLOCK_ROWS", 10)
    monkeypatch.setattr(row_index, "BLOCK_ROWS", 7)


def write_history(folder: Path, draws: random.Random, rows: int) -> tuple[list[Row], list[Row]]:
    """Write random rows; return the completions, and the sends that have none."""
    sends: dict[tuple[str, int], Row] = {}
    completions: list[Row] = []
    with HistoryWriter(folder) as history:
        for number in range(rows):
            kind = draws.choice([OperationFunction.SEND, OperationFunction.POLL, OperationFunction.CLIENT])
            outcome = draws.choice(list(OperationType)) if kind == OperationFunction.SEND else OperationType.OK
            row: Row = {
                "kind": int(kind),
                "outcome": int(outcome),
                "client": draws.choice(["x", "y", f"own-{folder.name}"]),
                "topic": draws.choice(TOPICS),
                "partition": draws.randrange(-1, 3),
                "offset": number,
                "op": number,
            }
            if kind == OperationFunction.SEND and outcome != OperationType.INVOKE and sends:
                place = draws.choice(list(sends))  # completes an earlier send, which may be in another chunk
                row["client"], row["op"] = place
                del sends[place]
            names = history.name(row["client"]), history.name(row["topic"])
            history.append(kind, outcome, *names, row["partition"], number, row["op"], time_ns=number + 1)
            if outcome == OperationType.INVOKE:
                sends[row["client"], number] = {**row, "outcome": int(OperationType.INFO)}
            elif kind != OperationFunction.CLIENT:
                completions.append(row)
    return completions, list(sends.values())


def read(layout: Layout, parts: list[RowRange], source: int) -> list[Row]:
    """Return the rows of one kind of file in the ranges, as `write_history` describes them."""
    frame = Files().read(parts, {**OPS_SCHEMA})
    names = ("kind", "outcome", "offset", "op")
    return [
        {**{name: row[name] for name in names}, "client": layout.clients[row["client"]]}
        for row in frame.rows(named=True)
        if row["source"] == source
    ]


@pytest.mark.parametrize("seed", range(12))
def test_ranges_of_a_partition_have_its_rows_in_order_and_no_others(tmp_path: Path, seed: int) -> None:
    draws = random.Random(seed)
    completions, uncompleted = write_history(tmp_path / "history", draws, draws.randrange(1, 300))
    drained, _ = write_history(tmp_path / "drain", draws, draws.randrange(1, 100))
    topics = ["a", "b"]
    layout = lay_out(tmp_path, topics)
    assert layout.problems == []
    for source, rows in ((RECORDED, completions + uncompleted), (DRAINED, drained)):
        for topic in topics:
            for partition in range(-1, 3):
                place = layout.place(topic, partition)
                parts = layout.pending[topic] if partition < 0 else place.ops
                wanted = [
                    {name: row[name] for name in ("kind", "outcome", "offset", "op", "client")}
                    for row in rows
                    if (row["topic"], row["partition"]) == (topic, partition)
                ]
                assert read(layout, parts, source) == wanted, (source, topic, partition)


def test_taps_are_indexed_without_the_fetches_of_brokers(tmp_path: Path) -> None:
    folder = tmp_path / "cluster" / "broker-2"
    folder.mkdir(parents=True)
    rows = np.zeros(100, np.dtype(TAP_DTYPE))
    rows["kind"], rows["base_offset"] = 2, np.arange(100)
    rows["client"], rows["topic"], rows["partition"] = np.arange(100) % 2, 2, np.arange(100) % 3
    (folder / TAP).write_bytes(rows.tobytes())
    (folder / TAP_NAMES).write_text("0\tapp\n1\tbroker-1\n2\ta\n")
    layout = lay_out(tmp_path, ["a"])
    assert layout.taps == 1
    for partition in range(3):
        frame = Files().read(layout.place("a", partition).batches, BATCH_SCHEMA)
        assert frame["base_offset"].to_list() == [n for n in range(100) if n % 2 == 0 and n % 3 == partition]
        assert set(frame["node"]) == {2}


def test_rows_that_a_living_writer_appends_later_are_not_read(tmp_path: Path) -> None:
    with HistoryWriter(tmp_path / "history") as history:
        client, topic = history.name("c"), history.name("a")
        for offset in range(50):
            history.append(OperationFunction.POLL, OperationType.OK, client, topic, 0, offset)
        assert len(history_frame(history.path)) == 50  # the file is longer: its end is not committed
        layout = lay_out(tmp_path, ["a"])
        history.append(OperationFunction.POLL, OperationType.OK, client, topic, 0, 50)
    found = RangeReader().read(layout.place("a", 0).ops, {"offset": np.int64})
    assert found["offset"].tolist() == list(range(50))
