"""The checks of topics: reducers over the rows of `topic_rows.py`. The oracle is `tests/support/oracle_of_promises.py`.

`IdReducer` sees all rows of a record id together:

* missing: the application believes that it sent the record more often than the topics have it. One anomaly for each id;
* unexpected: the topics have a record whose id no expectation claims. One anomaly for each id;
* duplicate: a topic has the record more often than the application believes that it sent it; without an expectation,
  more than once. One anomaly for each id and topic, whatever the partitions are.

It also says of the ids that brokers refused which of them no judged topic has: `{"counts", "refused"}`.

It finds, for the second reducer, when each record was sent (`sent`, a position in the expectation or a time):

* by position: where all copies of an id are in one partition. An id that is expected once gives its position to its
  first copy, and one that is expected as often as it is there gives its positions to the copies in their order. In
  all other cases it is not known which copy belongs to which send;
* by recorded sends: the send that was acknowledged with the record's offset.

`OrderReducer` sees all records of an order key together:

* split-key: the records of a key are in several partitions of a topic. One anomaly for each key;
* out-of-order: of two records of a key that are neighbours in a partition, among those with a known `sent`, the later
  was sent earlier. One anomaly for each such pair. Equal times say nothing.

Reducers yield `{"counts", "anomalies", "first"}`: all anomalies are counted, and the first `limit` of each name are
given with the chunk and the row of each record (`records`) or expected record (`expected`). `rank` orders them in the
whole run.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, TypedDict

import polars as pl

from .topic_rows import EXPECTED, PLACED, RECORD, REFUSED, SENT, TopicProblem

ID = ["hash", "low"]
PLACE = ["topic", "partition", "offset"]
WHERE = ["chunk", "row"]
ORDER_ROWS = [*ID, *PLACE, *WHERE, "sent"]
RECORDS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicFinding:
    """An anomaly of the records of a topic; a record is named by its chunk and its row."""

    name: str
    rank: Sequence[int]
    """Its place in the order of all findings of its name."""
    records: Sequence[tuple[int, int]] = ()
    """The first records that show it."""
    expected: tuple[int, int] | None = None
    """The chunk and the row of the expected record that is missing."""
    claimed: int = 0
    """How often the record was believed sent, or may be there."""
    there: int = 0
    copies: int = 0
    """How often the topic has it."""
    partitions: int = 0
    """How many partitions have records of the key."""
    sent: Sequence[int] = ()
    """When the two records were sent."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RefusedRows:
    """The refused ids of a topic, and the rows of those that no judged topic has."""

    topic: int
    ids: int
    lacking: Sequence[int]


class TopicResult(TypedDict, total=False):
    """What a stage yields besides frames, as plain JSON; each has some of the fields."""

    counts: Mapping[str, int]
    anomalies: Mapping[str, int]
    first: Sequence[Mapping[str, Any]]
    """Of `TopicFinding`."""
    refused: Sequence[Mapping[str, Any]]
    """Of `RefusedRows`."""
    problems: Sequence[TopicProblem]


@dataclass(frozen=True, slots=True, kw_only=True)
class IdReducer:
    """Joins records and expected records by id, and records and sends by offset."""

    expects: bool
    """Whether there is an expectation; without it nothing is missing or unexpected."""
    judges_order: bool = False
    limit: int = 20

    def __call__(self, rows: pl.DataFrame) -> Iterator[pl.DataFrame | TopicResult]:
        """Check all rows of a bucket."""
        records = rows.filter(pl.col("kind") == RECORD)
        expected = rows.filter(pl.col("kind") == EXPECTED)
        there = records.group_by(ID).agg(pl.len().alias("there"), *_SAME_PLACE)
        where = pl.col("chunk").cast(pl.Int64) * 2**32 + pl.col("row")
        claimed = expected.group_by(ID).agg(pl.len().alias("claimed"), where.min().alias("where"))
        findings = _Findings(self.limit)
        findings.counts["record_ids"] = len(there)
        if self.expects:
            findings.counts["expected"] = len(expected)
            _missing(findings, claimed, there, records)
            _unexpected(findings, claimed, there, records)
        _duplicates(findings, claimed, there, records)
        yield findings.result()
        if lacking := _refused(rows.filter(pl.col("kind") == REFUSED), records):
            yield lacking
        if self.judges_order:
            yield _by_key(_positions(records, expected, there.join(claimed, on=ID, how="left")))
            placed, sends = (rows.filter(pl.col("kind") == PLACED), rows.filter(pl.col("kind") == SENT))
            yield _by_key(_send_times(placed, sends))


_SAME_PLACE = [(pl.col(name).min() == pl.col(name).max()).alias(f"same_{name}") for name in ("topic", "partition")]


class _Findings:
    """Counts of a bucket and its first anomalies."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.counts: dict[str, int] = {}
        self.anomalies: dict[str, int] = {}
        self.first: list[TopicFinding] = []

    def add(self, name: str, frame: pl.DataFrame, rank: list[str]) -> pl.DataFrame:
        """Count an anomaly for each row, and return the rows that are shown."""
        if len(frame):
            self.anomalies[name] = len(frame)
        return frame.sort(rank).head(self.limit) if len(frame) else frame

    def show(self, finding: TopicFinding) -> None:
        """Keep an anomaly with what shows it."""
        self.first.append(finding)

    def result(self) -> TopicResult:
        """Return the findings as plain JSON."""
        uncounted = {found.name for found in self.first} - self.anomalies.keys()
        assert not uncounted, f"{sorted(uncounted)} are shown and not counted: {self.anomalies}"
        return {"counts": self.counts, "anomalies": self.anomalies, "first": [*map(asdict, self.first)]}


def _refused(refused: pl.DataFrame, records: pl.DataFrame) -> TopicResult:
    """Return, by topic, how many refused ids there are, and the rows of those that no judged topic has.

    An application may send a refused record to another topic, such as one of dead letters.
    """
    lacking = refused.join(records, on=ID, how="anti")
    by_topic = {row["topic"]: row["len"] for row in refused.group_by("topic").len().iter_rows(named=True)}
    found = [
        RefusedRows(topic=topic, ids=ids, lacking=lacking.filter(pl.col("topic") == topic)["row"].sort().to_list())
        for topic, ids in sorted(by_topic.items())
    ]
    assert all(len(row.lacking) <= row.ids for row in found), f"more refused ids are lacking than there are: {found}"
    return {"counts": {}, "refused": [*map(asdict, found)]} if found else {}


def _records_with(records: pl.DataFrame, values: Mapping[str, int]) -> list[tuple[int, int]]:
    """Return chunk and row of the first records with these values in their columns."""
    same = pl.all_horizontal(pl.col(name) == value for name, value in values.items())
    found = records.filter(same).sort(PLACE).head(RECORDS_SHOWN)
    return [(chunk, row) for chunk, row in found.select(WHERE).iter_rows()]


def _first_of(records: pl.DataFrame, group: list[str]) -> pl.DataFrame:
    """Return the first record of each group, with its place."""
    first = records.sort(PLACE).unique(group, keep="first", maintain_order=True)
    return first.select(*dict.fromkeys([*group, *PLACE]))


def _missing(findings: _Findings, claimed: pl.DataFrame, there: pl.DataFrame, records: pl.DataFrame) -> None:
    compared = claimed.join(there, on=ID, how="left").with_columns(pl.col("there").fill_null(0))
    matched = compared.select(pl.min_horizontal("claimed", "there").sum()).item()
    findings.counts["matched"] = int(matched)
    bad = compared.filter(pl.col("there") < pl.col("claimed"))
    bad = bad.with_columns(chunk=pl.col("where") // 2**32, row=pl.col("where") % 2**32)
    missing = int((bad["claimed"] - bad["there"]).sum())
    findings.counts["missing_records"] = missing
    expected = findings.counts["expected"]
    assert matched + missing == expected, f"{matched} found and {missing} missing of {expected} expected records"
    shown = findings.add("missing", bad, WHERE).select(*WHERE, "claimed", "there", *ID)
    for chunk, row, most, count, *own in shown.iter_rows():
        findings.show(
            TopicFinding(
                name="missing",
                rank=[chunk, row],
                expected=(chunk, row),
                claimed=most,
                there=count,
                records=_records_with(records, dict(zip(ID, own, strict=True))) if count else (),
            )
        )


def _unexpected(findings: _Findings, claimed: pl.DataFrame, there: pl.DataFrame, records: pl.DataFrame) -> None:
    unclaimed = there.join(claimed, on=ID, how="anti")
    if not len(unclaimed):
        return
    bad = _first_of(records.join(unclaimed, on=ID, how="semi"), ID)
    for *rank, number, low in findings.add("unexpected", bad, PLACE).select(*PLACE, *ID).iter_rows():
        found = _records_with(records, {"hash": number, "low": low})
        findings.show(TopicFinding(name="unexpected", rank=rank, records=found))


def _duplicates(findings: _Findings, claimed: pl.DataFrame, there: pl.DataFrame, records: pl.DataFrame) -> None:
    several = there.filter(pl.col("there") > 1)
    if not len(several):
        return
    copies = records.join(several, on=ID, how="semi")
    bad = (
        copies.group_by(*ID, "topic")
        .agg(pl.len().alias("copies"))
        .join(claimed.select(*ID, "claimed"), on=ID, how="left")
        .with_columns(pl.max_horizontal(pl.col("claimed").fill_null(1), 1).alias("claimed"))
        .filter(pl.col("copies") > pl.col("claimed"))
        .join(_first_of(copies, [*ID, "topic"]), on=[*ID, "topic"])
    )
    shown = findings.add("duplicate", bad, PLACE).select(*PLACE, "copies", "claimed", *ID)
    for *rank, count, most, number, low in shown.iter_rows():
        found = _records_with(records, {"hash": number, "low": low, "topic": rank[0]})
        findings.show(TopicFinding(name="duplicate", rank=rank, copies=count, claimed=most, records=found))


# ------------------------------------------------------------------------------------------ order


def _numbered(frame: pl.DataFrame, by: list[str]) -> pl.DataFrame:
    """Add `copy`: the number of a row among the rows of its id, in the order of `by`."""
    first = pl.any_horizontal(pl.col(name) != pl.col(name).shift(1) for name in ID).fill_null(value=True)
    at = pl.int_range(pl.len(), dtype=pl.Int64)
    return frame.sort(*ID, *by).with_columns((at - pl.when(first).then(at).forward_fill()).alias("copy"))


def _positions(records: pl.DataFrame, expected: pl.DataFrame, counted: pl.DataFrame) -> pl.DataFrame:
    """Return the records with the position at which they are expected, where it is known."""
    if not len(records):
        return records
    if not expected["sent"].count():
        return records
    copies = _numbered(records.drop("sent"), PLACE)
    positions = _numbered(expected, ["sent"]).select(*ID, "copy", "sent")
    known = (pl.col("same_topic") & pl.col("same_partition")) & (
        (pl.col("claimed") == 1) | (pl.col("claimed") == pl.col("there"))
    )
    placed = (
        copies.join(positions, on=[*ID, "copy"], how="left")
        .join(counted, on=ID, how="left")
        .with_columns(pl.when(known).then("sent").alias("sent"))
    )
    assert len(placed) == len(records), f"{len(records)} records have {len(placed)} positions"
    return placed


def _send_times(placed: pl.DataFrame, sends: pl.DataFrame) -> pl.DataFrame:
    """Return the records with the time of the send that was acknowledged with their offset, where it is known."""
    if not len(sends) or not len(placed):
        return placed
    single = sends.unique(PLACE, keep="none").select(*PLACE, "sent")
    timed = placed.drop("sent").join(single, on=PLACE, how="left")
    assert len(timed) == len(placed), f"{len(placed)} records have {len(timed)} times of sends"
    return timed


def _by_key(records: pl.DataFrame) -> pl.DataFrame:
    """Return the records that have an order key, with its hash in place of the id's."""
    return (
        records.filter(pl.col("key_hash").is_not_null())
        .drop(ID)
        .rename({"key_hash": "hash", "key_low": "low"})
        .select(ORDER_ROWS)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class OrderReducer:
    """Checks the order of the records of each order key."""

    limit: int = 20

    def __call__(self, rows: pl.DataFrame) -> Iterator[TopicResult]:
        """Check all rows of a bucket."""
        findings = _Findings(self.limit)
        keys = rows.group_by(*ID, "topic").agg(
            pl.col("partition").min().alias("first"),
            pl.col("partition").max().alias("last"),
            pl.len().alias("there"),
            pl.col("sent").null_count().alias("unknown"),
        )
        findings.counts["records_with_order_key"] = len(rows)
        unknown = keys.filter(pl.col("there") > 1)["unknown"].sum()
        findings.counts["records_in_unknown_order"] = int(unknown)
        _split_keys(findings, rows, keys.filter(pl.col("first") < pl.col("last")))
        _out_of_order(findings, rows.filter(pl.col("sent").is_not_null()))
        yield findings.result()


def _split_keys(findings: _Findings, rows: pl.DataFrame, split: pl.DataFrame) -> None:
    if not len(split):
        return
    first = (
        rows.join(split, on=[*ID, "topic"], how="semi")
        .sort(PLACE)
        .unique([*ID, "topic", "partition"], keep="first", maintain_order=True)
    )
    bad = first.group_by(*ID, "topic").agg(
        pl.col("partition").first(), pl.col("offset").first(), pl.len().alias("partitions")
    )
    shown = findings.add("split-key", bad, PLACE).select(*PLACE, "partitions", *ID)
    for *rank, partitions, number, low in shown.iter_rows():
        found = _records_with(first, {"hash": number, "low": low, "topic": rank[0]})
        findings.show(TopicFinding(name="split-key", rank=rank, partitions=partitions, records=found))


def _out_of_order(findings: _Findings, known: pl.DataFrame) -> None:
    group = [*ID, "topic", "partition"]
    same = pl.all_horizontal(pl.col(name) == pl.col(name).shift(1) for name in group)
    bad = (
        known.sort(*group, "offset")
        .with_columns(pl.col(name).shift(1).alias(f"{name}_before") for name in (*WHERE, "sent"))
        .filter(same & (pl.col("sent") < pl.col("sent_before")))
    )
    columns = ("chunk_before", "row_before", "sent_before", "chunk", "row", "sent")
    shown = findings.add("out-of-order", bad, PLACE).select(*PLACE, *columns)
    for *rank, chunk_before, row_before, sent_before, chunk, row, sent in shown.iter_rows():
        pair = ((chunk_before, row_before), (chunk, row))
        findings.show(TopicFinding(name="out-of-order", rank=rank, records=pair, sent=(sent_before, sent)))
