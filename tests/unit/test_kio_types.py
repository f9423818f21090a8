"""Processes that use kio import no hypothesis and write no `.hypothesis/` folder (J1).

A process whose own code uses hypothesis keeps the strategies of kio.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def run(folder: Path, program: str) -> str:
    words = [sys.executable, "-c", program]
    done = subprocess.run(words, cwd=folder, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize(
    "used",
    [
        "from harrow.cluster.errors import ErrorCode",
        "from harrow.cluster.errors import error_name; error_name(1)",
        "import harrow.cluster.wire.messages",
        "import harrow.cluster.broker",
        "import harrow.harness.simulation",
    ],
)
def test_the_first_use_of_kio_imports_no_hypothesis(tmp_path: Path, used: str) -> None:
    said = run(
        tmp_path, f"import sys\n{used}\nprint('kio.static.primitive' in sys.modules, 'hypothesis' in sys.modules)"
    )
    assert said.split() == ["True", "False"]
    assert not list(tmp_path.iterdir())


def test_a_broker_imports_newer_messages_at_their_first_use(tmp_path: Path) -> None:
    program = (
        "import sys\nimport harrow.cluster.broker\nfrom harrow.cluster.wire import messages\n"
        "here = lambda: 'harrow.cluster.wire.newer_messages' in sys.modules\n"
        "print(here(), {row[0] for row in messages.NEWER} == {18, 28, 35, 42, 88, 89, 93}, here())\n"
        "print([messages.request_type(*row).__name__ for row in messages.NEWER][0], here())"
    )
    assert run(tmp_path, program).split() == ["False", "True", "False", "ApiVersionsRequest", "True"]


def test_hypothesis_can_be_imported_afterwards(tmp_path: Path) -> None:
    program = "import harrow.cluster.wire.messages\nfrom hypothesis import strategies as st\nprint(st.integers())"
    assert run(tmp_path, program).startswith("integers()")


def test_a_process_that_uses_hypothesis_keeps_the_strategies_of_kio(tmp_path: Path) -> None:
    program = (
        "from hypothesis import strategies as st\nimport harrow.cluster.wire.messages\n"
        "from kio.static.primitive import i8\nprint(st.from_type(i8))"
    )
    assert "-128" in run(tmp_path, program)
