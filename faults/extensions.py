"""Extensions: faults, targets and more that other distributions add through entry points of the group `harrow` (J4).

An entry point names a module, or an object, with hooks. A hook is a function that `hookimpl` marks (pluggy); it returns
what the extension adds. This module has the hooks of faults and targets, `harness/extensions.py` those of the harness.

Nothing is looked up until something is asked for that Harrow itself does not have (a fault kind, a role) or until a
verdict looks for checks; then all extensions are loaded, once for a process. `add_extension` adds a module that no
distribution has.

What may fail: ConfigError names the distribution and the remedy, for an extension that cannot be imported, that
implements an unknown hook or another version of the interface, that adds a value of a wrong type, or a name twice.
"""

from __future__ import annotations

import difflib
import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar

import pluggy
from harrow.cluster.argument_types import checked

from .errors import ConfigError

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "harrow"
INTERFACE = 1
"""The version of the hooks and of the classes that extensions use; it changes when an extension must change."""
INTERFACE_NAME = "HARROW_INTERFACE"

hookspec = pluggy.HookspecMarker(GROUP)
hookimpl = pluggy.HookimplMarker(GROUP)
T = TypeVar("T")


class FaultHooks:
    """The hooks of this layer. What they return is checked where it is read: `fault_kinds.py`, `targets.py`."""

    @hookspec
    def harrow_faults(self) -> Iterable[object]:  # type: ignore[empty-body]
        """Return classes of faults; each is known by its `kind`."""

    @hookspec
    def harrow_targets(self) -> Iterable[object]:  # type: ignore[empty-body]
        """Return values of `Role`; `Target(role=NAME)` then has that role."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Extension:
    """One module or object with hooks."""

    name: str
    """Who added it, for messages: `shop-harrow 1.2`."""
    remedy: str
    """How a user gets rid of it."""
    hooks: object

    def error(self, problem: str, remedy: str = "") -> ConfigError:
        """Return the error that names the extension."""
        return ConfigError(f"the extension {self.name} {problem}; {remedy or self.remedy}")


@dataclass(slots=True)
class _Loaded:
    """All extensions with their hooks."""

    manager: pluggy.PluginManager
    extensions: dict[str, Extension] = field(default_factory=dict[str, Extension])
    tables: dict[str, dict[str, Any]] = field(default_factory=dict[str, dict[str, Any]])
    owners: dict[str, dict[str, Extension]] = field(default_factory=dict[str, dict[str, Extension]])


class Extensions:
    """The extensions of this process."""

    def __init__(self, entry_points: Callable[[], Iterable[EntryPoint]] | None = None) -> None:
        """`entry_points`: by default those of the installed distributions."""
        self._entry_points = entry_points or _installed
        self._specs: list[type] = [FaultHooks]
        self._added: list[Extension] = []
        self._loaded: _Loaded | None = None
        self._lock = threading.RLock()

    def add_hooks(self, specs: type) -> None:
        """Let extensions implement the hooks of `specs`, too."""
        with self._lock:
            if specs not in self._specs:
                self._specs.append(specs)
                self._loaded = None

    def add(self, hooks: object, name: str) -> None:
        """Add an extension that no distribution has; adding it again changes nothing."""
        with self._lock:
            if all(extension.hooks is not hooks for extension in self._added):
                remedy = f"change {name}, or remove its add_extension()"
                self._added.append(Extension(name=name, remedy=remedy, hooks=hooks))
                self._loaded = None

    def remove(self, hooks: object) -> None:
        """Remove what `add` added."""
        with self._lock:
            self._added = [row for row in self._added if row.hooks is not hooks]
            self._loaded = None

    def extensions(self) -> list[Extension]:
        """Return all extensions, those of distributions first."""
        return list(self._load().extensions.values())

    def table(
        self, hook: str, read: Callable[[Any], Iterable[tuple[str, T]]], own: Iterable[str] = ()
    ) -> Mapping[str, T]:
        """Return what the extensions add by `hook`, by name.

        `read` makes pairs of what a hook returned; TypeError says what it expects. `own`: names that Harrow has.
        """
        with self._lock:
            loaded = self._load()
            if hook not in loaded.tables:
                loaded.tables[hook] = self._read(loaded, hook, read, frozenset(own))
            return loaded.tables[hook]

    def owner(self, hook: str, name: str) -> str:
        """Return who added `name` by `hook`; the table was read before."""
        return self._load().owners[hook][name].name

    def check_hooks(self) -> None:
        """Raise ConfigError for a hook that nothing calls; all layers have added theirs."""
        loaded = self._load()
        hooks = vars(loaded.manager.hook)
        known = [name for name, caller in hooks.items() if caller.has_spec()]
        for name, caller in hooks.items():
            if not caller.has_spec():
                (implementation, *_) = caller.get_hookimpls()
                near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
                hint = f"did you mean {near[0]}?" if near else f"there are {', '.join(known)}"
                owner = loaded.extensions[implementation.plugin_name]
                raise owner.error(f"implements {name!r}, which is no hook of Harrow", hint)

    # ------------------------------------------------------------------------------- loading

    def _load(self) -> _Loaded:
        with self._lock:
            if self._loaded is None:
                manager = pluggy.PluginManager(GROUP)
                for specs in self._specs:
                    manager.add_hookspecs(specs)
                loaded = _Loaded(manager=manager)
                for point in self._entry_points():
                    _register(loaded, _imported(point))
                for extension in self._added:
                    _register(loaded, extension)
                self._loaded = loaded
            return self._loaded

    def _read(
        self, loaded: _Loaded, hook: str, read: Callable[[Any], Iterable[tuple[str, T]]], own: frozenset[str]
    ) -> dict[str, T]:
        table: dict[str, T] = {}
        owners: dict[str, Extension] = {}
        for implementation in getattr(loaded.manager.hook, hook).get_hookimpls():
            owner = loaded.extensions[implementation.plugin_name]
            try:
                found = list(read(implementation.function()))
            except Exception as error:
                raise owner.error(f"has a hook {hook}() that cannot be used: {error}") from error
            for name, value in found:
                if name in own:
                    raise owner.error(f"adds {name!r} by {hook}(), which Harrow has already", "choose another name")
                if name in owners:
                    raise owner.error(
                        f"adds {name!r} by {hook}(), and so does {owners[name].name}",
                        f"two cannot have one name: {owners[name].remedy}, or {owner.remedy}",
                    )
                table[name], owners[name] = value, owner
        loaded.owners[hook] = owners
        return table


def _installed() -> Iterable[EntryPoint]:
    from importlib.metadata import entry_points

    return entry_points(group=GROUP)


def _imported(point: EntryPoint) -> Extension:
    """Import an entry point; ConfigError names its distribution."""
    distribution = point.dist
    name = "of an unknown distribution" if distribution is None else f"{distribution.name} {distribution.version}"
    where = f"{name} (entry point {point.name} = {point.value})"
    remedy = f"pip uninstall {distribution.name}" if distribution is not None else "remove it"
    try:
        hooks: object = point.load()
    except Exception as error:
        problem = f"cannot be imported: {type(error).__name__}: {error}"
        raise Extension(name=where, remedy=f"install what it needs, or {remedy}", hooks=None).error(problem) from error
    return Extension(name=where, remedy=remedy, hooks=hooks)


def _register(loaded: _Loaded, extension: Extension) -> None:
    version: object = getattr(extension.hooks, INTERFACE_NAME, None)
    if version != INTERFACE:
        raise extension.error(*_of_another_version(version))
    key = f"{len(loaded.extensions)}: {extension.name}"
    loaded.extensions[key] = extension
    try:
        loaded.manager.register(extension.hooks, key)
    except pluggy.PluginValidationError as error:
        raise extension.error(f"has a hook with other parameters than this Harrow calls: {error}") from error


def _of_another_version(version: object) -> tuple[str, str]:
    """Return the problem, and the remedy."""
    if version is None:
        return ("does not say for which interface it was written", f"it must have {INTERFACE_NAME} = {INTERFACE}")
    problem = f"was written for the interface {version!r}, and this Harrow has {INTERFACE}"
    newer = isinstance(version, int) and version > INTERFACE
    return problem, f"upgrade {'pytest-harrow' if newer else 'the extension'}"


EXTENSIONS = Extensions()
"""Those of this process."""


@checked
def add_extension(hooks: object, name: str = "") -> None:
    """Add a module or object with hooks that no distribution has, such as `sys.modules[__name__]` of a conftest.py."""
    EXTENSIONS.add(hooks, name or str(getattr(hooks, "__name__", type(hooks).__name__)))


def name_of(value: object, attribute: str) -> str:
    """Return the name of what an extension adds; TypeError where it has none."""
    name: object = getattr(value, attribute, None)
    if not isinstance(name, str) or not name.isidentifier():
        raise TypeError(f"{value!r} has {attribute} = {name!r}, expected a name such as 'stop_service'")
    return name
