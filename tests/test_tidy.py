"""Rules of the project that no linter checks, checked by reading the source files (style.md, "TigerBeetle")."""

from __future__ import annotations

import ast
import re
import textwrap
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
    "cluster/process.py", "cluster/managed.py", "cluster/foreign_process.py", "cluster/convergence.py",
    "cluster/ports.py", "cluster/__main__.py",
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


def test_the_tidy_rules_find_files_to_check() -> None:
    assert len(ALL) > 50
    assert len(LOGIC) > 30


@pytest.mark.parametrize("path", ALL, ids=relative)
def test_files_and_functions_are_within_their_limits(path: Path) -> None:
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
def test_every_module_has_a_docstring(path: Path) -> None:
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


SLEEPS_LEFT: dict[str, int] = {}
"""File -> number of `Event().wait(...)` that stand in for an event. Remove an entry with the last sleep of its file."""


def sleeps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each call that sleeps: `time.sleep`, `asyncio.sleep`, and a wait for an event that is never set."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            called = ast.unparse(node.func)
            if called in {"time.sleep", "asyncio.sleep"} or re.search(
                r"\bEvent\(\)\.wait$", called
            ):
                yield node.lineno, called


@pytest.mark.parametrize("path", sources("tests"), ids=relative)
def test_tests_wait_for_events_and_never_sleep(path: Path) -> None:
    found = list(sleeps(ast.parse(path.read_text())))
    assert len(found) <= SLEEPS_LEFT.get(relative(path), 0), (
        f"{relative(path)}: {found}: wait with `waiting.until`, which has a deadline"
    )


def cannot_fail(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each condition that is always true, and each `pytest.raises` that accepts every exception."""
    for node in ast.walk(tree):
        if isinstance(node, ast.BoolOp) and isinstance(node.op, ast.Or):
            if any(isinstance(part, ast.Constant) and part.value is True for part in node.values):
                yield node.lineno, "`or True` is always true"
        elif isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            plain = all(isinstance(side, ast.Name | ast.Attribute) for side in sides)
            if plain and len({ast.unparse(side) for side in sides}) == 1:
                yield node.lineno, f"`{ast.unparse(node)}` compares a value with itself"
        elif isinstance(node, ast.Assert):
            if isinstance(node.test, ast.Constant) and node.test.value:
                yield node.lineno, f"`{ast.unparse(node)}` asserts a constant"
            if isinstance(node.test, ast.Tuple | ast.GeneratorExp | ast.Lambda):
                yield node.lineno, f"`{ast.unparse(node)}` asserts an object that is always true"
        elif isinstance(node, ast.Call) and re.match(
            r"pytest\.raises\((Base)?Exception\b", ast.unparse(node)
        ):
            yield node.lineno, "`pytest.raises(Exception)`: name the exception"


@pytest.mark.parametrize("path", sources("tests"), ids=relative)
def test_every_condition_of_a_test_can_fail(path: Path) -> None:
    tree = ast.parse(path.read_text())
    found = list(cannot_fail(tree))
    for node in ast.walk(tree):  # tests for the plugin are strings in a test
        if (
            isinstance(node, ast.Constant)
            and isinstance(node.value, str)
            and "def test_" in node.value
        ):
            try:
                inner = ast.parse(textwrap.dedent(node.value))
            except SyntaxError:
                continue
            found += cannot_fail(inner)
    assert not found, f"{relative(path)}: {found}"


def test_sleeps_and_conditions_that_cannot_fail_are_recognised() -> None:
    source = (
        "Event().wait(1)\nthreading.Event().wait(0.1)\nstop.wait(1)\ntime.sleep(1)\n"
        "assert a.b == a.b\nassert a == f(a) or True\nassert f(1) == f(1)\nassert 1\nassert (a, b)\n"
        "with pytest.raises(Exception, match='x'): pass\nassert a == b\n"
    )
    tree = ast.parse(source)
    assert [line for line, _ in sleeps(tree)] == [1, 2, 4]
    assert sorted(line for line, _ in cannot_fail(tree)) == [5, 6, 8, 9, 10]
