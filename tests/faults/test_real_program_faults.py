"""Programs of the user's and their faults on real processes: crash at a request, zombie, deployment, orphans (K8)."""

from __future__ import annotations

import signal
import subprocess
import sys
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from faults_under_traffic import lines
from group_members import records
from harrow import Harrow, Topic, kill_program, pause_program, terminate_program
from harrow.cluster.errors import ConfigError, HarrowError
from harrow.faults import Fault, NemesisError
from harrow.harness.backends.local import gone
from harrow.harness.programs.user_program import LocalProgram, Program
from waiting import until

SETTINGS = {"offsets.topic.num.partitions": 5, "group.initial.rebalance.delay.ms": 0}
pytestmark = pytest.mark.harrow(scope="session", config=SETTINGS)
WORKER = """
import os, signal, sys
from confluent_kafka import Consumer

servers, topic, group = sys.argv[1:]
assert servers == os.environ["KAFKA_BOOTSTRAP_SERVERS"]
print("started", flush=True)
stopped = []
signal.signal(signal.SIGTERM, lambda *_: stopped.append(1))
consumer = Consumer({"bootstrap.servers": servers, "group.id": group, "client.id": "worker",
                     "auto.offset.reset": "earliest", "enable.auto.commit": False, "session.timeout.ms": 6000})
consumer.subscribe([topic])
while not stopped:
    message = consumer.poll(0.1)
    if message is not None and not message.error():
        print("read", message.offset(), flush=True)
        consumer.commit(message, asynchronous=False)
consumer.close()
print("stopped", flush=True)
"""


def worker(harrow: Harrow, topic: Topic, tmp_path: Path, group: str) -> Program:
    path = tmp_path / "worker.py"
    path.write_text(WORKER)
    command = [sys.executable, str(path), "{bootstrap}", topic.name, group]
    return harrow.program("billing", command)


def said(program: Program, word: str) -> list[str]:
    return [line for line in program.output.read_text().splitlines() if line.startswith(word)]


def rows_of(harrow: Harrow, topic: Topic, fault: Fault) -> dict[str, dict[str, Any]]:
    with records(harrow.bootstrap_servers, topic.name, 1), harrow.chaos(fault) as chaos:
        until(lambda: not chaos.running, "the fault is healed", timeout_s=90)
    rows = [line for line in lines(harrow) if line["fault"] == fault.kind]
    assert [row["event"] for row in rows][-4:] == ["inject", "effect", "heal", "healed"]
    return {row["event"]: row["evidence"] for row in rows[-4:]}


def committed(harrow: Harrow, topic: Topic, group: str) -> int:
    consumer = Consumer({"bootstrap.servers": harrow.bootstrap_servers, "group.id": group})
    (place,) = consumer.committed([TopicPartition(topic.name, 0)], timeout=20)
    consumer.close()
    return int(place.offset)


def end_offset(harrow: Harrow, topic: Topic) -> int:
    consumer = Consumer({"bootstrap.servers": harrow.bootstrap_servers, "group.id": "end"})
    _, end = consumer.get_watermark_offsets(TopicPartition(topic.name, 0), timeout=20)
    consumer.close()
    return int(end)


def test_a_program_is_killed_before_its_third_commit_and_reads_again(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("before")
    program = worker(harrow, topic, tmp_path, "before")
    fault = kill_program("billing", before="OffsetCommit", nth=3, client="worker", seconds=3)
    with records(harrow.bootstrap_servers, topic.name, 1):
        with harrow.chaos(fault) as chaos:
            until(lambda: chaos.effects, "the program was killed")
            assert committed(harrow, topic, "before") == 2  # the third commit was not served
            assert program.exit_code == 128 + signal.SIGKILL
            assert not program.ended
            until(lambda: not chaos.running, "the fault is healed")
        read = said(program, "read")
        assert read[:3] == ["read 0", "read 1", "read 2"]
        until(lambda: said(program, "read")[3:], "the program reads again")
    assert said(program, "read")[3] == "read 2"  # not committed, so that it was read again
    assert program.starts == 2
    rows = {line["event"]: line["evidence"] for line in lines(harrow)}
    assert rows["effect"]["programs"]["billing"]["exit_code"] == 137
    (request,) = rows["effect"]["request"].values()
    assert (request["seen"], request["action"]) == (3, "drop")
    assert program.stop() == 0
    assert said(program, "stopped")


def test_after_a_request_the_program_dies_and_the_request_has_its_effect(
    harrow: Harrow, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On a busy machine the kill is late: 300 records come meanwhile, of which the program reads none."""
    topic = harrow.topic("after")
    program = worker(harrow, topic, tmp_path, "after")
    kill = LocalProgram.kill

    def kill_late(control: LocalProgram) -> None:
        until(lambda: end_offset(harrow, topic) > 300, "300 records behind the commit")
        kill(control)

    monkeypatch.setattr(LocalProgram, "kill", kill_late)
    fault = kill_program("billing", after="OffsetCommit", client="worker", restart=False)
    rows_of(harrow, topic, fault)
    assert said(program, "read") == ["read 0"]
    assert committed(harrow, topic, "after") == 1
    assert not program.alive
    assert program.starts == 1


def test_a_paused_program_is_silent_and_continues(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("paused")
    program = worker(harrow, topic, tmp_path, "paused")
    rows = rows_of(harrow, topic, pause_program("billing", seconds=0.5))
    assert rows["effect"]["programs"]["billing"]["process"] == "T"
    assert rows["healed"]["programs"]["billing"]["state"] == "running"
    assert program.starts == 1


def test_a_deployment_ends_the_program_in_order_and_starts_it(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("deployed")
    program = worker(harrow, topic, tmp_path, "deployed")
    until(lambda: said(program, "started"), "the program handles signals")
    rows = rows_of(harrow, topic, terminate_program("billing"))
    assert rows["effect"]["programs"]["billing"]["exit_code"] == 0
    assert said(program, "stopped")
    assert program.starts == 2


def test_random_faults_draw_a_program(harrow: Harrow, tmp_path: Path) -> None:
    topic = harrow.topic("random")
    program = worker(harrow, topic, tmp_path, "random")
    with (
        records(harrow.bootstrap_servers, topic.name, 1),
        harrow.chaos(kinds=("kill_program", "pause_program"), duration=1) as chaos,
    ):
        until(lambda: not chaos.running, "the faults are healed", timeout_s=90)
    assert chaos.effects
    assert {step.details["program"] for step in chaos.schedule.steps if step.details} == {"billing"}
    assert program.alive


def test_an_unknown_program_is_an_error_with_those_that_exist(harrow: Harrow) -> None:
    harrow.topic("unknown")
    with pytest.raises(ConfigError, match=r"there is no program; start one first"):
        harrow.chaos(kill_program())
    harrow.program("billing", ["sleep", "60"])
    with pytest.raises(ConfigError, match=r"no program 'biling'; programs: 'billing'"):
        harrow.chaos(kill_program("biling"))
    with pytest.raises(ConfigError, match="runs already"):
        harrow.program("billing", ["sleep", "60"])


def test_a_program_that_ends_while_a_fault_waits_is_an_error_with_its_last_lines(harrow: Harrow) -> None:
    topic = harrow.topic("ended")
    program = harrow.program("billing", ["sh", "-c", "echo no database; exit 3"])
    assert program.wait(20) == 3
    assert program.ended
    program.await_output("no database")
    with pytest.raises(HarrowError, match=r"'billing' ended and had not written 'ready': exit code 3"):
        program.await_output("ready")
    fault = kill_program("billing", before="OffsetCommit")
    with (
        records(harrow.bootstrap_servers, topic.name, 1),
        pytest.raises(NemesisError) as failure,
        harrow.chaos(fault) as chaos,
    ):
        until(lambda: not chaos.running, "the fault has failed")
    assert "the program 'billing' had ended by itself: exit code 3" in str(failure.value)
    assert "no database" in str(failure.value)


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (["no-such-program"], "the program 'no-such-program' was not found"),
        ("sleep 60", "expected a list of texts; write command="),
    ],
)
def test_commands_that_cannot_be_executed_are_refused(harrow: Harrow, command: Any, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        harrow.program("billing", command)


def test_a_script_without_its_first_line_is_refused_with_the_remedy(harrow: Harrow, tmp_path: Path) -> None:
    script = tmp_path / "script"
    script.write_bytes(b"\x00\x01\x02")
    script.chmod(0o755)
    with pytest.raises(ConfigError, match=r"cannot be executed: Exec format error. A script needs"):
        harrow.program("billing", [str(script)])


def children_of(name: str) -> list[int]:
    mark = f"sleep\0{name}\0".encode()
    return [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _command(entry) == mark]


def _command(entry: Path) -> bytes:
    try:
        return (entry / "cmdline").read_bytes()
    except OSError:
        return b""


def test_what_a_program_started_ends_with_it(harrow: Harrow) -> None:
    program = harrow.program("billing", ["sh", "-c", "sleep 98765 & sleep 98765 & wait"])
    until(lambda: len(children_of("98765")) == 2, "the program has started both")
    program.stop()
    until(lambda: not children_of("98765"), "both have ended")


def test_nothing_is_left_of_a_test_that_is_killed(tmp_path: Path) -> None:
    test = dedent(
        f"""
        from harrow import Harrow

        with Harrow({str(tmp_path / "run")!r}, brokers=1) as harrow:
            program = harrow.program("billing", ["sh", "-c", "sleep 98764 & wait"])
            print(program.pid, flush=True)
            input()
        """
    )
    with subprocess.Popen(
        [sys.executable, "-c", test], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdout is not None
        pid = int(running.stdout.readline())
        until(lambda: children_of("98764"), "the program has started its own")
        running.kill()
    until(lambda: gone(pid) and not children_of("98764"), "both have ended")
