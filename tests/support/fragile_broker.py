"""A broker's logs on a disk that may lose power, and the batches in a log after the power loss."""

from __future__ import annotations

import itertools
import random
from pathlib import Path
from typing import Any

from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.power_loss.roll_back import lose_power
from harrow.cluster.host.power_loss.tracked_disk import TrackedDisk
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.wire.batches import build_batch, build_end_txn_marker, crc_matches, decode_records, headers
from log_damage import batches_of
from storage_host import TP, StorageHost

CONFIG = BrokerConfig.parse({"harrow.tail.bytes": 0})
ID = "0W2cD9rlRj6jvUdxDTHqxA"
NOW = 1_700_000_000_000
EPOCH = LeaderEpoch(1)
EACH: dict[str, object] = {"flush.messages": 1}


class FragileLogs:
    """All logs of a broker that may lose power."""

    def __init__(self, folder: Path, topic: dict[str, object] | None = None) -> None:
        self.folder, self.topic = folder, topic or {}
        self.data = folder / "data"
        self.data.mkdir(parents=True, exist_ok=True)

    def load(self) -> None:
        """Start the broker: load its logs."""
        self.host = StorageHost()
        self.disk = TrackedDisk(str(self.folder / "unsynced"), [str(self.data)])
        self.host.disk = self.disk  # type: ignore[assignment]
        self.logs = LogManager(self.host.host, str(self.data), CONFIG)
        self.logs.load()

    def stop(self) -> None:
        """Stop the broker as kill -9 does."""
        self.logs.close(clean=False)
        for call in self.host.tasks.spawned:
            call.close()
        self.disk.close()

    def stop_and_lose_power(self, seed: int, keep: float | None) -> None:
        """Stop as `stop` does, and remove the data that is not durable; `keep` and the seed decide how much of it."""
        self.stop()
        lose_power(str(self.folder / "unsynced"), seed=seed, keep=keep)


class Broker(FragileLogs):
    """One log of a broker that may lose power."""

    def __init__(self, folder: Path, topic: dict[str, object] | None = None) -> None:
        super().__init__(folder, topic)
        self.begin()

    def begin(self) -> Log:
        self.load()
        self.logs.claim("cluster", 1)
        self.log = self.logs.create(TP, ID, CONFIG.topic(self.topic))
        return self.log

    def put(self, data: bytes, epoch: int = 1, **how: Any) -> None:
        """Append, and run the fsync that the append waits for."""
        self.log.append_as_leader(data, LeaderEpoch(epoch), **how)
        self.host.tasks.run()

    def lose_power(self, keep: float | None = 0.0, seed: int = 0) -> Log:
        self.stop_and_lose_power(seed, keep)
        return self.begin()


# ------------------------------------------------------------------------- random logs and what must survive


IDS = ["0W2cD9rlRj6jvUdxDTHqx" + letter for letter in "ABCD"]


class LogsUnderPowerLoss(FragileLogs):
    """A broker's logs on a disk whose power may be lost, and the records that were acknowledged."""

    def __init__(self, folder: Path, rng: random.Random, topic: dict[str, object]) -> None:
        super().__init__(folder, topic)
        self.rng = rng
        self.acknowledged: dict[int, dict[int, bytes]] = {number: {} for number in range(3)}
        self.written: dict[int, set[tuple[int, bytes]]] = {number: set() for number in range(3)}
        self.epoch = 0
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.load()

    def log(self, number: int) -> Log:
        tp = TopicPartition("orders", number)
        return self.logs.create(tp, IDS[number], CONFIG.topic(self.topic))

    def step(self) -> None:
        number = self.rng.randrange(3)
        log = self.log(number)
        match self.rng.randrange(12):
            case 0:
                log.roll()
            case 1:
                self.logs.checkpoint_recovery_points()
            case 2:
                end = Offset(self.rng.randint(log.log_start_offset, log.log_end_offset))
                log.truncate_to(end)
                kept = {o: v for o, v in self.acknowledged[number].items() if o < log.log_end_offset}
                self.acknowledged[number] = kept
            case 3:
                self.host.tasks.advance(self.rng.choice((0, 100_000)))
                self.acknowledge()
            case _:
                values = [self.rng.randbytes(self.rng.choice((3, 2_000))) for _ in range(3)]
                records = [(b"k", value, ()) for value in values]
                data = build_batch(records, timestamp_ms=self.host.clock.now)
                first = log.append_as_leader(data, LeaderEpoch(self.epoch)).first_offset
                self.written[number] |= set(enumerate(values, first))

    def acknowledge(self) -> None:
        """Run the tasks that are due, then acknowledge the records below the acknowledgeable end."""
        self.host.tasks.run()
        for number in range(3):
            log = self.log(number)
            upto = log.acknowledgeable_end if self.topic else log.recovery_point
            self.acknowledged[number] |= {o: v for o, v in read(log).items() if o < upto}

    def check(self, number: int) -> dict[int, bytes]:
        """What a log has: every acknowledged record, nothing that was not written, no gap."""
        found = read(self.log(number))
        assert self.acknowledged[number].items() <= found.items(), f"partition {number}"
        assert set(found.items()) <= self.written[number]
        assert list(found) == list(range(len(found)))
        return found


def read(log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 10**6, log.log_end_offset, at_least_one=True).parts)
        records = decode_records(data)
        found |= {record.offset: record.value or b"" for record in records}
        offset = Offset(records[-1].offset + 1)
    return found


def batch(size: int = 10, time: int = NOW, **fields: Any) -> bytes:
    return build_batch([(b"k", bytes(size), ())], timestamp_ms=time, **fields)


def in_transaction(sequence: int = 0) -> bytes:
    return batch(producer_id=7, producer_epoch=0, base_sequence=sequence, is_transactional=True)


ABORT = build_end_txn_marker(commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp_ms=NOW)


def stored(log: Log) -> list[tuple[int, int]]:
    """Return base offset and leader epoch of every batch; assert that each has a valid CRC."""
    found: list[tuple[int, int]] = []
    for batch in batches_of(log, log.log_start_offset):
        (placed,) = headers(batch.data, partial_ok=False)
        assert crc_matches(batch.data, placed), f"batch {batch.base}"
        found.append((batch.base, placed.header.leader_epoch))
    return found


def epochs_of(batches: list[tuple[int, int]]) -> list[tuple[int, int]]:
    firsts = [next(group) for _, group in itertools.groupby(batches, key=lambda batch: batch[1])]
    return [(epoch, base) for base, epoch in firsts]
