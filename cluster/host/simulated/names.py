"""The names of files and folders of a simulated machine, and the journal of their changes.

Owns: `Names` and `Change`. A change is applied twice: at once to the names that everybody sees, and later, when it
reaches the disk, to those that survive a power cut.
"""

from __future__ import annotations

from typing import NamedTuple

from .inode import Inode


class Names:
    """The names of the files and folders of a machine."""

    __slots__ = ("files", "folders")

    def __init__(self) -> None:
        self.files: dict[str, Inode] = {}
        self.folders: dict[str, None] = {}

    def link(self, path: str, inode: Inode) -> None:
        """Give a file this name."""
        self.files[path] = inode

    def unlink(self, path: str) -> None:
        """Remove the name of a file."""
        self.files.pop(path, None)

    def make_folder(self, path: str) -> None:
        """Create a folder and its parents."""
        parts = path.split("/")
        for end in range(1, len(parts) + 1):
            parent = "/".join(parts[:end])
            if parent:
                self.folders[parent] = None

    def remove_folder(self, path: str) -> None:
        """Remove a folder with its content."""
        below = path + "/"
        self.folders = {
            one: None for one in self.folders if one != path and not one.startswith(below)
        }
        self.files = {one: inode for one, inode in self.files.items() if not one.startswith(below)}

    def rename(self, source: str, target: str) -> None:
        """Rename a file, or a folder with its content."""
        if source in self.files:
            self.files[target] = self.files.pop(source)
            return
        if source not in self.folders:
            return  # only an earlier part of the journal survived, without its creation
        below = source + "/"
        for one in [one for one in self.folders if one == source or one.startswith(below)]:
            del self.folders[one]
            self.folders[target + one[len(source) :]] = None
        for one in [one for one in self.files if one.startswith(below)]:
            self.files[target + one[len(source) :]] = self.files.pop(one)


class Change(NamedTuple):
    """One entry of the journal of names: `kind` is the method of `Names` that applies it."""

    kind: str
    path: str
    target: str | Inode = ""

    def apply(self, names: Names) -> None:
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
