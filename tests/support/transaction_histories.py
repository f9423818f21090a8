"""Directed histories of one topic-partition with transactions and a group, judged by kernels and oracle at once."""

from __future__ import annotations

from typing import Any

import polars as pl
from harrow.harness.checks.kernels import foreign_commits, groups, transactions, unknown_coordinators
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import (
    BATCH_SCHEMA,
    MEMBER_SCHEMA,
    OFFSET_SCHEMA,
    OPS_SCHEMA,
    TRANSACTION_SCHEMA,
    CoordinatorRows,
    arrange,
)
from harrow.harness.checks.plans import PartitionJob
from harrow.harness.histories.format import OperationFunction, OperationType
from harrow.harness.histories.layout import DRAINED
from harrow.harness.histories.segments import LOG_COLUMNS
from oracle_of_transactions import TransactionOracle

Row = dict[str, Any]
Anomalies = set[tuple[str, tuple[int, ...]]]
SECOND = 10**9
CHECKS = (
    transactions.committed_reads,
    transactions.torn_transactions,
    transactions.stuck,
    groups.owners,
    groups.regressions,
    groups.beyond_the_end,
    foreign_commits.commits_for_other_groups,
    unknown_coordinators.without_tap,
)
GROUP, CLIENT = 90, 80


def frame(rows: list[Row], schema: dict[str, Any]) -> pl.DataFrame:
    """Rows as the kernels read them."""
    return pl.DataFrame([{name: row[name] for name in schema} for row in rows], schema=schema)


def kernels_find(
    batches: list[Row],
    log: list[Row],
    states: list[Row],
    offsets: list[Row],
    members: list[Row],
    *,
    end_ns: int,
    high: int,
    windows: list[tuple[int, int]],
    untapped: tuple[int, ...] = (),
) -> PartitionFindings:
    """Run the kernels of transactions and groups."""
    columns: dict[str, Any] = dict.fromkeys(LOG_COLUMNS, pl.Int64) | {"crc_good": pl.Boolean}
    job = PartitionJob(topic="t", partition=0, limit=1000, windows=windows, untapped=list(untapped))
    final = (
        [
            {
                **dict.fromkeys(OPS_SCHEMA, 0),
                "kind": int(OperationFunction.BOUNDS),
                "offset": high,
                "time_ns": end_ns,
                "outcome": int(OperationType.OK),
                "source": DRAINED,
            }
        ]
        if end_ns
        else []
    )
    inputs = arrange(
        job, frame(final, OPS_SCHEMA), frame([], OPS_SCHEMA), frame(batches, BATCH_SCHEMA), {1: frame(log, columns)}, []
    )
    inputs.coordinators = CoordinatorRows(
        transactions=frame(states, TRANSACTION_SCHEMA),
        offsets=frame(offsets, OFFSET_SCHEMA),
        members=frame(members, MEMBER_SCHEMA),
    ).since(0)
    findings = PartitionFindings("t", 0, 1000)
    for check in CHECKS:
        check(inputs, findings)
    return findings


def anomalies_of(findings: PartitionFindings) -> Anomalies:
    """The anomalies as the oracle names them."""
    shown = findings.result().anomalies
    return {(row.name, tuple(sorted(row.offsets))) for row in shown}


class PartitionHistory:
    """What brokers, coordinators and clients did; each call happens after the one before."""

    def __init__(self) -> None:
        self.now = 1_000
        self.log: list[Row] = []
        self._batches: list[Row] = []
        self._states: list[Row] = []
        self._offsets: list[Row] = []
        self._members: list[Row] = []
        self._sequences: dict[tuple[int, int], int] = {}

    def tick(self, seconds: float = 0) -> int:
        """Advance the time."""
        self.now += 10 + int(seconds * SECOND)
        return self.now

    @property
    def end(self) -> int:
        """The log end offset."""
        return self.log[-1]["last_offset"] + 1 if self.log else 0

    def _append(self, attributes: int, producer: int, epoch: int, sequence: int, count: int) -> Row:
        base = self.end
        row = {
            "base_offset": base,
            "last_offset": base + count - 1,
            "leader_epoch": 1,
            "crc": 1000 + base,
            "crc_good": True,
            "attributes": attributes,
            "max_timestamp_ms": 0,
            "producer_id": producer,
            "producer_epoch": epoch,
            "base_sequence": sequence,
            "count": count,
            "position": 0,
            "segment": 0,
        }
        self.log.append(row)
        return row

    def _tap(self, row: Row, kind: int, *, flags: int = 0, client: int = CLIENT) -> None:
        same = ("base_offset", "last_offset", "count", "crc", "producer_id", "producer_epoch", "base_sequence")
        self._batches.append(
            {
                **{name: row[name] for name in same},
                "kind": kind,
                "flags": flags,
                "error": 0,
                "client": client,
                "acks": -1,
                "invoked_ns": self.tick(),
                "completed_ns": self.tick(),
                "created_ns": self.now,
                "base_timestamp_ms": 0,
                "max_timestamp_ms": 0,
                "node": 1,
            }
        )

    def send(
        self, count: int = 1, *, producer: int = 5, epoch: int = 0, tapped: bool = True, transactional: bool = True
    ) -> int:
        """One batch; returns its offset. `tapped`: whether its acknowledgement is in the tap."""
        sequence = self._sequences.get((producer, epoch), 0)
        self._sequences[producer, epoch] = sequence + count
        self.tick()
        row = self._append(0x10 if transactional else 0, producer, epoch, sequence, count)
        if tapped:
            self._tap(row, 1)
        return int(row["base_offset"])

    def refuse(self, *, producer: int = 5, epoch: int = 0) -> None:
        """A batch that no log has: the next batch of the producer has the same sequence and other bytes."""
        sequence = self._sequences.get((producer, epoch), 0)
        row = self._append(0x10, producer, epoch, sequence, 1)
        self.log.pop()
        self._tap({**row, "crc": 1}, 1)

    def again(self, number: int = -1) -> None:
        """A retry of a batch that is in the log: the leader acknowledges its first offset."""
        data = [row for row in self.log if not row["attributes"] & 0x20]
        self._tap(data[number], 1)

    def state(self, number: int, *, producer: int = 5, epoch: int = 0, timeout_ms: int = 60_000) -> None:
        """A row of the coordinator: 1 ongoing, 2 and 3 prepared, 4 and 5 complete, 16 an end without result."""
        self._states.append(
            {
                "state": number,
                "transactional_id": 70,
                "producer_id": producer,
                "producer_epoch": epoch,
                "timeout_ms": timeout_ms,
                "time_ns": self.tick(),
                "node": 1,
            }
        )

    def marker(self, *, commit: bool, producer: int = 5, epoch: int = 0) -> None:
        """A marker in the log."""
        self.tick()
        self._append(0x30 | (0 if commit else 0x10000), producer, epoch, -1, 1)

    def finish(self, *, commit: bool = True, producer: int = 5, epoch: int = 0) -> None:
        """Prepare, marker, complete."""
        self.state(2 if commit else 3, producer=producer, epoch=epoch)
        self.marker(commit=commit, producer=producer, epoch=epoch)
        self.state(4 if commit else 5, producer=producer, epoch=epoch)

    def transaction(self, *, commit: bool = True, producer: int = 5, epoch: int = 0) -> int:
        """A whole transaction; returns the offset of its record."""
        self.state(1, producer=producer, epoch=epoch)
        offset = self.send(producer=producer, epoch=epoch)
        self.finish(commit=commit, producer=producer, epoch=epoch)
        return offset

    def read(
        self, *, committed: bool = True, dropped: tuple[int, ...] = (), first: int = 0, client: int = CLIENT
    ) -> None:
        """A fetch of all data batches from `first` on; those at `dropped` are listed as aborted."""
        for row in self.log:
            if not row["attributes"] & 0x20 and row["base_offset"] >= first:
                flags = (2 if committed else 0) | (4 if row["base_offset"] in dropped else 0)
                self._tap(row, 2, flags=flags, client=client)

    def owns(self, member: int, generation: int = 1, *, epoch: int = 1, instance: int = 0, group: int = GROUP) -> None:
        """A member gets the partition; `epoch`: the coordinator's leader epoch."""
        self._member(1, member, generation, epoch, instance, group)

    def releases(self, member: int, generation: int = 1, *, epoch: int = 1, instance: int = 0) -> None:
        """A member leaves, expires, or has its partition revoked."""
        self._member(2, member, generation, epoch, instance)

    def _member(self, kind: int, member: int, generation: int, epoch: int, instance: int, group: int = GROUP) -> None:
        self._members.append(
            {
                "kind": kind,
                "group": group,
                "member": member,
                "client": CLIENT,
                "generation": generation,
                "leader_epoch": epoch,
                "instance": instance,
                "time_ns": self.tick(),
                "node": epoch,
            }
        )

    def offset(
        self,
        offset: int,
        member: int = 0,
        generation: int = 1,
        *,
        kind: int = 1,
        error: int = 0,
        node: int = 1,
        client: int = CLIENT,
        group: int = GROUP,
        producer: int = -1,
    ) -> None:
        """A committed offset (kind 1), one in a transaction (2), or one that OffsetFetch returned (3)."""
        self._offsets.append(
            {
                "kind": kind,
                "error": error,
                "group": group,
                "client": client,
                "member": member,
                "generation": generation,
                "offset": offset,
                "producer_id": producer,
                "invoked_ns": self.tick(),
                "completed_ns": self.tick(),
                "node": node,
            }
        )

    def found(self, *, untapped: tuple[int, ...] = ()) -> PartitionFindings:
        """What the kernels find; `untapped`: brokers without a tap of their coordinators."""
        return kernels_find(
            self._batches,
            self.log,
            self._states,
            self._offsets,
            self._members,
            end_ns=self.tick(),
            high=self.end,
            windows=[],
            untapped=untapped,
        )

    def judge(self, *, after_s: float = 0, healed_ns: int = 0) -> set[str]:
        """The names of the anomalies; kernels and oracle must agree."""
        end_ns = self.tick(after_s)
        windows = [(1, healed_ns)] if healed_ns else []
        findings = kernels_find(
            self._batches,
            self.log,
            self._states,
            self._offsets,
            self._members,
            end_ns=end_ns,
            high=self.end,
            windows=windows,
        )
        oracle = TransactionOracle(
            self._batches,
            self.log,
            self._states,
            self._offsets,
            self._members,
            end_ns=end_ns,
            high=self.end,
            healed_ns=healed_ns,
        )
        found = anomalies_of(findings)
        assert found == oracle.judge()
        return {name for name, _ in found}
