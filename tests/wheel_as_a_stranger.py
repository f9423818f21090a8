"""Builds the wheel, installs it in an empty environment as a stranger does, and runs the README's first example there.

    python tests/wheel_as_a_stranger.py [--python 3.13 …] [--keep FOLDER]

For each Python: the installation with uv, its size, then runs of pytest in an empty project: the example as it is
pasted, with warnings as errors, with pytest-randomly, with four xdist workers and four copies of the example, the
commands `harrow --version` and `harrow up --json`, and what an empty test costs with and without Harrow. It prints a
table. Exit code 1 when a run fails, or its output lacks a valid verdict. It takes two minutes and 1.2 GB for each
Python, so it is no part of the suite (`make wheel`).
"""

from __future__ import annotations

import argparse
import os
import re
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from statistics import median

ROOT = Path(__file__).parents[1]
UV = Path(sys.executable).with_name("uv")
VALID = ": valid (no-loss)"
COPIES = 4
ROUNDS = 9


def example() -> str:
    """Return the first Python block of the README."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)
    assert found is not None
    return found[1]


class Stranger:
    """An empty environment with one version of Python, and a project in it."""

    def __init__(self, folder: Path, version: str) -> None:
        self._bin = folder / "venv" / "bin"
        self._project = folder / "project"
        self._folder = folder
        self._project.mkdir(parents=True)
        self._uv("venv", "--quiet", "--python", version, str(folder / "venv"))
        self.failed = False

    def _uv(self, *words: str) -> None:
        subprocess.run([UV, *words], check=True, cwd=self._folder)

    def install(self, *packages: str) -> None:
        """Install packages from the registry, or a wheel."""
        python = str(self._bin / "python")
        began = time.perf_counter()
        self._uv("pip", "install", "--quiet", "--system-certs", "--python", python, *packages)
        used = subprocess.run(["du", "-sm", self._folder / "venv"], check=True, capture_output=True, text=True)
        names = ", ".join(re.sub(r".*/|-py3-none-any\.whl", "", name) for name in packages)
        size = used.stdout.split()[0]
        self.report(f"install {names}", f"{time.perf_counter() - began:.0f} s, {size} MB", ok=True)

    def report(self, what: str, result: str, *, ok: bool) -> None:
        """Print a row of the table."""
        self.failed |= not ok
        print(f"| {what} | {'' if ok else 'FAILED: '}{result} |", flush=True)

    def environment(self) -> dict[str, str]:
        """Return the environment of a stranger's shell: nothing of this project, and bytecode is kept."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HARROW")}
        removed = ("PYTHONPATH", "PYTHONDONTWRITEBYTECODE", "VIRTUAL_ENV")
        return {name: value for name, value in kept.items() if name not in removed}

    def run(self, what: str, words: Sequence[str], *, shows: str, times: int = 1) -> None:
        """Run a command in the project; its output must show `shows` so many times."""
        began = time.perf_counter()
        done = subprocess.run(
            [self._bin / words[0], *words[1:]],
            cwd=self._project,
            env=self.environment(),
            capture_output=True,
            text=True,
            check=False,
            timeout=600,
        )
        printed = done.stdout + done.stderr
        ok = done.returncode == 0 and printed.count(shows) == times
        self.report(what, f"{time.perf_counter() - began:.1f} s", ok=ok)
        if not ok:
            print(printed)

    def paste(self, copies: int = 1) -> None:
        """Write the example into so many test files."""
        for number in range(copies):
            (self._project / f"test_orders_{number}.py").write_text(example())

    def up(self) -> None:
        """Start and stop a cluster in a terminal."""
        with subprocess.Popen(
            [self._bin / "harrow", "up", "--json"],
            cwd=self._project,
            env=self.environment(),
            stdout=subprocess.PIPE,
            text=True,
        ) as process:
            began = time.perf_counter()
            assert process.stdout is not None
            line = process.stdout.readline()
            took = time.perf_counter() - began
            process.send_signal(signal.SIGINT)
        ok = process.returncode == 0 and '"bootstrap_servers"' in line
        self.report("`harrow up --json`, then Ctrl-C", f"{took:.1f} s until ready", ok=ok)

    def empty_test(self) -> float:
        """Return the median processor time of a run of pytest with an empty test, in seconds."""
        folder = self._folder / "empty"
        folder.mkdir()
        (folder / "test_empty.py").write_text("def test_empty(): pass\n")
        took: list[float] = []
        for _ in range(ROUNDS + 1):
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                [self._bin / "pytest", "-q"], cwd=folder, env=self.environment(), check=True, stdout=subprocess.DEVNULL
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            took.append(after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime)
        return median(took[1:])  # the first run writes the bytecode


def build(folder: Path) -> str:
    """Build the wheel and return its path."""
    subprocess.run(
        [
            UV,
            "build",
            "--quiet",
            "--wheel",
            "--no-build-isolation",
            "--python",
            sys.executable,
            "--out-dir",
            folder,
            ROOT,
        ],
        check=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    shutil.rmtree(ROOT / "build", ignore_errors=True)
    (wheel,) = folder.glob("*.whl")
    return str(wheel)


def visit(folder: Path, version: str, wheel: str) -> bool:
    """Do everything with one version of Python; return whether all of it was right."""
    print(f"\nPython {version}\n\n| what | result |\n| --- | --- |", flush=True)
    bare = Stranger(folder / "bare", version)
    bare.install("pytest")
    without = bare.empty_test()
    stranger = Stranger(folder / "stranger", version)
    stranger.install(wheel)
    installed = stranger.empty_test()
    text = f"{without * 1000:.0f} ms, with Harrow {installed * 1000:.0f} ms of processor time"
    stranger.report("an empty test", text, ok=True)
    stranger.run("`harrow --version`", ["harrow", "--version"], shows="harrow, version")
    stranger.up()
    stranger.paste()
    stranger.run("the README's example", ["pytest"], shows=VALID)
    stranger.run("the same with -W error", ["pytest", "-W", "error"], shows=VALID)
    stranger.install(f"{wheel}[xdist]", "pytest-randomly")
    stranger.run("the same with pytest-randomly", ["pytest", "-W", "error"], shows=VALID)
    stranger.paste(COPIES)
    words = ["pytest", "-W", "error", "-n", "4"]
    stranger.run(f"{COPIES} copies with -n 4", words, shows=VALID, times=COPIES)
    return not (bare.failed or stranger.failed)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    own = f"{sys.version_info[0]}.{sys.version_info[1]}"
    parser.add_argument("--python", action="append", help=f"version or path; repeatable ({own})")
    parser.add_argument("--keep", type=Path, help="a new folder for the environments, which stays")
    options = parser.parse_args()
    base: Path = options.keep or Path(tempfile.mkdtemp(prefix="harrow-stranger-"))
    base.mkdir(exist_ok=True)
    try:
        wheel = build(base)
        versions: list[str] = options.python or [own]
        right = [visit(base / str(number), version, wheel) for number, version in enumerate(versions)]
    finally:
        if options.keep is None:
            shutil.rmtree(base, ignore_errors=True)
    return 0 if all(right) else 1


if __name__ == "__main__":
    sys.exit(main())
