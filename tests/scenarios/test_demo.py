"""The commands of the README as a person runs them: `harrow demo`, `harrow chaos`, `harrow check` (J9, N1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

HARROW = str(Path(sys.executable).with_name("harrow"))


def run(*arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [HARROW, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False
    )


def test_the_demo_kills_a_leader_and_proves_that_nothing_was_lost(tmp_path: Path) -> None:
    done = run("demo", "--seed", "7", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "VALID" in done.stdout
    folder = tmp_path / "demo"
    output = done.stdout.replace("\n", "")
    assert "kill(leader('orders', 0)" in output
    assert "epoch 1" in output, "a new leader with a higher epoch"
    events = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["inject", "effect", "heal", "healed"]
    verdict = json.loads((folder / "verdict.json").read_text())
    assert verdict["status"] == "valid"
    assert verdict["operation_counts"]["acknowledged"] > 100
    assert verdict["operation_counts"]["replica_logs"] == 6, "three replicas of two partitions"
    page = (folder / "report.html").read_text()
    assert "exactly-once" in page
    assert "https://" not in page, "self-contained"
    assert "http://" not in page.replace("http://www.w3.org", ""), "self-contained"
    again = run("check", str(folder), "--topic", "orders", "--guarantee", "no-loss")
    assert again.returncode == 0, again.stdout + again.stderr


def test_chaos_writes_a_ledger_with_the_counts_of_each_seed(tmp_path: Path) -> None:
    done = run("chaos", "--seeds", "1", "--seed", "5", "--seconds", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (tmp_path / "chaos-safe" / "ledger.jsonl").read_text().splitlines()
    outcome = json.loads(line)
    assert outcome["status"] == "valid"
    assert outcome["acknowledged"] > 0
    assert outcome["elections"] > 0
    assert outcome["faults"] > 0
