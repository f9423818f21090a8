"""What a session on a Spark cluster is given, what it says when executors cannot judge, and how users name it (L7)."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import pytest
from harrow import Record, mapped
from harrow.cluster.wire.records import build_end_txn_marker
from harrow.harness.checks import jvm
from harrow.harness.checks.cluster_queries import ClusterQueries, ExecutorsError, explained, package_archive
from harrow.harness.checks.cluster_tasks import ExecutorError, check_hash, hash_of_a_text
from harrow.harness.checks.spark_client import shown_address
from harrow.harness.histories.segments import ABORT_MARKER, CONTROL, scan_batches
from harrow.harness.promises.by_value import dumps
from harrow.harness.user_spark import UserSpark, data_folder, shown
from judged_runs import RunFolder


def bill_of(order: Record) -> dict[str, Any]:
    return {"total": order["amount"] * 2}


SPARK_SAYS = [
    (
        "[PYTHON_VERSION_MISMATCH] Python in worker has different version: 3.12 than that in driver: 3.11, PySpark",
        "run Python 3.12, and this process runs",
    ),
    ('Cannot run program "/opt/python3.11": error=2, No such file', "have no Python /opt/python3.11"),
    (
        "Lost task 0.3 in stage 0.0 (TID 3) (10.0.0.7 executor 1): ModuleNotFoundError: No module named 'shop'",
        r"\(host 10.0.0.7\) cannot import shop: install it",
    ),
    (
        "harrow.harness.checks.cluster_tasks.ExecutorError: host a lacks polars for Python 3.11.2: pip install polars",
        "cannot judge: host a lacks polars",
    ),
    (
        "[PACKAGE_NOT_INSTALLED] PyArrow >= 18.0.0 must be installed; however, it was not found.",
        "cannot import PyArrow >= 18.0.0",
    ),
]


@pytest.mark.parametrize(("text", "message"), SPARK_SAYS)
def test_known_errors_of_executors_have_a_remedy(text: str, message: str) -> None:
    with pytest.raises(ExecutorsError, match=f"the executors of spark://x:7077.*{message}"):
        raise explained(RuntimeError(text), "spark://x:7077")


def test_other_errors_of_spark_stay_as_they_are() -> None:
    error = RuntimeError("the disk is full")
    assert explained(error, "spark://x:7077") is error


class WaitingSession:
    """A session whose query does not begin before it is interrupted."""

    def __init__(self) -> None:
        self.interrupted = threading.Event()

    def range(self, *_: object) -> WaitingSession:
        return self

    def addArtifacts(self, path: str, *, pyfile: bool) -> None:  # noqa: N802  (pyspark's)
        assert Path(path).exists() == pyfile

    def collect(self) -> list[Any]:
        assert self.interrupted.wait(30)
        raise RuntimeError("[OPERATION_CANCELED] Operation is cancelled.")

    def interruptAll(self) -> None:  # noqa: N802  (pyspark's)
        self.interrupted.set()

    def mapInArrow(self, *_: object) -> WaitingSession:  # noqa: N802  (pyspark's)
        return self


def test_a_cluster_without_a_free_core_is_reported(
    run: RunFolder, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harrow.harness.checks.cluster_queries.EXECUTORS_TIMEOUT_S", 0.01)
    queries = ClusterQueries(WaitingSession(), "spark://x:7077", "", tmp_path)
    run.send("a", 0)
    with pytest.raises(ExecutorsError, match=r"no executor of spark://x:7077 began a task within .* free core"):
        queries.prepare(run.done())


class RespondingSession(WaitingSession):
    """A session whose executors return these rows."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        super().__init__()
        self.rows = rows

    def collect(self) -> list[Any]:
        return [(json.dumps(row),) for row in self.rows]


def test_executors_whose_hashes_differ_are_refused(run: RunFolder, tmp_path: Path) -> None:
    rows = [{"host": host, "reads": True, "hash": number} for host, number in (("a", 1), ("b", 2))]
    queries = ClusterQueries(RespondingSession(rows), "spark://x:7077", "", tmp_path)
    run.send("a", 0)
    with pytest.raises(ExecutorsError, match=r"different hashes on the executors .*hosts a and b.*same version"):
        queries.prepare(run.done())
    check_hash(hash_of_a_text())
    with pytest.raises(ExecutorError, match="computes other hashes"):
        check_hash(hash_of_a_text() + 1)


def test_the_package_is_imported_from_the_archive_that_travels(tmp_path: Path) -> None:
    content = package_archive()
    assert package_archive() == content
    archive = tmp_path / "harrow.zip"
    archive.write_bytes(content)
    program = (
        f"import sys; sys.path.insert(0, {str(archive)!r})\n"
        "import harrow.harness.checks.cluster_tasks as tasks, harrow.harness.checks.kernels as kernels\n"
        "import harrow.harness.promises.topic_rows, harrow.harness.promises.keyed_checks\n"
        "import harrow.harness.promises.topic_checks, harrow.harness.promises.pipeline_checks, harrow\n"
        f"assert kernels.__file__.startswith({str(archive)!r}), kernels.__file__\n"
        "tasks.check_machine()\n"
        "foreign = {'confluent_kafka', 'cramjam', 'grpc', 'kio', 'pandas', 'pytest', 'uvloop'}\n"
        "foreign.add('harrow.cluster.events')\n"
        "print(sorted(foreign & set(sys.modules)))\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "executors need none of these"


@pytest.mark.parametrize("module", ["checks.judgement", "promises.pipeline_join", "promises.check_join"])
def test_what_judges_imports_no_faults_before_it_needs_one(module: str) -> None:
    program = f"import sys, harrow.harness.{module}; print([m for m in sys.modules if m.startswith('harrow.faults')])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n", "they are 0.3 s of the first verdict"


def test_functions_of_tests_are_pickled_for_executors_by_value() -> None:
    assert b"bill_of" in dumps(mapped(bill_of))
    program = "import pickle, sys; print(pickle.load(sys.stdin.buffer).function({'amount': 4}))"
    done = subprocess.run(
        [sys.executable, "-c", program], input=dumps(mapped(bill_of)), capture_output=True, check=True
    )
    assert done.stdout == b"{'total': 8}\n"


@pytest.mark.parametrize("text", ["shared", "./shared", "s3://bucket/a#b"])
def test_a_folder_for_data_that_machines_understand_differently_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="expected a URL"):
        data_folder(text)


def test_folders_for_data_and_addresses_are_read_as_they_are_given() -> None:
    assert data_folder("file:///mnt/shared/") == "file:///mnt/shared"
    assert data_folder("/mnt/shared") == "/mnt/shared"
    assert data_folder("s3://b/f?endpoint_override=localhost:9000") == "s3://b/f?endpoint_override=localhost:9000"
    assert UserSpark("sc://host:15002").remote == "sc://host:15002"
    assert (UserSpark("spark://host:7077").data, UserSpark().engine) == ("", "spark")
    assert UserSpark("spark://host:7077").master == "spark://host:7077"
    assert UserSpark().master is None
    assert shown("s3://key:secret@bucket/a@b") == "s3://…@bucket/a@b"
    assert shown_address("sc://host:15002/;token=secret") == "sc://host:15002"


@pytest.mark.parametrize(
    ("master", "is_cluster"),
    [("local[2]", False), ("local-cluster[2,1,1024]", False), ("spark://127.0.0.1:7077", True), ("yarn", True)],
)
def test_masters_of_clusters_are_distinguished_from_those_of_this_machine(master: str, *, is_cluster: bool) -> None:
    assert bool(jvm.cluster_master(master)) == is_cluster
    assert jvm.cluster_master(None) == ""
    settings = jvm.settings(master)
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "127.0.0.1"
    assert settings["spark.connect.grpc.binding.address"] == "127.0.0.1", "clients are on this machine"


def test_executors_of_a_cluster_get_the_python_that_the_user_names(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYSPARK_PYTHON", "/opt/python3")
    assert jvm.environment("token", "spark://127.0.0.1:7077")["PYSPARK_PYTHON"] == "/opt/python3"
    assert jvm.environment("token", "local[2]")["PYSPARK_PYTHON"] == sys.executable
    monkeypatch.delenv("PYSPARK_PYTHON")
    assert jvm.environment("token", "spark://127.0.0.1:7077")["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize("timestamp_ms", [0, 1_700_000_000_000])
@pytest.mark.parametrize("commit", [True, False])
def test_markers_are_read_without_the_decoder_of_brokers(*, commit: bool, timestamp_ms: int) -> None:
    marker = build_end_txn_marker(
        commit=commit, producer_id=7, producer_epoch=0, coordinator_epoch=3, timestamp_ms=timestamp_ms
    )
    ((*_, attributes, _, _, _, _, _, _, _),) = scan_batches(memoryview(marker), len(marker), "log", 0, last=False)
    assert bool(attributes & ABORT_MARKER) != commit
    assert attributes & CONTROL
