"""Each bug of `wrong/` makes the verdict invalid, and the correct service has a valid one in the same test.

To see a verdict as you would: `UNMASK=1 pytest -k "has_the_key and wrong"`.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from flaky_billing import ALWAYS, new_order, usual_order
from harrow import Harrow, kill_program
from retry_stage import ATTEMPTS, EMBEDDED, NAMES, REDIS, RetryQueue, long_run

Scenario = Callable[[RetryQueue], None]
ONE_HOUR_S = 3_600
SMALL_BYTES = 2_000
LOST = "and nothing followed: its members took them and lost them"


def twins(
    bug: str,
    finds: str,
    says: str,
    stores: tuple[str, ...] = (EMBEDDED, REDIS),
    guarantee: str = "at-least-once",
    jumps: bool = False,
    **given: Any,
) -> Callable[[Scenario], Callable[..., None]]:
    """Decorate what a test does with a retry queue: it runs with the bug, which the verdict must find, and without.

    `finds` is the name of the anomaly, and `says` a part of what the verdict says about it.
    """

    def decorate(scenario: Scenario) -> Callable[..., None]:
        @pytest.mark.parametrize("store", stores)
        @pytest.mark.parametrize("bug", [pytest.param(bug, id="wrong"), pytest.param(None, id="right", marks=long_run)])
        def run(harrow: Harrow, store: str, bug: str | None, tmp_path: Path) -> None:
            clock = tmp_path / "jump" if jumps else None
            queue = RetryQueue(harrow=harrow, store=store, bug=bug, clock=clock, **given)
            scenario(queue)
            queue.finish()
            if bug is None or os.environ.get("UNMASK") == "1":
                queue.verify(guarantee)
            else:
                queue.expect(finds, guarantee, says)

        run.__name__ = scenario.__name__
        return run

    return decorate


def place_while_the_scheduler_dies(queue: RetryQueue, *, before: str | None = None, after: str | None = None) -> None:
    """Place orders until the scheduler was killed before or after one of its own requests."""
    fault = kill_program("scheduler", before=before, after=after, client="retry-scheduler", seconds=0.1)
    with queue.harrow.chaos(fault) as chaos:
        queue.place_while(lambda: chaos.running, usual_order)


@long_run
@twins("lost_after_taking", finds="missing-output", says=LOST)
def test_what_was_taken_is_sent_although_the_scheduler_dies(queue: RetryQueue) -> None:
    place_while_the_scheduler_dies(queue, before="Produce")


@long_run
@twins(
    "sent_and_kept",
    finds="duplicate-output",
    says="orders-retry has the same retry again",
    guarantee="exactly-once",
    partitions=1,
)
def test_what_was_sent_is_not_sent_again_after_a_restart(queue: RetryQueue) -> None:
    queue.place(map(usual_order, range(30)))
    queue.finish()
    queue.scheduler.stop()
    queue.scheduler.start()
    queue.place([new_order(30, fails=1)])


@long_run
@twins("committed_before_stored", finds="missing-output", says=LOST)
def test_what_was_committed_is_in_the_store(queue: RetryQueue) -> None:
    place_while_the_scheduler_dies(queue, after="OffsetCommit")


@long_run
@twins("restored_in_part", finds="missing-output", says=LOST)
def test_a_scheduler_that_starts_finds_everything_that_waits(queue: RetryQueue) -> None:
    place_while_the_scheduler_dies(queue, before="Produce")


@long_run
@twins("dead_letter_without_reason", finds="dead-letter-without-reason", says="has no reason")
def test_a_dead_letter_says_why(queue: RetryQueue) -> None:
    queue.place(map(usual_order, range(30)))


@twins(
    "dead_letter_without_key",
    finds="dead-letter-without-reason",
    says="has the key null, and its input has customer",
    stores=(EMBEDDED,),
)
def test_a_dead_letter_has_the_key_of_its_input(queue: RetryQueue) -> None:
    queue.place(map(usual_order, range(30)))


@long_run
@twins(
    "attempts_in_memory",
    finds="too-many-attempts",
    says="are counted from the beginning again",
    guarantee="exactly-once",
)
def test_a_worker_that_starts_knows_how_many_attempts_were_made(queue: RetryQueue) -> None:
    queue.place([new_order(0), new_order(1, fails=ALWAYS)])
    for restart in range(1, ATTEMPTS):
        assert queue.reading.until(
            lambda wanted=restart: len(queue.reading.records[NAMES.delay]) >= wanted, quiet_s=60.0
        )
        queue.worker.stop()
        queue.worker.start()


@long_run
@twins("poison_pill", finds="missing-output", says="does not get past")
def test_an_order_that_always_fails_does_not_stop_the_others(queue: RetryQueue) -> None:
    queue.place([new_order(number, fails=ALWAYS if number == 5 else 0) for number in range(30)])


@long_run
@twins("clock_jumps", finds="attempt-before-due", says="attempts were made", backoff_ms=3_000, jumps=True)
def test_no_attempt_is_made_early_when_the_clock_jumps(queue: RetryQueue) -> None:
    queue.place([new_order(number, fails=number % 2, poison=number == 0) for number in range(20)])
    queue.harrow.await_records(NAMES.delay, 10)
    queue.harrow.await_caught_up(f"{NAMES.source}-scheduler", NAMES.delay)
    assert queue.clock is not None
    queue.clock.write_text(str(ONE_HOUR_S))


@long_run
@twins(
    "too_large",
    finds="missing-output",
    says="of orders-delay with MESSAGE_TOO_LARGE",
    input_bytes_most=SMALL_BYTES,
    delay_bytes_most=SMALL_BYTES,
)
def test_an_order_of_the_largest_size_is_not_lost_when_it_fails(queue: RetryQueue) -> None:
    small = [new_order(number, fails=number % 2) for number in range(10)]
    note = "x" * (SMALL_BYTES - 250)
    queue.place([*small, new_order(10, fails=1, note=note), new_order(11, note=note)])
