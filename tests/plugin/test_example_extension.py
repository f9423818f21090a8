"""`examples/shop_extension` is installed as a distribution, and its tests and its commands run (J4)."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from long_runs import long_run

EXAMPLE = Path(__file__).parents[2] / "examples" / "shop_extension"
HARROW = str(Path(sys.executable).with_name("harrow"))


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A copy of the example; `installed/site` has its distribution."""
    folder = tmp_path_factory.mktemp("extension") / "shop_extension"
    shutil.copytree(EXAMPLE, folder)
    options = ["--quiet", "--no-deps", "--no-build-isolation", "--no-index", "--disable-pip-version-check"]
    subprocess.run(
        [sys.executable, "-m", "pip", "install", *options, "--target", str(folder / "site"), str(folder)],
        check=True,
        timeout=300,
    )
    yield folder
    shutil.rmtree(folder)


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    """Run a command where the extension is installed."""
    return subprocess.run(
        words,
        cwd=folder,
        env={**os.environ, "PYTHONPATH": str(folder / "site")},
        capture_output=True,
        text=True,
        timeout=400,
        check=False,
    )


@long_run
def test_the_tests_of_the_example_pass(installed: Path) -> None:
    options = [
        "-p",
        "no:xdist",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        "--harrow-keep",
        "--junit-xml=junit.xml",
    ]
    done = run(installed, sys.executable, "-m", "pytest", *options)
    assert done.returncode == 0, done.stdout
    assert "3 passed" in done.stdout
    junit = (installed / "junit.xml").read_text()
    assert "invalid (no-loss, billed-once)" in junit
    verdicts = installed.glob("harrow-out/*/**/verdict.json")
    careless = next(path.parent for path in verdicts if "bills_again" in path.parent.name)
    assert "kill_service(service(" in (careless / "report.html").read_text()
    second = (careless / "report-2.html").read_text()  # of the second verify
    assert "orders have more than one bill (billed-twice)" in second
    assert "billed-twice" in (installed / "harrow-out" / "index.html").read_text()
    rows = [json.loads(line) for line in (careless / "faults.jsonl").read_text().splitlines()]
    assert [row["event"] for row in rows if row["fault"] == "kill_service"] == ["inject", "effect", "heal", "healed"]
    again = run(installed, HARROW, "check", str(careless))
    assert again.returncode == 1
    assert "INVALID: billed-once does not hold; judged: no-loss, billed-once" in again.stdout
    check = [HARROW, "check", str(careless)]
    without = subprocess.run(check, capture_output=True, text=True, timeout=200, check=False)
    assert "unknown guarantee 'billed-once'" in without.stderr
    assert "a guarantee of an extension needs its distribution" in without.stderr


@long_run
def test_the_commands_know_the_extension(installed: Path) -> None:
    listed = run(installed, HARROW, "extensions").stdout
    assert listed.startswith("harrow-shop 1.0.0 (entry point shop = harrow_shop)\n")
    assert "fault     kill_service" in listed
    assert "check     billed-once" in listed
    options = ["--workload", "shop", "--seeds", "1", "--seconds", "2", "--faults", "kill"]
    done = run(installed, HARROW, "chaos", *options)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1/1 seed 1: valid" in done.stdout
    (schedule,) = installed.glob("harrow-out/chaos-safe-shop-3-kill/seed-1/schedule.json")
    assert json.loads(schedule.read_text())["run"]["workload"] == "shop"
