"""The folder of one process of a cluster: the names of its files, for who writes them and who reads them.

<cluster>/broker-<node id>/
trace.jsonl      structured events, one JSON object a line     (`host/trace.py`)
broker.log       lines for people                              (`host/trace.py`)
tap.bin          rows of acknowledged and delivered batches    (`tap/batches.py`)
tap.commits      rows of offsets of groups                     (`tap/coordinators.py`)
tap.transactions rows of states of transactions                (`tap/coordinators.py`)
tap.members      rows of partitions of members of groups       (`tap/coordinators.py`)
tap.groups       rows of states of groups                      (`tap/coordinators.py`)
tap.watermarks   rows of high watermarks and other ends of logs    (`tap/watermarks.py`)
tap.shares       rows of records of share groups               (`tap/shares.py`)
tap.requests     rows of requests of clients                   (`tap/requests.py`)
tap.request_counts  how many requests of each client, API and error  (`tap/requests.py`)
tap.refused      the batches that the broker refused            (`tap/refused.py`)
tap.names        the names that all these rows refer to by number  (`tap/files.py`)
data/            the logs, where `log.dirs` names nothing else (`storage/log_folder.py`)
stdout.log       what the process printed                      (`forkserver.py`)
lives            one byte for each incarnation; seeds its random numbers  (`host/real/host.py`)
control.sock     its control socket                            (`host/knobs/control.py`)
<cluster>/registry/  trace.jsonl, broker.log, stdout.log, control.sock, registry.sqlite
<cluster>/proxy/     the same without the database, where a proxy is in front of foreign brokers; each of these
                     has a folder broker-<node id> too, without data
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

TRACE = "trace.jsonl"
LOG = "broker.log"
TAP = "tap.bin"
TAP_COMMITS = "tap.commits"
TAP_TRANSACTIONS = "tap.transactions"
TAP_MEMBERS = "tap.members"
TAP_GROUPS = "tap.groups"
TAP_WATERMARKS = "tap.watermarks"
TAP_SHARES = "tap.shares"
TAP_REQUESTS = "tap.requests"
TAP_REQUEST_COUNTS = "tap.request_counts"
TAP_REFUSED = "tap.refused"
TAP_NAMES = "tap.names"
DATA = "data"
STDOUT = "stdout.log"
CONTROL_SOCKET = "control.sock"
REGISTRY = "registry"
PROXY = "proxy"
BROKER_PREFIX = "broker-"


def broker_name(node_id: int) -> str:
    """Return the name of a broker's process, which is its folder's name too."""
    return f"{BROKER_PREFIX}{node_id}"


def node_id_of(folder: Path) -> int:
    """Return whose folder this is."""
    return int(folder.name.removeprefix(BROKER_PREFIX))


def broker_folders(cluster: Path) -> list[Path]:
    """Return the folders of all brokers of a cluster, by node id."""
    found = (path for path in cluster.glob(f"{BROKER_PREFIX}*") if path.is_dir())
    return sorted(found, key=node_id_of)


def broker_files(cluster: Path, name: str) -> list[Path]:
    """Return one file of every broker that has it, by node id."""
    return [path for folder in broker_folders(cluster) if (path := folder / name).exists()]


def data_folders(broker: Path, names: Sequence[str]) -> list[Path]:
    """Return a broker's data folders for the names in `log.dirs` (none: `data`): relative to `broker`, or absolute."""
    return [broker / name for name in (names or [DATA])]
