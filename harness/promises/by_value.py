"""Pickles functions of the user by value, so that Spark's workers need none of the user's modules.

A worker can import what is installed, but often not a test module, a `conftest.py` or a package beside the tests.
`dumps` therefore pickles by value every function and class of a module that is not installed: neither in
`site-packages`, nor part of Python, nor of Harrow. What holds none of these is pickled by reference. Plain
`pickle.loads` reads both.
"""

from __future__ import annotations

import contextlib
import functools
import io
import pickle
import site
import sys
import sysconfig
from collections.abc import Generator
from pathlib import Path
from types import FunctionType, ModuleType
from typing import Any

from harrow.cluster.errors import HarrowError


class NotPicklableError(HarrowError):
    """A function of the user, or a value that it refers to, cannot be sent to Spark's workers."""


def dumps(value: object) -> bytes:
    """Return `value` pickled; raise NotPicklableError where that is impossible."""
    plain = by_reference(value)
    if plain is not None:
        return plain
    from ..checks.spark_client import quiet

    with quiet():
        from pyspark import cloudpickle

    pickler: Any = cloudpickle
    with _by_value(pickler):
        try:
            pickled: bytes = pickler.dumps(value)
        except Exception as error:
            raise NotPicklableError(
                f"a function given to verify() cannot be sent to Spark's workers: {error}; it refers to an object that "
                "cannot be pickled (a connection, a lock, an open file): create that object inside the function"
            ) from error
    return pickled


class _InstalledPickler(pickle.Pickler):
    """Pickles by reference, and refuses functions and classes of modules that are not installed."""

    def reducer_override(self, obj: Any) -> Any:
        """Check a function or class; everything else is pickled as usual."""
        if isinstance(obj, type | FunctionType):
            module = sys.modules.get(obj.__module__)
            if module is None or _is_of_the_user(obj.__module__, module):
                raise pickle.PicklingError(obj.__qualname__)
        return NotImplemented


def by_reference(value: object) -> bytes | None:
    """Return `value` pickled by reference; None where it holds what a worker cannot import.

    A promise with field paths only holds nothing of the user, so that pyspark is not imported for it (1 s).
    """
    target = io.BytesIO()
    try:
        _InstalledPickler(target).dump(value)
    except Exception:
        return None
    return target.getvalue()


@contextlib.contextmanager
def _by_value(pickler: Any) -> Generator[None]:
    """Register the modules that are not installed; what the user registered stays registered."""
    known = set(pickler.list_registry_pickle_by_value())
    ours = [module for name, module in list(sys.modules.items()) if name not in known and _is_of_the_user(name, module)]
    for module in ours:
        pickler.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in ours:
            pickler.unregister_pickle_by_value(module)


def _is_of_the_user(name: str, module: ModuleType) -> bool:
    """True for a module whose source file lies in no folder of installed packages."""
    named = vars(module)  # and not getattr, at which a module may import others
    if name == "__main__":
        return True
    if named.get("__name__") != name or name.partition(".")[0] == "harrow":
        return False
    file = named.get("__file__")
    return bool(file) and not str(file).startswith(_installed_folders())


@functools.cache
def _installed_folders() -> tuple[str, ...]:
    paths = sysconfig.get_paths()
    named = {paths[key] for key in ("stdlib", "platstdlib", "purelib", "platlib")}
    named |= {*site.getsitepackages(), site.getusersitepackages()}
    resolved = {str(Path(path).resolve()) for path in named}
    return tuple(f"{path}/" for path in sorted(named | resolved))
