"""A page's code blocks as the project of a reader, in a folder of its own.

    `# shop.py` as first line   the file of the project; a file that no other block names is an error
    python with tests           run by pytest with warnings as errors, unless a shown command runs the file
    other python                run as a script
    console with output         the commands are run; each shown line is found in their output, in this order
    console without output      the program, its subcommand and its options exist (`documented_commands.py`)
    ini, toml                   read by a run of pytest with strict configuration; entry points name files of the page
    yaml                        parsed; the commands of its steps are checked like those of a console block
    json                        parsed
    text, no language           nothing

In shown output `…` stands for any text of a line. Blocks with `<!-- not run: reason -->` are not looked at.
"""

from __future__ import annotations

import ast
import configparser
import importlib
import json
import os
import re
import shlex
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import yaml
from code_blocks import Block, Command
from documented_commands import check_command

BIN = Path(sys.executable).parent
PYTEST = (sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", "-W", "error")
PROGRAMS: dict[str, Sequence[str]] = {
    "pytest": (*PYTEST, "-p", "no:xdist"),
    "python": (sys.executable,),
    "harrow": (str(BIN / "harrow"),),
}
"""What a command of a page is run by."""
TIMEOUT_S = 240
WIDE = {"COLUMNS": "400", "PY_COLORS": "0", "NO_COLOR": "1"}
SETTINGS_FILES = {"ini": "pytest.ini", "toml": "pyproject.toml"}
NOT_PASSED = re.compile(r"\b\d+ (?:skipped|xfailed|xpassed|deselected)\b")
NO_CODE = ("", "text", "diff")


class DocumentedProject:
    """The project of one page."""

    def __init__(self, folder: Path, blocks: Iterable[Block], shared: Iterable[Block] = ()) -> None:
        """`shared`: files of another page, which the blocks may import."""
        self._folder = folder
        self._blocks = [block for block in blocks if block.not_run is None]
        self._shared = list(shared)

    def check(self) -> None:
        """Read every block, and run those that can be run."""
        self.read()
        self.run()

    def read(self) -> None:
        """Check every block without running it: languages, names that Python blocks import, commands, YAML and JSON.

        AssertionError names the block's place, and says what is wrong.
        """
        for block in self._blocks:
            assert block.language in {"python", "console", "yaml", "json", *SETTINGS_FILES, *NO_CODE}, (
                f"{block.place}: a code block of language {block.language!r}: nothing checks it"
            )
            match block.language:
                case "console":
                    for command in block.commands:
                        check_command(command.words, block.place)
                case "python":
                    _check_imports(block)
                case "yaml":
                    check_workflow(block)
                case "json":
                    json.loads(block.code)
                case _:
                    pass

    def run(self) -> None:
        """Run every block that can be run. AssertionError names the block's place, and says what is wrong."""
        tests = self._write_files()
        for block in self._blocks:
            match block.language:
                case "console":
                    self._console(block, tests)
                case "ini" | "toml":
                    self._settings(block)
                case _:
                    pass
        self._run_tests(tests)
        for block in self._blocks:
            if block.language == "python" and block.name is None and not block.has_tests:
                done = self._run([sys.executable, "-W", "error", "-c", block.code])
                assert done.returncode == 0, f"{block.place}: {_output(done)}"

    # ------------------------------------------------------------------------------------ files

    def _write_files(self) -> dict[str, Block]:
        """Write the files; return those with tests, by name."""
        tests: dict[str, Block] = {}
        for block in [*self._shared, *self._blocks]:
            name = block.name
            if name is None and block.has_tests:
                name = f"test_line_{block.line}.py"
            if name is None:
                continue
            path = self._folder / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(block.code, encoding="utf-8")
            if block.has_tests and block not in self._shared:
                tests[name] = block
            elif block.language == "python" and block not in self._shared:
                self._check_use(block, name)
        return tests

    def _check_use(self, block: Block, name: str) -> None:
        module = re.compile(rf"\b{re.escape(Path(name).stem)}\b")
        used = name == "conftest.py" or any(module.search(other.code) for other in self._blocks if other is not block)
        assert used, f"{block.place}: no other block of the page uses {name}"

    # --------------------------------------------------------------------------------- commands

    def _console(self, block: Block, tests: dict[str, Block]) -> None:
        for command in block.commands:
            if command.shown:
                self._check_output(block, command)
                for word in command.words:
                    tests.pop(word, None)

    def _check_output(self, block: Block, command: Command) -> None:
        program, *words = command.words
        assert program in PROGRAMS, f"{block.place}: {program} cannot be run with its output checked"
        done = self._run([*PROGRAMS[program], *words])
        printed = _output(done)
        missing = first_missing(command.shown, printed)
        assert missing is None, f"{block.place}: no line of the output is\n{missing}\n{printed}"

    def _run(self, words: Sequence[str]) -> subprocess.CompletedProcess[str]:
        path = os.pathsep.join([str(BIN), os.environ.get("PATH", "")])
        return subprocess.run(
            words,
            cwd=self._folder,
            capture_output=True,
            text=True,
            check=False,
            timeout=TIMEOUT_S,
            env={**os.environ, **WIDE, "PATH": path},
        )

    def _run_tests(self, tests: dict[str, Block]) -> None:
        if tests:
            done = self._run([*PYTEST, "-p", "no:xdist", *tests])
            places = ", ".join(block.place for block in tests.values())
            assert done.returncode == 0, f"{places}: {_output(done)}"
            assert not NOT_PASSED.search(done.stdout), f"{places}: {_output(done)}"

    # --------------------------------------------------------------------------------- settings

    def _settings(self, block: Block) -> None:
        """Have pytest read the settings; an unknown one is an error. Entry points name files of the page."""
        if (project := _project(block)) is not None:
            modules = {Path(other.name).stem for other in self._blocks if other.name}
            points: dict[str, dict[str, str]] = project.get("entry-points", {})
            for named in (value for group in points.values() for value in group.values()):
                assert named in modules, f"{block.place}: no block of the page is {named}.py"
            return
        folder = self._folder / f"settings-{block.line}"
        folder.mkdir()
        (folder / SETTINGS_FILES[block.language]).write_text(block.code, encoding="utf-8")
        assert "pytest" in _sections(block), f"{block.place}: pytest finds no settings in it"
        (folder / "test_nothing.py").write_text("def test_nothing(harrow): assert harrow.brokers\n")
        done = self._run([*PYTEST, "--strict-config", f"--rootdir={folder}", str(folder)])
        assert done.returncode == 0, f"{block.place}: {_output(done)}"


def _sections(block: Block) -> Iterable[str]:
    if block.language == "toml":
        tools: dict[str, Any] = tomllib.loads(block.code).get("tool", {})
        return tools
    parser = configparser.ConfigParser()
    parser.read_string(block.code)
    return parser.sections()


def _project(block: Block) -> dict[str, Any] | None:
    """Return the metadata of a distribution; None for other settings."""
    return tomllib.loads(block.code).get("project") if block.language == "toml" else None


def _check_imports(block: Block) -> None:
    """Compile a Python block; what it imports from Harrow exists."""
    for node in ast.walk(ast.parse(block.code, block.place)):
        if isinstance(node, ast.ImportFrom) and (node.module or "").partition(".")[0] == "harrow":
            module = importlib.import_module(node.module or "")
            for alias in node.names:
                assert hasattr(module, alias.name), f"{block.place}: {node.module} has no {alias.name}"


def check_workflow(block: Block) -> None:
    """Parse a YAML file, and check the commands of its steps."""
    body: Any = yaml.safe_load(block.code)
    commands = [text for text in _values(body, "run") if isinstance(text, str)]
    for line in (line for text in commands for line in text.splitlines() if line.strip()):
        check_command(shlex.split(re.sub(r"\$\{\{.*?\}\}", "1", line)), block.place)


def _values(body: Any, name: str) -> Iterable[Any]:
    """Yield every value of the key `name`, at any depth."""
    is_mapping, is_list = hasattr(body, "items"), isinstance(body, list)
    pairs = body.items() if is_mapping else enumerate(body) if is_list else ()
    for key, value in pairs:
        if key == name:
            yield value
        yield from _values(value, name)


def first_missing(shown: Iterable[str], printed: str) -> str | None:
    """Return the first shown line that the output does not have after the earlier ones; None if it has all."""
    lines = iter([_plain(line) for line in printed.splitlines()])
    for line in shown:
        if set(line.strip()) == {"…"}:
            continue
        pattern = re.compile(".*".join(map(re.escape, _plain(line).split("…"))))
        if not any(pattern.fullmatch(candidate) for candidate in lines):
            return line
    return None


def _plain(line: str) -> str:
    return " ".join(line.split())


def _output(done: subprocess.CompletedProcess[str]) -> str:
    return f"exit code {done.returncode}\n{done.stdout}\n{done.stderr}"
