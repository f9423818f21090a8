"""The settings of a test as the server.properties of one KRaft node.

A test names broker settings as for Harrow's brokers. Those that exist only with a registry have a counterpart in KRaft;
those that are Harrow's own have no meaning for Kafka, and a test that needs one is skipped.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harrow.faults.errors import CapabilityError

from ...topics import setting_text

SESSION_TIMEOUT_MS = 3_000
"""Default of `broker.session.timeout.ms`: a JVM on a busy machine misses Harrow's 1.5 s now and then."""
HEARTBEATS_IN_SESSION = 4
QUORUM_FETCH_MS_LEAST = 1_000
"""A voter's fetch waits up to 500 ms at an idle leader."""
RENAMED = {"zookeeper.session.timeout.ms": "broker.session.timeout.ms"}
OWN_PREFIX = "harrow."
WITHOUT_MEANING = frozenset({"harrow.tap", "zookeeper.connect", "replica.fetch.backoff.ms"})
"""Set by the harness for Harrow's brokers; Kafka's nodes need nothing in their place."""
SMALL = {
    "num.network.threads": "2",
    "num.io.threads": "4",
    "log.cleaner.dedupe.buffer.size": str(4 << 20),
    "num.recovery.threads.per.data.dir": "1",
    "group.coordinator.append.linger.ms": "0",
}
"""A node of a test is small; a test's own setting has priority."""


def node_settings(config: Mapping[str, object]) -> dict[str, str]:
    """Return the settings of a test by Kafka's names; CapabilityError for one that only Harrow's brokers have."""
    found = dict(SMALL)
    for name, value in config.items():
        if name in WITHOUT_MEANING:
            continue
        if name.startswith(OWN_PREFIX):
            raise CapabilityError(f"the setting {name} exists only in Harrow's own brokers; use the backend local")
        found[RENAMED.get(name, name)] = setting_text(value)
    session = int(found.setdefault("broker.session.timeout.ms", str(SESSION_TIMEOUT_MS)))
    found.setdefault("broker.heartbeat.interval.ms", str(max(100, session // HEARTBEATS_IN_SESSION)))
    # a controller that is cut off is replaced about as soon as a broker; Kafka's defaults for a session of 3 s
    found.setdefault("controller.quorum.fetch.timeout.ms", str(max(QUORUM_FETCH_MS_LEAST, min(2_000, session))))
    for name in ("election.timeout.ms", "election.backoff.max.ms"):
        found.setdefault(f"controller.quorum.{name}", str(max(200, min(1_000, session // 3))))
    return found


def server_properties(node: int, listeners: Mapping[str, str], data: Path, settings: Mapping[str, str]) -> str:
    """Return the file's text for a node that is broker and controller, with the settings of its listeners."""
    rows = {**settings, **listeners, "process.roles": "broker,controller", "node.id": str(node), "log.dirs": str(data)}
    return "".join(f"{name}={value}\n" for name, value in sorted(rows.items()))
