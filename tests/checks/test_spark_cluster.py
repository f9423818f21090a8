"""Verdicts on a Spark standalone cluster whose executors have neither Harrow nor, in part, the run folder (L7).

The executors run in an environment that holds only what a task needs, in a mount namespace in which the folders of the
runs are empty. Needs a full Java, and the right to make a mount namespace. The cluster is three more JVMs:
only `make conformance` runs these tests (HARROW_SPARK_CLUSTER=1).
"""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import pytest
from guard import guarded_folder
from harrow import mapped
from harrow.cluster.errors import HarrowError
from harrow.harness.checks import SparkHandle, judge
from harrow.harness.checks.cluster_queries import package_archive
from harrow.harness.checks.cluster_tasks import NEEDED
from harrow.harness.checks.record import Record
from harrow.harness.checks.warm_up import TOPIC, tiny_run
from harrow.harness.promises.pairing import Pairing
from harrow.harness.promises.pipeline_join import PipelineInputs, check_pipeline
from harrow.harness.promises.shapes import Rows
from pipelines_by_hand import anomalies, chunks_of, record
from spark_cluster import NoClusterError, full_java, standalone_cluster

pytestmark = [
    pytest.mark.xdist_group("spark cluster"),
    pytest.mark.skipif(
        os.environ.get("HARROW_SPARK_CLUSTER") != "1",
        reason="HARROW_SPARK_CLUSTER is not 1: `make conformance` runs the tests on a Spark cluster",
    ),
]
PYSPARK_NEEDS = ("pyspark", "py4j")
HIDING = ("unshare", "--mount", "--propagation", "private")


def environment_of_executors(folder: Path, packages: tuple[str, ...]) -> str:
    """Make a virtual environment with these packages of this environment; return its Python."""
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    version = f"python{sys.version_info[0]}.{sys.version_info[1]}"
    target = folder / "lib" / version / "site-packages"
    for package in packages:
        spec = find_spec(package)
        assert spec is not None
        assert spec.origin is not None
        place = Path(spec.origin).parent
        for found in (place, *Path(sysconfig.get_path("platlib")).glob(f"*{package}*")):
            if not (target / found.name).exists():
                (target / found.name).symlink_to(found)
    return str(folder / "bin" / "python")


@pytest.fixture(scope="module")
def hidden(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that executors see empty: the runs of these tests."""
    return tmp_path_factory.mktemp("hidden")


@pytest.fixture(scope="module")
def python_of_executors(tmp_path_factory: pytest.TempPathFactory) -> str:
    return environment_of_executors(tmp_path_factory.mktemp("python"), (*PYSPARK_NEEDS, *NEEDED))


@pytest.fixture(scope="module")
def master(tmp_path_factory: pytest.TempPathFactory, hidden: Path) -> Iterator[str]:
    """A cluster with one worker, which sees an empty folder `hidden`."""
    try:
        full_java()
    except NoClusterError as error:
        pytest.skip(str(error))
    if subprocess.run([*HIDING, "true"], check=False, capture_output=True).returncode:
        pytest.skip("this user may not make a mount namespace (unshare --mount), by which executors see other files")
    hide = f'mount -t tmpfs none "{hidden}" && exec "$@"'
    with (
        guarded_folder("harrow-test-spark-cluster-") as place,
        standalone_cluster(place / "cluster", wrapped_by=(*HIDING, "sh", "-c", hide, "sh")) as address,
    ):
        yield address


@pytest.fixture
def folder(request: pytest.FixtureRequest, hidden: Path) -> Path:
    """A folder for runs of the test; executors cannot see it."""
    item: pytest.Item = cast("Any", request).node  # it has no annotation before pytest 9.2
    return hidden / item.name.partition("[")[0]


@pytest.fixture(scope="module")
def shared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("shared")


@pytest.fixture(scope="module")
def spark(master: str, python_of_executors: str, hidden: Path, shared: Path) -> Iterator[SparkHandle]:
    """A Spark server for the cluster, with a folder for the data."""
    with pytest.MonkeyPatch.context() as patch:
        handle = started(patch, master, python_of_executors, hidden / "spark", f"file://{shared}")
        yield handle
        handle.stop()


def started(patch: pytest.MonkeyPatch, master: str, python: str, folder: Path, data: str = "") -> SparkHandle:
    """Return a handle of a server of its own."""
    patch.delenv("HARROW_RENDEZVOUS", raising=False)
    patch.delenv("HARROW_CONTROLLER", raising=False)
    patch.setenv("PYSPARK_PYTHON", python)
    handle = SparkHandle(folder, master=master, data=data)
    handle.request()
    return handle


def test_a_run_that_executors_cannot_see_is_judged_from_copies(spark: SparkHandle, folder: Path, shared: Path) -> None:
    tiny_run(folder / "worker" / "test")
    verdict = judge(folder / "worker" / "test", topics=[TOPIC], spark=spark)
    assert verdict.valid, str(verdict)
    assert verdict.operation_counts["acknowledged"] == 1
    assert list(shared.iterdir()) == [], "the copies are removed"


def bill_of(order: Record) -> dict[str, Any]:
    """A function of this test module, which executors cannot import."""
    return {"total": order["amount"] * 2}


@pytest.mark.parametrize("orders", [5, 70_000], ids=["one task", "several tasks"])
def test_functions_of_the_test_run_in_executors_without_the_test_module(
    spark: SparkHandle, folder: Path, shared: Path, monkeypatch: pytest.MonkeyPatch, orders: int
) -> None:
    given = [record({"order": n, "amount": n}, offset=n) for n in range(orders)]
    bills = [record({"order": n, "total": 2 * n + (n == 3)}, offset=n) for n in range(orders - 1)]
    base = folder / str(orders)
    inputs = PipelineInputs(
        pairing=Pairing(relation=mapped(bill_of), record_id="order", rows=Rows(loose=False)),
        source=chunks_of(given, base / "source", 1 << 15),
        sink=chunks_of(bills, base / "sink", 1 << 15),
    )
    found = check_pipeline(inputs, folder=base / "promises", spark=spark)
    assert anomalies(found) == {"wrong-output": 1, "missing-output": 1}
    assert list(shared.iterdir()) == []


def test_executors_of_a_connect_address_that_cannot_read_the_run_folder_are_reported_with_the_option(
    spark: SparkHandle, folder: Path, shared: Path
) -> None:
    tiny_run(folder / "worker" / "test")
    spark.session()  # waits until the server has an address
    users = SparkHandle(folder, remote=str(spark.server["remote"]))
    try:
        with pytest.raises(
            HarrowError, match=rf"of sc://localhost:\d+ cannot read the run folder {folder}.*--harrow-spark-data=file:"
        ):
            judge(folder / "worker" / "test", topics=[TOPIC], spark=users)
    finally:
        users.close()
    assert not list(folder.rglob("token-*"))
    users = SparkHandle(folder, remote=str(spark.server["remote"]), data=str(shared))
    try:
        assert judge(folder / "worker" / "test", topics=[TOPIC], spark=users).valid
    finally:
        users.close()
    assert list(shared.iterdir()) == []


def test_a_missing_package_is_named_with_the_python_of_the_executors(
    spark: SparkHandle, folder: Path, python_of_executors: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = package_archive(lambda text: text.replace(b'NEEDED = ("crc32c"', b'NEEDED = ("not_there", "crc32c"'))
    monkeypatch.setattr("harrow.harness.checks.cluster_queries.package_archive", lambda: wanted)
    tiny_run(folder / "worker" / "test")
    spark.session()  # waits until the server has an address
    users = SparkHandle(folder, remote=str(spark.server["remote"]))
    try:
        with pytest.raises(
            HarrowError, match=rf"lacks not_there for Python .*\({python_of_executors}\): pip install not_there"
        ):
            judge(folder / "worker" / "test", topics=[TOPIC], spark=users)
    finally:
        users.close()
