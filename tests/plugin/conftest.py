"""One Spark for the small projects that these tests run, as long as the suite lives."""

from __future__ import annotations

import os
from collections.abc import Generator

import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.session import RENDEZVOUS


@pytest.fixture(scope="session")
def spark_of_the_suite(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Generator[str]:
    """The rendezvous of one Spark, which xdist's workers share."""
    handed = getattr(request.config, "workerinput", {})
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if handed else base) / "one-spark"
    handle = SparkHandle.of_run(folder, controller=handed.get("harrow_controller"))
    handle.request()
    yield str(handle.rendezvous)
    handle.close()


@pytest.fixture
def one_spark(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Point the projects that a test makes at one Spark of this suite."""
    if RENDEZVOUS not in os.environ:
        monkeypatch.setenv(RENDEZVOUS, request.getfixturevalue("spark_of_the_suite"))
