"""Which registry the controllers of a test have."""

from __future__ import annotations

import pytest
from controlled_cluster import REGISTRY


@pytest.fixture(params=["embedded", "zookeeper"])
def registry_kind(request: pytest.FixtureRequest) -> str:
    """A test with it runs on the embedded registry and, where one is installed, on ZooKeeper (D3)."""
    REGISTRY[0] = request.param
    return REGISTRY[0]
