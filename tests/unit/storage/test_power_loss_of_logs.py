"""B11 and K3 together: whatever a broker's logs do, a power loss leaves every settled record and no false one."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest
from harrow.cluster.config import BrokerConfig
from harrow.cluster.host.power_loss import lose_power
from harrow.cluster.host.tracked_disk import TrackedDisk
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log, LogManager
from harrow.cluster.wire.batches import build_batch, decode_records
from storage_host import StorageHost

CONFIG = BrokerConfig.parse({"harrow.tail.bytes": 0})
IDS = ["0W2cD9rlRj6jvUdxDTHqx" + letter for letter in "ABCD"]


def no_fsync(_fd: int) -> None:
    """The journal is what is tested; the real disk need not be waited for."""


class Life:
    """A broker's logs on a disk whose power may be lost, and what was settled in them."""

    def __init__(self, folder: Path, rng: random.Random, topic: dict[str, object]) -> None:
        self.folder, self.rng, self.topic = folder, rng, topic
        self.settled: dict[int, dict[int, bytes]] = {number: {} for number in range(3)}
        self.written: dict[int, set[tuple[int, bytes]]] = {number: set() for number in range(3)}
        self.epoch = 0
        self.begin()

    def begin(self) -> None:
        self.epoch += 1
        self.host = StorageHost()
        (self.folder / "data").mkdir(parents=True, exist_ok=True)
        data = str(self.folder / "data")
        self.host.disk = TrackedDisk(str(self.folder / "unsynced"), [data])  # type: ignore[assignment]
        self.logs = LogManager(self.host.host, data, CONFIG)
        self.logs.load()

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
                cut = Offset(self.rng.randint(log.log_start_offset, log.log_end_offset))
                log.truncate_to(cut)
                kept = {o: v for o, v in self.settled[number].items() if o < log.log_end_offset}
                self.settled[number] = kept
            case 3:
                self.host.tasks.advance(self.rng.choice((0, 100_000)))
                self.settle()
            case _:
                values = [self.rng.randbytes(self.rng.choice((3, 2_000))) for _ in range(3)]
                records = [(b"k", value, ()) for value in values]
                data = build_batch(records, timestamp_ms=self.host.clock.now)
                first = log.append_as_leader(data, LeaderEpoch(self.epoch)).first_offset
                self.written[number] |= set(enumerate(values, first))

    def settle(self) -> None:
        """The loop turns: what an fsync has settled is acknowledged."""
        self.host.tasks.run()
        for number in range(3):
            log = self.log(number)
            upto = log.settled_offset if self.topic else log.recovery_point
            self.settled[number] |= {o: v for o, v in read(log).items() if o < upto}

    def lose_power(self, seed: int, keep: float | None) -> None:
        self.logs.close(clean=False)
        for call in self.host.tasks.spawned:
            call.close()
        lose_power(str(self.folder / "unsynced"), seed=seed, keep=keep)


def read(log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 10**6, log.log_end_offset, at_least_one=True).parts)
        records = decode_records(data)
        found |= {record.offset: record.value or b"" for record in records}
        offset = Offset(records[-1].offset + 1)
    return found


@pytest.mark.parametrize("policy", [{"flush.messages": 1}, {}], ids=["fsync each", "never"])
@pytest.mark.parametrize("seed", [0, 5, 101, 102, 105, 135])  # each found something once
def test_settled_records_survive_a_power_loss(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, policy: dict[str, object]
) -> None:
    monkeypatch.setattr(os, "fsync", no_fsync)
    rng = random.Random(seed)
    life = Life(tmp_path, rng, policy and {**policy, "segment.bytes": 20_000})
    for round_ in range(4):
        for _ in range(rng.randint(1, 60)):
            life.step()
        keep = rng.choice((None, None, 0.0))
        life.lose_power(seed * 100 + round_, keep)
        life.begin()
        for number in range(3):
            found = read(life.log(number))
            assert life.settled[number].items() <= found.items(), f"partition {number}"
            assert set(found.items()) <= life.written[number]
            assert list(found) == list(range(len(found)))
        for number in range(3):  # what came through is there for good
            life.settled[number] = read(life.log(number)) if life.log(number).settled else {}
            life.log(number).flush()


def test_without_an_fsync_a_power_loss_does_lose(tmp_path: Path) -> None:
    life = Life(tmp_path, random.Random(1), {})
    for number in range(3):
        life.log(number).append_as_leader(
            build_batch([(b"k", b"v", ())], timestamp_ms=1), LeaderEpoch(1)
        )
    life.lose_power(1, 0.0)
    life.begin()
    assert [read(life.log(number)) for number in range(3)] == [{}, {}, {}]
