"""Runs a client's own tests on Apache Kafka and on Harrow, and prints the table of docs/clients.md.

    python tests/client_suites.py SUITE [--checkout FOLDER] [--on kafka|harrow] [--part REGEX] [--minutes N] [--port N]

SUITE is a name of `tests/support/suites_of_clients.py`. The registries of packages do not have the tests of clients, so
the checkout of the client's repository is yours: `--checkout`, or an environment variable such as HARROW_KAFKA_GO. It
is copied, and the tests of the copy get the addresses of the systems under test; the checkout is not changed. Both
systems get the same settings, run one after the other, and each run is bounded in time. A test that fails is repeated
alone once, and passes if it passes then. Copies, outputs and results stay below `harrow-out/client-suites/SUITE`;
`--on` repeats one of the two runs, and the other's results are read from there. The results of a `--part` join those
of earlier parts, so a long suite can run in parts; a run without `--part` begins the results again.

Ends with 0 if each test has the same result on both systems, 1 if not, and 2 with the remedy if something is missing.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import NoReturn

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT / "tests" / "support"))

from free_ports import first_free  # noqa: E402 - tests/support is not on the path of a command
from kafka_reference import HAS_JARS, TOOL  # noqa: E402 - the same
from secured_suites import write_certificates  # noqa: E402 - the same
from suite_processes import bounded  # noqa: E402 - the same
from suite_results import HARROW, KAFKA, counted, report, store  # noqa: E402 - the same
from suites_of_clients import BY_NAME, FAILED, PASSED, Selection, Suite  # noqa: E402 - the same
from waiting import until  # noqa: E402 - the same

START_S = 240.0
RESTARTS_MOST = 3
"""Times that a process of tests is started again, for the tests that did not begin."""
PREPARE_S = 900.0
REPEATED_MOST = 150
"""Failed tests that are repeated alone."""


def refuse(message: str) -> NoReturn:
    """End the command: something is missing, and the message has the remedy."""
    print(f"client_suites: {message}", file=sys.stderr)
    raise SystemExit(2)


def checkout_of(suite: Suite, given: str | None) -> Path:
    """Return the folder of the client's repository; ends the command where it is not one."""
    named = given or os.environ.get(suite.checkout_variable)
    remedy = (
        f"git clone --branch {suite.version} --depth 1 {suite.repository} FOLDER, then name it with"
        f" --checkout FOLDER or {suite.checkout_variable}=FOLDER"
    )
    if not named:
        refuse(f"no checkout of {suite.name}, and registries do not have its tests; run: {remedy}")
    file, text = suite.marker
    path = Path(named).resolve() / file
    if not path.is_file() or text not in path.read_text():
        refuse(f"{named} is no checkout of {suite.name}: it has no {file} with {text!r}; run: {remedy}")
    return Path(named).resolve()


def check_tools(suite: Suite, systems: Sequence[str]) -> None:
    """End the command where a program is missing or too old."""
    for tool, place in suite.tools.items():
        if shutil.which(tool) is None:
            refuse(f"{suite.name} needs {tool}, which is not on the PATH; install it from {place}")
    if suite.node_major_min:
        version = subprocess.run(["node", "--version"], capture_output=True, text=True, check=True).stdout.strip()
        if int(version.removeprefix("v").partition(".")[0]) < suite.node_major_min:
            major = suite.node_major_min
            refuse(
                f"{suite.name} needs node {major} or later, and the PATH has {version}; run: npm install --prefix"
                f" FOLDER node@{major}, and put FOLDER/node_modules/node/bin first on the PATH"
            )
    if KAFKA in systems and (shutil.which("java") is None or not Path(TOOL).exists() or not HAS_JARS):
        refuse(
            f"no Apache Kafka to compare with: it needs java 17, {TOOL} (HARROW_APACHE_KAFKA names another) and"
            f" Kafka's jars (run: {TOOL} jars); `--on harrow` runs on Harrow alone"
        )


def work_of(suite: Suite) -> Path:
    """Return the folder of a suite's copy, certificates, outputs and results."""
    return ROOT / "harrow-out" / "client-suites" / suite.name


def settings_of(suite: Suite, port: int, *, has_controller: bool) -> dict[str, object]:
    """Return what both systems are started with; the rest are Apache Kafka's defaults."""
    many = suite.brokers > 1
    secured: dict[str, object] = {}
    if suite.listeners is not None:
        secured = suite.listeners.settings(port, work_of(suite) / "certificates", has_controller=has_controller)
    return {
        "default.replication.factor": suite.brokers,
        "min.insync.replicas": 2 if many else 1,
        "offsets.topic.replication.factor": suite.brokers,
        "transaction.state.log.replication.factor": suite.brokers,
        "transaction.state.log.min.isr": 2 if many else 1,
        "group.initial.rebalance.delay.ms": 0,
        "auto.create.topics.enable": "true",
        **suite.settings,
        **secured,
    }


def listens(port: int) -> bool:
    """Whether a server accepts connections at a port of this machine."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


@contextmanager
def apache_kafka(suite: Suite, port: int) -> Generator[None]:
    """Run Apache Kafka; broker i listens on port + i."""
    settings = settings_of(suite, port, has_controller=True)
    lines = "\n".join(f"{name}={value}" for name, value in settings.items())
    environment = {**os.environ, "KAFKA_PORT": str(port), "KAFKA_HEAP": "512m", "KAFKA_SET": lines}
    with tempfile.TemporaryDirectory(prefix="harrow-client-suites-", ignore_cleanup_errors=True) as folder:
        try:
            done = subprocess.run(
                [TOOL, "up", folder, str(suite.brokers)],
                env=environment,
                capture_output=True,
                text=True,
                check=False,
                timeout=START_S,
            )
            ports = [port + broker for broker in range(1, suite.brokers + 1)]
            try:  # on a busy machine the start takes longer than the tool waits
                until(lambda: all(listens(port) for port in ports), timeout_s=START_S)
            except AssertionError:
                refuse(f"Apache Kafka did not start: {(done.stdout + done.stderr)[-500:]}")
            yield
        finally:
            subprocess.run([TOOL, "down", folder], check=False, capture_output=True)


@contextmanager
def harrow(suite: Suite, port: int) -> Generator[None]:
    """Run Harrow with Apache Kafka's defaults; broker i listens on port + i."""
    settings = settings_of(suite, port, has_controller=False)
    words = [f"--set={name}={value}" for name, value in settings.items()]
    command = [
        str(Path(sys.executable).with_name("harrow")),
        "up",
        "--json",
        "--defaults",
        "kafka",
        "--brokers",
        str(suite.brokers),
        "--port",
        str(port),
        *words,
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, start_new_session=True) as process:
        try:
            assert process.stdout is not None
            if not process.stdout.readline():
                refuse("Harrow did not start; its message is above")
            yield
        finally:
            process.terminate()
            process.wait(START_S)


SYSTEMS = {KAFKA: apache_kafka, HARROW: harrow}


def copy_of(suite: Suite, checkout: Path, work: Path, ports: Mapping[int, int]) -> Path:
    """Return a copy of the checkout whose tests have these ports; what was fetched for it before is kept."""
    copy = work / "copy"
    shutil.copytree(
        checkout, copy, dirs_exist_ok=True, symlinks=True, ignore=shutil.ignore_patterns(".git", "node_modules")
    )
    for files, expression, replacement in suite.addresses:
        for path in copy.glob(files):
            if "node_modules" in path.parts or path.name in suite.unchanged:
                continue
            text = path.read_text()
            ported = replacement
            for broker, port in ports.items():
                ported = ported.replace(f"{{{broker}}}", str(port))
            if (changed := re.sub(expression, ported, text)) != text:
                path.write_text(changed)
    if suite.listeners is not None:
        suite.listeners.add_overlay(copy)
    return copy


def prepare(suite: Suite, copy: Path) -> None:
    """Fetch what the tests import, once for a copy."""
    done = copy / ".harrow-prepared"
    if done.exists():
        return
    for command in suite.prepare:
        print(f"{suite.name}: {' '.join(command)}", file=sys.stderr, flush=True)
        try:
            ended = subprocess.run(command, cwd=copy, capture_output=True, text=True, check=False, timeout=PREPARE_S)
        except subprocess.TimeoutExpired:
            limit = f"{PREPARE_S / 60:.0f} minutes"
            refuse(f"{' '.join(command)} took more than {limit} in {copy}; run it there, then run this again")
        if ended.returncode:
            refuse(f"{' '.join(command)} failed in {copy}: {(ended.stdout + ended.stderr)[-800:]}")
    done.touch()


def run(suite: Suite, system: str, copy: Path, work: Path, *, port: int, minutes: float, part: str) -> dict[str, str]:
    """Run the suite on one system; return the result of each test."""
    brokers = ",".join(f"127.0.0.1:{port + broker}" for broker in range(1, suite.brokers + 1))
    environment = {**suite.environment, suite.variable: brokers}
    if suite.listeners is not None:
        environment |= suite.listeners.environment(port, work / "certificates")
    began, limit_s = time.monotonic(), minutes * 60
    found: dict[str, str] = {}

    def attempt(name: str, only: Sequence[str], limit_s: float) -> dict[str, str]:
        results = work / f"{system}-{name}.results"
        results.unlink(missing_ok=True)
        selection = Selection(folder=copy, results=results, only=tuple(only), part=part)
        output = results if "go" in suite.tools else results.with_suffix(".log")
        named = environment | {"HARROW_RESULTS": str(results)}
        if not bounded(suite.command(selection), copy, named, output, limit_s):
            print(f"{suite.name} on {system}: stopped after {limit_s / 60:.0f} minutes", file=sys.stderr)
        if not results.exists():
            if found:  # of an earlier process of tests: they are not lost
                return {}
            refuse(f"{suite.name} on {system} wrote no results; its output is {output}")
        return suite.outcomes(selection)

    with SYSTEMS[system](suite, port):
        found = attempt("all", (), limit_s)
        for turn in range(RESTARTS_MOST):
            if part or not (rest := suite.missing(copy, found)):
                break
            found = attempt(f"rest-{turn + 1}", rest, limit_s) | found
        failed = [name for name, result in found.items() if result == FAILED]
        if failed:
            again = attempt("again", failed[:REPEATED_MOST], limit_s / 2)
            found |= {name: PASSED for name in failed if again.get(name) == PASSED}
    took = (time.monotonic() - began) / 60
    print(f"{suite.name} on {system}: {counted(found)}; {took:.1f} minutes", file=sys.stderr, flush=True)
    return found


def end(number: int, frame: object) -> NoReturn:
    """End the command by a signal, so that the brokers that it started end first."""
    del frame
    raise SystemExit(128 + number)


def main(words: Sequence[str]) -> int:
    """Run the command; return its exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=sorted(BY_NAME))
    parser.add_argument("--checkout", help="folder of the client's repository")
    parser.add_argument("--on", choices=sorted(SYSTEMS), help="run on this system only")
    parser.add_argument("--part", default="", help="a regular expression for Go tests, else for paths of test files")
    parser.add_argument("--minutes", type=float, default=15, help="for the tests on one system")
    parser.add_argument("--port", type=int, help="broker i listens on PORT + i; free ports by default")
    given = parser.parse_args(words)
    signal.signal(signal.SIGTERM, end)  # so that brokers end, too
    suite = BY_NAME[given.suite]
    systems = [given.on] if given.on else [KAFKA, HARROW]
    checkout = checkout_of(suite, given.checkout)
    check_tools(suite, systems)
    brokers = range(1, suite.brokers + 1)
    ports = range(1, max(brokers) + 1) if suite.listeners is None else range(1, 1 + len(suite.listeners.ports(0)))
    port = given.port or first_free(range(28_000, 29_900, 20), ports)
    work = work_of(suite)
    work.mkdir(parents=True, exist_ok=True)
    if suite.listeners is not None:
        write_certificates(work / "certificates")
    copy = copy_of(suite, checkout, work, {broker: port + broker for broker in (0, *brokers)})
    prepare(suite, copy)
    for system in systems:
        found = run(suite, system, copy, work, port=port, minutes=given.minutes, part=given.part)
        store(work / f"{system}.json", found, part=given.part)
    stored = {name: work / f"{name}.json" for name in SYSTEMS}
    results = {name: json.loads(path.read_text()) for name, path in stored.items() if path.exists()}
    return 0 if report(suite, results) else 1


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
