"""The interfaces of the dump: the files that it reads, the streams that it prints to, and its error.

Owns: the seam to the file system (reading only), the two streams of text, and `DumpError`. The dump raises
`DumpError` where Kafka's tool ends with a stack trace: it prints nothing after it, and the command's exit code is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..errors import HarrowError


class DumpError(HarrowError):
    """A file cannot be dumped any further; Kafka's tool throws an exception here."""


class OpenFile(Protocol):
    """An open file of a log folder."""

    def read_at(self, position: int, size: int) -> bytes:
        """Returns up to `size` bytes; fewer at the end of the file."""
        ...

    def size(self) -> int:
        """Returns the size of the file in bytes."""
        ...

    def close(self) -> None:
        """Closes the file."""
        ...


class LogFiles(Protocol):
    """The file system, for reading only."""

    def open(self, path: str) -> OpenFile:
        """Opens a file; FileNotFoundError or another OSError when that fails."""
        ...

    def absolute(self, path: str) -> str:
        """Returns the path as Java's `File.getAbsolutePath`: after the working folder, links not resolved."""
        ...


Write = Callable[[str], object]
"""A function that prints text; the text includes its line ends."""


@dataclass(frozen=True, slots=True)
class Streams:
    """The two streams of Kafka's tool: standard output and standard error."""

    out: Write
    err: Write


def name_of(path: str) -> str:
    """Returns the last part of a path."""
    return path.rpartition("/")[2]


def sibling(path: str, suffix: str) -> str:
    """Returns the path of the same segment's file with another suffix; as in Kafka, the first dot ends the name."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.partition(".")[0] + suffix


def base_offset_of(path: str) -> int:
    """Returns the offset at the front of the file's name."""
    digits = name_of(path).partition(".")[0]
    if not digits.isascii() or not digits.removeprefix("-").isdigit():
        raise DumpError(f"{path}: the name of a file of a log must begin with an offset")
    return int(digits)
