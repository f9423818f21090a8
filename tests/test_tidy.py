"""Rules of the house that no linter knows, kept by reading the tree (style.md, "TigerBeetle")."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LAYERS = ("cluster", "faults", "harness")
FILE_LINES_MOST = 500
FUNCTION_LINES_MOST = 70

# room-relative prefixes that may touch the machine: the seam's real side and the processes
MACHINE = (
    "cluster/host/", "cluster/network/", "cluster/supervisor.py", "cluster/forkserver.py",
    "cluster/process.py", "cluster/managed.py", "cluster/ports.py", "cluster/__main__.py",
    "cluster/registry/store.py",
)  # fmt: skip
BANNED_IMPORTS = {
    "asyncio": "host.tasks", "threading": "host.tasks", "socket": "host.network", "mmap": "host.disk",
    "time": "host.clock", "uuid.uuid1": "host.random", "uuid.uuid4": "host.random",
    "select": "host.network", "subprocess": "the supervisor",
    "tempfile": "host.disk", "shutil": "host.disk", "sqlite3": "registry/store.py",
    "datetime.datetime": "host.clock",
}  # fmt: skip
BANNED_CALLS = {
    "open": "host.disk.open", "os.open": "host.disk.open", "os.fsync": "DiskFile.sync", "random.random": "host.random",
    "random.choice": "host.random", "random.shuffle": "host.random", "random.randrange": "host.random",
    "os.urandom": "host.random", "print": "host.trace.log",
}  # fmt: skip


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


ALL = sources(*LAYERS, "package", "tests", "benchmarks", "examples")
LOGIC = [path for path in sources("cluster") if not relative(path).startswith(MACHINE)]


def test_there_is_something_to_read() -> None:
    assert len(ALL) > 50
    assert len(LOGIC) > 30


@pytest.mark.parametrize("path", ALL, ids=relative)
def test_files_and_functions_stay_small(path: Path) -> None:
    text = path.read_text()
    lines = text.count("\n")
    assert lines <= FILE_LINES_MOST, f"{relative(path)} has {lines} lines: split it by concept"
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            assert length <= FUNCTION_LINES_MOST, (
                f"{relative(path)}:{node.lineno} {node.name}: {length} lines"
            )


@pytest.mark.parametrize("path", sources(*LAYERS, "package"), ids=relative)
def test_every_module_opens_with_its_contract(path: Path) -> None:
    assert ast.get_docstring(ast.parse(path.read_text())), (
        f"{relative(path)} has no module docstring"
    )


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            for name in node.names:
                yield node.lineno, f"{node.module}.{name.name}"


@pytest.mark.parametrize("path", LOGIC, ids=relative)
def test_broker_code_reaches_the_machine_only_through_its_host(path: Path) -> None:
    tree = ast.parse(path.read_text())
    for line, name in imported(tree):
        for banned, instead in BANNED_IMPORTS.items():
            assert name != banned and not name.startswith(f"{banned}."), (
                f"{relative(path)}:{line} imports {name}; broker code uses {instead}"
            )
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in BANNED_CALLS, (
                f"{relative(path)}:{node.lineno} calls {called}; broker code uses {BANNED_CALLS[called]}"
            )


@pytest.mark.parametrize("path", sources(*LAYERS), ids=relative)
def test_imports_are_relative_inside_a_layer_and_absolute_across(path: Path) -> None:
    layer = relative(path).split("/")[0]
    depth = len(Path(relative(path)).parts) - 1
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.ImportFrom) and node.level:
            assert node.level <= depth, f"{relative(path)}:{node.lineno} climbs out of its layer"
    for line, name in imported(ast.parse(path.read_text())):
        inside = name == f"harrow.{layer}" or name.startswith(f"harrow.{layer}.")
        assert not inside, f"{relative(path)}:{line} imports {name} absolutely inside its own layer"


@pytest.mark.parametrize("path", sources("tests"), ids=relative)
def test_tests_wait_for_events_and_never_sleep(path: Path) -> None:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            assert called not in {"time.sleep", "asyncio.sleep"}, (
                f"{relative(path)}:{node.lineno} sleeps"
            )
