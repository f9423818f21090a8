"""A host and a log's folder. Tests leave logs open, as a crash does; their descriptors are given back after each."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from storage_host import StorageHost, close_all


@pytest.fixture(autouse=True)
def nothing_stays_open() -> Iterator[None]:
    yield
    close_all()


def _no_fsync(_fd: int) -> None: ...


@pytest.fixture
def journal_only(monkeypatch: pytest.MonkeyPatch) -> None:
    """The journal of a `TrackedDisk` is what is tested; the real disk need not be waited for."""
    monkeypatch.setattr(os, "fsync", _no_fsync)


@pytest.fixture
def host() -> StorageHost:
    return StorageHost()


@pytest.fixture
def folder(tmp_path: Path) -> str:
    return str(tmp_path / "orders-0")
