"""The files that a task reads, by a path of its machine or by a URL.

A task on another machine cannot see the run folder. What it reads is then copied to a folder that all machines can read
(`checks/shared_data.py`). On a file system that is mounted, a copy has a path, and its file is mapped. Elsewhere a copy
has a name `URL#PATH`: the URL of a folder that pyarrow knows (`s3://bucket/folder`, `hdfs://…`), and the path in it.

May fail: OSError for a file that does not exist or cannot be read.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any

HEADER_BYTES = 1 << 14
"""So many bytes are read at first to find a file's first line."""


def is_url(name: str) -> bool:
    """Return whether a name is `URL#PATH`, and not a path."""
    return "://" in name


def joined(folder: str, *parts: str) -> str:
    """Return the name of a file in a folder."""
    return "/".join((folder, *parts))


def base_name(name: str) -> str:
    """Return the last part of a name."""
    return name.rpartition("/")[2]


@lru_cache(maxsize=8)
def file_system(url: str) -> tuple[Any, str]:
    """Return the file system of a URL and the path in it; made once in a process, because connecting takes time."""
    import pyarrow.fs as fs  # pyright: ignore[reportMissingTypeStubs]

    systems: Any = fs
    system, path = systems.FileSystem.from_uri(url)
    return system, path.rstrip("/")


def located(name: str) -> tuple[Any, str]:
    """Return the file system of a name `URL#PATH`, and the path in this system."""
    url, _, path = name.partition("#")
    system, root = file_system(url)
    return system, f"{root}/{path}"


def opened(name: str) -> Any:
    """Open a file for reading, as pyarrow does: a map of a local file, else a file that is read in ranges."""
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    if is_url(name):
        system, path = located(name)
        return system.open_input_file(path)
    pa: Any = pyarrow
    return pa.memory_map(name)


def arrow_table(name: str) -> Any:
    """Return the table of an Arrow IPC file; its memory is the mapped file, where there is one."""
    import pyarrow.ipc  # pyright: ignore[reportMissingTypeStubs]

    reader: Any = pyarrow.ipc
    return reader.open_file(opened(name)).read_all()


def read_bytes(name: str, start: int = 0, size: int | None = None) -> memoryview:
    """Return `size` bytes from `start` on, or all to the end. Raises EOFError where the file is shorter."""
    with opened(name) as file:
        size = file.size() - start if size is None else size
        found = memoryview(file.read_at(size, start))
    if len(found) != size:
        raise EOFError(f"{name} has {len(found)} of {size} bytes from byte {start} on")
    return found


def first_line(name: str) -> bytes:
    """Return the first line of a file with its end."""
    with opened(name) as file:
        size = HEADER_BYTES
        while True:
            found = bytes(file.read_at(min(size, file.size()), 0))
            line, end, _ = found.partition(b"\n")
            if end:
                return line + end
            if size >= file.size():
                raise EOFError(f"{name} has no line")
            size *= 4


def write_arrow(path: Path, batch: Any) -> None:
    """Write an Arrow IPC file with one batch, which `arrow_table` reads. `path` is of this machine."""
    import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)

    pa: Any = pyarrow
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_file(file, batch.schema) as writer:
        writer.write(batch)


def names_in(folder: str, suffix: str) -> Sequence[str]:
    """Return the files of a folder `URL#PATH` whose names end with `suffix`, sorted."""
    import pyarrow.fs as fs  # pyright: ignore[reportMissingTypeStubs]

    systems: Any = fs
    system, path = located(folder)
    found = system.get_file_info(systems.FileSelector(path, allow_not_found=True))
    return sorted(joined(folder, info.base_name) for info in found if info.path.endswith(suffix))
