"""Random logs, what a crash or an operator does to their folders, and what must be left: the model of B10.

`History` drives a log and remembers every batch that is in it; `Damage` spoils the folder and remembers
the first offset that it may have hurt. Used by `test_log_damage.py`.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from harrow.cluster.ids import LeaderEpoch, Offset
from harrow.cluster.storage import Log, Origin
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, header_at, headers
from storage_host import StorageHost

NOW = 1_700_000_000_000
TOPIC: dict[str, object] = {
    "segment.bytes": 700,
    "index.interval.bytes": 150,
    "segment.index.bytes": 240,
}
PAGE = 96


class Kept(NamedTuple):
    """A batch that was appended and not truncated."""

    base: int
    last: int
    data: bytes


@dataclass
class History:
    """One log, driven by random operations, and the batches that must be in it."""

    folder: Path
    chance: random.Random
    host: StorageHost = field(default_factory=StorageHost)
    kept: list[Kept] = field(default_factory=list[Kept])
    epoch: int = 0
    point: int = 0
    """The recovery point checkpoint."""
    start: int = 0
    """The log start offset checkpoint."""
    clean: bool = True
    _sequences: dict[int, int] = field(default_factory=dict[int, int])
    _made: int = 0

    def __post_init__(self) -> None:
        self.log: Log = self.host.open(str(self.folder), TOPIC)

    @property
    def operations(self) -> dict[str, Callable[[], None]]:
        return {
            "append": self.append,
            "idempotent": lambda: self.append(producer=7),
            "transactional": lambda: self.append(producer=8, transactional=True),
            "marker": self.end_transaction,
            "follow": self.follow,
            "new leader": self.new_leader,
            "roll": lambda: void(self.log.roll()),
            "truncate": self.truncate,
            "flush": self.log.flush,
            "checkpoint": self.checkpoint,
            "move start": self.move_start,
            "restart": self.restart,
            "crash": self.crash,
        }

    def _batch(self, producer: int = -1, *, transactional: bool = False) -> bytes:
        self._made += 1
        count = self.chance.randint(1, 3)
        sequence = self._sequences.get(producer, 0) if producer >= 0 else -1
        if producer >= 0:
            self._sequences[producer] = sequence + count
        return build_batch(
            [(b"k", self.chance.randbytes(self.chance.randint(5, 80)), ())] * count,
            timestamp_ms=NOW + self._made,
            producer_id=producer,
            producer_epoch=0 if producer >= 0 else -1,
            base_sequence=sequence,
            is_transactional=transactional,
        )

    def append(self, producer: int = -1, *, transactional: bool = False) -> None:
        data = self._batch(producer, transactional=transactional)
        self._appended(
            lambda: void(
                self.log.append_as_leader(data, LeaderEpoch(self.epoch), origin=Origin.COORDINATOR)
            )
        )

    def end_transaction(self) -> None:
        self._made += 1
        marker = build_end_txn_marker(
            commit=self.chance.random() < 0.5,
            producer_id=8,
            producer_epoch=0,
            coordinator_epoch=1,
            timestamp_ms=NOW + self._made,
        )
        self._appended(
            lambda: void(
                self.log.append_as_leader(
                    marker, LeaderEpoch(self.epoch), origin=Origin.COORDINATOR
                )
            )
        )

    def follow(self) -> None:
        data = bytearray(self._batch() + self._batch())
        second = header_at(data).size
        base = self.log.log_end_offset
        following = base + header_at(data).last_offset_delta + 1
        for at, offset in ((0, base), (second, following)):
            data[at : at + 8] = offset.to_bytes(8, "big")
            data[at + 12 : at + 16] = self.epoch.to_bytes(4, "big")
        self._appended(lambda: void(self.log.append_as_follower(bytes(data))))

    def _appended(self, append: Callable[[], None]) -> None:
        before = int(self.log.log_end_offset)
        append()
        self.kept += batches_of(self.log, before)

    def new_leader(self) -> None:
        self.epoch += 1

    def truncate(self) -> None:
        end = int(self.log.log_end_offset)
        offset = self.chance.randint(max(end - 8, int(self.log.log_start_offset)), end)
        self.log.truncate_to(Offset(offset))
        self.kept = [batch for batch in self.kept if batch.last < offset]
        self.point = min(self.point, offset)
        self.epoch += 1  # as after every election
        self._sequences = dict.fromkeys(self._sequences, 0)
        for batch in self.kept:
            header = header_at(batch.data)
            if header.producer_id >= 0 and not header.is_control:
                self._sequences[header.producer_id] = header.last_sequence + 1

    def checkpoint(self) -> None:
        self.point = int(self.log.recovery_point)
        self.start = int(self.log.log_start_offset)

    def move_start(self) -> None:
        start, end = int(self.log.log_start_offset), int(self.log.log_end_offset)
        self.log.increment_log_start_offset(Offset(self.chance.randint(start, end)))
        self.start = int(self.log.log_start_offset)

    def stop(self, *, clean: bool) -> None:
        self.clean = clean
        if clean:
            self.log.close()
            self.checkpoint()
        else:
            self.log.abandon()

    def reopen(self) -> Log:
        self.host = StorageHost()
        self.log = self.host.open(
            str(self.folder),
            TOPIC,
            clean=self.clean,
            recovery_point=self.point,
            log_start_offset=self.start,
        )
        return self.log

    def restart(self) -> None:
        self.stop(clean=True)
        self.reopen()

    def crash(self) -> None:
        self.stop(clean=False)
        self.reopen()


def void(_: object) -> None:
    """Drop an answer."""


def batches_of(log: Log, start: int) -> list[Kept]:
    """What a reader gets from `start` on, through files and tail."""
    found: list[Kept] = []
    offset = start
    while True:
        parts = log.read(Offset(offset), 10**9, Offset(2**60), at_least_one=True).parts
        data = b"".join(map(plain, parts))
        if not data:
            return found
        for position, size, header in headers(data, partial_ok=False):
            batch = data[position : position + size]
            found.append(Kept(header.base_offset, header.last_offset, batch))
        offset = found[-1].last + 1


def plain(part: object) -> bytes:
    """The bytes of a part, be it a buffer or a region of a file."""
    read = getattr(part, "read", None)
    return read() if read is not None else bytes(part)  # type: ignore[call-overload, no-any-return]


@dataclass
class Damage:
    """What was done to a folder."""

    folder: Path
    chance: random.Random
    point: int
    """Log bytes at or above this offset may be hurt."""
    kept: Sequence[Kept]
    first_bad: int = 2**60
    """Batches that end below it were not touched."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def log_kinds(self) -> dict[str, Callable[[], None]]:
        return {"torn": self.torn, "zeroed": self.zeroed, "random": self.scrambled}

    @property
    def other_kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "index": self.index,
            "indexes gone": self.indexes_gone,
            "leftovers": self.leftovers,
            "swap": self.swap,
            "epochs": self.epochs,
            "snapshots": self.snapshots,
        }

    def _logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _hurtable(self) -> list[Kept]:
        """Batches that recovery is bound to look at."""
        return [batch for batch in self.kept if batch.base >= self.point]

    def _place(self, batch: Kept) -> tuple[Path, int]:
        for path in reversed(self._logs()):
            at = path.read_bytes().find(batch.data)
            if at >= 0:
                return path, at
        raise AssertionError(f"batch {batch.base} is in no file")

    def _hurt(self, batch: Kept) -> None:
        self.first_bad = min(self.first_bad, batch.base)

    def torn(self) -> None:
        if self._hurtable():
            batch = self.kept[-1]
            path, at = self._place(batch)
            cut = self.chance.randint(0, len(batch.data) - 1)
            path.write_bytes(path.read_bytes()[: at + cut])
            self._hurt(batch)
            self.notes.append(f"torn {path.name} at {at + cut}")

    def zeroed(self) -> None:
        self._page(bytes)

    def scrambled(self) -> None:
        self._page(self.chance.randbytes)

    def _page(self, fill: Callable[[int], bytes]) -> None:
        """A page of what was written goes wrong, from inside a batch on."""
        if not self._hurtable():
            return
        batch = self.chance.choice(self._hurtable())
        path, at = self._place(batch)
        whole = path.read_bytes()
        begin = at + self.chance.randrange(len(batch.data))
        size = min(PAGE, len(whole) - begin)
        changed = whole[:begin] + fill(size) + whole[begin + size :]
        if protected(whole[at:], changed[at:]):
            path.write_bytes(changed)
            self._hurt(batch)
            self.notes.append(f"page of {path.name} at {begin}")

    def index(self) -> None:
        files = sorted(self.folder.glob("*index"))
        if not files:
            return
        path = self.chance.choice(files)
        data = path.read_bytes()
        others = [other for other in files if other.suffix == path.suffix and other != path]
        kind = self.chance.choice(["gone", "short", "stale", "random", "zeroes", "foreign"])
        if kind == "gone":
            path.unlink()
        elif kind == "short":
            path.write_bytes(data[: self.chance.randint(0, len(data))])
        elif kind == "stale":
            path.write_bytes(data[: 12 * 8 * (len(data) // 192)])
        elif kind == "random":
            path.write_bytes(self.chance.randbytes(self.chance.randint(0, 60)))
        elif kind == "zeroes":
            path.write_bytes(data + bytes(96))
        elif others:
            path.write_bytes(self.chance.choice(others).read_bytes())
        self.notes.append(f"{kind} {path.name}")

    def indexes_gone(self) -> None:
        for path in self.folder.glob("*index"):
            path.unlink()

    def leftovers(self) -> None:
        path = self.chance.choice(self._logs())
        for suffix in self.chance.sample([".deleted", ".cleaned"], 1):
            shutil.copy(path, f"{path}{suffix}")
        (self.folder / f"{self.chance.randint(0, 60):020d}.log.swap").write_bytes(b"rubbish" * 9)
        (self.folder / "00000000000000000999.timeindex").write_bytes(bytes(12))

    def swap(self) -> None:
        """A cleaning that ended but for its last renames: two neighbours are one.

        What it replaces is taken away only where no `.cleaned` is left at or below it: a cleaning has none any
        more when it comes to that, and a swap beside one never got through (B9).
        """
        paths = self._logs()
        if len(paths) < 3:
            return
        at = self.chance.randrange(len(paths) - 2)
        merged = paths[at].read_bytes() + paths[at + 1].read_bytes()
        (self.folder / f"{paths[at].name}.swap").write_bytes(merged)
        cleaned = [path.name[:20] for path in self.folder.glob("*.cleaned")]
        if self.chance.random() < 0.5 and all(base > paths[at].stem for base in cleaned):
            paths[at].rename(f"{paths[at]}.deleted")
        self.notes.append(f"swap {paths[at].name}")

    def epochs(self) -> None:
        path = self.folder / "leader-epoch-checkpoint"
        if not path.exists():
            return
        kind = self.chance.choice(["gone", "malformed", "future"])
        if kind == "gone":
            path.unlink()
        elif kind == "malformed":
            path.write_bytes(path.read_bytes()[:4])  # the entries that it counts are not there
        else:
            lines = path.read_text().splitlines()
            lines[1] = str(int(lines[1]) + 1)
            path.write_text("\n".join([*lines, "999 99999", ""]))
        self.notes.append(f"epochs {kind}")

    def snapshots(self) -> None:
        for path in sorted(self.folder.glob("*.snapshot")):
            if self.chance.random() < 0.5:
                path.write_bytes(path.read_bytes()[:-1])
        (self.folder / "00000000000000099999.snapshot").write_bytes(b"from the future")


def protected(whole: bytes, changed: bytes) -> bool:
    """True when the first batch that differs does so in bytes that its CRC, length or magic guard."""
    for position, size, _ in headers(whole):
        old, new = whole[position : position + size], changed[position : position + size]
        if old != new:
            guarded = [*range(8, 12), *range(16, size)]
            return any(old[at] != new[at] for at in guarded)
    return False
