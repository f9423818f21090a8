"""`harrow chaos -- ./my-service`: the user's program under faults, its exit code, progress, Ctrl-C (J9, N1)."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from commands_here import run_here
from long_runs import long_run
from waiting import until

HARROW = str(Path(sys.executable).with_name("harrow"))
SERVICE = """
import os, signal, sys, time
from confluent_kafka import Producer

servers, acks, seconds, code = sys.argv[1:]
assert servers == os.environ["KAFKA_BOOTSTRAP_SERVERS"]
producer = Producer({"bootstrap.servers": servers, "log_level": 0, "acks": acks, "linger.ms": 1,
                     "retry.backoff.ms": 20, "reconnect.backoff.max.ms": 200, "message.timeout.ms": 60000})
running = [True]
signal.signal(signal.SIGTERM, lambda *_: running.clear())
end, number = time.monotonic() + float(seconds), 0
while running and time.monotonic() < end:
    producer.produce("orders", f"order {number}", key=str(number % 7))
    producer.poll(0)
    time.sleep(0.01)
    number += 1
    if number == 100:
        open("begun", "w").close()
assert producer.flush(60) == 0
print("sent", number)
sys.exit(int(code))
"""


def command(folder: Path, *options: str, acks: str = "all", seconds: float = 4, code: int = 0) -> list[str]:
    (folder / "service.py").write_text(SERVICE)
    program = [sys.executable, "service.py", "{bootstrap}", acks, str(seconds), str(code)]
    return [HARROW, "chaos", *options, "--", *program]


def run(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=240, check=False)


def test_a_program_is_judged_by_what_the_brokers_recorded(tmp_path: Path) -> None:
    done = run(tmp_path, *command(tmp_path, "--seed", "3", "--topic", "orders:2", seconds=2.5))
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("sent ")  # stdout belongs to the program
    assert "VALID: no-loss" in done.stderr
    assert "the program ended with exit code 0" in done.stderr
    (folder,) = tmp_path.glob("harrow-out/*/program")
    assert '"event": "healed"' in (folder / "faults.jsonl").read_text()
    assert json.loads((folder / "verdict.json").read_text())["status"] == "valid"
    assert not (folder / "cluster").exists()


@long_run
def test_a_service_without_end_is_terminated_after_the_faults(tmp_path: Path) -> None:
    done = run(tmp_path, *command(tmp_path, "--seconds", "2", seconds=600))
    assert done.returncode == 0, done.stderr
    assert "the program was ended; " in done.stderr
    assert done.stdout.startswith("sent ")


@long_run
def test_the_exit_code_of_a_program_that_failed_is_passed_on(tmp_path: Path) -> None:
    done = run(tmp_path, *command(tmp_path, "--seed", "4", seconds=2, code=7))
    assert done.returncode == 7, done.stderr
    assert "VALID: " in done.stderr
    assert f"repeat with: harrow chaos --seed 4 -- {sys.executable} service.py" in done.stderr


@long_run
def test_random_faults_kill_the_program_and_start_it_again(tmp_path: Path) -> None:
    options = ("--seconds", "3", "--topic", "orders:2", "--faults", "kill_program", "--keep")
    done = run(tmp_path, *command(tmp_path, *options, seconds=600))
    (folder,) = tmp_path.glob("harrow-out/*/program")
    rows = [json.loads(line) for line in (folder / "faults.jsonl").read_text().splitlines()]
    kills = [row for row in rows if row["event"] == "effect"]
    assert {row["fault"] for row in kills} == {"kill_program"}, done.stderr
    killed = kills[0]["evidence"]["programs"]["program"]
    assert killed["exit_code"] == 128 + signal.SIGKILL
    healed = next(row for row in rows if row["event"] == "healed")
    assert healed["evidence"]["programs"]["program"]["incarnation"] > killed["incarnation"]
    assert "the program was ended" in done.stderr


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--", "no-such-program"), 1, "the program 'no-such-program' was not found"),
        (("--", "./service.py"), 1, "the program './service.py' is not executable (chmod +x)"),
        (("--seeds", "2", "--", "true"), 2, "--seeds has no meaning for a program"),
        (("--guarantee", "no-loss"), 2, "--guarantee needs a program"),
        (("--guarantee", "no-los", "--", "true"), 1, "unknown guarantee 'no-los'"),
        (("--topic", "orders:many", "--", "true"), 2, "expected NAME or NAME:PARTITIONS"),
        (("--out", "service.py/x", "--", "true"), 2, "cannot be written"),
    ],
)
def test_what_cannot_work_is_refused_before_a_cluster_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, words: tuple[str, ...], code: int, said: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "service.py").write_text(SERVICE)
    done = run_here("chaos", *words)
    assert done.returncode == code
    assert said in done.stderr
    assert not (tmp_path / "harrow-out").exists()


def test_a_program_that_never_reaches_the_cluster_is_an_error_with_the_remedy(tmp_path: Path) -> None:
    done = run(tmp_path, HARROW, "chaos", "--", "true")
    assert done.returncode == 1
    assert "never fired: no traffic was detected" in done.stderr
    assert "It must use the address in KAFKA_BOOTSTRAP_SERVERS" in done.stderr


def test_ctrl_c_ends_the_program_and_still_gives_the_verdict(tmp_path: Path) -> None:
    running = subprocess.Popen(
        command(tmp_path, seconds=600),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        faults = "harrow-out/*/program/faults.jsonl"
        until(
            lambda: any('"effect"' in path.read_text() for path in tmp_path.glob(faults)),
            lambda: f"no fault took effect: {list(tmp_path.glob('**/*'))}",
        )
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=240)
    finally:
        running.kill()
        running.wait()
    assert "another Ctrl-C aborts" in said
    assert "the program was ended; " in said
    assert "judged " in said
    assert running.returncode in (0, 1)  # the program's own KeyboardInterrupt leaves sends without a response


@pytest.mark.parametrize("name", ["chaos", "simulate"])
def test_ctrl_c_ends_many_seeds_without_a_traceback(tmp_path: Path, name: str) -> None:
    running = subprocess.Popen(
        [HARROW, name, "--seeds", "1000"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        children = Path(f"/proc/{running.pid}/task/{running.pid}/children")
        until(lambda: len(children.read_text().split()) >= 3)  # two workers and multiprocessing's tracker
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=60)
    finally:
        running.kill()
        running.wait()
    assert running.returncode == 1
    assert said.split() == ["Aborted!"]
