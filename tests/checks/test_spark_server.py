"""One Spark server for a run: all its processes share it, it ends with the run, and it leaves nothing behind (J3)."""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harrow.cluster.unix_sockets import reachable
from harrow.harness.checks import SparkHandle, judge
from harrow.harness.checks.spark_client import CONTROLLER, RENDEZVOUS, SparkError
from harrow.harness.checks.warm_up import TOPIC, tiny_run
from long_runs import long_run

WORKER = """
import json, sys
from pathlib import Path
from harrow.harness.checks import SparkHandle, judge
from harrow.harness.checks.warm_up import TOPIC, tiny_run
spark = SparkHandle(sys.argv[1], controller=int(sys.argv[2]), warm_up=False)
folder = Path(sys.argv[1]) / sys.argv[3]
tiny_run(folder)
verdict = judge(folder, topics=[TOPIC], spark=spark)
heavy = sorted({"pandas", "polars", "pyarrow", "pyspark"} & set(sys.modules))
print(json.dumps({"status": verdict.status, "imported": heavy, **spark.server}), flush=True)
spark.close()
"""
GONE_TIMEOUT_MS = 20_000


def worker(run: Path, controller: int, name: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", WORKER, str(run), str(controller), name], stdout=subprocess.PIPE, text=True
    )


def answer(process: subprocess.Popen[str]) -> dict[str, Any]:
    out, _ = process.communicate(timeout=120)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(out.splitlines()[-1])
    return found


def server_of(run: Path) -> dict[str, Any]:
    """What the owner tells each client that connects, when the JVM has started."""
    with socket.socket(socket.AF_UNIX) as client, reachable(run / "spark.sock") as name:
        client.settimeout(120)
        client.connect(name)
        found: dict[str, Any] = json.loads(client.makefile("rb").readline())
    return found


def await_gone(pidfd: int) -> None:
    ready = select.poll()
    ready.register(pidfd, select.POLLIN)
    assert ready.poll(GONE_TIMEOUT_MS), "the process is still there"
    os.close(pidfd)


@pytest.fixture(autouse=True)
def a_server_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """These tests start and end servers: not the suite's."""
    monkeypatch.delenv(RENDEZVOUS, raising=False)
    monkeypatch.delenv(CONTROLLER, raising=False)


@pytest.fixture
def controller() -> Iterator[subprocess.Popen[bytes]]:
    """The run's controlling process: it only waits to be ended."""
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    with process:
        yield process
        process.kill()


@long_run
def test_workers_share_a_server_that_ends_with_the_run(tmp_path: Path, controller: subprocess.Popen[bytes]) -> None:
    run = tmp_path / ("a-rather-long-name-" * 5) / "run"
    run.mkdir(parents=True)
    first, second = worker(run, controller.pid, "one"), worker(run, controller.pid, "two")
    responses = [answer(first), answer(second)]
    assert [row["status"] for row in responses] == ["valid", "valid"]
    assert responses[0]["pid"] == responses[1]["pid"], "one JVM for both"
    assert responses[0]["imported"] == [], "the plan server imports them, once for all workers"
    jvm, owner = os.pidfd_open(responses[0]["pid"]), os.pidfd_open(responses[0]["owner"])
    third = answer(worker(run, controller.pid, "three"))
    assert third["pid"] == responses[0]["pid"], "it outlives the worker that asked first"
    scratch = list(Path("/tmp").glob(f"harrow-spark-{responses[0]['owner']}-*"))
    assert scratch
    controller.send_signal(signal.SIGKILL)
    controller.wait()
    await_gone(jvm)
    await_gone(owner)
    assert not (run / "spark.sock").exists()
    assert not any(path.exists() for path in scratch)


@long_run
def test_killing_the_owner_ends_the_jvm_and_the_next_owner_starts_another(
    tmp_path: Path, controller: subprocess.Popen[bytes]
) -> None:
    spark = SparkHandle(tmp_path, controller=controller.pid, warm_up=False)
    spark.request()
    first = server_of(tmp_path)
    jvm = os.pidfd_open(first["pid"])
    os.kill(first["owner"], signal.SIGKILL)
    await_gone(jvm)
    spark.close()
    spark = SparkHandle(tmp_path, controller=controller.pid, warm_up=False)
    spark.request()
    spark.stop()
    assert not (tmp_path / "spark.sock").exists()


@long_run
def test_failed_plans_and_a_killed_plan_server_are_reported_and_the_run_can_still_end(
    tmp_path: Path, controller: subprocess.Popen[bytes]
) -> None:
    spark = SparkHandle(tmp_path, controller=controller.pid, warm_up=False)
    with pytest.raises(SparkError, match="FileNotFoundError"):
        spark.collect(tmp_path / "no-plan.json")
    folder = tmp_path / "one"
    tiny_run(folder)
    assert judge(folder, topics=[TOPIC], spark=spark).valid, "the next plan is judged"
    (plan_server,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if f"harrow-spark-{spark.server['owner']}-".encode() in path.read_bytes()
        and b"checks.plan_server" in path.read_bytes()
    )
    gone = os.pidfd_open(plan_server)
    os.kill(plan_server, signal.SIGKILL)
    await_gone(gone)
    with pytest.raises(SparkError, match="plan server"):
        judge(folder, topics=[TOPIC], spark=spark)
    spark.stop()
    assert not (tmp_path / "spark.sock").exists()


def test_a_server_that_cannot_start_reports_the_reason(tmp_path: Path) -> None:
    spark = SparkHandle(tmp_path, master="nonsense://", warm_up=False)
    with pytest.raises(SparkError, match="Spark did not start"):
        spark.session()


def test_no_server_starts_for_a_controller_that_has_exited(tmp_path: Path, controller: subprocess.Popen[bytes]) -> None:
    controller.kill()
    controller.wait()
    spark = SparkHandle(tmp_path, controller=controller.pid, warm_up=False)
    with pytest.raises(SparkError, match="did not start"):
        spark.session()


def test_a_socket_with_a_long_path_is_reachable(tmp_path: Path) -> None:
    deep = tmp_path / ("x" * 150) / "spark.sock"
    deep.parent.mkdir()
    with reachable(deep) as name:
        assert len(name) < 100
        assert Path(name).parent.samefile(deep.parent)


def test_a_process_closes_the_connections_of_its_run_when_it_ends(tmp_path: Path) -> None:
    code = "import sys; from harrow.harness.checks import SparkHandle; SparkHandle.of_run(sys.argv[1]).request()"
    with socket.socket(socket.AF_UNIX) as owner:
        owner.bind(str(tmp_path / "spark.sock"))
        owner.listen()
        ended = subprocess.run(
            [sys.executable, "-W", "error::ResourceWarning", "-c", code, str(tmp_path)],
            capture_output=True,
            text=True,
            check=True,
        )
        owner.accept()[0].close()
    assert ended.stderr == ""
