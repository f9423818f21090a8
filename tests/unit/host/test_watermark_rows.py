"""The rows of `tap.watermarks`: what leaders say of their logs, without what was said before (J6, L2)."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from harrow.cluster.broker_folder import TAP_WATERMARKS
from harrow.cluster.host.real.clock import RealClock
from harrow.cluster.host.seam import NoTap, Watermarks
from harrow.cluster.tap.layouts import WATERMARK_DTYPE, WATERMARK_ROW, WATERMARKS_FETCHED, WATERMARKS_LISTED
from harrow.cluster.tap.recorder import FileTap

Said = tuple[int, int, int, int]


def write(folder: Path, *said: Watermarks, listed: bool = False) -> Any:
    """Write one response for each row; return the rows of the file."""
    tap = FileTap(str(folder), RealClock())
    for row in said:
        tap.watermarks("app", [row], invoked_ns=5, listed=listed)
    tap.close()
    return np.frombuffer((folder / TAP_WATERMARKS).read_bytes(), np.dtype(WATERMARK_DTYPE))


def fetched(epoch: int, high: int, stable: int | None = None, start: int = 0) -> Watermarks:
    return Watermarks("orders", 2, epoch, high, high if stable is None else stable, start)


def test_a_fetch_response_has_a_row_with_what_it_says(tmp_path: Path) -> None:
    rows = write(tmp_path, Watermarks("orders", 2, 7, 40, 30, 20, 99))
    assert WATERMARK_ROW.size == rows.dtype.itemsize
    wanted = {
        "kind": WATERMARKS_FETCHED,
        "partition": 2,
        "leader_epoch": 7,
        "topic_id": 99,
        "high_watermark": 40,
        "last_stable_offset": 30,
        "log_start_offset": 20,
        "invoked_ns": 5,
    }
    assert {name: int(rows[0][name]) for name in wanted} == wanted


def test_a_listing_has_the_high_watermark_or_the_last_stable_offset(tmp_path: Path) -> None:
    said = [Watermarks.listed("orders", 2, 7, 40, committed=committed) for committed in (False, True)]
    rows = write(tmp_path, *said, listed=True)
    assert rows["kind"].tolist() == [WATERMARKS_LISTED] * 2
    assert rows["high_watermark"].tolist() == [40, -1]
    assert rows["last_stable_offset"].tolist() == [-1, 40]


def test_a_response_that_says_the_same_has_no_row(tmp_path: Path) -> None:
    rows = write(tmp_path, *(fetched(7, 40) for _ in range(5)), fetched(7, 41), fetched(7, 41))
    assert rows["high_watermark"].tolist() == [40, 41]


def test_a_value_below_an_earlier_one_has_a_row_each_time(tmp_path: Path) -> None:
    rows = write(tmp_path, fetched(7, 40), fetched(7, 39), fetched(7, 39), fetched(7, 40))
    assert rows["high_watermark"].tolist() == [40, 39, 39, 40]


def test_a_listing_above_a_fetch_makes_the_same_fetch_a_new_row(tmp_path: Path) -> None:
    tap = FileTap(str(tmp_path), RealClock())
    tap.watermarks("app", [fetched(7, 40)], invoked_ns=1)
    listing = Watermarks.listed("orders", 2, 7, 45, committed=False)
    tap.watermarks("app", [listing], invoked_ns=2, listed=True)
    tap.watermarks("app", [fetched(7, 40)], invoked_ns=3)
    tap.close()
    rows = np.frombuffer((tmp_path / TAP_WATERMARKS).read_bytes(), np.dtype(WATERMARK_DTYPE))
    assert rows["high_watermark"].tolist() == [40, 45, 40]


def test_a_new_leader_epoch_has_a_row_of_its_own(tmp_path: Path) -> None:
    rows = write(tmp_path, fetched(7, 40), fetched(8, 40), fetched(8, 40))
    assert rows["leader_epoch"].tolist() == [7, 8]


def test_a_response_of_an_unknown_epoch_has_no_row(tmp_path: Path) -> None:
    assert not len(write(tmp_path, fetched(-1, 40)))


def test_a_host_without_tap_writes_nothing() -> None:
    NoTap().watermarks("app", [fetched(7, 40)], invoked_ns=1)
