"""A Harrow cluster behind a proxy, for tests that compare what both wrote, and that damage the path between them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Generator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from harrow.cluster import Cluster
from harrow.cluster.broker_folder import TAP, TAP_NAMES, broker_files
from harrow.cluster.proxy_supervisor import Proxy
from harrow.harness.histories.coordinator_rows import FILES, MEMBERS, OFFSETS, TRANSACTIONS, map_coordinator_rows
from harrow.harness.histories.format import read_names
from harrow.harness.histories.tap import map_tap

NAMES = ("client", "topic", "group", "member", "transactional_id")
TIMES = ("invoked_ns", "completed_ns", "created_ns", "time_ns", "pad", "pad2")
UNSEEN = ("leader_epoch", "instance")
"""Fields of rows of members that responses do not show: a proxy writes -1 and 0."""
Row = tuple[tuple[str, Any], ...]


@contextmanager
def proxied_cluster(
    folder: Path, config: Mapping[str, object] | None = None, *, brokers: int = 3
) -> Generator[tuple[Cluster, Proxy]]:
    """Starts a cluster with taps and a proxy with taps, below `folder`."""
    settings = {"harrow.tap": True, **(config or {})}
    with Cluster(brokers=brokers, folder=folder / "cluster", config=settings) as cluster:
        upstreams = {node: broker.address for node, broker in cluster.brokers.items()}
        with Proxy(folder / "proxied", upstreams) as proxy:
            yield cluster, proxy


def batch_rows(folder: Path) -> Counter[Row]:
    """The rows of batches of all brokers below `folder`, with names and without times."""
    return _rows(folder, TAP, map_tap)


def offset_rows(folder: Path) -> Counter[Row]:
    """The rows of offsets of groups."""
    return _rows(folder, FILES[OFFSETS], partial(map_coordinator_rows, what=OFFSETS))


def transaction_rows(folder: Path) -> Counter[Row]:
    """The rows of transactions."""
    return _rows(folder, FILES[TRANSACTIONS], partial(map_coordinator_rows, what=TRANSACTIONS))


def member_rows(folder: Path) -> Counter[Row]:
    """The rows of members of groups."""
    return _rows(folder, FILES[MEMBERS], partial(map_coordinator_rows, what=MEMBERS))


def _rows(folder: Path, name: str, map_rows: Any) -> Counter[Row]:
    found: Counter[Row] = Counter()
    for path in broker_files(folder, name):
        names = read_names(path.with_name(TAP_NAMES))
        rows = map_rows(path)
        fields = [field for field in rows.dtype.names or () if field not in (*TIMES, *UNSEEN)]
        for row in rows:
            values = {field: row[field].item() for field in fields}
            values |= {field: names[values[field]] for field in NAMES if field in values}
            found[tuple(sorted(values.items()))] += 1
    return found


def where(rows: Counter[Row], **fields: Any) -> Counter[Row]:
    """The rows that have these values."""
    wanted = fields.items()
    return Counter({row: count for row, count in rows.items() if wanted <= dict(row).items()})
