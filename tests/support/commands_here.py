"""The command `harrow` in the test's own process: its exit code and what it prints, without the start of a Python.

For commands that end before they start a process. A test of signals, terminals or streams needs a process.
"""

from __future__ import annotations

import io
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from unittest.mock import patch

from harrow.harness.commands import main


def run_here(*arguments: str) -> subprocess.CompletedProcess[str]:
    """Run `harrow` with these arguments in the current folder; an exception that it does not report is raised."""
    out, err = (io.TextIOWrapper(io.BytesIO(), encoding="utf-8") for _ in range(2))
    code: object = 0
    with redirect_stdout(out), redirect_stderr(err), patch.object(sys, "argv", ["harrow", *arguments]):
        try:
            main()
        except SystemExit as ended:
            code = ended.code
    assert isinstance(code, int), code
    return subprocess.CompletedProcess(arguments, code, _text(out), _text(err))


def _text(stream: io.TextIOWrapper) -> str:
    stream.seek(0)
    return stream.read()
