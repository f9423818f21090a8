"""B11 and K3: after any operations of a broker's logs a power loss keeps every acknowledged record and adds none."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from fragile_broker import LogsUnderPowerLoss, read
from harrow.cluster.ids import LeaderEpoch
from harrow.cluster.wire.batches import build_batch


@pytest.mark.usefixtures("journal_only")
@pytest.mark.parametrize("policy", [{"flush.messages": 1}, {}], ids=["fsync each", "never"])
@pytest.mark.parametrize("seed", [0, 5, 101, 102, 105, 135])  # each of these seeds found a bug
def test_power_loss_keeps_acknowledged_records(tmp_path: Path, seed: int, policy: dict[str, object]) -> None:
    rng = random.Random(seed)
    logs = LogsUnderPowerLoss(tmp_path, rng, policy and {**policy, "internal.segment.bytes": 20_000})
    for round_ in range(4):
        for _ in range(rng.randint(1, 60)):
            logs.step()
        keep = rng.choice((None, None, 0.0))
        logs.stop_and_lose_power(seed * 100 + round_, keep)
        logs.begin()
        for number in range(3):
            logs.check(number)
        for number in range(3):  # the surviving records must survive the next power loss, too
            logs.acknowledged[number] = read(logs.log(number)) if not logs.log(number).awaits_fsync else {}
            logs.log(number).flush()


def test_power_loss_removes_records_without_an_fsync(tmp_path: Path) -> None:
    logs = LogsUnderPowerLoss(tmp_path, random.Random(1), {})
    for number in range(3):
        logs.log(number).append_as_leader(build_batch([(b"k", b"v", ())], timestamp_ms=1), LeaderEpoch(1))
    logs.stop_and_lose_power(1, 0.0)
    logs.begin()
    assert [read(logs.log(number)) for number in range(3)] == [{}, {}, {}]
