"""The names of files and folders of a simulated machine, and the journal of their changes.

Owns: `FileNames` and `Change`. A change is applied twice: at once to the names that processes see, and later, when it
becomes durable, to the names that survive a power loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple, TypeVar

from .inode import Inode

V = TypeVar("V")


class PathTable(dict[str, V]):
    """Values by path, with the names in each folder, so that listing a folder does not scan the other folders."""

    def __init__(self, rows: Iterable[tuple[str, V]] = ()) -> None:
        super().__init__()
        self._names: dict[str, dict[str, None]] = {}
        for path, value in rows:
            self[path] = value

    def __setitem__(self, path: str, value: V) -> None:
        super().__setitem__(path, value)
        folder, _, name = path.rpartition("/")
        self._names.setdefault(folder, {})[name] = None

    def __delitem__(self, path: str) -> None:
        super().__delitem__(path)
        folder, _, name = path.rpartition("/")
        del self._names[folder][name]

    def take(self, path: str) -> V:
        """Remove a path and return its value; KeyError where there is none."""
        value = self[path]
        del self[path]
        return value

    def names_in(self, folder: str) -> Iterable[str]:
        """Names directly in a folder, in the order in which they were made."""
        return self._names.get(folder, {})


class FileNames:
    """The names of the files and folders of a machine."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: PathTable[Inode] = PathTable()
        self.folders: PathTable[None] = PathTable()

    def link(self, path: str, inode: Inode) -> None:
        """Give a file this name."""
        self.files[path] = inode

    def unlink(self, path: str) -> None:
        """Remove the name of a file."""
        if path in self.files:
            del self.files[path]

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            parent = "/".join(parts[:end])
            if parent:
                self.folders[parent] = None

    def _tree(self, path: str) -> Iterator[str]:
        """A folder and all folders below it."""
        yield path
        for name in list(self.folders.names_in(path)):
            yield from self._tree(f"{path}/{name}")

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its content."""
        for folder in list(self._tree(path)):
            for name in list(self.files.names_in(folder)):
                del self.files[f"{folder}/{name}"]
            if folder in self.folders:
                del self.folders[folder]

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder with its content."""
        if source in self.files:
            self.files[target] = self.files.take(source)
            return
        if source not in self.folders:
            return  # the part of the journal that survived ends before its creation
        for folder in list(self._tree(source)):
            moved = target + folder[len(source) :]
            del self.folders[folder]
            self.folders[moved] = None
            for name in list(self.files.names_in(folder)):
                self.files[f"{moved}/{name}"] = self.files.take(f"{folder}/{name}")


class Change(NamedTuple):
    """One entry of the journal of names: `kind` is the method of `FileNames` that applies it."""

    kind: str
    path: str
    target: str | Inode = ""

    def apply(self, names: FileNames) -> None:
        """Apply the change to `names`."""
        if self.kind == "link":
            assert isinstance(self.target, Inode)
            names.link(self.path, self.target)
        elif self.kind == "rename":
            assert isinstance(self.target, str)
            names.rename(self.path, self.target)
        elif self.kind == "unlink":
            names.unlink(self.path)
        elif self.kind == "make":
            names.make_folder(self.path)
        else:
            names.remove_folder(self.path)
