"""Checks a command that a page shows without running it: its program, subcommand and options exist.

Options of pytest are those of a run with all plugins of the suite; those of `harrow` are click's. A program that is not
in the table (`CHECKS`) is an error, so that no command stays unchecked.
"""

from __future__ import annotations

import functools
import importlib.util
import re
import subprocess
import sys
import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path

import click
from harrow.cluster.by_hand import parser
from harrow.harness.commands import COMMANDS, cli
from packaging.requirements import Requirement

ROOT = Path(__file__).parents[2]
OPTION = re.compile(r"(?<![\w-])--?[a-zA-Z][\w-]*")


def check_command(words: Sequence[str], place: str) -> None:
    """AssertionError for a command that cannot be executed as it is written; `place` is for its message."""
    program, *arguments = words[1:] if words[0] == "sudo" else words
    assert program in CHECKS, f"{place}: nothing checks commands of {program!r}; add it to CHECKS"
    problem = CHECKS[program](arguments)
    assert not problem, f"{place}: {' '.join(words)}: {problem}"


def _pytest(arguments: Sequence[str]) -> str:
    given = [word.partition("=")[0] for word in arguments if word.startswith("-")]
    unknown = [option for option in given if option not in pytest_options()]
    return f"pytest has no option {', '.join(unknown)}" if unknown else ""


@functools.cache
def pytest_options() -> frozenset[str]:
    """Return every option of pytest with the plugins that are installed here."""
    words = [sys.executable, "-m", "pytest", "--help", "-p", "no:cacheprovider"]
    done = subprocess.run(words, capture_output=True, text=True, check=True, cwd="/")
    return frozenset(OPTION.findall(done.stdout))


def _harrow(arguments: Sequence[str]) -> str:
    if not arguments or arguments[0] not in COMMANDS:
        return f"harrow has the commands {', '.join(COMMANDS)}"
    context = click.Context(cli)
    command = cli.get_command(context, arguments[0])
    assert command is not None
    parser = command.make_parser(click.Context(command, parent=context))
    try:
        values, left, _ = parser.parse_args([*arguments[1:]])
    except click.UsageError as error:
        return str(error.format_message())
    positional = [row for row in command.params if isinstance(row, click.Argument) and row.required]
    lacking = [str(row.name) for row in positional if not isinstance(values.get(str(row.name)), str)]
    return f"arguments that are missing: {lacking}, too many: {left}" if lacking or left else ""


def _python(arguments: Sequence[str]) -> str:
    if arguments[:1] != ["-m"]:
        return "" if arguments and arguments[0].endswith(".py") else "expected -m MODULE or a file"
    found = importlib.util.find_spec(arguments[1])
    return "" if found is not None else f"there is no module {arguments[1]}"


def _make(arguments: Sequence[str]) -> str:
    targets = re.findall(r"^([a-z]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
    unknown = [word for word in arguments if "=" not in word and word not in targets]
    return f"the Makefile has no target {', '.join(unknown)}" if unknown else ""


def _pip(arguments: Sequence[str]) -> str:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    extras: set[str] = set(project["optional-dependencies"])
    for word in arguments[1:]:
        if word.startswith(project["name"]):
            unknown = Requirement(word).extras - extras
            if unknown:
                return f"{project['name']} has no extra {', '.join(sorted(unknown))}"
    return "" if arguments[:1] == ["install"] else "expected pip install"


def _installs(arguments: Sequence[str]) -> str:
    return "" if "install" in arguments else "expected an installation"


def _uv(arguments: Sequence[str]) -> str:
    """The words after `uv pip` are those of pip; `--override FILE` is uv's."""
    if arguments[:2] != ["pip", "install"]:
        return "expected uv pip install"
    words = [*arguments[1:]]
    if "--override" in words:
        at = words.index("--override")
        del words[at : at + 2]
    return _pip(words)


def _docker(arguments: Sequence[str]) -> str:
    """The words after the image `harrow` are those of `python -m harrow.cluster`."""
    if arguments[:1] != ["run"]:
        return "expected docker run"
    if "harrow" not in arguments:
        return ""
    words = arguments[arguments.index("harrow") + 1 :]
    try:
        parser().parse_args(words or ["up"])
    except SystemExit:
        return f"the image has no such words: {' '.join(words)}"
    return ""


CHECKS: dict[str, Callable[[Sequence[str]], str]] = {
    "pytest": _pytest,
    "harrow": _harrow,
    "python": _python,
    "make": _make,
    "pip": _pip,
    "uv": _uv,
    "apt-get": _installs,
    "docker": _docker,
}
"""Program to a function that returns what is wrong with its arguments, or empty text."""
