"""A host for storage tests: the real file system, a manual clock, and a disk whose calls a test can refuse.

The host stores spawned coroutines and timers; they run when the test calls `tasks.run` or `tasks.advance`.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Coroutine, Sequence
from contextlib import AbstractContextManager
from threading import Lock
from typing import Any, NoReturn, cast

from harrow.cluster.config import BrokerConfig
from harrow.cluster.events import TraceEvent
from harrow.cluster.host.real.disk import RealDisk
from harrow.cluster.host.seam import Buffer, DiskFile, FileRegion, Host
from harrow.cluster.ids import TopicPartition
from harrow.cluster.storage import Log, LogOptions, open_log

TP = TopicPartition("orders", 0)

_OPEN: list[RefusingFile] = []
"""Every file that a test opened: a log that is left open as by a crash would keep its descriptors."""

_NEVER_RUN: list[Coroutine[Any, Any, object]] = []
"""Coroutines that a test never runs; without this reference each would cause a warning when it is collected."""


def close_all() -> None:
    """Close what the test left open: its files, and the coroutines that it never ran."""
    while _NEVER_RUN:
        _NEVER_RUN.pop().close()
    while _OPEN:
        _OPEN.pop().close()


class ManualClock:
    def __init__(self, wall_ms: int = 1_700_000_000_000) -> None:
        self.now = wall_ms

    def wall_ms(self) -> int:
        return self.now

    def monotonic_ms(self) -> int:
        return self.now

    def monotonic_ns(self) -> int:
        return self.now * 1_000_000


class ManualTimer:
    def __init__(self, due: int, call: Callable[..., object], args: tuple[object, ...]) -> None:
        self.due, self.call, self.args = due, call, args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class ManualTasks:
    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock
        self.timers: list[ManualTimer] = []
        self.spawned: list[Coroutine[Any, Any, object]] = []

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> ManualTimer:
        timer = ManualTimer(self._clock.now + int(delay_ms), call, args)
        self.timers.append(timer)
        return timer

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        self.call_later(0, call, *args)

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> None:
        self.spawned.append(coroutine)
        _NEVER_RUN.append(coroutine)

    async def run_blocking(self, call: Callable[..., Any], *args: object) -> Any:
        return call(*args)

    def out_of_memory(self, error: MemoryError) -> NoReturn:
        raise SystemExit(str(error))

    def mutex(self) -> AbstractContextManager[object]:
        return Lock()

    def run(self) -> None:
        """Run every spawned coroutine to its end: no coroutine waits, and `run_blocking` calls at once."""
        while self.spawned:
            coroutine = self.spawned.pop(0)
            try:
                coroutine.send(None)
            except StopIteration:
                continue
            raise AssertionError("a storage task waited for something")

    def advance(self, delay_ms: int) -> None:
        self._clock.now += delay_ms
        due = [timer for timer in self.timers if timer.due <= self._clock.now]
        self.timers = [timer for timer in self.timers if timer not in due]
        for timer in due:
            if not timer.cancelled:
                timer.call(*timer.args)
        self.run()


class RefusingFile:
    """A file that passes every call on to the real file until its disk refuses."""

    def __init__(self, file: DiskFile, disk: RefusingDisk) -> None:
        self._file, self._disk = file, disk

    @property
    def path(self) -> str:
        return self._file.path

    def append(self, parts: Sequence[Buffer]) -> int:
        if self._disk.refuse_appends:
            torn = b"".join(parts)[: self._disk.torn_bytes]
            self._file.append([torn])  # a partial write that the disk could not remove
            raise OSError(self._disk.refuse_appends, "refused by the test", self.path)
        self._disk.appends += 1
        return self._file.append(parts)

    def sync(self) -> None:
        if self._disk.refuse_syncs:
            raise OSError(errno.EIO, "refused by the test", self.path)
        self._disk.syncs.append(self.path)
        self._file.sync()

    def read_at(self, position: int, size: int) -> bytes:
        self._disk.reads += 1
        return self._file.read_at(position, size)

    def write_at(self, position: int, data: Buffer) -> None:
        self._file.write_at(position, data)

    def region(self, position: int, size: int) -> FileRegion:
        return self._file.region(position, size)

    def size(self) -> int:
        return self._file.size()

    def truncate(self, size: int) -> None:
        self._file.truncate(size)

    def close(self) -> None:
        self._file.close()


class RefusingDisk(RealDisk):
    __slots__ = ("appends", "reads", "refuse_appends", "refuse_syncs", "syncs", "torn_bytes")

    def __init__(self) -> None:
        self.refuse_appends = 0
        self.refuse_syncs = False
        self.torn_bytes = 0
        self.appends = 0
        self.reads = 0
        self.syncs: list[str] = []

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        file = RefusingFile(super().open(path, create=create), self)
        _OPEN.append(file)
        return file


class RecordedNotes:
    """Trace and failpoints that only record their calls."""

    def __init__(self) -> None:
        self.events: list[tuple[str, dict[str, object]]] = []
        self.lines: list[str] = []
        self.hits: list[str] = []

    def emit(self, event: TraceEvent, /) -> None:
        self.events.append((event.event_name, event.json_fields()))

    def log(self, level: str, message: str, /, **fields: object) -> None:
        self.lines.append(f"{level} {message}")

    def hit(self, name: str) -> None:
        self.hits.append(name)


class StorageHost:
    def __init__(self) -> None:
        self.name = "broker 1"
        self.clock = ManualClock()
        self.tasks = ManualTasks(self.clock)
        self.disk = RefusingDisk()
        self.random = random.Random(1)
        self.notes = RecordedNotes()
        self.trace = self.failpoints = self.notes

    @property
    def host(self) -> Host:
        return cast("Host", self)

    def open(
        self,
        folder: str,
        topic: dict[str, object] | None = None,
        *,
        clean: bool = True,
        recovery_point: int = 0,
        log_start_offset: int = 0,
        tail_bytes: int = 4 * 1024 * 1024,
    ) -> Log:
        """Open the log in `folder`; create the folder if it is absent."""
        self.disk.make_folder(folder)
        options = LogOptions(
            config=BrokerConfig.parse({}).topic(topic),
            clean=clean,
            recovery_point=cast("Any", recovery_point),
            log_start_offset=cast("Any", log_start_offset),
            tail_bytes=tail_bytes,
        )
        return open_log(self.host, folder, TP, options)
