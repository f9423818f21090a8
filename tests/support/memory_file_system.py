"""A file system of pyarrow in memory: what a test reads by a URL is not on this machine's disk."""

from __future__ import annotations

import io
from typing import Any

import pyarrow  # noqa: ICN001  (untyped: named pa below, as Any)
import pyarrow.fs as untyped_fs
import pytest
from harrow.harness.histories import task_files

pa: Any = pyarrow
fs: Any = untyped_fs


class _Written(io.BytesIO):
    """A file that appears when it is closed."""

    def __init__(self, files: dict[str, bytes], path: str) -> None:
        super().__init__()
        self._files, self._path = files, path

    def close(self) -> None:
        if not self.closed:
            self._files[self._path] = self.getvalue()
        super().close()


class MemoryFiles(fs.FileSystemHandler):  # type: ignore[misc]  # untyped
    """The handler: `files` has the content of every file by its path; folders need not exist."""

    def __init__(self) -> None:
        self.files: dict[str, bytes] = {}
        self.read: list[tuple[str, int, int]] = []
        """The ranges that were read: path, start, size."""

    def get_type_name(self) -> str:
        return "memory"

    def normalize_path(self, path: str) -> str:
        return path

    def create_dir(self, path: str, recursive: bool) -> None:
        del path, recursive

    def delete_dir(self, path: str) -> None:
        for name in [name for name in self.files if name.startswith(f"{path}/")]:
            del self.files[name]

    def get_file_info(self, paths: list[str]) -> list[Any]:
        kinds = [fs.FileType.File if path in self.files else fs.FileType.NotFound for path in paths]
        return [fs.FileInfo(path, kind) for path, kind in zip(paths, kinds, strict=True)]

    def get_file_info_selector(self, selector: Any) -> list[Any]:
        inside = [path for path in self.files if path.startswith(f"{selector.base_dir}/")]
        return [fs.FileInfo(path, fs.FileType.File) for path in inside]

    def open_input_file(self, path: str) -> Any:
        if path not in self.files:
            raise FileNotFoundError(path)
        return pa.PythonFile(_Read(self, path), mode="r")

    def open_output_stream(self, path: str, metadata: Any) -> Any:
        del metadata
        return pa.PythonFile(_Written(self.files, path), mode="w")

    def _refuse(self, *arguments: object) -> Any:
        raise AssertionError(f"not needed by Harrow: {arguments}")

    move = copy_file = delete_file = delete_dir_contents = delete_root_dir_contents = _refuse
    open_input_stream = open_append_stream = _refuse


class _Read(io.BytesIO):
    def __init__(self, handler: MemoryFiles, path: str) -> None:
        super().__init__(handler.files[path])
        self._handler, self._path = handler, path

    def read(self, size: int | None = -1, /) -> bytes:
        at = self.tell()
        found = super().read(size)
        self._handler.read.append((self._path, at, len(found)))
        return found


URL = "memory://store/folder"


def memory_files(patch: pytest.MonkeyPatch) -> MemoryFiles:
    """Let `URL` name a new file system in memory."""
    handler = MemoryFiles()
    system = fs.PyFileSystem(handler)
    found = task_files.file_system

    def file_system(url: str) -> tuple[Any, str]:
        return (system, "folder") if url == URL else found(url)

    patch.setattr(task_files, "file_system", file_system)
    patch.setattr("harrow.harness.checks.shared_data.file_system", file_system)
    return handler
