"""Partitions of simulated runs, of wrong services and their twins, judged by the kernels and by the oracle (L6)."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections import Counter
from pathlib import Path

from long_runs import long_run

REPOSITORY = Path(__file__).parents[2]
GALLERY = REPOSITORY / "examples" / "simulated_gallery"
PAIRS = ("acks_one", "no_idempotence", "delivery_errors", "reads_uncommitted", "auto_commit")
SEEDS = 40


@long_run
def test_the_kernels_find_in_simulated_runs_what_the_oracle_finds(tmp_path: Path) -> None:
    lines = tmp_path / "judged.jsonl"
    environment = {
        **os.environ,
        "JUDGED_BY_BOTH": str(lines),
        "PYTHONPATH": str(REPOSITORY / "tests" / "support"),
        "PYTEST_ADDOPTS": "",
    }
    words = ["-p", "no:randomly", "-p", "no:cacheprovider", "-p", "judged_by_both", "-q", "--harrow-shrink=0"]
    files = [str(GALLERY / f"test_{name}.py") for name in PAIRS]
    command = [sys.executable, "-m", "pytest", *words, f"--harrow-seeds={SEEDS}", "--harrow-seed=1", *files]
    ended = subprocess.run(command, check=False, cwd=REPOSITORY, env=environment, capture_output=True, text=True)
    rows = [json.loads(line) for line in lines.read_text().splitlines()]
    assert len(rows) > len(PAIRS) * SEEDS, ended.stdout + ended.stderr
    assert [row for row in rows if row["kernels"] != row["oracle"] or row["crashed"]] == []
    found = Counter(name for row in rows for name, _ in row["oracle"])
    assert {"lost-write", "duplicate"} <= found.keys(), found
