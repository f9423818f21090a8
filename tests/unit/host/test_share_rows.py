"""The rows of `tap.shares`: records of share groups as brokers write them (J6)."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from harrow.cluster.broker_folder import TAP_NAMES, TAP_SHARES
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import SHARE_ACQUIRED, SHARE_EXPIRED, NoTap, SharedRecords
from harrow.cluster.tap.layouts import FLAG_LOST, SHARE_DTYPE, SHARE_ROW
from harrow.cluster.tap.recorder import FileTap


def test_each_range_of_records_has_a_row_with_what_the_response_says(tmp_path: Path) -> None:
    tap = FileTap(str(tmp_path), RealClock())
    acquired = [SharedRecords("orders", 2, 10, 14, 1, 7), SharedRecords("orders", 2, 20, 20, 3, 7)]
    fields = {"kind": SHARE_ACQUIRED, "invoked_ns": 5, "lock_until_ns": 99}
    tap.shared("workers", "m-1", "app", acquired, **fields, lost=True)
    tap.shared("workers", "", "", [SharedRecords("orders", 2, 10, 12)], kind=SHARE_EXPIRED, error=3)
    tap.shared("workers", "m-1", "app", [], kind=SHARE_ACQUIRED)
    tap.close()

    rows = np.frombuffer((tmp_path / TAP_SHARES).read_bytes(), np.dtype(SHARE_DTYPE))
    names = [line.split("\t")[1] for line in (tmp_path / TAP_NAMES).read_text().splitlines()]
    assert SHARE_ROW.size == rows.dtype.itemsize
    assert rows["kind"].tolist() == [SHARE_ACQUIRED, SHARE_ACQUIRED, SHARE_EXPIRED]
    assert rows["flags"].tolist() == [FLAG_LOST, FLAG_LOST, 0]
    assert rows["error"].tolist() == [0, 0, 3]
    assert [names[n] for n in rows["member"]] == ["m-1", "m-1", ""]
    assert {names[n] for n in rows["topic"]} == {"orders"} and {names[n] for n in rows["group"]} == {"workers"}
    assert list(zip(rows["first_offset"].tolist(), rows["last_offset"].tolist(), strict=True)) == [
        (10, 14),
        (20, 20),
        (10, 12),
    ]
    assert rows["delivery_count"].tolist() == [1, 3, 0] and rows["leader_epoch"].tolist() == [7, 7, -1]
    assert rows["lock_until_ns"].tolist() == [99, 99, 0]
    assert rows["invoked_ns"].tolist()[:2] == [5, 5]
    assert 5 < rows["invoked_ns"][2] == rows["completed_ns"][2]


def test_a_restarted_process_appends(tmp_path: Path) -> None:
    for offset in (1, 2):
        tap = FileTap(str(tmp_path), RealClock())
        tap.shared("workers", "m", "app", [SharedRecords("orders", 0, offset, offset)], kind=SHARE_ACQUIRED)
        tap.close()
        with (tmp_path / TAP_SHARES).open("ab") as file:
            file.write(b"torn")
    rows = np.frombuffer((tmp_path / TAP_SHARES).read_bytes()[: 2 * SHARE_ROW.size], np.dtype(SHARE_DTYPE))
    assert rows["first_offset"].tolist() == [1, 2]


def test_a_host_without_a_tap_takes_rows_of_share_groups() -> None:
    NoTap().shared("workers", "m", "app", [SharedRecords("orders", 0, 1, 1)], kind=SHARE_ACQUIRED)
