"""Extensions for tests: modules with hooks, entry points of distributions that do not exist, and their removal."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable
from contextlib import contextmanager
from importlib.metadata import EntryPoint
from types import ModuleType, SimpleNamespace
from typing import Any

from harrow.faults.extensions import EXTENSIONS, INTERFACE, hookimpl


def module_with(name: str = "shop", interface: object = INTERFACE, **hooks: Callable[..., Any]) -> Any:
    """Return a module with these hooks."""
    module = ModuleType(name)
    vars(module).update({hook: hookimpl(function) for hook, function in hooks.items()})
    if interface is not None:
        vars(module)["HARROW_INTERFACE"] = interface
    return module


class FakePoint:
    """An entry point of an installed distribution."""

    group = "harrow"

    def __init__(self, distribution: str, version: str, load: Callable[[], object]) -> None:
        self.dist = SimpleNamespace(name=distribution, version=version)
        self.name, self.value = "shop", f"{distribution}_module"
        self.load = load


def point(distribution: str, hooks: object, version: str = "1.0") -> Any:
    """Return the entry point of a distribution, which loads `hooks` or raises it."""

    def load() -> object:
        if isinstance(hooks, Exception):
            raise hooks
        return hooks

    return FakePoint(distribution, version, load)


def points(*found: Any) -> Callable[[], Iterable[EntryPoint]]:
    """Return what looks up entry points."""
    return lambda: list(found)


@contextmanager
def added(**hooks: Callable[..., Any]) -> Generator[Any]:
    """Let this process have an extension with these hooks."""
    module = module_with("shop", INTERFACE, **hooks)
    EXTENSIONS.add(module, "the extension of this test")
    try:
        yield module
    finally:
        EXTENSIONS.remove(module)
