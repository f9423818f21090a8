"""kafka-python's admin for tests. It leaves sockets open; conftest.py collects them after each test that uses it."""

from __future__ import annotations

from collections.abc import Generator
from contextlib import contextmanager
from typing import Any

import pytest
from harrow.harness.running_cluster import RunningCluster
from kafka.admin import KafkaAdminClient

SOCKETS = pytest.mark.filterwarnings("ignore:unclosed:ResourceWarning")
"""kafka-python does not close its sockets to brokers that died."""


@contextmanager
def admin_of(cluster: RunningCluster | str, **config: Any) -> Generator[Any]:
    """Yields a kafka-python admin of a cluster or an address."""
    servers = cluster if isinstance(cluster, str) else cluster.bootstrap_servers
    admin: Any = KafkaAdminClient(bootstrap_servers=servers, **config)
    try:
        yield admin
    finally:
        admin.close()
