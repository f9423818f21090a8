"""What the dump reads from and prints to, and how it fails.

Owns: the seam to the file system (reading only), the two streams of text, and `DumpError`, which stands where
Kafka's tool ends with a stack trace: nothing after it is printed, and the command's exit code is 1.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

from ..errors import HarrowError


class DumpError(HarrowError):
    """A file that cannot be dumped any further; Kafka's tool throws here."""


class Reader(Protocol):
    """One open file."""

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end."""
        ...

    def size(self) -> int:
        """Bytes in it."""
        ...

    def close(self) -> None:
        """Give it back."""
        ...


class Source(Protocol):
    """The file system, for reading."""

    def open(self, path: str) -> Reader:
        """FileNotFoundError or another OSError where that cannot be."""
        ...

    def absolute(self, path: str) -> str:
        """As Java's `File.getAbsolutePath` says it: prefixed by the working folder, not resolved."""
        ...


Write = Callable[[str], object]
"""Takes text with its line ends."""


@dataclass(frozen=True, slots=True)
class Streams:
    """Where lines go: Kafka's standard output and standard error."""

    out: Write
    err: Write


def name_of(path: str) -> str:
    """The last part of a path."""
    return path.rpartition("/")[2]


def sibling(path: str, suffix: str) -> str:
    """The file of the same segment with another suffix, as Kafka names it: up to the first dot."""
    folder, slash, name = path.rpartition("/")
    return folder + slash + name.partition(".")[0] + suffix


def base_offset_of(path: str) -> int:
    """The offset that the file's name begins with."""
    digits = name_of(path).partition(".")[0]
    if not digits.isascii() or not digits.removeprefix("-").isdigit():
        raise DumpError(f"{path}: its name does not begin with an offset")
    return int(digits)
