"""No wait of the product is without a deadline: what may block for ever is found by reading the source files.

A wait that has no deadline of its own is on the list `BOUNDED_OTHERWISE`, with the reason why it ends, or why it may
last. Coroutines are not looked at: their waits end with their task, which its owner cancels.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest
from source_trees import nodes_of, tree_of

pytestmark = pytest.mark.xdist_group("tidy")  # They read the same parsed files.
ROOT = Path(__file__).parents[1]
LAYERS = ("cluster", "faults", "harness")

WAITS = {"wait", "join", "communicate", "acquire"}
"""Without an argument they have no deadline."""
RESULTS = {"get", "result", "recv"}
"""The same, in modules with threads, queues or processes."""
OF_RESULTS = ("concurrent.futures", "queue", "multiprocessing")
READS = {"recv", "recv_into", "recv_fds", "recvmsg", "accept", "connect", "makefile"}
"""On a socket, in modules that give no socket a timeout."""
BOUNDING = {"settimeout", "setblocking", "create_connection", "setdefaulttimeout"}
RUNS = {"run", "call", "check_call", "check_output"}
OTHERS = {"wait_for", "poll", "select", "read", "readline", "readlines", "waitpid", "flock"}
NAMES = WAITS | RESULTS | READS | RUNS | OTHERS
"""Calls of other names are no waits."""
PIPES = {"stdin", "stdout", "stderr"}

IDLE = "an idle process of ours waits for work; it ends with the process that started it"
READY = "a selector said that there is something to read"
BOUNDED_OTHERWISE = {
    ("cluster/forkserver.py", "watched.poll()"): IDLE,
    ("harness/checks/plan_server.py", "sys.stdin.readline()"): IDLE,
    ("harness/checks/plan_server.py", "sys.stdin.read()"): IDLE,
    ("harness/checks/plan_server.py", "self._listener.accept()"): IDLE,
    ("harness/checks/plan_server.py", "connection.makefile('rb')"): IDLE,
    ("harness/commands/worker_processes.py", "channel.recv()"): IDLE,
    ("harness/programs/run_service.py", "child.wait()"): "a supervisor lasts as long as its service",
    ("harness/checks/spark_server.py", "listener.accept()"): READY,
    ("harness/checks/spark_server.py", "client.recv(64)"): READY,
    ("cluster/host/real/link.py", "self._sock.recv"): "`network.py` makes sockets that do not block",
    ("cluster/host/real/link.py", "self._sock.recv_into"): "the same",
    ("cluster/host/real/tls_session.py", "self._sock.recv_into"): "the same",
    ("cluster/__main__.py", "sys.stdin.read()"): "a person types the options, or a pipe has them",
    ("harness/checks/jvm.py", "probe.connect"): "a datagram socket: connecting sends nothing",
    ("harness/checks/judgement.py", "going.result()"): "it reads files and computes",
    ("harness/clients/event_loops.py", "pool.submit"): "`_bounded` has the deadline",
    ("harness/plugin/simulation_server.py", "self._socket.makefile('rw'"): IDLE,
    ("harness/plugin/simulation_server.py", "os.waitpid(pid, 0)"): "its pipe has ended, or it got SIGKILL",
    ("harness/plugin/simulated_tests.py", "self._own.makefile('rw'"): "`_readable` has the deadline",
    ("harness/workloads/program.py", "ending.wait"): "the caller waits for the program's end",
}
"""The file and the begin of the call's text: why the wait ends, or why it may last."""


def imports_of(tree: ast.AST) -> set[str]:
    """Return the modules that a module imports, and their parents."""
    names: set[str] = set()
    for node in nodes_of(tree):
        if isinstance(node, ast.Import):
            names |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names |= {node.module, *(f"{node.module}.{name.name}" for name in node.names)}
    return names | {name.partition(".")[0] for name in names}


def blocking_calls(tree: ast.AST) -> Iterator[ast.Call]:
    """Yield the calls that are no part of a coroutine."""
    left = [tree]
    while left:
        node = left.pop()
        if isinstance(node, ast.Call):
            yield node
        left += (child for child in ast.iter_child_nodes(node) if not isinstance(child, ast.AsyncFunctionDef))


def is_endless(call: ast.Call, imports: set[str], *, bounds_sockets: bool) -> bool:
    """Whether a call may block for ever."""
    if not isinstance(call.func, ast.Attribute) or call.func.attr not in NAMES:
        return False
    name, receiver = call.func.attr, ast.unparse(call.func.value)
    last = receiver.rpartition(".")[2].lstrip("_")
    given = {keyword.arg for keyword in call.keywords}
    if given & {"timeout", "timeout_s"} or receiver in ("self", "super()"):
        return False  # an object's own method, whose waits are looked at where it is defined
    bare = not call.args
    if name == "wait_for":
        return len(call.args) == 1
    if name == "wait" and receiver == "connection":  # of multiprocessing
        return len(call.args) == 1
    if receiver == "subprocess":
        return name in RUNS
    if name in WAITS and bare:
        return True
    if name in RESULTS and bare and imports.intersection(OF_RESULTS):
        return True
    if name in ("poll", "select") and bare:
        return bool(imports & {"select", "selectors"}) and last not in ("process", "select")
    if name in ("read", "readline", "readlines") and bare:
        return last in PIPES
    if name == "waitpid":
        return ast.unparse(call.args[-1]) == "0"
    if name == "flock":
        return "LOCK_EX" in ast.unparse(call) and "LOCK_NB" not in ast.unparse(call)
    return name in READS and "socket" in imports and not bounds_sockets and receiver != "sqlite3"


def endless_waits(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of each wait without a deadline."""
    imports = imports_of(tree)
    names = {node.attr for node in nodes_of(tree) if isinstance(node, ast.Attribute)}
    for call in blocking_calls(tree):
        if is_endless(call, imports, bounds_sockets=bool(names & BOUNDING)):
            yield call.lineno, ast.unparse(call)
    for node in nodes_of(tree):
        if isinstance(node, ast.For) and isinstance(node.iter, ast.Attribute) and node.iter.attr in PIPES:
            yield node.lineno, f"for … in {ast.unparse(node.iter)}"


def test_no_wait_of_the_product_is_without_a_deadline() -> None:
    sources = [path for layer in LAYERS for path in (ROOT / layer).rglob("*.py")]
    found = {
        (path.relative_to(ROOT).as_posix(), text): line
        for path in sources
        for line, text in endless_waits(tree_of(path))
    }
    used: set[tuple[str, str]] = set()
    endless: list[str] = []
    for (path, text), line in found.items():
        reasons = {(where, call) for where, call in BOUNDED_OTHERWISE if where == path and text.startswith(call)}
        used |= reasons
        if not reasons:
            endless.append(f"{path}:{line}: {text}")
    assert not endless, "give them a deadline and a message, or a reason in BOUNDED_OTHERWISE:\n" + "\n".join(endless)
    assert set(BOUNDED_OTHERWISE) == used, "BOUNDED_OTHERWISE names waits that are not there"


@pytest.mark.parametrize(
    ("code", "waits"),
    [
        ("process.wait()", True),
        ("process.wait(5)", False),
        ("process.communicate(timeout=3)", False),
        ("self._thread.join()", True),
        ("', '.join(names)", False),
        ("self.join()", False),
        ("changed.wait_for(lambda: ready)", True),
        ("changed.wait_for(lambda: ready, 5)", False),
        ("import subprocess\nsubprocess.run(['ls'])", True),
        ("import subprocess\nsubprocess.run([], timeout=9)", False),
        ("import queue\nwork.get()", True),
        ("settings.get()", False),
        ("import queue\nwork.get(timeout=1)", False),
        ("from concurrent.futures import Future\ngoing.result()", True),
        ("findings.result()", False),
        ("import select\nwatched.poll()", True),
        ("import select\nwatched = select.poll()", False),
        ("import select\nself._process.poll()", False),
        ("import selectors\nself._selector.select()", True),
        ("import socket\nclient.recv(1)", True),
        ("import socket\nclient.settimeout(1)\nclient.recv(1)", False),
        ("import fcntl\nfcntl.flock(file, fcntl.LOCK_EX)", True),
        ("import fcntl\nfcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)", False),
        ("import os\nos.waitpid(-1, 0)", True),
        ("import os\nos.waitpid(-1, os.WNOHANG)", False),
        ("for line in server.stdout: pass", True),
        ("sys.stdin.readline()", True),
        ("file.readline()", False),
        ("async def serve(): await stop.wait()", False),
        ("from multiprocessing import connection\nconnection.wait(channels)", True),
    ],
)
def test_waits_without_a_deadline_are_recognised(code: str, *, waits: bool) -> None:
    assert bool(list(endless_waits(ast.parse(code)))) is waits
