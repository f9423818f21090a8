"""`harrow check` on run folders with and without their data: the verdict of the run is never replaced (L6, N1)."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
from click.testing import CliRunner
from harrow import Harrow
from harrow.harness.commands import cli

HARROW = str(Path(sys.executable).with_name("harrow"))


def check(folder: Path, *arguments: str) -> tuple[int, str]:
    """Exit code and output of `harrow check`, in this process, which has the suite's Spark."""
    ran = CliRunner().invoke(cli, ["check", str(folder), *arguments])
    return ran.exit_code, ran.output


@pytest.fixture
def judged(harrow: Harrow) -> Harrow:
    """A run with two topics and a valid verdict."""
    producer = harrow.producer()
    for name in ("orders", "bills"):
        topic = harrow.topic(name)
        for number in range(20):
            producer.produce(topic.name, f"{name} {number}", key="k")
    producer.flush(30)
    harrow.verify(guarantee="exactly-once")
    return harrow


def test_all_topics_of_the_run_are_judged_by_its_guarantees(judged: Harrow) -> None:
    before = (judged.folder / "verdict.json").read_text()
    judged.close()
    code, said = check(judged.folder)
    assert code == 0, said
    assert said.startswith("VALID: exactly-once")
    assert "judged 40 records acknowledged" in said
    code, said = check(judged.folder, "--topic", "bills", "--guarantee", "no-loss")
    assert code == 0, said
    assert said.startswith("VALID: no-loss")
    assert "judged 20 records acknowledged" in said
    assert (judged.folder / "verdict.json").read_text() == before


def test_a_stored_verdict_survives_the_removal_of_the_data(judged: Harrow) -> None:
    before = (judged.folder / "verdict.json").read_text()
    judged.close()
    judged.remove_data()
    code, said = check(judged.folder)
    assert code == 0
    assert said.startswith("VALID: exactly-once")
    assert "the data of this run is gone" in said
    code, said = check(judged.folder, "--guarantee", "ordered")
    assert code == 1
    assert "'ordered' cannot be judged; the stored verdict is valid (exactly-once)" in said
    assert (judged.folder / "verdict.json").read_text() == before


def test_a_run_without_a_verdict_is_judged_by_its_logs(judged: Harrow) -> None:
    (judged.folder / "verdict.json").unlink()
    settings = json.loads((judged.folder / "run.json").read_text())
    del settings["topics"]  # as after a kill -9 before the verdict
    (judged.folder / "run.json").write_text(json.dumps(settings))
    judged.close()
    code, said = check(judged.folder)
    assert code == 0, said
    assert "judged 40 records acknowledged" in said
    assert json.loads((judged.folder / "verdict.json").read_text())["status"] == "valid"


def test_a_folder_without_a_run_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    code, said = check(tmp_path)
    assert code == 1
    assert "is no folder of a run" in said
    assert not list(tmp_path.iterdir())


def test_the_command_needs_no_argument_but_the_folder(judged: Harrow) -> None:
    judged.close()
    ran = subprocess.run(
        [HARROW, "check", str(judged.folder)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert ran.returncode == 0, ran.stderr
    assert ran.stdout.startswith("VALID: exactly-once")
