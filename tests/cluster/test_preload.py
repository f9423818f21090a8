"""Broker processes do not import what the fork server has already imported, which is most of a cluster's start time."""

from __future__ import annotations

import ast
import importlib.util
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import harrow.cluster
import pytest

CLUSTER = Path(next(iter(harrow.cluster.__path__)))
HERE = "harrow.cluster.process"


def imported_late(path: Path, package: str) -> Iterator[str]:
    """Yields the modules of this project that functions in `path` import when they are called."""
    for function in ast.walk(ast.parse(path.read_text())):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        for node in ast.walk(function):
            if isinstance(node, ast.ImportFrom) and node.level:
                base = importlib.util.resolve_name("." * node.level + (node.module or ""), package)
                yield from (base if node.module else f"{base}.{name.name}" for name in node.names)


@pytest.fixture(scope="module")
def preloaded() -> set[str]:
    program = f"import json, sys; from {HERE} import preload; preload(); print(json.dumps([*sys.modules]))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return set(json.loads(done.stdout))


def test_a_forked_process_imports_only_what_the_fork_server_has_imported(preloaded: set[str]) -> None:
    late = set(imported_late(CLUSTER / "process.py", "harrow.cluster"))
    assert {"harrow.cluster.broker", "harrow.cluster.host.real.host"} <= late
    assert late <= preloaded
