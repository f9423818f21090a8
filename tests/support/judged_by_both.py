"""A plugin that judges each topic-partition of a run by the kernels and by the oracle, and writes what differs.

`pytest -p judged_by_both`, with `JUDGED_BY_BOTH=FILE`: a line of JSON for each partition that was judged inline.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from typing import Any

import polars as pl
from harrow.harness.checks import kernels
from harrow.harness.checks.kernels import loading
from harrow.harness.checks.kernels.findings import PartitionFindings
from harrow.harness.checks.kernels.inputs import PartitionInputs
from harrow.harness.checks.kernels.inputs import arrange as arrange_rows
from harrow.harness.checks.log_changes import LogChanges
from harrow.harness.checks.oracle import Oracle
from harrow.harness.checks.plans import PartitionJob

NAMES = {
    *("corrupt-batch", "duplicate", "epoch-cache-mismatch", "epoch-regression", "failed-write", "incomplete-leader"),
    *("inconsistent-offsets", "log-gap", "lost-write", "missed-rewind", "nonmonotonic-poll", "nonmonotonic-send"),
    *("poll-skip", "read-before-send", "realtime-order", "replica-divergence", "unknown-origin", "unseen"),
}
"""What the oracle finds; other oracles have the rest."""
MOST = 10_000

_judge = kernels.judge_inputs
_rows: list[dict[str, Any]] = []


def arrange(
    job: PartitionJob,
    ops: pl.DataFrame,
    pending: pl.DataFrame,
    batches: pl.DataFrame,
    logs: Mapping[int, pl.DataFrame],
    problems: Sequence[str],
) -> PartitionInputs:
    """Note the rows, and divide them."""
    _rows[:] = [
        {
            "ops": ops.to_dicts(),
            "pending": pending.to_dicts(),
            "batches": batches.to_dicts(),
            "logs": {node: log.to_dicts() for node, log in logs.items()},
        }
    ]
    return arrange_rows(job, ops, pending, batches, dict(logs), list(problems))


def judge_inputs(inputs: PartitionInputs) -> PartitionFindings:
    """Judge the partition by both."""
    findings, job, rows = _judge(inputs), inputs.job, _rows.pop()
    oracle = Oracle(
        **rows,
        changes=LogChanges(
            created_ns=job.created_ns,
            cleaned_end=job.cleaned_end,
            deleted_heads={int(node): base for node, base in job.deleted_heads.items()},
            removals=job.removals,
            cleanings=job.cleanings,
            leaderships=job.leaderships,
            unclean_epochs=job.unclean_epochs,
            wrong_clocks=job.wrong_clocks,
        ),
        epochs=inputs.epochs,
        decisions=inputs.coordinators.transactions.to_dicts(),
        all_sends=job.all_sends,
        reads_committed=job.reads_committed,
        whole_taps=job.whole_taps,
    )
    found = sorted({(row.name, tuple(sorted(row.offsets))) for row in findings.shown if row.name in NAMES})
    expected = sorted(oracle.judge())
    line = {
        "partition": f"{job.topic}-{job.partition}",
        "operations": len(rows["ops"]) + len(rows["batches"]),
        "kernels": found,
        "oracle": expected,
        "crashed": [doubt for doubt in findings.unknown if "crashed" in doubt],
    }
    with open(os.environ["JUDGED_BY_BOTH"], "a") as file:
        file.write(json.dumps(line) + "\n")
    return findings


for module, name, own in ((loading, "arrange", arrange), (kernels, "judge_inputs", judge_inputs)):
    setattr(module, name, own)
