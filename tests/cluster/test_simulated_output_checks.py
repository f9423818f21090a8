"""The output of a simulated job, judged by logs that are made by hand: two committed outputs of one key (B6, F3, F5).

After an unclean election an aborted transaction may be committed, and its input then has two outputs. Compaction
removes the first of them, also after a reader has received it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from harrow.cluster.ids import TopicPartition
from harrow.cluster.wire.batches import build_batch
from harrow.cluster.wire.records import CONTROL_KEY, END_TXN_VALUE
from harrow.faults.runs import EXACTLY_ONCE
from harrow.harness.backends.simulated.replicas import ReplicaLog
from harrow.harness.simulation import SimulationOptions, run_seed, sink_reader, transform_workload
from harrow.harness.simulation.checks import FoundAnomaly
from harrow.harness.simulation.committed_reads import COMMIT, Record, committed_records
from harrow.harness.simulation.output_checks import Findings, OutputFacts, judge_output
from long_runs import long_run

TP = TopicPartition("bills", 0)
ABORT = 1 - COMMIT
VALUE = b"0:16"


class NoIndex:
    """A log without aborted transactions: the transaction index is not judged here."""

    def high_watermark(self) -> int:
        return 0

    def last_stable_offset(self, high_watermark: int) -> int:
        return high_watermark


def output(offset: int, producer_id: int, value: bytes = VALUE) -> bytes:
    return build_batch(
        [(value, value, ())],
        timestamp_ms=0,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        base_sequence=0,
        is_transactional=True,
    )


def marker(offset: int, producer_id: int, kind: int = COMMIT) -> bytes:
    return build_batch(
        [(CONTROL_KEY.pack(0, kind), END_TXN_VALUE.pack(0, 0), ())],
        timestamp_ms=0,
        base_offset=offset,
        producer_id=producer_id,
        producer_epoch=0,
        is_transactional=True,
        is_control=True,
    )


FIRST = output(0, 1)
TWICE = [output(1, 2), marker(2, 2), marker(3, 1)]
"""The second output, its marker, and the marker of the first."""
FIRST_ABORTED = [FIRST, *TWICE[:2], marker(3, 1, ABORT)]


@dataclass(frozen=True, kw_only=True)
class Run:
    """What three replicas have, and what the reader received."""

    leader: list[bytes]
    follower: list[bytes] | None = None
    """None: the same."""
    seen: Mapping[int, bytes]
    markers_commit: frozenset[int] = frozenset()
    skipped: frozenset[int] = frozenset()
    unclean: bool = True
    cleaned_end: int = 4
    stale: bool = False

    def judge(self) -> Findings:
        logs = [self.leader, self.leader if self.follower is None else self.follower, self.leader]
        replicas = [
            ReplicaLog(node, node == 1, 0, 4, b"".join(batches), NoIndex()) for node, batches in enumerate(logs, 1)
        ]
        facts = OutputFacts(
            offered={VALUE},
            acknowledged={VALUE},
            seen=self.seen,
            seen_markers_commit=set(self.markers_commit),
            skipped=self.skipped,
            position=4,
            unclean_epoch=1 if self.unclean else -1,
            epochs={VALUE: 0},
            cleaned_end=self.cleaned_end,
            stale={VALUE} if self.stale else frozenset(),
        )
        findings = Findings()
        judge_output(TP, facts, [], replicas, findings)
        return findings


def found(rows: list[FoundAnomaly]) -> list[str]:
    return [name for name, _ in rows]


SEEN = {0: VALUE, 1: VALUE}
COMPACTED_AFTER_READ = Run(leader=TWICE, seen=SEEN, markers_commit=frozenset(SEEN))
COMPACTED_AT_LEADER = Run(leader=TWICE, follower=[FIRST, *TWICE], seen={1: VALUE})
COMPACTED_AT_FOLLOWER = Run(leader=[FIRST, *TWICE], follower=TWICE, seen=SEEN, markers_commit=frozenset(SEEN))


@pytest.mark.parametrize(
    "run",
    [COMPACTED_AFTER_READ, COMPACTED_AT_LEADER, COMPACTED_AT_FOLLOWER],
    ids=["after-read", "at-leader", "at-follower"],
)
def test_the_first_of_two_outputs_that_compaction_removed_is_a_duplicate(run: Run) -> None:
    findings = run.judge()
    assert (found(findings.anomalies), found(findings.losses)) == ([], ["duplicate-output"])


@pytest.mark.parametrize("run", [COMPACTED_AFTER_READ, COMPACTED_AT_LEADER])
def test_without_an_unclean_election_that_duplicate_is_an_anomaly(run: Run) -> None:
    clean = Run(
        leader=run.leader, follower=run.follower, seen=run.seen, markers_commit=run.markers_commit, unclean=False
    )
    findings = clean.judge()
    assert (found(findings.anomalies), found(findings.losses)) == (["duplicate-output"], [])


def test_an_output_repeated_from_old_committed_offsets_is_a_loss() -> None:
    run = Run(leader=[FIRST, *TWICE], seen=SEEN, markers_commit=frozenset(SEEN), unclean=False, stale=True)
    findings = run.judge()
    assert (found(findings.anomalies), found(findings.losses)) == ([], ["duplicate-output"])


def test_an_output_that_is_missing_after_old_committed_offsets_is_an_anomaly() -> None:
    findings = Run(leader=[], seen={}, unclean=False, stale=True).judge()
    assert found(findings.anomalies) == ["missing-output"]


@pytest.mark.parametrize(
    "run",
    [
        Run(leader=TWICE, seen=SEEN),
        Run(leader=[output(1, 2, b"0:17"), marker(2, 2)], seen={0: VALUE, 1: b"0:17"}, markers_commit=frozenset({0})),
    ],
    ids=["no-commit-marker-received", "nothing-behind-it"],
)
def test_a_record_that_was_read_and_that_compaction_does_not_explain_is_inconsistent(run: Run) -> None:
    assert "inconsistent-offsets" in found(run.judge().anomalies)


def test_a_record_that_was_read_and_is_aborted_in_the_log_is_an_aborted_read() -> None:
    run = Run(leader=FIRST_ABORTED, seen=SEEN, markers_commit=frozenset(SEEN))
    names = found(run.judge().anomalies)
    assert "aborted-read" in names
    assert "inconsistent-offsets" not in names


ANOTHER = [output(1, 2, b"0:17"), marker(2, 2)]
ABORT_LOST = [FIRST, *ANOTHER, marker(3, 1)]
"""An unclean election took the marker that aborted the first output: the next commit of its producer counts for it."""


@pytest.mark.parametrize(
    ("leader", "follower"),
    [(ABORT_LOST, [*ANOTHER, marker(3, 1)]), ([*ANOTHER, marker(3, 1)], ABORT_LOST)],
    ids=["at-follower", "at-leader"],
)
def test_compaction_for_a_marker_that_an_unclean_election_took_is_a_loss(
    leader: list[bytes], follower: list[bytes]
) -> None:
    run = Run(leader=leader, follower=follower, seen={0: VALUE, 1: b"0:17"})
    findings = run.judge()
    assert "replica-divergence" in found(findings.losses)
    assert not {"replica-divergence", "inconsistent-offsets"} & set(found(findings.anomalies))
    clean = Run(leader=leader, follower=follower, seen={}, unclean=False)
    assert "replica-divergence" in found(clean.judge().anomalies)


@pytest.mark.parametrize(
    ("leader", "follower"),
    [
        ([FIRST, *TWICE], [FIRST, output(1, 2), marker(3, 1)]),
        ([FIRST, *TWICE], [output(0, 1, b"0:17"), *TWICE]),
        ([FIRST, *TWICE], TWICE[:1]),
        ([FIRST, *TWICE], []),
        (FIRST_ABORTED, [FIRST, *TWICE]),
        (TWICE[:1], [FIRST, *TWICE]),
    ],
    ids=["second-not-committed", "another-value", "no-marker", "empty", "aborted-at-leader", "only-at-follower"],
)
def test_replicas_that_differ_otherwise_diverge(leader: list[bytes], follower: list[bytes]) -> None:
    run = Run(leader=leader, follower=follower, seen=SEEN, markers_commit=frozenset(SEEN))
    assert "replica-divergence" in found(run.judge().anomalies)


@pytest.mark.parametrize(("skipped", "anomalies"), [(frozenset({0}), []), (frozenset[int](), ["unseen"])])
def test_a_reader_may_pass_over_records_below_the_log_start_of_that_time(
    skipped: frozenset[int], anomalies: list[str]
) -> None:
    """DeleteRecords raised the log start; a kill of the only replica in sync lowered it again."""
    run = Run(leader=[FIRST, marker(1, 1)], seen={}, skipped=skipped)
    assert found(run.judge().anomalies) == anomalies


READ_WRONGLY = ("aborted-read", "inconsistent-offsets")


@long_run
def test_a_reader_that_receives_aborted_records_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """Their inputs have another output behind them. Compaction removes aborted records: what was read is then gone."""
    wrong: list[str] = []
    named: set[str] = set()

    def judge(
        tp: TopicPartition, facts: OutputFacts, inputs: Any, outputs: Sequence[ReplicaLog], findings: Findings
    ) -> None:
        judge_output(tp, facts, inputs, outputs, findings)
        low = max(replica.low for replica in outputs)
        wrong.extend(
            f"{tp} at {offset}: {facts.seen[offset].decode()} was read as committed"
            for offset in set(facts.seen) - facts.seen_markers_commit
            if offset >= low
        )
        named.update(where for name, where in findings.anomalies if name in READ_WRONGLY)

    def keep_aborted(data: bytes, _: object) -> tuple[list[Record], int | None]:
        return committed_records(data, ())

    monkeypatch.setattr(transform_workload, "judge_output", judge)
    monkeypatch.setattr(sink_reader, "committed_records", keep_aborted)
    for seed in (1, 2, 3):
        run_seed(seed, SimulationOptions(workload=EXACTLY_ONCE, seconds=5.0, batches=60))
    assert wrong
    assert set(wrong) <= named


@pytest.mark.parametrize("run", [COMPACTED_AFTER_READ, COMPACTED_AT_LEADER], ids=["after-read", "at-leader"])
def test_a_record_that_is_gone_where_no_cleaner_was_is_an_anomaly(run: Run) -> None:
    findings = replace(run, cleaned_end=0).judge()
    assert set(found(findings.anomalies)) & {"inconsistent-offsets", "replica-divergence"}
