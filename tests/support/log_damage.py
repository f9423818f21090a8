"""Random logs, the damage that a crash or an operator does to their folders, and the required result: the model of B10.

`History` drives a log and stores every batch that is in it; `Damage` damages the folder and stores
the first offset that may be affected. Used by `test_log_damage.py`.
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
TOPIC: dict[str, object] = {"internal.segment.bytes": 700, "index.interval.bytes": 150, "segment.index.bytes": 240}
PAGE = 96
STEPS = (
    *["append"] * 8,
    *["idempotent"] * 5,
    *["transactional"] * 3,
    *["marker"] * 2,
    *["follow"] * 3,
    *["flush", "checkpoint", "new leader"] * 2,
    "roll",
    "truncate",
    "move start",
    "restart",
    "crash",
)
"""Operations of a `History`, as often as random logs have them."""


class KeptBatch(NamedTuple):
    """A batch that was appended and not truncated."""

    base: int
    last: int
    data: bytes


@dataclass
class History:
    """One log, driven by random operations, and the batches that it must hold."""

    folder: Path
    chance: random.Random
    host: StorageHost = field(default_factory=StorageHost)
    kept: list[KeptBatch] = field(default_factory=list[KeptBatch])
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
            lambda: void(self.log.append_as_leader(data, LeaderEpoch(self.epoch), origin=Origin.COORDINATOR))
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
            lambda: void(self.log.append_as_leader(marker, LeaderEpoch(self.epoch), origin=Origin.COORDINATOR))
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
        return self.reopen_on(StorageHost())

    def reopen_on(self, host: StorageHost) -> Log:
        """Open the log on a host that may fail."""
        self.host = host
        self.log = self.host.open(
            str(self.folder), TOPIC, clean=self.clean, recovery_point=self.point, log_start_offset=self.start
        )
        return self.log

    def restart(self) -> None:
        self.stop(clean=True)
        self.reopen()

    def crash(self) -> None:
        self.stop(clean=False)
        self.reopen()


def void(_: object) -> None:
    """Discard a result."""


def batches_of(log: Log, start: int) -> list[KeptBatch]:
    """Return the batches that a reader receives from `start` on, from files and tail."""
    found: list[KeptBatch] = []
    offset = start
    while True:
        parts = log.read(Offset(offset), 10**9, Offset(2**60), at_least_one=True).parts
        data = b"".join(map(plain, parts))
        if not data:
            return found
        for position, size, header in headers(data, partial_ok=False):
            batch = data[position : position + size]
            found.append(KeptBatch(header.base_offset, header.last_offset, batch))
        offset = found[-1].last + 1


def plain(part: object) -> bytes:
    """Return the bytes of a part, which is a buffer or a region of a file."""
    read = getattr(part, "read", None)
    return read() if read is not None else bytes(part)  # type: ignore[call-overload, no-any-return]


@dataclass
class Damage:
    """The damage that was done to a folder."""

    folder: Path
    chance: random.Random
    point: int
    """Only log bytes at or above this offset may be damaged."""
    kept: Sequence[KeptBatch]
    first_bad: int = 2**60
    """Batches that end below this offset are undamaged."""
    notes: list[str] = field(default_factory=list[str])

    @property
    def log_kinds(self) -> dict[str, Callable[[], None]]:
        return {"torn": self.torn, "zeroed": self.zeroed, "random": self.scrambled}

    @property
    def other_kinds(self) -> dict[str, Callable[[], None]]:
        return {
            "index": self.index,
            "indexes missing": self.indexes_missing,
            "leftovers": self.leftovers,
            "swap": self.swap,
            "epochs": self.epochs,
            "snapshots": self.snapshots,
        }

    def _logs(self) -> list[Path]:
        return sorted(self.folder.glob("*.log"))

    def _damageable(self) -> list[KeptBatch]:
        """Batches that recovery must read."""
        return [batch for batch in self.kept if batch.base >= self.point]

    def _place(self, batch: KeptBatch) -> tuple[Path, int]:
        for path in reversed(self._logs()):
            at = path.read_bytes().find(batch.data)
            if at >= 0:
                return path, at
        raise AssertionError(f"batch {batch.base} is in no file")

    def _mark_damaged(self, batch: KeptBatch) -> None:
        self.first_bad = min(self.first_bad, batch.base)

    def torn(self) -> None:
        if self._damageable():
            batch = self.kept[-1]
            path, at = self._place(batch)
            kept_bytes = self.chance.randint(0, len(batch.data) - 1)
            path.write_bytes(path.read_bytes()[: at + kept_bytes])
            self._mark_damaged(batch)
            self.notes.append(f"torn {path.name} at {at + kept_bytes}")

    def zeroed(self) -> None:
        self._page(bytes)

    def scrambled(self) -> None:
        self._page(self.chance.randbytes)

    def _page(self, fill: Callable[[int], bytes]) -> None:
        """Damage one page of the file, from inside a batch on."""
        if not self._damageable():
            return
        batch = self.chance.choice(self._damageable())
        path, at = self._place(batch)
        whole = path.read_bytes()
        begin = at + self.chance.randrange(len(batch.data))
        size = min(PAGE, len(whole) - begin)
        changed = whole[:begin] + fill(size) + whole[begin + size :]
        if protected(whole[at:], changed[at:]):
            path.write_bytes(changed)
            self._mark_damaged(batch)
            self.notes.append(f"page of {path.name} at {begin}")

    def index(self) -> None:
        files = sorted(self.folder.glob("*index"))
        if not files:
            return
        path = self.chance.choice(files)
        data = path.read_bytes()
        others = [other for other in files if other.suffix == path.suffix and other != path]
        kind = self.chance.choice(["missing", "short", "stale", "random", "zeroes", "foreign"])
        if kind == "missing":
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

    def indexes_missing(self) -> None:
        for path in self.folder.glob("*index"):
            path.unlink()

    def leftovers(self) -> None:
        path = self.chance.choice(self._logs())
        for suffix in self.chance.sample([".deleted", ".cleaned"], 1):
            shutil.copy(path, f"{path}{suffix}")
        (self.folder / f"{self.chance.randint(0, 60):020d}.log.swap").write_bytes(b"rubbish" * 9)
        (self.folder / "00000000000000000999.timeindex").write_bytes(bytes(12))

    def swap(self) -> None:
        """Leave a cleaning that ended before its last renames: two neighbouring segments are merged.

        The replaced segment is removed only where no `.cleaned` file remains at or below it: at this stage a
        cleaning has no such file any more, and a swap file beside one belongs to a swap that never completed (B9).
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
        kind = self.chance.choice(["missing", "malformed", "future"])
        if kind == "missing":
            path.unlink()
        elif kind == "malformed":
            path.write_bytes(path.read_bytes()[:4])  # the file counts entries that it does not hold
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
    """Return whether the first batch that differs does so in bytes that its CRC, length or magic protect."""
    for position, size, _ in headers(whole):
        old, new = whole[position : position + size], changed[position : position + size]
        if old != new:
            protected_bytes = [*range(8, 12), *range(16, size)]
            return any(old[at] != new[at] for at in protected_bytes)
    return False


# ----------------------------------------------------------------------------- the required result


def epochs_of(batches: list[KeptBatch], start: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    for batch in batches:
        epoch = header_at(batch.data).leader_epoch
        if not found or epoch > found[-1][0]:
            found.append((epoch, batch.base))
    while len(found) > 1 and found[1][1] <= start:
        del found[0]
    return [(epoch, max(offset, start)) for epoch, offset in found]


def last_sequences(batches: list[KeptBatch]) -> dict[int, int]:
    found: dict[int, int] = {}
    for header in (header_at(batch.data) for batch in batches):
        if header.producer_id >= 0 and not header.is_control:
            found[header.producer_id] = header.last_sequence
    return found


def check(log: Log, history: History, damage: Damage) -> None:
    """Assert that `log` serves what B10 requires of it, after this history and this damage."""
    start = int(log.log_start_offset)
    served = batches_of(log, start)
    readable = [batch for batch in history.kept if batch.last >= start]
    assert served == readable[: len(served)], "the served batches are a prefix of the appended ones"
    must = [batch for batch in readable if batch.last < damage.first_bad]
    assert len(served) >= len(must), "no batch before the first damaged byte is lost"
    end = served[-1].last + 1 if served else log.log_end_offset
    assert log.log_end_offset == end
    alive = [batch for batch in history.kept if batch.last < end]
    if served:
        assert [tuple(entry) for entry in log.epochs.entries()] == epochs_of(alive, start)
    for producer, sequence in last_sequences(served).items():
        entry = log.producers.get(producer)
        assert entry is not None
        assert entry.batches[-1].last_sequence == sequence
