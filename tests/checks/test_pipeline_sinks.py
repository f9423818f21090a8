"""Every kind of sink gives the same rows to the checks of a pipeline; wrong ones are refused with a remedy (L5)."""

from __future__ import annotations

import contextlib
import csv
import gzip
import json
import sqlite3
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd
import polars as pl
import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)
import pytest
import sqlalchemy
from harrow import Topic, files, mapped, table
from harrow.cluster.errors import ConfigError
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.record import Record
from harrow.harness.checks.spark_client import quiet
from harrow.harness.promises.chunk_records import records_of
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.pipeline_promise import PipelinePromise
from harrow.harness.promises.shapes import Rows
from harrow.harness.promises.sinks import stage, topic_of
from pipelines_by_hand import anomalies, chunks_of, record

pa: Any = pyarrow
ORDERS = [{"order": n, "amount": n * 1.25, "paid": n % 2 == 0, "note": None} for n in range(5)]


def rows(wrong: int = -1) -> list[dict[str, Any]]:
    return [
        {
            "order": order["order"],
            "total": 99.5 if order["order"] == wrong else order["amount"],
            "paid": order["paid"],
            "note": None,
            "extra": "x",
        }
        for order in ORDERS
    ]


def bill_of(order: Record) -> dict[str, Any]:
    return {"order": order["order"], "total": order["amount"], "paid": order["paid"], "note": order["note"]}


@dataclass
class Bill:
    order: int
    total: Decimal
    paid: bool
    note: None = None


class BillTuple(NamedTuple):
    order: int
    total: float
    paid: bool
    note: None = None


CONNECTIONS: list[sqlite3.Connection] = []
OPENED: list[Any] = []
"""Engines and connections of SQLAlchemy."""


def _connection(path: object) -> sqlite3.Connection:
    """Return a connection as a user gives it; the fixture below closes it."""
    CONNECTIONS.append(sqlite3.connect(str(path)))
    return CONNECTIONS[-1]


@pytest.fixture(autouse=True)
def closed_connections() -> Iterator[None]:
    yield
    while CONNECTIONS:
        CONNECTIONS.pop().close()
    while OPENED:  # connections after their engine
        opened = OPENED.pop()
        opened.close() if hasattr(opened, "close") else opened.dispose()


def _sqlite(path: Path, given: list[dict[str, Any]]) -> Any:
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("create table bills (`order` integer, total numeric, paid boolean, note text)")
        values = [(r["order"], r["total"], r["paid"], r["note"]) for r in given]
        connection.executemany("insert into bills values (?, ?, ?, ?)", values)
        connection.commit()
    return path


def _engine(folder: Path, given: list[dict[str, Any]]) -> Any:
    """Return an engine as a user gives it; the fixture below disposes of it."""
    OPENED.append(sqlalchemy.create_engine(f"sqlite:///{_sqlite(folder / 'shop.db', given)}"))
    return OPENED[-1]


def _opened(engine: Any) -> Any:
    OPENED.append(engine.connect())
    return OPENED[-1]


def _file(path: Path, text: str) -> Any:
    path.write_text(text)
    return files(path)


def _csv(path: Path, given: list[dict[str, Any]]) -> Any:
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(given[0]))
        writer.writeheader()
        writer.writerows(given)
    return files(path)


def _parquet(folder: Path, given: list[dict[str, Any]]) -> Any:
    folder.mkdir()
    pl.DataFrame(given[:2]).write_parquet(folder / "part-0.parquet")
    pl.DataFrame(given[2:]).write_parquet(folder / "part-1.parquet")
    (folder / "_SUCCESS").touch()
    (folder / "_spark_metadata").mkdir()
    (folder / "_spark_metadata" / "0").write_text("v1")
    return files(folder)


def _gz(path: Path, given: list[dict[str, Any]]) -> Any:
    with gzip.open(path, "wt") as file:
        file.writelines(json.dumps(row) + "\n" for row in given)
    return files(path)


SINKS: dict[str, Callable[[Path, list[dict[str, Any]]], Any]] = {
    "mappings": lambda _, given: given,
    "a generator": lambda _, given: (dict(row) for row in given),
    "dataclasses": lambda _, given: [Bill(r["order"], Decimal(str(r["total"])), r["paid"]) for r in given],
    "named tuples": lambda _, given: [BillTuple(r["order"], r["total"], r["paid"]) for r in given],
    "records": lambda _, given: [record(row, topic="") for row in given],
    "pandas": lambda _, given: pd.DataFrame(given),
    "polars": lambda _, given: pl.DataFrame(given),
    "polars, lazy": lambda _, given: pl.LazyFrame(given),
    "Arrow": lambda _, given: pa.Table.from_pylist(given),
    "SQLite path": lambda folder, given: table(_sqlite(folder / "shop.db", given), "bills"),
    "SQLite URL": lambda folder, given: table(f"sqlite:///{_sqlite(folder / 'shop.db', given)}", "select * from bills"),
    "connection": lambda folder, given: table(_connection(_sqlite(folder / "shop.db", given)), "select * from bills"),
    "SQLAlchemy engine": lambda folder, given: table(_engine(folder, given), "bills"),
    "SQLAlchemy connection": lambda folder, given: table(
        _opened(_engine(folder, given)), "select *, ' :note 5%' as extra from bills"
    ),
    "SQLAlchemy URL": lambda folder, given: table(
        f"sqlite+pysqlite:///{_sqlite(folder / 'shop.db', given)}", "select * from bills"
    ),
    "JSON lines": lambda folder, given: _file(folder / "a.jsonl", "\n".join(map(json.dumps, given))),
    "JSON array": lambda folder, given: _file(folder / "a.json", json.dumps(given)),
    "compressed JSON lines": lambda folder, given: _gz(folder / "a.jsonl.gz", given),
    "CSV": lambda folder, given: _csv(folder / "a.csv", given),
    "Parquet folder": lambda folder, given: _parquet(folder / "out", given),
}


@pytest.mark.parametrize("kind", SINKS)
@pytest.mark.parametrize("wrong", [-1, 3], ids=["right", "wrong"])
def test_rows_of_every_sink_are_compared(tmp_path: Path, kind: str, wrong: int) -> None:
    sink = SINKS[kind](tmp_path, rows(wrong))
    assert topic_of(sink) is None
    staged = stage(sink, tmp_path / "staged")
    assert staged.rows == len(ORDERS)
    pairing = Pairing(relation=mapped(bill_of), record_id="order", rows=Rows(staged.loose, "order"))
    source = chunks_of([record(order) for order in ORDERS], tmp_path / "source", 2)
    inputs = PipelineInputs(pairing=pairing, source=source, sink=staged.chunks)
    found = check_pipeline(inputs, folder=tmp_path / "join", engine="inline")
    assert not (found.problems or found.raised)
    assert anomalies(found) == ({} if wrong < 0 else {"wrong-output": 1})
    if isinstance(getattr(sink, "source", None), sqlite3.Connection):
        sink.source.close()


def test_types_of_databases_and_texts_are_compared_loosely(tmp_path: Path) -> None:
    expected = {"id": 1, "at": datetime(2026, 11, 22, 10, 30), "price": Decimal("10.50"), "raw": b"ab"}
    sink = [{"id": "1", "at": "2026-11-22 10:30:00", "price": "10.5", "raw": "ab"}]
    pairing = Pairing(relation=mapped(lambda _: expected), record_id="id", rows=Rows(loose=True))
    inputs = PipelineInputs(
        pairing=pairing,
        source=chunks_of([record({})], tmp_path / "source", 1),
        sink=stage(sink, tmp_path / "sink").chunks,
    )
    found = check_pipeline(inputs, folder=tmp_path, engine="inline")
    assert found.raised == []
    assert anomalies(found) == {}


def test_sink_without_files_or_rows_is_empty(tmp_path: Path) -> None:
    staged = stage(files(tmp_path / "nowhere" / "*.parquet"), tmp_path / "a")
    assert staged.rows == 0
    assert "no file matches" in staged.note
    assert stage([], tmp_path / "b").rows == 0


def test_rows_keep_their_numbers_across_chunks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harrow.harness.promises.sink_rows.CHUNK_ROWS", 2)
    for sink in (rows(), pl.DataFrame(rows())):
        staged = stage(sink, tmp_path / "staged")
        assert [chunk.rows for chunk in staged.chunks] == [2, 2, 1]
        found = [row for chunk in staged.chunks for row in records_of(chunk)]
        assert [row.offset for row in found] == [0, 1, 2, 3, 4]
        assert [row["order"] for row in found] == [0, 1, 2, 3, 4]


WRONG_SINKS: list[tuple[Callable[[Path], Any], str]] = [
    (lambda _: "out/bills.csv", "use files"),
    (lambda folder: folder / "bills.csv", "use files"),
    (lambda _: 7, "expected a topic, table"),
    (lambda _: {"order": 1}, "expected a topic, table"),
    (lambda _: [1, 2], "make each row a dict"),
    (lambda _: [record({}), {"order": 1}], "give one kind"),
    (lambda folder: _file(folder / "bills.txt", "x"), "no known format"),
    (lambda folder: _file(folder / "bills.parquet", "x"), "cannot be read"),
    (lambda folder: table(folder / "no.db", "bills"), "there is no file"),
    (lambda folder: table(_sqlite(folder / "s.db", rows()), "select nothing from x"), "the query is"),
    (lambda _: table("nonsense://host/db", "bills"), "SQLAlchemy cannot use this URL"),
    (lambda folder: table(_engine(folder, rows()), "select nothing from x"), "the query is"),
    (lambda folder: table(_engine(folder, rows()), "delete from bills where 0"), "returns no rows"),
    (lambda _: table(object(), "bills"), "a DB-API connection"),
]


@pytest.mark.parametrize(("sink", "remedy"), WRONG_SINKS)
def test_wrong_sinks_are_refused_with_a_remedy(tmp_path: Path, sink: Callable[[Path], Any], remedy: str) -> None:
    given = sink(tmp_path)

    def use() -> None:
        assert topic_of(given) is None
        stage(given, tmp_path / "staged")

    with pytest.raises(ConfigError, match=remedy):
        use()


@pytest.mark.parametrize(
    ("arguments", "remedy"),
    [
        ({}, "give record_id="),
        ({"relation": bill_of}, "expected identity"),
        ({"record_id": "order", "sink": "orders"}, "the same topic"),
        ({"record_id": "order", "guarantee": "ordered", "sink": [1]}, "leave out 'ordered'"),
        ({"record_id": "order", "guarantee": "perfect"}, "unknown guarantee"),
        ({"record_id": 7}, "expected a field path"),
        ({"source": 7, "record_id": "order"}, "expected a topic"),
    ],
)
def test_wrong_arguments_are_refused_with_a_remedy(arguments: dict[str, Any], remedy: str) -> None:
    given: dict[str, Any] = {
        "source": Topic(name="orders"),
        "sink": "bills",
        "guarantee": None,
        "record_id": None,
        "relation": None,
        "group": None,
        **arguments,
    }
    with pytest.raises(ConfigError, match=remedy):
        PipelinePromise.of(given.pop("source"), given.pop("sink"), **given)


def test_a_url_without_sqlalchemy_says_what_to_install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def not_found(_: str) -> None:
        return None

    monkeypatch.setattr("harrow.harness.promises.sink_tables.find_spec", not_found)
    with pytest.raises(ConfigError, match="pip install sqlalchemy"):
        stage(table("postgresql://host/db", "bills"), tmp_path / "staged")


@pytest.mark.parametrize("wrong", [-1, 3], ids=["right", "wrong"])
def test_a_frame_of_spark_is_a_sink(tmp_path: Path, spark: SparkHandle, wrong: int) -> None:
    with quiet():
        sink = spark.session().createDataFrame(pa.Table.from_pylist(rows(wrong)).drop_columns("note"))
        staged = stage(sink, tmp_path / "staged")
    assert staged.name == "the pyspark frame"
    pairing = Pairing(relation=mapped(total_of), record_id="order", rows=Rows(staged.loose, "order"))
    source = chunks_of([record(order) for order in ORDERS], tmp_path / "source", 2)
    inputs = PipelineInputs(pairing=pairing, source=source, sink=staged.chunks)
    found = check_pipeline(inputs, folder=tmp_path / "join", engine="inline")
    assert anomalies(found) == ({} if wrong < 0 else {"wrong-output": 1})


def total_of(order: Record) -> dict[str, Any]:
    return {"total": order["amount"], "paid": order["paid"]}
