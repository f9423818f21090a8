"""Further files of the taps as rows: transactions, groups, watermarks, records of share groups (J6).

Layout and meaning of the rows: `harrow.cluster.tap.layouts`. A row is
about one topic-partition, so that the lay-out of a run indexes these files as it indexes batches (`layout.py`). A tap
is written by a process that may be killed, so a torn last row is cut off.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from harrow.cluster.broker_folder import TAP_COMMITS, TAP_MEMBERS, TAP_SHARES, TAP_TRANSACTIONS, TAP_WATERMARKS

if TYPE_CHECKING:
    from pathlib import Path

    import numpy as np
    import numpy.typing as npt

TRANSACTIONS, OFFSETS, MEMBERS = "transactions", "offsets", "members"
WATERMARKS, SHARES = "watermarks", "shares"
FILES = {
    TRANSACTIONS: TAP_TRANSACTIONS,
    OFFSETS: TAP_COMMITS,
    MEMBERS: TAP_MEMBERS,
    WATERMARKS: TAP_WATERMARKS,
    SHARES: TAP_SHARES,
}
"""Kind of row -> the file of a broker's folder; the kinds are also fields of a job (`checks/plans.py`)."""


def coordinator_dtype(what: str) -> np.dtype[np.void]:
    """Return the type of the rows of one kind."""
    import numpy as np
    from harrow.cluster.tap.layouts import COMMIT_DTYPE, MEMBER_DTYPE, SHARE_DTYPE, TRANSACTION_DTYPE, WATERMARK_DTYPE

    types = {
        TRANSACTIONS: TRANSACTION_DTYPE,
        OFFSETS: COMMIT_DTYPE,
        MEMBERS: MEMBER_DTYPE,
        WATERMARKS: WATERMARK_DTYPE,
        SHARES: SHARE_DTYPE,
    }
    return np.dtype(types[what])


def map_coordinator_rows(path: str | Path, what: str) -> npt.NDArray[np.void]:
    """Map the rows of one file."""
    return map_rows(path, coordinator_dtype(what))


def map_rows(path: str | Path, dtype: np.dtype[np.void]) -> npt.NDArray[np.void]:
    """Map the rows of a tap's file, without a torn last one."""
    import numpy as np

    count = os.path.getsize(path) // dtype.itemsize
    return np.memmap(path, dtype, "r", shape=(count,)) if count else np.empty(0, dtype)
