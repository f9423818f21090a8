"""Programs in Go, Node and Java for tests, built of `tests/programs/` into the cache.

`built(language)` returns the words of the command, or raises NotBuiltError with the remedy. A test never builds or
downloads. `python tests/support/programs_in_other_languages.py [go] [node] [java]` builds them, with the toolchains and
the registries of this machine, each within `BUILD_TIMEOUT_S`; what is there already is kept. It ends with status 1
where a program could not be built. A build has its own folder for each state of its sources.
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


def built(language: str) -> list[str]:
    """Return the words of the command of a program that was built."""
    folder = folder_of(language)
    tool = TOOLS[language][0]
    if language != "go" and shutil.which(tool) is None:
        raise NotBuiltError(f"{tool} is not on the PATH: the programs in {language} cannot run")
    if not (folder / BUILT).exists():
        raise NotBuiltError(f"the programs in {language} are not built: {COMMAND} {language}")
    return COMMANDS[language](folder)


def build(language: str) -> None:
    """Build the program unless it is there; NotBuiltError says what failed."""
    folder = folder_of(language)
    if (folder / BUILT).exists():
        return
    missing = [tool for tool in TOOLS[language] if shutil.which(tool) is None]
    if missing:
        raise NotBuiltError(f"{language}: {', '.join(missing)} is not on the PATH")
    partial = folder.with_name(f"{folder.name}.partial")
    shutil.rmtree(partial, ignore_errors=True)
    shutil.copytree(SOURCES / language, partial)
    for command in BUILDS[language]:
        try:
            done = subprocess.run(
                command, cwd=partial, capture_output=True, text=True, timeout=BUILD_TIMEOUT_S, check=False
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            raise NotBuiltError(
                f"{language}: {' '.join(command)} took more than {BUILD_TIMEOUT_S} s"
            ) from None
        if done.returncode:
            raise NotBuiltError(
                f"{language}: {' '.join(command)} failed: {(done.stdout + done.stderr)[-2000:]}"
            )
    (partial / BUILT).touch()
    partial.replace(folder)


def folder_of(language: str) -> Path:
    """Return where a language's programs are built."""
    content = hashlib.sha256()
    for path in sorted(path for path in (SOURCES / language).rglob("*") if path.is_file()):
        content.update(path.name.encode() + b"\0" + path.read_bytes())
    return CACHE / f"programs-{language}-{content.hexdigest()[:16]}"


TOOLS: Mapping[str, tuple[str, ...]] = {
    "go": ("go",),
    "node": ("node", "npm"),
    "java": ("java", "javac", "mvn"),
}
"""What each language needs; the first one also runs the program, except in Go."""
BUILDS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "go": (("go", "build", "-o", "orders", "."),),
    "node": (("npm", "ci", "--no-audit", "--no-fund"),),
    "java": (
        ("mvn", "-q", "-B", "dependency:copy-dependencies", "-DoutputDirectory=jars"),
        ("javac", "-nowarn", "-d", "classes", "-cp", "jars/*", "Orders.java"),
    ),
}
COMMANDS: Mapping[str, Callable[[Path], list[str]]] = {
    "go": lambda folder: [str(folder / "orders")],
    "node": lambda folder: ["node", str(folder / "orders.js")],
    "java": lambda folder: ["java", "-cp", f"{folder / 'classes'}:{folder / 'jars'}/*", "Orders"],
}


def main(languages: list[str]) -> int:
    """Build the programs; return the status of the command."""
    failures: list[str] = []
    for language in languages or list(TOOLS):
        try:
            build(language)
            print(language, folder_of(language))
        except NotBuiltError as error:
            failures.append(str(error))
    for failure in failures:
        print(failure, file=sys.stderr)
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
