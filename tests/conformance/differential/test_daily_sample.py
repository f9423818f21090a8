"""A sample of the differential with a new seed each day: only what docs/compatibility.toml names may differ."""

from __future__ import annotations

import datetime as dt
import os
import subprocess
import sys
from pathlib import Path

import pytest
from apache_kafka import MISSING

TESTS = Path(__file__).parents[2]
CASES = 500
TIMEOUT_S = 1_200


@pytest.mark.skipif(bool(MISSING), reason=MISSING or "-")
def test_a_sample_of_today_has_no_difference_beyond_the_rows(tmp_path: Path) -> None:
    seed = dt.datetime.now(tz=dt.UTC).date().toordinal()
    command = [sys.executable, "-m", "differential", "--seed", str(seed), "--cases", str(CASES)]
    path = os.pathsep.join([str(TESTS / "conformance"), str(TESTS / "support")])
    done = subprocess.run(
        [*command, "--out", str(tmp_path / "found")],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    assert done.returncode == 0, f"seed {seed}, {CASES} cases\n{done.stdout[-20_000:]}\n{done.stderr[-2_000:]}"
