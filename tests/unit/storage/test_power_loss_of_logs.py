"""B11 and K3: after any operations of a broker's logs a power loss keeps every acknowledged record and adds none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fragile_broker import CONFIG, FragileLogs
from harrow.cluster.ids import LeaderEpoch, Offset, TopicPartition
from harrow.cluster.storage import Log
from harrow.cluster.wire.batches import build_batch, decode_records

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
                kept = {
                    o: v for o, v in self.acknowledged[number].items() if o < log.log_end_offset
                }
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


def read(log: Log) -> dict[int, bytes]:
    found: dict[int, bytes] = {}
    offset = log.log_start_offset
    while offset < log.log_end_offset:
        data = b"".join(log.read(offset, 10**6, log.log_end_offset, at_least_one=True).parts)
        records = decode_records(data)
        found |= {record.offset: record.value or b"" for record in records}
        offset = Offset(records[-1].offset + 1)
    return found


@pytest.mark.usefixtures("journal_only")
@pytest.mark.parametrize("policy", [{"flush.messages": 1}, {}], ids=["fsync each", "never"])
@pytest.mark.parametrize("seed", [0, 5, 101, 102, 105, 135])  # each of these seeds found a bug
def test_power_loss_keeps_acknowledged_records(
    tmp_path: Path, seed: int, policy: dict[str, object]
) -> None:
    rng = random.Random(seed)
    logs = LogsUnderPowerLoss(tmp_path, rng, policy and {**policy, "segment.bytes": 20_000})
    for round_ in range(4):
        for _ in range(rng.randint(1, 60)):
            logs.step()
        keep = rng.choice((None, None, 0.0))
        logs.stop_and_lose_power(seed * 100 + round_, keep)
        logs.begin()
        for number in range(3):
            found = read(logs.log(number))
            assert logs.acknowledged[number].items() <= found.items(), f"partition {number}"
            assert set(found.items()) <= logs.written[number]
            assert list(found) == list(range(len(found)))
        for number in range(3):  # the surviving records must survive the next power loss, too
            logs.acknowledged[number] = (
                read(logs.log(number)) if not logs.log(number).awaits_fsync else {}
            )
            logs.log(number).flush()


def test_power_loss_removes_records_without_an_fsync(tmp_path: Path) -> None:
    logs = LogsUnderPowerLoss(tmp_path, random.Random(1), {})
    for number in range(3):
        logs.log(number).append_as_leader(
            build_batch([(b"k", b"v", ())], timestamp_ms=1), LeaderEpoch(1)
        )
    logs.stop_and_lose_power(1, 0.0)
    logs.begin()
    assert [read(logs.log(number)) for number in range(3)] == [{}, {}, {}]
