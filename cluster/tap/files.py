"""The files of a tap: rows of a fixed width that are appended, and the names that the rows refer to by number.

Owns: `TapFiles`, the open files of one broker's tap, and `tap.names` (`id<TAB>name` a line: clients, topics, groups,
members and transactional ids in one numbering; a name is on disk before the first row that uses it). A restart of the
broker appends to the same files and continues the numbering. A full disk may have cut the last row of an earlier
process, so opening a file cuts it to whole rows.
"""

from __future__ import annotations

import os

from ..broker_folder import TAP_NAMES

_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
_ESCAPES = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class TapFiles:
    """The open files of one tap."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._ids = _read_names(os.path.join(folder, TAP_NAMES))
        self._names = os.open(os.path.join(folder, TAP_NAMES), _FLAGS, 0o644)
        self._open = [self._names]

    def open_rows(self, name: str, row_bytes: int) -> int:
        """Open a file of rows; `close` closes its descriptor."""
        fd = os.open(os.path.join(self.folder, name), _FLAGS, 0o644)
        self._open.append(fd)
        os.ftruncate(fd, os.fstat(fd).st_size // row_bytes * row_bytes)
        return fd

    def number_of(self, name: str) -> int:
        """Return the number of a name, written to `tap.names` when it is new."""
        found = self._ids.get(name)
        if found is None:
            found = self._ids[name] = len(self._ids)
            os.write(self._names, f"{found}\t{name.translate(_ESCAPES)}\n".encode())
        return found

    def names(self) -> dict[int, str]:
        """Return the names by number."""
        return {number: name for name, number in self._ids.items()}

    def close(self) -> None:
        """Close the files."""
        while self._open:
            os.close(self._open.pop())


def unescape(name: str) -> str:
    """A name of `tap.names` without its escapes."""
    if "\\" not in name:
        return name
    plain = {"\\": "\\", "t": "\t", "n": "\n", "r": "\r"}
    letters = iter(name)
    return "".join(plain[next(letters)] if letter == "\\" else letter for letter in letters)


def _read_names(path: str) -> dict[str, int]:
    """The names that an earlier process of this broker numbered: a restart appends to the same files."""
    if not os.path.exists(path):
        return {}
    with open(path, encoding="utf-8") as file:
        rows = [line.rstrip("\n").split("\t", 1) for line in file if line.endswith("\n")]
    return {unescape(name): int(number) for number, name in rows}
