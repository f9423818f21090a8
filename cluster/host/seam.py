"""The seam: what a broker may ask of the machine it believes it runs on.

Broker code (every room but `host/`, `network/` and the supervisor) is written against these
protocols and nothing else: no asyncio, no threads, no sockets, no files, no `time`. So the same code
runs on the real host (`host/real/host.py`), under faults (the real host with its knobs turned over the
control socket) and on simulated machines with a virtual clock (`host/simulated/`).

Conventions settled here:

* Times: durations and monotonic times are whole **milliseconds** (`_ms`) or nanoseconds (`_ns`); wall
  time is milliseconds since the epoch, as in Kafka's records.
* Blocking: a disk call marked BLOCKS may take long (fsync, reading a whole segment); from the loop it
  is called through `tasks.run_blocking`. All the others are page-cache calls.
* One thread: everything a host calls back runs on the broker's one loop; nothing needs a lock.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

Buffer = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Time as this host sees it."""

    def monotonic_ms(self) -> int:
        """Milliseconds on a clock that never goes back."""
        ...

    def monotonic_ns(self) -> int:
        """Nanoseconds on the same clock; comparable between processes of one machine."""
        ...

    def wall_ms(self) -> int:
        """Milliseconds since 1970, UTC: record timestamps, retention."""
        ...


class Timer(Protocol):
    """A call that is due later."""

    def cancel(self) -> None:
        """Make sure that it does not run; no error when it has."""
        ...


class Task(Protocol):
    """A coroutine that the host runs."""

    def cancel(self) -> object:
        """Ask it to end at its next await."""
        ...

    def done(self) -> bool:
        """True when it has ended, however."""
        ...


class Promise(Protocol[T]):
    """A value that comes later; awaitable, settled once."""

    def set_result(self, result: T, /) -> None:
        """Settle it with a value."""
        ...

    def set_exception(self, error: BaseException, /) -> None:
        """Settle it with an error."""
        ...

    def done(self) -> bool:
        """True when it is settled or cancelled."""
        ...

    def cancel(self) -> object:
        """Nobody wants the value any more."""
        ...

    def __await__(self) -> Generator[Any, None, T]:
        """Wait for the value."""
        ...


class Tasks(Protocol):
    """What runs when. Every spawned task has a name and ends with the host."""

    def call_soon(self, call: Callable[..., object], *args: object) -> None:
        """Run `call(*args)` on the next turn of the loop; the one call that a BLOCKS call may make as well."""
        ...

    def call_later(self, delay_ms: float, call: Callable[..., object], *args: object) -> Timer:
        """Run `call(*args)` after `delay_ms`."""
        ...

    def spawn(self, coroutine: Coroutine[Any, Any, object], *, name: str) -> Task:
        """Run a coroutine; an exception it lets out is traced as `task.failed` and logged with its stack."""
        ...

    def promise(self) -> Promise[Any]:
        """A fresh unsettled promise."""
        ...

    async def sleep(self, delay_ms: float) -> None:
        """Let others run for `delay_ms`."""
        ...

    async def wait(self, awaitable: Awaitable[T], timeout_ms: float) -> T:
        """Await with a deadline; TimeoutError (and the awaited thing cancelled) when it passes."""
        ...

    async def run_blocking(self, call: Callable[..., T], *args: object) -> T:
        """Run a BLOCKS call on a thread beside the loop."""
        ...

    def mutex(self) -> AbstractContextManager[object]:
        """One at a time inside, of the loop and the threads of `run_blocking`; not entered twice by one of them."""
        ...


class FileRegion(Protocol):
    """A range of an open file that a link may send without bringing it into this process (B12)."""

    @property
    def size(self) -> int:
        """Bytes in the range."""
        ...

    def __len__(self) -> int:
        """The same: a region goes wherever a part's length is asked."""
        ...

    def read(self) -> bytes:
        """The bytes themselves, for who needs them after all (the tap, a test, a link that must copy)."""
        ...


Part = Buffer | FileRegion
"""What a frame is made of on its way out."""


_BUFFERS = (bytes, bytearray, memoryview)  # a union would be built anew for each part


def bytes_of(part: Part) -> Buffer:
    """The bytes of a part; a region's are read. OSError where its file was cut."""
    return part if isinstance(part, _BUFFERS) else part.read()


class Lock(Protocol):
    """Something that one process holds alone."""

    def release(self) -> None:
        """Let others have it; releasing twice is no error."""
        ...


class MappedFile(Protocol):
    """A file mapped into memory, written through `view` (offset and time indexes, B3).

    What was written is in the page cache at once and survives the process; `sync` makes it durable.
    """

    @property
    def view(self) -> memoryview:
        """The whole mapping, writable; dead after `resize` and `close`."""
        ...

    @property
    def size(self) -> int:
        """Bytes mapped, which is the file's size."""
        ...

    def resize(self, size: int) -> None:
        """Map `size` bytes instead: the file grows by zeroes or is cut (trimmed at roll)."""
        ...

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        ...

    def close(self) -> None:
        """Give the mapping back; closing twice is no error."""
        ...


class DiskFile(Protocol):
    """One open file. Positions and sizes are bytes."""

    @property
    def path(self) -> str:
        """Where it lies."""
        ...

    def append(self, parts: Sequence[Buffer]) -> int:
        """Write `parts` at the end in one system call; returns the position they begin at.

        OSError (ENOSPC, EIO) when the disk refuses; what was written of them is cut off again if possible.
        """
        ...

    def write_at(self, position: int, data: Buffer) -> None:
        """Overwrite in place."""
        ...

    def read_at(self, position: int, size: int) -> bytes:
        """Up to `size` bytes; fewer at the end of the file."""
        ...

    def region(self, position: int, size: int) -> FileRegion:
        """A range to be sent; the file stays open until it was, whoever closes it."""
        ...

    def size(self) -> int:
        """Bytes in the file, appended ones included."""
        ...

    def truncate(self, size: int) -> None:
        """Cut the file to `size`."""
        ...

    def sync(self) -> None:
        """BLOCKS. Bring everything written to stable storage."""
        ...

    def close(self) -> None:
        """Give the file back; closing twice is no error."""
        ...


class Disk(Protocol):
    """The file system. Paths are strings, absolute or relative to the process."""

    def open(self, path: str, *, create: bool = True) -> DiskFile:
        """Open for reading and writing; FileNotFoundError where it is absent and not to be created."""
        ...

    def map(self, path: str, size: int) -> MappedFile:
        """Map a file of at least `size` bytes, created or extended by zeroes where it is smaller."""
        ...

    def lock(self, path: str) -> Lock:
        """Hold the file `path` alone until released or dead; BlockingIOError while another process does."""
        ...

    def read(self, path: str) -> bytes:
        """A whole small file; FileNotFoundError where there is none."""
        ...

    def replace(self, path: str, data: bytes, *, durable: bool = True) -> None:
        """BLOCKS briefly. Atomically: temporary file, fsync, rename, fsync of the folder (B2).

        Without `durable` nothing is fsynced: the new content survives this process, and power loss
        only after `sync_file`. No call of it takes longer than the page cache does.
        """
        ...

    def sync_file(self, path: str) -> None:
        """BLOCKS. Bring a file or a folder, and its name, to stable storage; no error where there is none."""
        ...

    def exists(self, path: str) -> bool:
        """True for a file or a folder."""
        ...

    def list(self, folder: str) -> list[str]:
        """Names in a folder, sorted; FileNotFoundError where there is none."""
        ...

    def is_folder(self, path: str) -> bool:
        """True for a folder."""
        ...

    def make_folder(self, path: str) -> None:
        """Create it and its parents; no error where it exists."""
        ...

    def rename(self, source: str, target: str) -> None:
        """Atomically, within one file system."""
        ...

    def remove(self, path: str) -> None:
        """Delete a file; no error where there is none."""
        ...

    def remove_folder(self, path: str) -> None:
        """BLOCKS. Delete a folder with all that is in it; no error where there is none."""
        ...

    def modified_ms(self, path: str) -> int:
        """Wall time of the last change."""
        ...

    def space(self, path: str) -> tuple[int, int]:
        """BLOCKS briefly. Bytes of the volume that holds `path`, and those free for us; -1 where nobody knows."""
        ...


@dataclass(frozen=True, slots=True)
class Peer:
    """Who is at the other end of a link: `broker 2`, `registry`, `client orders-app`."""

    kind: str
    name: str
    address: str = field(default="", compare=False)
    """Where an accepted link came from, without its port: it tells people, it names nobody."""

    def __str__(self) -> str:
        return f"{self.kind} {self.name}".strip()


class Link(Protocol):
    """One connection that carries frames: 4 bytes of big-endian size, then so many bytes."""

    @property
    def peer(self) -> Peer:
        """Who it leads to; of an accepted link `Peer("unknown", address)` until its first request names it.

        Assigning it applies the link rules of that peer at once, also to the frame being delivered: when they
        block it, the assignment raises through the handler and the frame comes again after healing.
        """
        ...

    @peer.setter
    def peer(self, peer: Peer, /) -> None: ...

    def send(self, parts: Sequence[Part]) -> None:
        """Queue one frame: the size prefix is added here, the parts are not copied. Never blocks.

        File regions leave by `sendfile`; a file that was cut under one resets the link.
        """
        ...

    def close(self, *, reset: bool = False) -> None:
        """End it; with `reset` at once, without what was queued (the other side sees ECONNRESET)."""
        ...

    def pause(self) -> None:
        """Deliver no more frames until `resume` (backpressure)."""

    def resume(self) -> None:
        """Deliver frames again."""

    @property
    def unsent_bytes(self) -> int:
        """Bytes queued and not yet taken by the kernel."""
        ...


class FrameHandler(Protocol):
    """What listens to a link."""

    def frame_received(self, frame: bytes) -> None:
        """One whole frame, without its size prefix. A WireError raised here closes the link with a log line."""
        ...

    def link_closed(self, reason: str) -> None:
        """The link is gone; called once."""
        ...


class Acceptor(Protocol):
    """A bound and listening address that accepts links."""

    @property
    def port(self) -> int:
        """The port that was bound."""
        ...

    def pause(self) -> None:
        """Accept no link until `resume`; new connections wait in the backlog."""

    def resume(self) -> None:
        """Accept links again, first those that wait, from the next turn of the loop on."""

    def close(self) -> None:
        """Accept no more; links go on."""


class Network(Protocol):
    """Sockets that carry frames, and the link rules that faults set (isolation, lost responses)."""

    async def listen(
        self, name: str, make_handler: Callable[[Link], FrameHandler], *, max_frame_bytes: int
    ) -> Acceptor:
        """Serve on this host's listener `name`; its socket was bound before the host started."""
        ...

    async def connect(
        self,
        peer: Peer,
        host: str,
        port: int,
        make_handler: Callable[[Link], FrameHandler],
        *,
        timeout_ms: int,
    ) -> Link:
        """Open a link to `peer`; OSError or TimeoutError when nobody answers (an isolated peer never does)."""
        ...

    def lose_response(self, peer: Peer, api_key: int) -> bool:
        """True when a fault wants this response lost: the caller then closes the link with `reset`."""
        ...

    def after_delivery(self, call: Callable[[], object]) -> None:
        """Run `call` when the frames that a link is delivering have been served; on the next turn when none is."""
        ...

    def flush(self) -> None:
        """Let what the present delivery has sent leave now instead of at its end: somebody waits for it."""
        ...


class Failpoints(Protocol):
    """Named places in the code that a fault may arm (K6)."""

    def hit(self, name: str) -> None:
        """Costs one look-up while disarmed; armed it may crash, stop, delay or raise FailpointError here."""
        ...


class Trace(Protocol):
    """Structured events of this host: what changed and why."""

    def emit(self, event: str, /, **fields: object) -> None:
        """Append `event` (dotted name) with JSON-able fields; time and host are added here."""
        ...

    def log(self, level: str, message: str, /, **fields: object) -> None:
        """A line for people in the broker's log file: level debug, info, warning or error."""
        ...


class Tap(Protocol):
    """What the wire acknowledged and delivered (J6); a no-op object unless `harrow.tap` is set."""

    enabled: bool

    def produced(
        self,
        client: str,
        topic: str,
        partition: int,
        *,
        base_offset: int,
        error: int,
        acks: int,
        invoked_ns: int,
        batches: Buffer,
        lost: bool,
    ) -> None:
        """One partition of a produce response, just before its bytes leave (`lost`: a fault eats them)."""
        ...

    def fetched(
        self, client: str, topic: str, partition: int, *, offset: int, batches: Sequence[Buffer]
    ) -> None:
        """One partition of a consumer's fetch response, just before its bytes leave."""
        ...


class Host(Protocol):
    """The machine: everything a broker may touch."""

    name: str
    clock: Clock
    tasks: Tasks
    disk: Disk
    network: Network
    random: random.Random
    failpoints: Failpoints
    trace: Trace
    tap: Tap


class Control(Protocol):
    """Where rooms offer operations to who supervises the process."""

    def register(
        self,
        name: str,
        operation: Callable[[Mapping[str, Any]], Mapping[str, Any] | Awaitable[Mapping[str, Any]]],
        /,
    ) -> None:
        """Serve `name` from now on; a later registration of the same name replaces it."""
        ...


class ProcessHost(Host, Protocol):
    """The machine as a whole process (a broker, the registry) gets it: with its control operations."""

    @property
    def control(self) -> Control:
        """What a supervisor may ask of this process."""
        ...
