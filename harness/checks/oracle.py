"""The checks in plain Python, for one topic-partition in memory: the kernels are tested against it (L6).

A simulation is judged by it too. Loops and dictionaries over rows (dicts of `kernels.inputs.OPS_SCHEMA` and
`BATCH_SCHEMA`, log rows of `segments.LOG_COLUMNS`); written from the definitions in `guarantees.py`, sharing no
code with the kernels. Linear in the rows of a valid history, up to a sort; more only where something is wrong. An
anomaly is `(name, offsets)`.
"""

from __future__ import annotations

import bisect
import itertools
from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from ..histories.format import BREAKS, OperationFunction, OperationType
from ..histories.layout import DRAINED
from .log_changes import LogChanges
from .oracle_of_batches import batches_out_of_place
from .oracle_of_origins import follows, origins, reads_before_sends, real_time_order, rewinds
from .oracle_of_removals import Compaction, first_removed_early, incomplete_leaders, legal_changes

Row = Mapping[str, Any]
Anomalies = set[tuple[str, tuple[int, ...]]]


class Oracle:
    """The rows of one topic-partition, and their anomalies."""

    def __init__(
        self,
        ops: Sequence[Row],
        pending: Sequence[Row] = (),
        batches: Sequence[Row] = (),
        logs: Mapping[int, Sequence[Row]] | None = None,
        *,
        changes: LogChanges | None = None,
        epochs: Mapping[int, Sequence[tuple[int, int]]] | None = None,
        decisions: Sequence[Row] = (),
        sent: Sequence[Row] = (),
        all_sends: bool = False,
        reads_committed: bool = True,
        whole_taps: Collection[int] = (),
    ) -> None:
        """`sent`: rows of `oracle_of_removals.untapped`, for the checks of removals and leaders where no tap wrote.

        `all_sends`, `reads_committed`, `whole_taps`: as in `plans.PartitionJob`.
        """
        self.whole_taps = whole_taps
        self.all_sends, self.reads_committed = all_sends, reads_committed
        self.logs = dict(logs or {})
        self.epochs = dict(epochs or {})
        self.changes = changes or LogChanges()
        ops, batches = self._last_incarnation(ops, batches)
        recorded = [row for row in ops if row["source"] != DRAINED]
        drained = [row for row in ops if row["source"] == DRAINED]
        self.sends = [
            r
            for r in recorded
            if r["kind"] == OperationFunction.SEND and r["outcome"] in (OperationType.OK, OperationType.INFO)
        ]
        self.acked = [r for r in self.sends if r["outcome"] == OperationType.OK]
        self.failed = [
            r
            for r in [*recorded, *pending]
            if r["kind"] == OperationFunction.SEND and r["outcome"] == OperationType.FAIL
        ]
        self.pending = [r for r in pending if r["outcome"] == OperationType.INFO]
        self.polls = [r for r in recorded if r["kind"] in (OperationFunction.POLL, *BREAKS)]
        bounds = [r for r in drained if r["kind"] == OperationFunction.BOUNDS]
        self.final: dict[int, Row] | None = None
        if bounds:
            self.final = {}
            for row in drained:
                if row["kind"] == OperationFunction.POLL:
                    self.final.setdefault(row["offset"], row)
        starts = [log[0]["base_offset"] for log in self.logs.values() if log]
        self.low = bounds[-1]["op"] if bounds else max(starts, default=0)
        self.high = bounds[-1]["offset"] if bounds else None
        self.end_ns = bounds[-1]["time_ns"] if bounds else 0
        self.to_the_end = not bounds or bounds[-1]["outcome"] == OperationType.OK
        self.sent = list(sent)
        early = first_removed_early(self.changes, [*batches, *sent])
        if early is not None:
            self.low = min(self.low, early)
            heads = legal_changes(self.changes, early)
            self.changes = replace(self.changes, deleted_heads=heads)
        self.produced = [r for r in batches if r["kind"] == 1]
        self.delivered = [r for r in batches if r["kind"] == 2]
        self.acked_batches = [
            r for r in self.produced if not r["error"] and r["base_offset"] >= 0 and not r["flags"] & 1
        ]
        self.compaction = Compaction(self.changes, self.sends, self.pending, self.polls, batches, decisions)
        self.found: Anomalies = set()
        self.reported: set[int] = set()
        self.copies_in_doubt = 0

    def _last_incarnation(self, ops: Sequence[Row], batches: Sequence[Row]) -> tuple[list[Row], list[Row]]:
        """Leave out what happened before the topic was created again."""
        created = self.changes.created_ns
        reads = (OperationFunction.POLL, *BREAKS)
        early = {r["client"] for r in ops if r["source"] != DRAINED and r["kind"] in reads and r["time_ns"] < created}
        kept = [
            row
            for row in ops
            if row["source"] == DRAINED
            or (row["invoked_ns"] >= created and not (row["kind"] in reads and row["client"] in early))
        ]
        return kept, [row for row in batches if row["completed_ns"] >= created]

    def judge(self) -> Anomalies:
        """Every check."""
        self._lost()
        self._lost_nameless()
        self._inconsistent()
        self._duplicates()
        self._order()
        self._reading()
        self._origins()
        self._lost_batches()
        self._inconsistent_batches()
        self._sequences()
        self._duplicate_records()
        self._replicas()
        self._epoch_caches()
        self.found |= incomplete_leaders(self.changes, [*self.produced, *self.sent, *self.delivered], self.polls)
        return self.found

    def _add(self, name: str, *offsets: int) -> None:
        self.found.add((name, tuple(sorted(offsets))))

    def _claims(self) -> Iterable[Row]:
        reads = [row for row in self.polls if row["kind"] == OperationFunction.POLL]
        return [row for row in [*self.acked, *reads] if row["offset"] >= 0]

    def _begin(self, node: int) -> int:
        """Where a replica's log begins legally, because segments before it were deleted."""
        log, deleted = self.logs[node], self.changes.deleted_heads.get(node)
        if deleted is None or not log or log[0]["base_offset"] <= deleted:
            return 0
        return int(log[0]["base_offset"])

    def _compacted(self, row: Row) -> bool:
        """Whether compaction explains that the final read lacks this record."""
        if row["offset"] >= self.changes.cleaned_end or self.final is None:
            return bool(row["offset"] < self.changes.cleaned_end)
        if self._wire() > len(self.sends) + len(self.pending):
            return True
        return self.compaction.explains(row, self._visible())

    def _wire(self) -> int:
        """How many records were acknowledged by the taps."""
        counts: dict[int, int] = {}
        for row in self.acked_batches:
            counts[row["last_offset"]] = max(row["count"], counts.get(row["last_offset"], 0))
        return sum(counts.values())

    def _held(self, offset: int) -> int:
        """How many replicas' logs have a batch with this offset."""
        return sum(
            any(b["base_offset"] <= offset <= b["last_offset"] for b in log) or offset < self._begin(node)
            for node, log in self.logs.items()
        )

    def _lost(self) -> None:
        for row in self._claims():
            offset = row["offset"]
            if offset < self.low or not (self.to_the_end or offset < (self.high or 0)):
                continue
            if self.final is None:
                if self.logs and not self._compacted(row) and not self._held(offset):
                    self._add("lost-write", offset)
                    self.reported.add(offset)
                continue
            there = self.final.get(offset)
            if there is not None and _identity(there) == _identity(row):
                continue
            if there is None and self._compacted(row):
                continue
            self.reported.add(offset)
            seen = there is not None
            kept = self._held(offset) == len(self.logs) if self.logs else offset < (self.high or 0)
            kept = kept and self.to_the_end and offset >= self.changes.cleaned_end
            self._add("lost-write" if seen or not kept else "unseen", offset)

    def _lost_nameless(self) -> None:
        if self.final is None or self.low > 0 or self.changes.cleaned_end or not self.to_the_end:
            return
        sent = Counter(_identity(row) for row in self.acked)
        there = Counter(_identity(row) for row in self.final.values())
        nameless = {_identity(row) for row in self.acked if row["offset"] < 0}
        if any(there[identity] < sent[identity] for identity in nameless):
            self._add("lost-write")

    def _inconsistent(self) -> None:
        values: dict[int, set[tuple[int, int]]] = defaultdict(set)
        for row in [*self._claims(), *(self.final or {}).values()]:
            values[row["offset"]].add(_identity(row))
        for offset, different in values.items():
            if len(different) > 1:
                self._add("inconsistent-offsets", offset)

    def _duplicates(self) -> None:
        sent = Counter(_identity(row) for row in [*self.sends, *self.pending])
        there: dict[tuple[int, int], list[int]] = defaultdict(list)
        for offset, row in self._visible().items():
            there[_identity(row)].append(offset)
        for identity, count in sent.items():
            if len(there[identity]) > count:
                self._add("duplicate", *there[identity])

    def _visible(self) -> dict[int, Row]:
        """The final read without the records of aborted transactions."""
        aborted: list[Row] = []
        for log in self.logs.values():
            opened: dict[int, list[Row]] = defaultdict(list)
            for row in log:
                if row["attributes"] & 0x20:
                    ended = opened.pop(row["producer_id"], [])
                    aborted += ended if row["attributes"] & 0x10000 else []
                elif row["attributes"] & 0x10:
                    opened[row["producer_id"]].append(row)
        return {o: row for o, row in (self.final or {}).items() if not _inside(o, aborted)}

    def _order(self) -> None:
        last: dict[tuple[int, int], int] = {}
        places = self._unique_places() if any(r["offset"] < 0 for r in self.acked) else {}
        for row in sorted(self.acked, key=lambda row: row["op"]):
            offset = row["offset"] if row["offset"] >= 0 else places.get(_identity(row), -1)
            if offset < 0:
                continue
            who = (row["client"], row["key_hash"])
            if who in last and offset < last[who]:
                self._add("nonmonotonic-send", last[who], offset)
            last[who] = offset

    def _unique_places(self) -> dict[tuple[int, int], int]:
        """Return the offset of each record that was sent once and is there once."""
        sent = Counter(_identity(row) for row in [*self.sends, *self.pending])
        there: dict[tuple[int, int], list[int]] = defaultdict(list)
        for offset, row in (self.final or {}).items():
            there[_identity(row)].append(offset)
        return {of: at[0] for of, at in there.items() if len(at) == sent[of] == 1}

    def _reading(self) -> None:
        at: dict[int, Row | None] = {}
        transactional = [b for log in self.logs.values() for b in log if b["attributes"] & 0x10]
        held = [o for o in sorted(self.final or {}) if not _inside(o, transactional)]
        self.found |= {(name, tuple(sorted(places))) for name, places in rewinds(self.polls, held)}
        for row in sorted(self.polls, key=lambda row: row["op"]):
            last = at.get(row["client"])
            if row["kind"] in BREAKS:
                at[row["client"]] = None
                continue
            if last is not None and follows(last, row):
                before = last["offset"]
                if row["offset"] <= before:
                    self._add("nonmonotonic-poll", before, row["offset"])
                following = bisect.bisect_right(held, before)
                if following < len(held) and held[following] < row["offset"]:
                    self._add("poll-skip", before, row["offset"])
            at[row["client"]] = row

    def _origins(self) -> None:
        reads = [row for row in self.polls if row["kind"] == OperationFunction.POLL]
        offered = [*self.sends, *self.pending]
        acked = [row for row in self.acked if row["offset"] >= 0]
        tapped = self._tapped() if self.produced else None
        records = [*self._visible().values(), *reads]
        found = [
            *real_time_order(acked, self.final),
            *origins(
                records, offered, self.failed, tapped, all_sends=self.all_sends, reads_committed=self.reads_committed
            ),
        ]
        if self.sends:
            found += reads_before_sends(reads, acked, offered, all_sends=self.all_sends)
        found += batches_out_of_place(
            self.produced,
            self.logs,
            self.final,
            self.failed,
            acked,
            changes=self.changes,
            low=self.low,
            end_ns=self.end_ns,
            whole_taps=self.whole_taps,
        )
        for name, offsets in found:
            self._add(name, *offsets)

    def _tapped(self) -> set[int]:
        """The offsets whose batch a tap saw: in a response with an offset, or by the CRC after an error."""
        answered = [row for row in self.produced if row["base_offset"] >= 0]
        refused = {row["crc"] for row in self.produced if row["base_offset"] < 0}
        logged = [row for log in self.logs.values() for row in log if row["crc"] in refused]
        return {offset for row in [*answered, *logged] for offset in range(row["base_offset"], row["last_offset"] + 1)}

    def _same_end(self) -> bool:
        return len({log[-1]["last_offset"] if log else -1 for log in self.logs.values()}) == 1

    def _answered(self) -> dict[tuple[int, int], int]:
        """(last offset, crc) → first offset of each batch that was acknowledged or delivered to a client."""
        answered: dict[tuple[int, int], int] = {}
        for row in [*self.acked_batches, *self.delivered]:
            if row["base_offset"] >= max(self.low, self.changes.cleaned_end):
                key = (row["last_offset"], row["crc"])
                answered[key] = min(answered.get(key, row["base_offset"]), row["base_offset"])
        return answered

    def _lost_batches(self) -> None:
        held = Counter(batch for log in self.logs.values() for batch in {(b["last_offset"], b["crc"]) for b in log})
        for (last, crc), base in self._answered().items():
            if any(base <= offset <= last for offset in self.reported):
                continue
            begun = sum(last < self._begin(node) for node in self.logs)
            if self.logs and held[last, crc] + begun < (len(self.logs) if self._same_end() else 1):
                self._add("lost-write", base, last)
                continue
            if self.final is not None and any(o not in self.final for o in range(base, last + 1)):
                self._add("unseen", base, last)

    def _inconsistent_batches(self) -> None:
        crcs: dict[int, set[int]] = defaultdict(set)
        for last, crc in self._answered():
            crcs[last].add(crc)
        for row in (row for log in self.logs.values() for row in log):
            if row["last_offset"] in crcs and row["crc_good"]:
                crcs[row["last_offset"]].add(row["crc"])
        for last, different in crcs.items():
            if len(different) > 1 and last not in self.reported:
                self._add("inconsistent-offsets", last)

    def _sequenced(self) -> dict[tuple[int, int, int], set[int]]:
        rows = [b for log in self.logs.values() for b in log] if self.logs else self.acked_batches
        where: dict[tuple[int, int, int], set[int]] = defaultdict(set)
        for row in rows:
            if row["producer_id"] >= 0 and row["base_sequence"] >= 0 and not row.get("attributes", 0) & 0x20:
                where[row["producer_id"], row["producer_epoch"], row["base_sequence"]].add(row["base_offset"])
        return where

    def _sequences(self) -> None:
        where = self._sequenced()
        for offsets in where.values():
            if len(offsets) > 1:
                self._add("duplicate", *offsets)
        lines: dict[tuple[int, int], list[tuple[int, int]]] = defaultdict(list)
        for (pid, epoch, sequence), offsets in where.items():
            lines[pid, epoch].append((min(offsets), sequence))
        for line in lines.values():
            for (offset, sequence), (later, following) in itertools.pairwise(sorted(line)):
                if (following - sequence) % 2**31 >= 2**30:
                    self._add("nonmonotonic-send", offset, later)

    def _duplicate_records(self) -> None:
        if self.final is None or not self.produced:
            return
        known = {_identity(row) for row in self.sends}
        copies: dict[tuple[int, int, int], list[int]] = defaultdict(list)
        for offset, row in sorted(self._visible().items()):
            if _identity(row) not in known:
                copies[(*_identity(row), row["timestamp_ms"])].append(offset)
        several = {record: offsets for record, offsets in copies.items() if len(offsets) > 1}
        repeated = {
            record[:2]
            for record, offsets in several.items()
            if any(count > 1 for base, count in Counter(map(self._base_at, offsets)).items() if base is not None)
        }
        for record, offsets in several.items():
            acked = [o for o in offsets if _inside(o, self.acked_batches)]
            bumped = any(self._sent_again(offset, offsets) for offset in set(offsets) - set(acked))
            loose = [o for o in offsets if o not in acked and not self._sequenced_at(o)]
            retried = loose and len(acked) <= 1 and (not acked or loose[0] < acked[-1])
            if not (loose or bumped):
                continue
            if record[:2] not in repeated and (retried or bumped):
                self._add("duplicate", *offsets)
            else:
                self.copies_in_doubt += 1

    def _batch_at(self, offset: int) -> Row | None:
        """The batch with this offset: of the last replica's log that has one beginning there latest."""
        rows = [b for log in self.logs.values() for b in log] if self.logs else self.acked_batches
        before = [row for row in rows if row["base_offset"] <= offset]
        if not before:
            return None
        base = max(row["base_offset"] for row in before)
        row = next(row for row in before if row["base_offset"] == base)
        return row if row["last_offset"] >= offset else None

    def _base_at(self, offset: int) -> int | None:
        row = self._batch_at(offset)
        return None if row is None else int(row["base_offset"])

    def _sequenced_at(self, offset: int) -> bool:
        """Whether a log has the offset in an idempotent batch."""
        rows = [b for log in self.logs.values() for b in log]
        idempotent = [
            b for b in rows if b["producer_id"] >= 0 and b["base_sequence"] >= 0 and not b["attributes"] & 0x20
        ]
        return _inside(offset, idempotent)

    def _sent_again(self, offset: int, offsets: Sequence[int]) -> bool:
        """Whether a copy at another offset has the same producer id and a later producer epoch."""
        mine = self._batch_at(offset)
        if mine is None or not self._sequenced_at(offset):
            return False
        others = [row for o in offsets if (row := self._batch_at(o)) is not None]
        return any(
            row["producer_id"] == mine["producer_id"] and row["producer_epoch"] > mine["producer_epoch"]
            for row in others
        )

    def _replicas(self) -> None:
        for log in self.logs.values():
            for before, row in zip([None, *log], log, strict=False):
                if not row["crc_good"]:
                    self._add("corrupt-batch", row["base_offset"])
                if before is not None and self._is_gap(before, row):
                    self._add("log-gap", row["base_offset"])
                if before is not None and row["leader_epoch"] < before["leader_epoch"]:
                    self._add("epoch-regression", row["base_offset"])
        filled = [log for log in self.logs.values() if log]
        if len(filled) < 2:
            return
        start = max(self.changes.cleaned_end, *(log[0]["base_offset"] for log in filled))
        end = min(log[-1]["last_offset"] for log in filled)
        copies: dict[int, list[list[Row]]] = {}
        for number, log in enumerate(filled):
            for row in log:
                if row["last_offset"] >= start and row["base_offset"] <= end:
                    rows = copies.setdefault(row["base_offset"], [[] for _ in filled])
                    rows[number].append(row)
        for base, by_log in copies.items():
            looks = {(b["crc"], b["last_offset"], b["leader_epoch"]) for rows in by_log for b in rows}
            if not all(by_log) or len(looks) > 1:
                self._add("replica-divergence", base)

    def _epoch_caches(self) -> None:
        if len({log[-1]["last_offset"] if log else -1 for log in self.logs.values()}) != 1:
            return
        for node, entries in self.epochs.items():
            for row in self.logs[node]:
                begun = [epoch for epoch, start in entries if start <= row["base_offset"]]
                if begun and begun[-1] != row["leader_epoch"]:
                    self._add("epoch-cache-mismatch", row["base_offset"])

    def _is_gap(self, before: Row, row: Row) -> bool:
        cleaned = before["last_offset"] < row["base_offset"] <= self.changes.cleaned_end
        return bool(row["base_offset"] != before["last_offset"] + 1) and not cleaned

    def doubts(self) -> set[str]:
        """Name the doubts of `kernels/removals.py`."""
        found: set[str] = set()
        reads = {r["offset"] for r in self.polls if r["kind"] == OperationFunction.POLL}
        for row in self.delivered:
            reads.update(range(row["base_offset"], row["last_offset"] + 1))
        acked = {r["offset"] for r in self.acked if r["offset"] >= 0}
        for row in self.acked_batches:
            if row["last_offset"] < self.low:
                acked.update(range(row["base_offset"], row["last_offset"] + 1))
        if any(offset < self.low for offset in acked - reads):
            found.add("below the log start offset")
        cleaned = any(b["base_offset"] < self.changes.cleaned_end for b in self.acked_batches)
        if cleaned and self._wire() > len(self.sends) + len(self.pending):
            found.add("compaction has cleaned")
        if self.copies_in_doubt:
            found.add("in the log several times")
        return found


def _inside(offset: int, batches: Iterable[Row]) -> bool:
    return any(row["base_offset"] <= offset <= row["last_offset"] for row in batches)


def _identity(row: Row) -> tuple[int, int]:
    return row["key_hash"], row["value_hash"]
