"""What `harrow.start` gives to the process of a service, and how that process runs it, ends and starts it again."""

from __future__ import annotations

import asyncio
import functools
import importlib.util
import signal
import subprocess
import sys
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.harness.programs.service_process import BEGUN, command_of, write_call
from waiting import until

SERVICES = """
import asyncio
import sys
from pathlib import Path


class Billing:
    def __init__(self, folder):
        self.folder = folder

    async def run(self):
        (Path(self.folder) / "billed").touch()


async def write(folder, text):
    (Path(folder) / "written").write_text(text)


async def fails_twice(folder):
    starts = Path(folder) / "starts"
    with starts.open("a") as file:
        file.write("x")
    if len(starts.read_text()) < 3:
        raise LookupError("no configuration")


async def exits(code):
    sys.exit(code)


async def waits():
    await asyncio.Event().wait()
"""


@pytest.fixture
def services(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A module that is imported from its file under a name that no path has, as pytest's importmode importlib does."""
    file = tmp_path / "services_of_a_test.py"
    file.write_text(SERVICES)
    spec = importlib.util.spec_from_file_location("tests_of_user.services", file)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    monkeypatch.setitem(sys.modules, "tests_of_user.services", module)
    monkeypatch.setitem(sys.modules, "tests_of_user", types.ModuleType("tests_of_user"))
    spec.loader.exec_module(module)
    return module


def started(folder: Path, main: Any, *args: object, restart: Any = "never") -> subprocess.Popen[str]:
    file = write_call(folder / "program", "billing", main, args, restart)
    return subprocess.Popen(command_of(file), stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)


def ended(process: subprocess.Popen[str]) -> tuple[int, str]:
    said, _ = process.communicate(timeout=60)
    return process.returncode, said


def test_functions_partials_and_methods_run_in_their_process(tmp_path: Path, services: Any) -> None:
    folder = str(tmp_path)
    assert ended(started(tmp_path, services.write, folder, "one"))[0] == 0
    assert (tmp_path / "written").read_text() == "one"
    assert ended(started(tmp_path, functools.partial(services.write, folder), "two"))[0] == 0
    assert (tmp_path / "written").read_text() == "two"
    assert ended(started(tmp_path, services.Billing(folder).run))[0] == 0
    assert (tmp_path / "billed").exists()


def test_an_exception_is_exit_code_1_with_its_traceback_and_exit_codes_are_kept(tmp_path: Path, services: Any) -> None:
    code, said = ended(started(tmp_path, services.fails_twice, str(tmp_path)))
    assert code == 1 and "LookupError: no configuration" in said
    assert ended(started(tmp_path, services.exits, 7))[0] == 7


def test_a_supervised_service_starts_again_until_it_ends_well(tmp_path: Path, services: Any) -> None:
    assert ended(started(tmp_path, services.fails_twice, str(tmp_path), restart="on-failure"))[0] == 0
    assert (tmp_path / "starts").read_text() == "xxx"


@pytest.mark.parametrize("restart", ["never", "always"])
def test_a_service_says_when_it_begins_and_sigterm_ends_it(tmp_path: Path, services: Any, restart: str) -> None:
    process = started(tmp_path, services.waits, restart=restart)
    until((tmp_path / "program" / BEGUN).exists, "the coroutine runs")
    process.send_signal(signal.SIGTERM)
    assert ended(process)[0] == (-signal.SIGTERM if restart == "never" else 128 + signal.SIGTERM)


async def at_module_level(*_: object) -> None:
    """Nothing."""


def refused(main: Callable[..., Any] | Any, *args: object) -> str:
    with pytest.raises(ConfigError) as refusal:
        write_call(Path("/nowhere"), "billing", main, args, "never")
    return str(refusal.value)


def test_what_cannot_be_given_to_another_process_is_refused_with_the_remedy() -> None:
    async def within() -> None:
        """Nothing."""

    for main in (within, lambda: at_module_level()):  # noqa: PLW0108 - a lambda is what is tested
        assert "define it at the top level of a module" in refused(main)
    assert "argument 2, <asyncio" in refused(at_module_level, 1, asyncio.Event())
    coroutine = at_module_level()
    assert "give the function and its arguments: harrow.start(main, servers)" in refused(coroutine)
    coroutine.close()
