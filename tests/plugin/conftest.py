"""One Spark for the small projects that these tests run, as long as the suite lives."""

from __future__ import annotations

import os

import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.session import RENDEZVOUS


@pytest.fixture
def one_spark(
    request: pytest.FixtureRequest,
    tmp_path_factory: pytest.TempPathFactory,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Point the projects that a test makes at one Spark of this suite."""
    if RENDEZVOUS in os.environ:
        return
    handed = getattr(request.config, "workerinput", {})
    shared = tmp_path_factory.getbasetemp()
    folder = (shared.parent if handed else shared) / "one-spark"
    monkeypatch.setenv(RENDEZVOUS, str(folder / "spark.sock"))
    SparkHandle.of_run(folder, controller=handed.get("harrow_controller")).request()
