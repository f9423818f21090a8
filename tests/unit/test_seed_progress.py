"""The line of a search over seeds: on a terminal that someone watches, and nowhere else."""

from __future__ import annotations

import os
from collections.abc import Generator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from harrow.harness.plugin import seed_progress
from harrow.harness.plugin.seed_progress import CLEAR, SeedProgress
from waiting import readable

QUIET_S = 0.3
TEXT = "harrow: 12 of 200 seeds, 3.1 runs a second"


class Reporter:
    """pytest's terminal reporter, as far as the line uses it."""

    isatty = True

    def __init__(self) -> None:
        self.lines_ended = 0

    def ensure_newline(self) -> None:
        self.lines_ended += 1

    def flush(self) -> None:
        """Nothing is buffered."""


def item_of(reporter: Reporter, *, verbose: int = 0, **worker: Any) -> Any:
    plugins = {"terminalreporter": reporter}
    config = SimpleNamespace(
        option=SimpleNamespace(verbose=verbose), pluginmanager=SimpleNamespace(get_plugin=plugins.get), **worker
    )
    return SimpleNamespace(config=config)


def worker_of(stderr: int) -> Any:
    return SimpleNamespace(stderr=stderr)


@contextmanager
def terminal() -> Generator[tuple[int, int]]:
    own, other = os.openpty()
    try:
        yield own, other
    finally:
        os.close(own)
        os.close(other)


def written(descriptor: int) -> str:
    """What the terminal has: the kernel delivers each write by itself, some time later."""
    text = b""
    while readable(descriptor, QUIET_S):
        text += os.read(descriptor, 1 << 16)
    return text.decode()


@pytest.fixture(autouse=True)
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(seed_progress, "FIRST_S", 0)
    monkeypatch.setattr(seed_progress, "DRAW_EVERY_S", 0)
    monkeypatch.delenv("CI", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setenv("COLUMNS", "30")


def test_the_line_is_drawn_at_one_place_and_gone_at_the_end() -> None:
    reporter = Reporter()
    with terminal() as (own, other):
        progress = SeedProgress(item_of(reporter), worker_of(other))
        progress.show(TEXT)
        assert written(own) == f"{CLEAR}{TEXT[:29]}\r"
        progress.show("harrow: 13")
        progress.end()
        assert written(own) == f"{CLEAR}harrow: 13\r{CLEAR}"
        progress.end()
        assert written(own) == ""
    assert reporter.lines_ended == 1


@pytest.mark.parametrize("where", ["pipe", "quiet", "ci", "worker", "dumb"])
def test_nothing_is_written_where_no_one_watches(where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if where == "ci":
        monkeypatch.setenv("CI", "true")
    if where == "dumb":
        monkeypatch.setenv("TERM", "dumb")
    given: dict[str, Any] = {"verbose": -1} if where == "quiet" else {"workerinput": {}} if where == "worker" else {}
    reporter = Reporter()
    with terminal() as (own, other):
        read, write = os.pipe()
        progress = SeedProgress(item_of(reporter, **given), worker_of(write if where == "pipe" else other))
        progress.show(TEXT)
        progress.end()
        os.close(write)
        assert os.read(read, 100) == b""
        os.close(read)
        assert written(own) == ""
    assert not reporter.lines_ended
