"""A failure of a simulated test gets smaller: faults, then records, partitions, brokers, within the runs allowed."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

import pytest
from harrow.cluster.errors import ConfigError
from harrow.faults import Schedule, ScheduledFault, kill, one, pause
from harrow.harness.plugin.shrinking_seeds import FAULTS_PART, SeedShrinker
from harrow.harness.plugin.simulation_server import FAILED, PASSED, SeedResult
from harrow.harness.run.sizes import RunSizes, smaller_in_words
from harrow.harness.search.pasted import pasted_seed

BLOCK = "harrow/0"
WINDOW_MS = 1_000
SIZES = {"brokers": 3, "partitions of orders": 6, "orders": 200}
Fails = Callable[[Schedule, Mapping[str, int]], bool]


def failing(*steps: ScheduledFault) -> SeedResult:
    return SeedResult(
        seed=7,
        outcome=FAILED,
        failure="missing, duplicate",
        schedules={BLOCK: json.loads(Schedule(steps=steps, cap=2).to_json())},
        sizes=dict(SIZES),
        least_sizes={"brokers": 1, "partitions of orders": 1, "orders": 5},
    )


def step(number: int, fault: Any = None, **fields: Any) -> ScheduledFault:
    plain = ScheduledFault(
        id=str(number), fault=fault or pause(one), nodes=(1,), duration_ms=40, fired_ms=900, details={}
    )
    return replace(plain, **fields)


class FakeTest:
    """A test that fails with `missing` where `fails` says so, and needs some sizes to pass without faults."""

    def __init__(self, fails: Fails, valid: Callable[[Mapping[str, int]], bool] = lambda _: True) -> None:
        self._fails = fails
        self._valid = valid
        self.runs: list[tuple[bool, dict[str, int]]] = []

    def __call__(
        self,
        seed: int,
        rows: Mapping[str, Any],
        sizes: Mapping[str, int],
        windows_ms: list[int],
        *,
        faultless: bool = False,
    ) -> SeedResult:
        self.runs.append((faultless, dict(sizes)))
        if faultless:
            assert not rows
            outcome = PASSED if self._valid(sizes) else FAILED
            return SeedResult(seed=seed, outcome=outcome, blocks_ms=[WINDOW_MS // 2])
        schedule = Schedule.from_json(json.dumps(rows[BLOCK]))
        failed = self._fails(schedule, {**SIZES, **sizes})
        resolved = [
            replace(step, nodes=(1,), fired_ms=step.fired_ms or step.at_ms, details={}) for step in schedule.steps
        ]
        return SeedResult(
            seed=seed,
            outcome=FAILED if failed else PASSED,
            failure="missing" if failed else "",
            schedules={BLOCK: json.loads(replace(schedule, steps=tuple(resolved)).to_json())},
            least_sizes={"brokers": 1, "partitions of orders": 1, "orders": 5},
        )


def always(schedule: Schedule, sizes: Mapping[str, int]) -> bool:
    del schedule, sizes
    return True


def shrunk(test: FakeTest, *steps: ScheduledFault, runs: int = 1_000) -> Any:
    return SeedShrinker(failing(*steps), test, [WINDOW_MS], runs).shrink()


def test_faults_and_then_sizes_get_smaller() -> None:
    test = FakeTest(
        lambda schedule, sizes: (
            any(step.id == "2" for step in schedule.steps)
            and sizes["orders"] >= 12
            and sizes["partitions of orders"] >= 1
        ),
        valid=lambda sizes: sizes.get("brokers", 3) >= 2,
    )
    smaller = shrunk(test, step(1), step(2, kill(one)), step(3))
    assert [str(step.fault) for step in smaller.schedule(BLOCK).steps] == ["pause(one)"]
    assert smaller.sizes == {"orders": 12, "partitions of orders": 1, "brokers": 2}
    assert smaller.summary().startswith(
        "3 faults shrunk to 1, 3 brokers → 2, 6 partitions of orders → 1, 200 orders → 12, in "
    )
    assert smaller.runs == len(test.runs)
    assert any(faultless and sizes.get("brokers") == 1 for faultless, sizes in test.runs), "one broker was tried"
    assert not any(not faultless and sizes.get("brokers") == 1 for faultless, sizes in test.runs), "and is not valid"


def test_a_size_is_never_below_its_least() -> None:
    assert shrunk(FakeTest(always), step(1)).sizes["orders"] == 5


def test_another_anomaly_is_another_failure() -> None:
    class Other(FakeTest):
        def __call__(self, *args: Any, **fields: Any) -> SeedResult:
            found = super().__call__(*args, **fields)
            return found if fields["faultless"] else replace(found, failure="lost-write", outcome=FAILED)

    smaller = shrunk(Other(always), step(1))
    assert not smaller.sizes and len(smaller.schedule(BLOCK).steps) == 1


@pytest.mark.parametrize("most", [0, 1, 10, 37])
def test_no_more_runs_than_allowed_and_the_faults_have_a_part_of_them(most: int) -> None:
    test = FakeTest(lambda schedule, sizes: len(schedule.steps) >= 2 and sizes["orders"] == 200)
    smaller = shrunk(test, *(step(number) for number in range(6)), runs=most)
    assert len(test.runs) == smaller.runs <= most
    assert len([sizes for _, sizes in test.runs if not sizes]) <= max(int(most * FAULTS_PART), 0)
    assert not smaller.complete


def test_sizes_are_what_the_test_says_unless_a_shrink_makes_them_smaller() -> None:
    sizes = RunSizes({"orders": 12, "brokers": 1, "partitions of bills": 9})
    assert (sizes.up_to(200, "orders", 1), sizes.up_to(30, "users", 1)) == (12, 30)
    assert sizes.up_to(200, "orders", 1) == 12
    assert (sizes.brokers(3), sizes.partitions("bills", 4)) == (1, 4)
    assert sizes.smaller == {"orders": 12, "brokers": 1}
    assert smaller_in_words(sizes.asked, sizes.used) == "200 orders → 12, 3 brokers → 1"


@pytest.mark.parametrize(
    ("most", "of", "least", "said"),
    [
        (3, "orders", 4, "expected a least number from 0 to 3"),
        (-1, "orders", 0, "expected a least number from 0 to -1"),
        (3, "brokers", 1, "expected what is counted"),
        (3, "", 1, "expected what is counted"),
        (9, "records", 1, "the test has up to 8 records already"),
    ],
)
def test_numbers_that_cannot_be_used(most: int, of: str, least: int, said: str) -> None:
    sizes = RunSizes()
    sizes.up_to(8, "records", 1)
    with pytest.raises(ConfigError, match=said):
        sizes.up_to(most, of, least)


def test_a_pasted_test_has_the_smaller_sizes() -> None:
    text = pasted_seed("it", 7, Schedule(steps=(step(1),)), "missing", {"orders": 12, "brokers": 2})
    assert "seed=7, seeds=1, brokers=2)" in text
    assert "services of your test, with 12 orders\n" in text
    compile(text, "pasted.py", "exec")
