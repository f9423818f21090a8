"""Programs in Go, Node and Java for tests, built of `tests/programs/` into the cache.

`built(program)` returns the words of the command, or raises NotBuiltError with the remedy. A program is a folder of
`tests/programs/`; those in `known_bugs/` are built with two versions of their client, `old` and `fixed`, of which the
caller names one. A test never builds or downloads. `python tests/support/programs_in_other_languages.py [PROGRAM] …`
builds the given ones or all, with the toolchains and the registries of this machine, each command within
`BUILD_TIMEOUT_S`; what is there already is kept. It ends with status 1 where a program could not be built. A build has
its own folder for each state of its sources and of the commands that build it.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

SOURCES = Path(__file__).parents[1] / "programs"
CACHE = Path.home() / ".cache" / "harrow"
BUILD_TIMEOUT_S = 600
COMMAND = "python tests/support/programs_in_other_languages.py"
BUILT = "built"
"""The name of a file that a finished build has."""


class NotBuiltError(Exception):
    """A program is not here, or cannot be built."""


def built(program: str, version: str = "") -> list[str]:
    """Return the words of the command of a program that was built, with this version of its client."""
    folder = folder_of(program)
    tool = tools(program)[0]
    if tool != "go" and shutil.which(tool) is None:
        raise NotBuiltError(f"{tool} is not on the PATH: the programs of {program} cannot run")
    if not (folder / BUILT).exists():
        raise NotBuiltError(f"the programs of {program} are not built: {COMMAND} {program}")
    return COMMANDS[program](folder, version)


def build(program: str) -> None:
    """Build the program unless it is there; NotBuiltError says what failed."""
    folder = folder_of(program)
    if (folder / BUILT).exists():
        return
    missing = [tool for tool in tools(program) if shutil.which(tool) is None]
    if missing:
        raise NotBuiltError(f"{program}: {', '.join(missing)} is not on the PATH")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(SOURCES / program, partial)
    for command in BUILDS[program]:
        try:
            done = subprocess.run(
                command, cwd=partial, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise NotBuiltError(f"{program}: {' '.join(command)} took more than {BUILD_TIMEOUT_S} s") from None
        if done.returncode:
            raise NotBuiltError(f"{program}: {' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}")
    (partial / BUILT).touch()
    partial.replace(folder)


def folder_of(program: str) -> Path:
    """Return where a program is built, which depends on its sources and on how they are built."""
    content = hashlib.sha256(repr(BUILDS[program]).encode())
    for path in sorted(path for path in (SOURCES / program).rglob("*") if path.is_file()):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return CACHE / f"programs-{program.replace('/', '-')}-{content.hexdigest()[:16]}"


def tools(program: str) -> tuple[str, ...]:
    """Return what a program needs; the first one also runs it, except in Go."""
    return TOOLS[program.rpartition("/")[2]]


_JAVA = ("java", "javac", "mvn")
TOOLS: Mapping[str, tuple[str, ...]] = {"go": ("go",), "node": ("node", "npm"), "java": _JAVA, "streams": _JAVA}
NPM = ("npm", "ci", "--no-audit", "--no-fund")
JARS = ("mvn", "-q", "-B", "dependency:copy-dependencies")
JAVAC = ("javac", "-nowarn", "-d", "classes", "-cp")
BUILDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "go": (("go", "build", "-o", "orders", "."),),
    "node": (NPM,),
    "java": ((*JARS, "-DoutputDirectory=jars"), (*JAVAC, "jars/*", "Orders.java")),
    "streams": ((*JARS, "-DoutputDirectory=jars"), (*JAVAC, "jars/*", "Bills.java")),
    "known_bugs/go": (
        ("go", "build", "-o", "orders-fixed", "."),
        ("go", "build", "-modfile=old.mod", "-o", "orders-old", "."),
    ),
    "known_bugs/node": (NPM,),
    "known_bugs/java": (
        (*JARS, "-DoutputDirectory=jars-fixed"),
        (*JARS, "-DoutputDirectory=jars-old", "-Dkafka.version=3.1.0"),
        (*JAVAC, "jars-old/*", "Orders.java"),
    ),
}
COMMANDS: Mapping[str, Callable[[Path, str], list[str]]] = {
    "go": lambda folder, _: [str(folder / "orders")],
    "node": lambda folder, _: ["node", str(folder / "orders.js")],
    "java": lambda folder, _: java(folder, "jars"),
    "streams": lambda folder, _: java(folder, "jars", "Bills", "-Xmx256m", "-XX:+UseSerialGC"),
    "known_bugs/go": lambda folder, version: [str(folder / f"orders-{version}")],
    "known_bugs/node": lambda folder, version: ["node", str(folder / "orders.js"), version],
    "known_bugs/java": lambda folder, version: java(folder, f"jars-{version}"),
}


def java(folder: Path, jars: str, program: str = "Orders", *options: str) -> list[str]:
    return ["java", *options, "-cp", f"{folder / 'classes'}:{folder / jars}/*", program]


def main(programs: list[str]) -> int:
    """Build the programs; return the status of the command."""
    failures: list[str] = []
    for program in programs or list(BUILDS):
        try:
            build(program)
            print(program, folder_of(program))
        except NotBuiltError as error:
            failures.append(str(error))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
