"""The same checks in plain Python, for small histories: what the kernels are tested against (L6).

Loops and dictionaries over rows (dicts of `kernels.inputs.OPS_SCHEMA` and `BATCH_SCHEMA`, log rows of
`segments.LOG_COLUMNS`); written from the definitions in `guarantees.py`, sharing no code with the kernels. Quadratic
where that is plainest. An anomaly is `(name, offsets)`.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from ..histories.format import Kind, Outcome
from ..histories.layout import DRAINED

Row = Mapping[str, Any]
Found = set[tuple[str, tuple[int, ...]]]


class Oracle:
    """One topic-partition's rows, and what is wrong with them."""

    def __init__(
        self, ops: Sequence[Row], pending: Sequence[Row] = (), batches: Sequence[Row] = (),
        logs: Mapping[int, Sequence[Row]] | None = None,
    ) -> None:  # fmt: skip
        self.logs = dict(logs or {})
        recorded = [row for row in ops if row["source"] != DRAINED]
        drained = [row for row in ops if row["source"] == DRAINED]
        self.sends = [
            r
            for r in recorded
            if r["kind"] == Kind.SEND and r["outcome"] in (Outcome.OK, Outcome.INFO)
        ]
        self.acked = [r for r in self.sends if r["outcome"] == Outcome.OK]
        self.pending = list(pending)
        self.polls = [r for r in recorded if r["kind"] in (Kind.POLL, Kind.BREAK)]
        bounds = [r for r in drained if r["kind"] == Kind.BOUNDS]
        self.final: dict[int, Row] | None = None
        if bounds:
            self.final = {}
            for row in drained:
                if row["kind"] == Kind.POLL:
                    self.final.setdefault(row["offset"], row)
        starts = [log[0]["base_offset"] for log in self.logs.values() if log]
        self.low = bounds[-1]["op"] if bounds else max(starts, default=0)
        self.high = bounds[-1]["offset"] if bounds else None
        self.produced = [r for r in batches if r["kind"] == 1]
        self.delivered = [r for r in batches if r["kind"] == 2]
        self.acked_batches = [
            r
            for r in self.produced
            if not r["error"] and r["base_offset"] >= 0 and not r["flags"] & 1
        ]
        self.found: Found = set()
        self.reported: set[int] = set()

    def judge(self) -> Found:
        """Every check."""
        self._lost()
        self._lost_nameless()
        self._inconsistent()
        self._duplicates()
        self._order()
        self._reading()
        self._lost_batches()
        self._inconsistent_batches()
        self._sequences()
        self._duplicate_records()
        self._replicas()
        return self.found

    def _add(self, name: str, *offsets: int) -> None:
        self.found.add((name, tuple(sorted(offsets))))

    def _claims(self) -> Iterable[Row]:
        reads = [row for row in self.polls if row["kind"] == Kind.POLL]
        return [
            row for row in [*self.acked, *reads] if row["offset"] >= 0 and row["offset"] >= self.low
        ]

    def _held(self, offset: int) -> int:
        return sum(
            any(b["base_offset"] <= offset <= b["last_offset"] for b in log)
            for log in self.logs.values()
        )

    def _lost(self) -> None:
        for row in self._claims():
            offset = row["offset"]
            if self.final is None:
                if self.logs and not self._held(offset):
                    self._add("lost-write", offset)
                    self.reported.add(offset)
                continue
            there = self.final.get(offset)
            if there is not None and _identity(there) == _identity(row):
                continue
            self.reported.add(offset)
            seen = there is not None
            kept = self._held(offset) == len(self.logs) if self.logs else offset < (self.high or 0)
            self._add("lost-write" if seen or not kept else "unseen", offset)

    def _lost_nameless(self) -> None:
        if self.final is None or self.low > 0:
            return
        for identity in {_identity(row) for row in self.acked if row["offset"] < 0}:
            sent = sum(_identity(row) == identity for row in self.acked)
            there = sum(_identity(row) == identity for row in self.final.values())
            if there < sent:
                self._add("lost-write")

    def _inconsistent(self) -> None:
        values: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for row in [*self._claims(), *(self.final or {}).values()]:
            values[row["offset"]].add(_identity(row))
        for offset, different in values.items():
            if len(different) > 1:
                self._add("inconsistent-offsets", offset)

    def _duplicates(self) -> None:
        for identity in {_identity(row) for row in [*self.sends, *self.pending]}:
            sent = sum(_identity(row) == identity for row in [*self.sends, *self.pending])
            there = [
                offset for offset, row in (self.final or {}).items() if _identity(row) == identity
            ]
            if len(there) > sent:
                self._add("duplicate", *there)

    def _order(self) -> None:
        last: dict[tuple[int, int], int] = {}
        for row in sorted(self.acked, key=lambda row: row["op"]):
            if row["offset"] < 0:
                continue
            who = (row["client"], row["key_hash"])
            if who in last and row["offset"] < last[who]:
                self._add("nonmonotonic-send", last[who], row["offset"])
            last[who] = row["offset"]

    def _reading(self) -> None:
        at: dict[int, int | None] = {}
        for row in sorted(self.polls, key=lambda row: row["op"]):
            before = at.get(row["client"])
            if row["kind"] == Kind.BREAK:
                at[row["client"]] = None
                continue
            if before is not None:
                if row["offset"] <= before:
                    self._add("nonmonotonic-poll", before, row["offset"])
                if any(before < offset < row["offset"] for offset in self.final or {}):
                    self._add("poll-skip", before, row["offset"])
            at[row["client"]] = row["offset"]

    def _same_end(self) -> bool:
        return len({log[-1]["last_offset"] if log else -1 for log in self.logs.values()}) == 1

    def _told(self) -> dict[tuple[int, int], int]:
        """(last offset, crc) → first offset of each batch that a client was told of."""
        told: dict[tuple[int, int], int] = {}
        for row in [*self.acked_batches, *self.delivered]:
            if row["base_offset"] >= self.low:
                key = (row["last_offset"], row["crc"])
                told[key] = min(told.get(key, row["base_offset"]), row["base_offset"])
        return told

    def _lost_batches(self) -> None:
        for (last, crc), base in self._told().items():
            if any(base <= offset <= last for offset in self.reported):
                continue
            if self.logs:
                held = sum(
                    any(b["last_offset"] == last and b["crc"] == crc for b in log)
                    for log in self.logs.values()
                )
                if held < (len(self.logs) if self._same_end() else 1):
                    self._add("lost-write", base, last)
                    continue
            if self.final is not None and any(o not in self.final for o in range(base, last + 1)):
                self._add("unseen", base, last)

    def _inconsistent_batches(self) -> None:
        told = self._told()
        for last in {last for last, _ in told}:
            crcs = {crc for end, crc in told if end == last}
            for log in self.logs.values():
                crcs |= {b["crc"] for b in log if b["last_offset"] == last and b["crc_good"]}
            if len(crcs) > 1 and last not in self.reported:
                self._add("inconsistent-offsets", last)

    def _sequenced(self) -> dict[tuple[int, int, int], set[int]]:
        rows = [b for log in self.logs.values() for b in log] if self.logs else self.acked_batches
        where: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        for row in rows:
            if (
                row["producer_id"] >= 0
                and row["base_sequence"] >= 0
                and not row.get("attributes", 0) & 0x20
            ):
                where[row["producer_id"], row["producer_epoch"], row["base_sequence"]].add(
                    row["base_offset"]
                )
        return where

    def _sequences(self) -> None:
        where = self._sequenced()
        for offsets in where.values():
            if len(offsets) > 1:
                self._add("duplicate", *offsets)
        for producer in {(pid, epoch) for pid, epoch, _ in where}:
            line = sorted(
                (min(offsets), seq)
                for (pid, epoch, seq), offsets in where.items()
                if (pid, epoch) == producer
            )
            for (offset, sequence), (later, following) in itertools.pairwise(line):
                if (following - sequence) % 2**31 >= 2**30:
                    self._add("nonmonotonic-send", offset, later)

    def _duplicate_records(self) -> None:
        if self.final is None or not self.produced:
            return
        known = {_identity(row) for row in self.sends}
        copies: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for offset, row in self.final.items():
            if _identity(row) not in known:
                copies[(*_identity(row), row["timestamp_ms"])].append(offset)
        fine = [(b["base_offset"], b["last_offset"]) for b in self.acked_batches]
        fine += [
            (b["base_offset"], b["last_offset"])
            for log in self.logs.values() for b in log
            if b["producer_id"] >= 0 and b["base_sequence"] >= 0 and not b["attributes"] & 0x20
        ]  # fmt: skip
        for offsets in copies.values():
            loose = [o for o in offsets if not any(base <= o <= last for base, last in fine)]
            if len(offsets) > 1 and loose:
                self._add("duplicate", *offsets)

    def _replicas(self) -> None:
        for log in self.logs.values():
            for before, row in zip([None, *log], log, strict=False):
                if not row["crc_good"]:
                    self._add("corrupt-batch", row["base_offset"])
                if before is not None and row["base_offset"] != before["last_offset"] + 1:
                    self._add("log-gap", row["base_offset"])
                if before is not None and row["leader_epoch"] < before["leader_epoch"]:
                    self._add("epoch-regression", row["base_offset"])
        filled = [log for log in self.logs.values() if log]
        if len(filled) < 2:
            return
        start = max(log[0]["base_offset"] for log in filled)
        end = min(log[-1]["last_offset"] for log in filled)
        bases = {
            b["base_offset"]
            for log in filled
            for b in log
            if b["last_offset"] >= start and b["base_offset"] <= end
        }
        for base in bases:
            copies = [
                [b for b in log if b["base_offset"] == base and b["last_offset"] >= start]
                for log in filled
            ]
            looks = {
                (b["crc"], b["last_offset"], b["leader_epoch"]) for rows in copies for b in rows
            }
            if not all(copies) or len(looks) > 1:
                self._add("replica-divergence", base)


def _identity(row: Row) -> tuple[int, int]:
    return row["key_hash"], row["value_hash"]
