"""The commands of the README as a person runs them: `harrow demo`, `harrow chaos`, `harrow check` (J9, N1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from long_runs import long_run

HARROW = str(Path(sys.executable).with_name("harrow"))


def run(*arguments: str, timeout_s: float = 240) -> subprocess.CompletedProcess[str]:
    return subprocess.run([HARROW, *arguments], capture_output=True, text=True, timeout=timeout_s, check=False)


def test_the_demo_finds_the_orders_that_the_wrong_shop_lost(tmp_path: Path) -> None:
    done = run("demo", "--seed", "7", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    verdicts = {name: read_verdict(tmp_path / "demo" / name) for name in ("wrong-shop", "right-shop")}
    assert verdicts["wrong-shop"]["status"] == "invalid"
    assert verdicts["wrong-shop"]["anomaly_counts"]["missing"] > 0
    assert verdicts["right-shop"]["status"] == "valid"
    output = done.stdout.replace("\n", "")
    assert "isolate(leader('orders', 0)" in output
    assert "epoch 1" in output, "a new leader with a higher epoch"
    folder = tmp_path / "demo" / "right-shop"
    again = run("check", str(folder), "--topic", "orders", "--guarantee", "no-loss")
    assert again.returncode == 0, again.stdout + again.stderr


def read_verdict(folder: Path) -> dict[str, Any]:
    """Return the verdict of a run of the demo, whose files and page are complete."""
    events = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    assert [event["event"] for event in events] == ["inject", "effect", "heal", "healed"]
    page = (folder / "report.html").read_text()
    assert "no-loss" in page
    assert "https://" not in page, "self-contained"
    assert "http://" not in page.replace("http://www.w3.org", ""), "self-contained"
    verdict: dict[str, Any] = json.loads((folder / "verdict.json").read_text())
    assert verdict["operation_counts"]["batches_acknowledged"] > 100
    assert verdict["operation_counts"]["replica_logs"] == 3
    return verdict


@long_run
def test_chaos_writes_a_ledger_with_the_counts_of_each_seed(tmp_path: Path) -> None:
    done = run("chaos", "--seeds", "1", "--seed", "5", "--seconds", "2", "--out", str(tmp_path))
    assert done.returncode == 0, done.stdout + done.stderr
    (line,) = (tmp_path / "chaos-safe" / "ledger.jsonl").read_text().splitlines()
    outcome = json.loads(line)
    assert outcome["status"] == "valid"
    assert outcome["acknowledged"] > 0
    assert outcome["elections"] > 0
    assert outcome["faults"] > 0
