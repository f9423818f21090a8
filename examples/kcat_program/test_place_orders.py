"""A program that is not Python: a shell script with kcat, tested by pytest and by the command `harrow chaos`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from threading import Event

import pytest
from harrow import Harrow, kill, leader

PROGRAM = Path(__file__).with_name("place-orders.sh")
POLL_S = 0.02

pytestmark = pytest.mark.skipif(shutil.which("kcat") is None, reason="kcat is not installed (apt-get install kcat)")


def place_orders(servers: str, running: Callable[[], bool]) -> range:
    """Run the program while `running()` is true; return the orders that it has placed."""
    environment = {**os.environ, "KAFKA_BOOTSTRAP_SERVERS": servers}
    with subprocess.Popen([PROGRAM], env=environment, stdout=subprocess.PIPE, text=True) as program:
        pace = Event()
        while running():
            pace.wait(POLL_S)
        program.terminate()
        placed, _ = program.communicate(timeout=60)
    assert program.returncode == 0, "kcat could not send every order"
    return range(int(placed))


def test_no_placed_order_is_lost_or_doubled(harrow: Harrow) -> None:
    orders = harrow.topic("orders", partitions=2)
    with harrow.chaos(kill(leader(orders), seconds=1)) as chaos:
        placed = place_orders(harrow.bootstrap_servers, lambda: chaos.running)
    harrow.verify(orders, guarantee="exactly-once", record_id="order", expected=placed)


def test_the_command_judges_the_program(tmp_path: Path) -> None:
    harrow = Path(sys.executable).with_name("harrow")
    done = subprocess.run(
        [harrow, "chaos", "--seconds", "1", "--topic", "orders:2", "--", PROGRAM],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) > 0
    assert "VALID: exactly-once, ordered hold" in done.stderr
