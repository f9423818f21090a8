"""No order is lost while the worker, the scheduler, Kafka and the store fail."""

from __future__ import annotations

import os
import subprocess
import sys
from typing import Any

import pytest
from flaky_billing import ALWAYS, new_order, usual_order
from harrow import (
    Harrow,
    dependency,
    half_open,
    isolate,
    kill,
    kill_program,
    leader,
    pause,
    pause_program,
    reset,
    restart,
    slow_link,
)
from retry_stage import EMBEDDED, NAMES, PROJECT, REDIS, RetryQueue, id_of, long_run

STORE = dependency("store")
CRASH = kill_program("scheduler", before="Produce", client="retry-scheduler", seconds=0.1)
FAULTS: dict[str, tuple[Any, ...]] = {
    "the worker is killed": (kill_program("worker", seconds=0.2), kill_program("worker", before="OffsetCommit", nth=3)),
    "the scheduler is killed": (CRASH, kill_program("scheduler", after="OffsetCommit", client="retry-scheduler")),
    "both are paused": (pause_program("worker", seconds=2.5), pause_program("scheduler", seconds=2.5)),
    "the leaders of delay and retry are cut off": (
        isolate(leader(NAMES.delay), seconds=2, clients=True),
        isolate(leader(NAMES.retry), seconds=2, clients=True),
    ),
    "brokers are killed and paused": (kill(leader(NAMES.source)), pause(leader(NAMES.dead), seconds=2)),
}
OF_THE_EMBEDDED_STORE: dict[str, tuple[Any, ...]] = {
    "the store is cut off": (isolate(leader(NAMES.store), seconds=3, clients=True),),
    "the store is killed": (kill(leader(NAMES.store)), CRASH),
}
OF_REDIS: dict[str, tuple[Any, ...]] = {
    "the store is cut off": (isolate(STORE, seconds=4), isolate(STORE, seconds=1, heals_by="reset")),
    "the store is killed": (kill(STORE, seconds=0.5), CRASH, restart(STORE)),
    "the store loses connections": (reset(STORE), half_open(STORE, seconds=4), reset(STORE)),
    "the store is paused and slow": (pause(STORE, seconds=4), slow_link(STORE, delay_ms=300, seconds=2)),
}
SERIES = [
    pytest.param(store, faults, id=f"{store}: {name}")
    for store, own in ((EMBEDDED, OF_THE_EMBEDDED_STORE), (REDIS, OF_REDIS))
    for name, faults in {**FAULTS, **own}.items()
]
KINDS = ("kill", "pause", "isolate", "cut", "reset", "kill_program", "pause_program")
KINDS_OF_A_STORE = (
    "isolate_dependency",
    "cut_dependency",
    "slow_dependency",
    "half_open_dependency",
    "reset_dependency",
)
SEEDS = int(os.environ.get("RETRY_QUEUE_SEEDS", "1"))


@pytest.mark.parametrize("store", [EMBEDDED, REDIS])
def test_every_order_is_billed_or_dead(harrow: Harrow, store: str) -> None:
    queue = RetryQueue(harrow=harrow, store=store)
    with harrow.chaos(CRASH) as chaos:
        queue.place_while(lambda: chaos.running, usual_order, at_least=40)
    queue.finish()
    queue.verify()


@long_run
@pytest.mark.parametrize(("store", "faults"), SERIES)
def test_every_order_is_billed_or_dead_although(harrow: Harrow, store: str, faults: Any) -> None:
    queue = RetryQueue(harrow=harrow, store=store)
    with harrow.chaos(*faults) as chaos:
        queue.place_while(lambda: chaos.running, usual_order)
    queue.finish()
    queue.verify()


@long_run
@pytest.mark.parametrize("store", [EMBEDDED, REDIS])
@pytest.mark.parametrize("number", range(SEEDS))
def test_every_order_is_billed_or_dead_under_random_faults(harrow: Harrow, store: str, number: int) -> None:
    queue = RetryQueue(harrow=harrow, store=store)
    print(f"run {number} with seed {harrow.seed}")
    kinds = KINDS + KINDS_OF_A_STORE if store == REDIS else KINDS
    with harrow.chaos(kinds=kinds, duration=5) as chaos:
        queue.place_while(lambda: chaos.running, usual_order)
    queue.finish()
    queue.verify()


@long_run
@pytest.mark.parametrize("flag", ["--transactional", "--keep-order"])
@pytest.mark.parametrize("store", [EMBEDDED, REDIS])
def test_every_order_is_billed_once(harrow: Harrow, store: str, flag: str) -> None:
    queue = RetryQueue(harrow=harrow, store=store, flags=(flag,))
    faults = kill_program("worker", before="EndTxn", nth=4), CRASH, kill_program("worker")
    with harrow.chaos(*faults) as chaos:
        queue.place_while(lambda: chaos.running, usual_order)
    queue.finish()
    queue.verify("exactly-once, ordered" if flag == "--keep-order" else "exactly-once")


@long_run
def test_without_keep_order_a_later_order_of_the_key_is_billed_first(harrow: Harrow) -> None:
    queue = RetryQueue(harrow=harrow, flags=("--transactional",), backoff_ms=1_000)
    queue.place([new_order(5, fails=1), new_order(10)])
    queue.finish()
    queue.expect("out-of-order-output", "ordered")


@long_run
def test_the_order_of_a_key_is_kept_when_its_partitions_move(harrow: Harrow) -> None:
    queue = RetryQueue(harrow=harrow, flags=("--keep-order",), partitions=4)
    second = queue.program("worker-2", "worker", [*queue.worker_words, "--instance", "2"])
    queue.place(map(usual_order, range(60)))
    second.start()
    queue.place(map(usual_order, range(60, 120)))
    queue.worker.stop()
    queue.place(map(usual_order, range(120, 180)))
    queue.finish()
    queue.verify("exactly-once, ordered")


@long_run
def test_dead_letters_are_replayed(harrow: Harrow) -> None:
    queue = RetryQueue(harrow=harrow)
    queue.place([new_order(number, fails=ALWAYS if number < 3 else 0) for number in range(10)])
    queue.finish()
    assert replay(harrow, "--dry-run").endswith("3 dead letters\n")
    said = replay(harrow)
    assert said.endswith("3 dead letters\n") and "no tax rate, attempt 4" in said
    again = "neither billed nor dead again"
    dead = queue.reading.records[NAMES.dead]
    assert queue.reading.until(lambda: len(dead) == 6, quiet_s=60), again
    assert sorted(map(id_of, dead)) == [0, 0, 1, 1, 2, 2]
    assert {record.origin[0] for record in dead} == {NAMES.source}
    assert replay(harrow).endswith("3 dead letters\n")
    queue.reading.close()


def replay(harrow: Harrow, *words: str) -> str:
    """Run the command, and return what it prints."""
    environment = {"PYTHONPATH": str(PROJECT / "src"), "KAFKA_BOOTSTRAP_SERVERS": harrow.bootstrap_servers}
    command = [sys.executable, "-m", "retry_queue.replay", *words]
    done = subprocess.run(
        command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=90, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout
