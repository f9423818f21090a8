"""Rules of the project that no linter checks, checked by reading the source files (style.md, "TigerBeetle")."""

from __future__ import annotations

import ast
import contextlib
import re
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import last_name, nodes_of, tree_of

# the files are parsed once, by one worker
pytestmark = pytest.mark.xdist_group("tidy")
ROOT = Path(__file__).parents[1]
LAYERS = ("cluster", "faults", "harness")
FILE_LINES_MOST = 500
FUNCTION_LINES_MOST = 70
FORMATTED_BY_HAND = 9
UNTYPED = frozenset({"Any", "object", "Row", "Result"})
UNTYPED_SIGNATURES = {"harness/checks": 119, "harness/promises": 112, "harness/reports": 8}
"""Functions of each room whose signature has such a name: borders of JSON, Spark and the user's values."""

ASSERTIONS_PER_FUNCTION = {"cluster": 0.068, "faults": 0.098, "harness": 0.042}
"""`assert` statements for each function of a layer, nested ones too."""

# room-relative prefixes that may touch the machine: the seam's real side and the processes
MACHINE = (
    "cluster/tap/",
    "cluster/host/",
    "cluster/network/",
    "cluster/supervisor.py",
    "cluster/forkserver.py",
    "cluster/process.py",
    "cluster/managed.py",
    "cluster/foreign_process.py",
    "cluster/convergence.py",
    "cluster/wait_notes.py",
    "cluster/unix_sockets.py",
    "cluster/file_locks.py",
    "cluster/ports.py",
    "cluster/__main__.py",
    "cluster/by_hand.py",
    "cluster/registry/store.py",
)
BANNED_IMPORTS = {
    "asyncio": "host.tasks",
    "threading": "host.tasks",
    "socket": "host.network",
    "mmap": "host.disk",
    "time": "host.clock",
    "uuid.uuid1": "host.random",
    "uuid.uuid4": "host.random",
    "select": "host.network",
    "subprocess": "the supervisor",
    "tempfile": "host.disk",
    "shutil": "host.disk",
    "sqlite3": "registry/store.py",
    "datetime.datetime": "host.clock",
}
BANNED_CALLS = {
    "open": "host.disk.open",
    "os.open": "host.disk.open",
    "os.fsync": "DiskFile.sync",
    "random.random": "host.random",
    "random.choice": "host.random",
    "random.shuffle": "host.random",
    "random.randrange": "host.random",
    "os.urandom": "host.random",
    "print": "host.trace.log",
}


def sources(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


def relative(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


ALL = sources(*LAYERS, "package", "tests", "benchmarks", "examples")
LOGIC = [path for path in sources("cluster") if not relative(path).startswith(MACHINE)]


def test_the_tidy_rules_find_files_to_check() -> None:
    assert len(ALL) > 50
    assert len(LOGIC) > 30


# One test for each rule, not for each file: every worker collects all tests, and 4,000 cost more than the rules.


def test_few_statements_are_formatted_by_hand() -> None:
    """The formatter's form is the rule; FORMATTED_BY_HAND may only fall."""
    mark = "# fmt" + ": skip"
    places = {relative(path): count for path in ALL if (count := path.read_text().count(mark))}
    assert sum(places.values()) <= FORMATTED_BY_HAND, places


def test_few_signatures_are_without_types() -> None:
    """What checks find are values with types; UNTYPED_SIGNATURES may only fall."""
    for room, most in UNTYPED_SIGNATURES.items():
        found = [
            f"{relative(path)}:{node.lineno} {node.name}"
            for path in ALL
            if relative(path).startswith(f"{room}/")
            for node in nodes_of(tree_of(path))
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and UNTYPED & names_of_signature(node)
        ]
        assert len(found) <= most, "\n".join(found)


def test_assertions_per_function_do_not_fall() -> None:
    """Where a state is written and read, its invariants are asserted; ASSERTIONS_PER_FUNCTION may only rise."""
    for room, least in ASSERTIONS_PER_FUNCTION.items():
        nodes = [node for path in sources(room) for node in nodes_of(tree_of(path))]
        assertions = sum(isinstance(node, ast.Assert) for node in nodes)
        functions = sum(isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) for node in nodes)
        assert assertions / functions >= least, f"{room}: {assertions} assertions in {functions} functions"


def names_of_signature(node: ast.FunctionDef | ast.AsyncFunctionDef) -> set[str]:
    """The names in the annotations of a function's arguments and of what it returns."""
    given = node.args
    arguments = [*given.posonlyargs, *given.args, *given.kwonlyargs, given.vararg, given.kwarg]
    annotations = [node.returns, *(argument.annotation for argument in arguments if argument is not None)]
    return {part.id for found in annotations if found for part in ast.walk(found) if isinstance(part, ast.Name)}


def test_files_and_functions_are_within_their_limits() -> None:
    found: list[str] = []
    for path in ALL:
        lines = path.read_text().count("\n")
        if lines > FILE_LINES_MOST:
            found.append(f"{relative(path)} has {lines} lines: split it by concept")
        for node in nodes_of(tree_of(path)):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                length = (node.end_lineno or node.lineno) - node.lineno + 1
                if length > FUNCTION_LINES_MOST:
                    found.append(f"{relative(path)}:{node.lineno} {node.name}: {length} lines")
    assert not found, "\n".join(found)


def test_every_module_has_a_docstring() -> None:
    paths = sources(*LAYERS, "package")
    found = [relative(path) for path in paths if not ast.get_docstring(tree_of(path))]
    assert not found, f"no module docstring: {found}"


def imported(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            for name in node.names:
                yield node.lineno, name.name
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield node.lineno, node.module
            for name in node.names:
                yield node.lineno, f"{node.module}.{name.name}"


BANNED_LAST_NAMES = {called.rpartition(".")[2] for called in BANNED_CALLS}


def machine_uses(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each import and call of broker code that goes around the host."""
    for line, name in imported(tree):
        for banned, instead in BANNED_IMPORTS.items():
            if name == banned or name.startswith(f"{banned}."):
                yield line, f"imports {name}; broker code uses {instead}"
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in BANNED_LAST_NAMES:
            called = ast.unparse(node.func)
            if called in BANNED_CALLS:
                yield node.lineno, f"calls {called}; broker code uses {BANNED_CALLS[called]}"


def test_broker_code_reaches_the_machine_only_through_its_host() -> None:
    found = [f"{relative(path)}:{line} {use}" for path in LOGIC for line, use in machine_uses(tree_of(path))]
    assert not found, "\n".join(found)


def foreign_imports(tree: ast.AST, path: str) -> Iterator[tuple[int, str]]:
    """Yields each relative import that leaves the layer of `path`, and each absolute one inside it."""
    layer, depth = path.partition("/")[0], path.count("/")
    for node in nodes_of(tree):
        if isinstance(node, ast.ImportFrom) and node.level > depth:
            yield node.lineno, "climbs out of its layer"
    for line, name in imported(tree):
        if name == f"harrow.{layer}" or name.startswith(f"harrow.{layer}."):
            yield line, f"imports {name} absolutely inside its own layer"


def test_imports_are_relative_inside_a_layer_and_absolute_across() -> None:
    found = [
        f"{relative(path)}:{line} {fault}"
        for path in sources(*LAYERS)
        for line, fault in foreign_imports(tree_of(path), relative(path))
    ]
    assert not found, "\n".join(found)


SLEEPS_LEFT: dict[str, int] = {}
"""File -> number of `Event().wait(...)` that stand in for an event. Remove an entry with the last sleep of its file."""


ON_VIRTUAL_TIME = {
    "tests/support/simulated_servers.py",
    "tests/unit/programs/test_program_loop.py",
    "tests/unit/programs/test_servers_of_programs.py",
    "tests/unit/programs/test_servers_under_faults.py",
}
"""Files whose sleeps are those of simulated programs, and take no real time."""


def sleeps(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each call that sleeps: `time.sleep`, `asyncio.sleep`, and a wait for an event that is never set."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Call) and last_name(node.func) in {"sleep", "wait"}:
            called = ast.unparse(node.func)
            if called in {"time.sleep", "asyncio.sleep"} or re.search(r"\bEvent\(\)\.wait$", called):
                yield node.lineno, called


def test_tests_wait_for_events_and_never_sleep() -> None:
    found = {relative(path): list(sleeps(tree_of(path))) for path in sources("tests")}
    found = {path: rows for path, rows in found.items() if len(rows) > SLEEPS_LEFT.get(path, 0)}
    assert found.keys() >= ON_VIRTUAL_TIME
    found = {path: rows for path, rows in found.items() if path not in ON_VIRTUAL_TIME}
    assert not found, f"{found}: wait with `waiting.until`, which has a deadline"


def cannot_fail(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yields each condition that is always true, and each `pytest.raises` that accepts every exception."""
    for node in nodes_of(tree):
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
        elif (
            isinstance(node, ast.Call)
            and last_name(node.func) == "raises"
            and re.match(r"pytest\.raises\((Base)?Exception\b", ast.unparse(node))
        ):
            yield node.lineno, "`pytest.raises(Exception)`: name the exception"


def inner_tests(tree: ast.AST) -> Iterator[ast.AST]:
    """Yields the tests for the plugin, which are strings in a test."""
    for node in nodes_of(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and "def test_" in node.value:
            with contextlib.suppress(SyntaxError):
                yield ast.parse(textwrap.dedent(node.value))


def test_every_condition_of_a_test_can_fail() -> None:
    found = {
        relative(path): [row for tree in (tree_of(path), *inner_tests(tree_of(path))) for row in cannot_fail(tree)]
        for path in sources("tests")
    }
    found = {path: rows for path, rows in found.items() if rows}
    assert not found, str(found)


def test_sleeps_and_conditions_that_cannot_fail_are_recognised() -> None:
    source = (
        "Event().wait(1)\nthreading.Event().wait(0.1)\nstop.wait(1)\ntime.sleep(1)\n"
        "assert a.b == a.b\nassert a == f(a) or True\nassert f(1) == f(1)\nassert 1\nassert (a, b)\n"
        "with pytest.raises(Exception, match='x'): pass\nassert a == b\n"
    )
    tree = ast.parse(source)
    assert [line for line, _ in sleeps(tree)] == [1, 2, 4]
    assert sorted(line for line, _ in cannot_fail(tree)) == [5, 6, 8, 9, 10]


def test_uses_of_the_machine_and_wrong_imports_are_recognised() -> None:
    source = "import socket\nfrom time import sleep\nopen('x')\nfrom ...a import b\nfrom harrow.cluster.ids import X\n"
    tree = ast.parse(source)
    assert [line for line, _ in machine_uses(tree)] == [1, 2, 2, 3]
    assert [line for line, _ in foreign_imports(tree, "cluster/storage/log.py")] == [4, 5, 5]
    assert not list(foreign_imports(ast.parse("from ..a import b\n"), "cluster/storage/log.py"))
